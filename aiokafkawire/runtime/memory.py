"""Memory for large amounts of bytes."""

from __future__ import annotations

import mmap
import sys
from contextlib import suppress
from typing import Any

__all__ = ("LARGE_BYTES", "room_for")

LARGE_BYTES = 2 * 1024 * 1024
"""From so many on, memory is taken from the system: a huge page of its."""

_HUGE_PAGES: int | None = getattr(mmap, "MADV_HUGEPAGE", None)
_OPTIONS: dict[str, Any] = {}
if hasattr(mmap, "MAP_PRIVATE") and hasattr(mmap, "MAP_ANONYMOUS"):
    _OPTIONS["flags"] = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def room_for(size_bytes: int) -> bytearray | mmap.mmap:
    """As many bytes of 0.

    A `bytearray` is written over when it is made, while nothing else runs; large memory comes as
    it is, and takes none before it is written to. Who traces memory sees all of it.
    """
    if size_bytes < LARGE_BYTES or _traced():
        return bytearray(size_bytes)
    memory = mmap.mmap(-1, size_bytes, **_OPTIONS)
    if _HUGE_PAGES is not None:
        with suppress(OSError):  # a system that has none of them
            memory.madvise(_HUGE_PAGES)
    return memory


def _traced() -> bool:
    tracing = sys.modules.get("tracemalloc")
    return tracing is not None and bool(tracing.is_tracing())
