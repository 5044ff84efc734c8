"""Allocation of large byte buffers."""

from __future__ import annotations

import mmap
import sys
from collections import deque
from contextlib import suppress
from typing import Any

__all__ = ("MAX_POOLED_BYTES", "MMAP_THRESHOLD_BYTES", "allocate", "allocate_reusable")

MMAP_THRESHOLD_BYTES = 2 * 1024 * 1024
"""Allocations of at least one huge page (2 MiB) use `mmap`."""

MIN_POOLED_BYTES = 256 * 1024
"""Smaller buffers are not pooled: Python's allocator reuses them itself."""

MAX_POOLED_BYTES = 16 * 1024 * 1024
"""Memory that the pool of `allocate_reusable` keeps. One buffer may take at most half of it."""

_SIZE_STEP_BYTES = 256 * 1024
"""Pooled buffers are rounded up to a multiple, so that a slightly larger request fits."""

_MAX_SIZE_FACTOR = 2
"""A pooled buffer is reused if it is at most this many times as large as requested."""

_pool: deque[bytearray | mmap.mmap] = deque()  # a buffer is removed while it is inspected

_HUGE_PAGES: int | None = getattr(mmap, "MADV_HUGEPAGE", None)
_OPTIONS: dict[str, Any] = {}
if sys.platform != "win32":
    _OPTIONS["flags"] = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def allocate(size_bytes: int) -> bytearray | mmap.mmap:
    """Return a zeroed buffer.

    Creating a large `bytearray` writes all of it, which blocks the event loop; mapped pages are
    committed when they are first written. `tracemalloc` does not see mapped memory, so nothing is
    mapped while it traces.
    """
    if size_bytes < MMAP_THRESHOLD_BYTES or _is_tracing_memory():
        return bytearray(size_bytes)
    memory = mmap.mmap(-1, size_bytes, **_OPTIONS)
    if sys.platform != "win32" and _HUGE_PAGES is not None:
        with suppress(OSError):  # the system has no huge pages
            memory.madvise(_HUGE_PAGES)
    return memory


def allocate_reusable(size_bytes: int) -> memoryview:
    """Return a buffer from the pool, or a new one that joins the pool.

    A pooled buffer is reused once no view of it is left, and still has its old contents: the caller
    must overwrite all of it. Page faults of new memory cost several times as much as filling it.
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
    with suppress(IndexError, RuntimeError):  # other threads trim the pool too
        while sum(map(len, _pool)) > MAX_POOLED_BYTES:
            _pool.popleft()
    return view


def _reuse(kept: deque[bytearray | mmap.mmap], size_bytes: int) -> memoryview | None:
    """Return a view of a pooled buffer without other references, or None."""
    for _ in range(len(kept)):
        try:
            # Hold the buffer in this list only, never in a local variable: whether loading a
            # variable counts as a reference depends on the interpreter and the code around it.
            piece = [kept.popleft()]
        except IndexError:  # other threads inspect the buffers too
            break
        is_free, view = _references(piece) == _FREE_REFERENCES, None
        if is_free and len(piece[0]) < size_bytes:
            continue  # drop it: frames grow, so it would stay too small
        if is_free and len(piece[0]) <= _MAX_SIZE_FACTOR * size_bytes:
            view = memoryview(piece[0])[:size_bytes]
        kept.append(piece.pop())
        if view is not None:
            return view
    return None


def _references(piece: list[bytearray | mmap.mmap]) -> int:
    """Return the references to the only item, counted the same way for every caller."""
    return sys.getrefcount(piece[0])


def _detects_references() -> bool:
    """Return True if `_reuse` detects buffers that are still referenced.

    A slice of a view references the whole buffer.
    """
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

_CAN_REUSE = _detects_references()
"""If False, every buffer is new: reusing a frame that is still read would corrupt records."""


def _is_tracing_memory() -> bool:
    tracing = sys.modules.get("tracemalloc")
    return tracing is not None and bool(tracing.is_tracing())
