"""A directory for a run, removed at its end; leftovers of a killed run are removed by the next
one."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "aiokafkawire-run-"


@contextmanager
def folder(within: Path | None = None) -> Iterator[Path]:
    """The process that works in it holds a lock, which the system frees when the process ends."""
    parent = within or Path(tempfile.gettempdir())
    for leftover in leftovers(parent):
        shutil.rmtree(leftover)
    while True:
        made = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        if (read_contents := _lock(made)) is not None:
            break
        # Another run took it for a leftover before it was locked.
    try:
        yield made
    finally:
        shutil.rmtree(made)
        os.close(read_contents)


def leftovers(parent: Path) -> list[Path]:
    """Return directories of ended runs."""
    found = []
    for each in sorted(parent.glob(f"{PREFIX}*")):
        if (read_contents := _lock(each)) is not None:
            os.close(read_contents)
            found.append(each)
    return found


def _lock(made: Path) -> int | None:
    """Return a descriptor that holds the directory's lock; None if it is locked or gone."""
    try:
        descriptor = os.open(made, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    if not made.exists():
        os.close(descriptor)
        return None
    return descriptor
