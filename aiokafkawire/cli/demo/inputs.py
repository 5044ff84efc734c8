"""Input of the demo: files, lines, words, and word counts computed without Kafka."""

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
    "count_without_kafka",
    "count_words",
    "default_files",
    "find_files",
    "lines",
)

MAX_LINE_BYTES = 256 * 1024
"""A longer line is sent and counted as several lines."""

NOT_SOURCE = frozenset({"site-packages", "dist-packages", "__pycache__"})

WORD = re.compile(rb"[0-9A-Za-z_\x80-\xff]+")
"""UTF-8 encodes letters of other alphabets in bytes from 0x80."""


def default_files() -> list[Path]:
    """Return all source files of the standard library."""
    root = Path(sysconfig.get_path("stdlib"))
    return [path for path in _walk(root) if path.suffix == ".py"]


def find_files(path: Path) -> list[Path]:
    """Return a file, or all files in a folder. Raises `CommandFailed` if there is no input."""
    files = _list_files(path)
    if next(lines(files), None) is None:
        raise CommandFailed(f"{path} is empty; give another INPUT")
    return files


def _list_files(path: Path) -> list[Path]:
    if path.is_dir():
        files = list(_walk(path))
        if not files:
            raise CommandFailed(f"{path} has no files; give another INPUT")
        return files
    if not path.exists():
        raise CommandFailed(f"{path} does not exist; give another INPUT")
    if not path.is_file():
        raise CommandFailed(
            f"{path} is neither a file nor a folder: the demo reads its input twice"
        )
    return [path]


def _walk(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - NOT_SOURCE)
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_file():
                yield path


def lines(files: Iterable[Path]) -> Iterator[bytes]:
    """Yield every line without its newline."""
    for path in files:
        with path.open("rb") as file:
            while line := file.readline(MAX_LINE_BYTES):
                yield line.removesuffix(b"\n")


def count_words(texts: Iterable[bytes]) -> Counter[bytes]:
    """Count each word; no word spans two texts."""
    return Counter(WORD.findall(b"\n".join(texts)))


@dataclass(slots=True)
class Truth:
    """Expected counts of the input, computed without Kafka."""

    lines: int = 0
    size_bytes: int = 0
    words: Counter[bytes] = field(default_factory=Counter)


def count_without_kafka(files: Iterable[Path]) -> Iterator[Truth]:
    """Read all files once; yield the same growing `Truth`, complete at the end.

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
