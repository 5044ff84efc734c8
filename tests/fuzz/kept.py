"""The corpus that is kept: of each target inputs that reach what golden vectors do not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path

__all__ = ("FOLDER", "keep", "kept")

FOLDER = Path(__file__).parent / "corpus"
"""One file a target, one input a line, in hexadecimal digits."""


MAX_POOLED_BYTES = 80 * 1_024
"""Of one target."""


def kept(name: str, folder: Path = FOLDER) -> Iterator[bytes]:
    """The inputs of one target."""
    path = folder / f"{name}.txt"
    if path.exists():
        yield from map(bytes.fromhex, path.read_text().split())


def keep(name: str, inputs: Iterable[bytes], folder: Path = FOLDER) -> None:
    """Keep these, the shortest first and not too many, instead of what is there."""
    lines = sorted({raw.hex() for raw in inputs if raw}, key=lambda line: (len(line), line))
    ends = accumulate(len(line) + 1 for line in lines)
    fitting = [line for line, end in zip(lines, ends, strict=True) if end <= MAX_POOLED_BYTES]
    (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in fitting))
