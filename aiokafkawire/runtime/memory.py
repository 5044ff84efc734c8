"""Memory for large amounts of bytes."""

from __future__ import annotations

import mmap
import sys
from collections import deque
from contextlib import suppress
from typing import Any

__all__ = ("MAX_POOLED_BYTES", "MMAP_THRESHOLD_BYTES", "allocate", "allocate_reusable")

MMAP_THRESHOLD_BYTES = 2 * 1024 * 1024
"""From so many on, memory is taken from the system: a huge page of its."""

MIN_POOLED_BYTES = 256 * 1024
"""Less than this is not worth it: Python's own allocator gives small memory out again."""

MAX_POOLED_BYTES = 16 * 1024 * 1024
"""Memory that the pool of `allocate_reusable` keeps. One buffer may take at most half of it."""

_SIZE_STEP_BYTES = 256 * 1024
"""What is kept has a size that is a multiple of it: who comes next may need a little more."""

_MAX_SIZE_FACTOR = 2
"""So many times the size that is asked for a piece may have."""

_pool: deque[bytearray | mmap.mmap] = deque()  # a piece is out of it while it is looked at

_HUGE_PAGES: int | None = getattr(mmap, "MADV_HUGEPAGE", None)
_OPTIONS: dict[str, Any] = {}
if sys.platform != "win32":
    _OPTIONS["flags"] = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def allocate(size_bytes: int) -> bytearray | mmap.mmap:
    """As many bytes of 0.

    A `bytearray` is written over when it is made, while nothing else runs; large memory comes as
    it is, and takes none before it is written to. Who traces memory sees all of it.
    """
    if size_bytes < MMAP_THRESHOLD_BYTES or _is_tracing_memory():
        return bytearray(size_bytes)
    memory = mmap.mmap(-1, size_bytes, **_OPTIONS)
    if sys.platform != "win32" and _HUGE_PAGES is not None:
        with suppress(OSError):  # a system that has none of them
            memory.madvise(_HUGE_PAGES)
    return memory


def allocate_reusable(size_bytes: int) -> memoryview:
    """Room to be filled from end to end, in memory that was given out before, if there is some of
    which nobody holds a view any more: whatever was in it may still be there.

    To get new memory from the system, page by page, takes several times what it takes to fill it.
    """
    if (
        not MIN_POOLED_BYTES <= size_bytes <= MAX_POOLED_BYTES // 2
        or not _CAN_REUSE
        or _is_tracing_memory()
    ):
        return memoryview(allocate(size_bytes))
    reused = _reuse(_pool, size_bytes)
    if reused is not None:
        return reused
    memory = allocate(-(-size_bytes // _SIZE_STEP_BYTES) * _SIZE_STEP_BYTES)
    view = memoryview(memory)[:size_bytes]
    _pool.append(memory)
    with suppress(IndexError, RuntimeError):  # other threads do the same
        while sum(map(len, _pool)) > MAX_POOLED_BYTES:
            _pool.popleft()
    return view


def _reuse(kept: deque[bytearray | mmap.mmap], size_bytes: int) -> memoryview | None:
    """Return a view of a kept piece that nothing else refers to, or None."""
    for _ in range(len(kept)):
        try:
            # A piece is held by this list alone, never by a local variable: whether loading a
            # variable counts as a reference depends on the interpreter and the code around it.
            piece = [kept.popleft()]
        except IndexError:  # other threads look at them
            break
        is_free, view = _references(piece) == _FREE_REFERENCES, None
        if is_free and len(piece[0]) < size_bytes:
            continue  # frames grow: it would only lie there
        if is_free and len(piece[0]) <= _MAX_SIZE_FACTOR * size_bytes:
            view = memoryview(piece[0])[:size_bytes]
        kept.append(piece.pop())
        if view is not None:
            return view
    return None


def _references(piece: list[bytearray | mmap.mmap]) -> int:
    """Return the references to the only item, counted the same way for every caller."""
    return sys.getrefcount(piece[0])


def _can_reuse() -> bool:
    """Return whether `_reuse` tells free memory from memory that is still read."""
    if not hasattr(sys, "getrefcount") or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return False
    kept: deque[bytearray | mmap.mmap] = deque([bytearray(2)])
    view = _reuse(kept, 2)
    if view is None or _reuse(kept, 2) is not None:
        return False
    view = view[1:].toreadonly()
    if _reuse(kept, 2) is not None:
        return False
    del view
    return _reuse(kept, 2) is not None


_FREE_REFERENCES = _references([bytearray()]) if hasattr(sys, "getrefcount") else 0

_CAN_REUSE = _can_reuse()
"""Without it all memory is new: overwriting a frame that is still read would corrupt records."""


def _is_tracing_memory() -> bool:
    tracing = sys.modules.get("tracemalloc")
    return tracing is not None and bool(tracing.is_tracing())
