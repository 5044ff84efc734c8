"""Memory for large amounts of bytes."""

from __future__ import annotations

import mmap
import sys
from collections import deque
from contextlib import suppress
from typing import Any

__all__ = ("LARGE_BYTES", "MAX_KEPT_BYTES", "room_again", "room_for")

LARGE_BYTES = 2 * 1024 * 1024
"""From so many on, memory is taken from the system: a huge page of its."""

KEPT_FROM_BYTES = 256 * 1024
"""Less than this is not worth it: Python's own allocator gives small memory out again."""

MAX_KEPT_BYTES = 16 * 1024 * 1024
"""What a process keeps of the memory that `room_again` gives out, each piece at most half of it."""

_STEP_BYTES = 256 * 1024
"""What is kept has a size that is a multiple of it: who comes next may need a little more."""

_WASTE = 2
"""So many times the size that is asked for a piece may have."""

_kept: deque[bytearray | mmap.mmap] = deque()  # a piece is out of it while it is looked at

_HUGE_PAGES: int | None = getattr(mmap, "MADV_HUGEPAGE", None)
_OPTIONS: dict[str, Any] = {}
if sys.platform != "win32":
    _OPTIONS["flags"] = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def room_for(size_bytes: int) -> bytearray | mmap.mmap:
    """As many bytes of 0.

    A `bytearray` is written over when it is made, while nothing else runs; large memory comes as
    it is, and takes none before it is written to. Who traces memory sees all of it.
    """
    if size_bytes < LARGE_BYTES or _traced():
        return bytearray(size_bytes)
    memory = mmap.mmap(-1, size_bytes, **_OPTIONS)
    if sys.platform != "win32" and _HUGE_PAGES is not None:
        with suppress(OSError):  # a system that has none of them
            memory.madvise(_HUGE_PAGES)
    return memory


def room_again(size_bytes: int) -> memoryview:
    """Room to be filled from end to end, in memory that was given out before, if there is some of
    which nobody holds a view any more: whatever was in it may still be there.

    To get new memory from the system, page by page, takes several times what it takes to fill it.
    """
    if not KEPT_FROM_BYTES <= size_bytes <= MAX_KEPT_BYTES // 2 or not _COUNTED or _traced():
        return memoryview(room_for(size_bytes))
    for _ in range(len(_kept)):
        try:
            memory = _kept.popleft()
        except IndexError:  # other threads look at them
            break
        alone, view = sys.getrefcount(memory) == _ALONE, None
        if alone and len(memory) < size_bytes:
            continue  # frames grow: it would only lie there
        if alone and len(memory) <= _WASTE * size_bytes:
            view = memoryview(memory)[:size_bytes]
        _kept.append(memory)
        if view is not None:
            return view
    memory = room_for(-(-size_bytes // _STEP_BYTES) * _STEP_BYTES)
    view = memoryview(memory)[:size_bytes]
    _kept.append(memory)
    with suppress(IndexError, RuntimeError):  # other threads do the same
        while sum(map(len, _kept)) > MAX_KEPT_BYTES:
            _kept.popleft()
    return view


def _references_of_one() -> int:
    """How many references a piece has that was just taken from those that are kept."""
    memory = deque((bytearray(),)).popleft()
    return sys.getrefcount(memory) if _COUNTED else 0


_COUNTED = hasattr(sys, "getrefcount") and getattr(sys, "_is_gil_enabled", lambda: True)()
"""Whether all references to an object are known at once."""

_ALONE = _references_of_one()


def _traced() -> bool:
    tracing = sys.modules.get("tracemalloc")
    return tracing is not None and bool(tracing.is_tracing())
