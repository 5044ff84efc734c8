"""The input: which files, which lines, which words, and how often each, counted straight."""

from __future__ import annotations

import os
import re
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from aiokafkawire.cli.error_text import CommandFailed

__all__ = (
    "MAX_LINE_BYTES",
    "Truth",
    "count_straight",
    "count_words",
    "default_files",
    "files_at",
    "lines",
)

MAX_LINE_BYTES = 256 * 1024
"""A longer line is sent, and counted, as several."""

NOT_SOURCE = frozenset({"site-packages", "dist-packages", "__pycache__"})

WORD = re.compile(rb"[0-9A-Za-z_\x80-\xff]+")
"""Letters of other alphabets are bytes from 0x80 on in UTF-8."""


def default_files() -> list[Path]:
    """All source files of the running Python's standard library."""
    root = Path(sysconfig.get_path("stdlib"))
    return [path for path in _walk(root) if path.suffix == ".py"]


def files_at(path: Path) -> list[Path]:
    """A file, or all files in a folder; raises `CommandFailed` when there is nothing to read."""
    files = _files_at(path)
    if next(lines(files), None) is None:
        raise CommandFailed(f"{path} is empty; give another INPUT")
    return files


def _files_at(path: Path) -> list[Path]:
    if path.is_dir():
        files = list(_walk(path))
        if not files:
            raise CommandFailed(f"{path} has no files; give another INPUT")
        return files
    if not path.exists():
        raise CommandFailed(f"{path} does not exist; give another INPUT")
    if not path.is_file():
        raise CommandFailed(f"{path} is neither a file nor a folder: it could not be read twice")
    return [path]


def _walk(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - NOT_SOURCE)
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_file():
                yield path


def lines(files: Iterable[Path]) -> Iterator[bytes]:
    """Every line, without its newline."""
    for path in files:
        with path.open("rb") as file:
            while line := file.readline(MAX_LINE_BYTES):
                yield line.removesuffix(b"\n")


def count_words(texts: Iterable[bytes]) -> Counter[bytes]:
    """How often each word occurs; no word goes over the end of a text."""
    return Counter(WORD.findall(b"\n".join(texts)))


@dataclass(slots=True)
class Truth:
    """What the input holds, counted without Kafka."""

    lines: int = 0
    size_bytes: int = 0
    words: Counter[bytes] = field(default_factory=Counter)


def count_straight(files: Iterable[Path]) -> Iterator[Truth]:
    """Read all files once; yields one and the same `Truth` as it grows, complete at the end.

    Raises `OSError` for a file that cannot be read.
    """
    truth = Truth()
    chunk: list[bytes] = []
    chunk_bytes = 0
    for line in lines(files):
        chunk.append(line)
        chunk_bytes += len(line)
        if chunk_bytes >= MAX_LINE_BYTES:
            _add(truth, chunk, chunk_bytes)
            chunk, chunk_bytes = [], 0
            yield truth
    _add(truth, chunk, chunk_bytes)
    yield truth


def _add(truth: Truth, chunk: list[bytes], chunk_bytes: int) -> None:
    truth.lines += len(chunk)
    truth.size_bytes += chunk_bytes
    truth.words.update(count_words(chunk))
