"""Requests of one connection that are read but not yet handled."""

from __future__ import annotations

from collections import deque

from aiokafkawire.runtime import AutoResetEvent

__all__ = ("MAX_QUEUED_BYTES", "MAX_QUEUED_REQUESTS", "RequestQueue")

MAX_QUEUED_REQUESTS = 32
MAX_QUEUED_BYTES = 2**20
"""Limits of requests read ahead while an earlier one is handled. Reading ahead detects that the
client closed the connection."""


class RequestQueue:
    """Queue of frames between the task that reads them and the task that handles them."""

    def __init__(self) -> None:
        self._frames: deque[memoryview] = deque()
        self._bytes = 0
        self._is_closed = False
        self._filled = AutoResetEvent()
        self._emptied = AutoResetEvent()

    async def put(self, frame: memoryview) -> None:
        """Append a frame, once the queue is below its limits."""
        while self._frames and (
            len(self._frames) >= MAX_QUEUED_REQUESTS or self._bytes >= MAX_QUEUED_BYTES
        ):
            await self._emptied.wait()
        self._frames.append(frame)
        self._bytes += len(frame)
        self._filled.set()

    async def get(self) -> memoryview | None:
        """Wait for the next frame; return None once the queue is closed and empty."""
        while not self._frames:
            if self._is_closed:
                return None
            await self._filled.wait()
        frame = self._frames.popleft()
        self._bytes -= len(frame)
        self._emptied.set()
        return frame

    def close(self) -> None:
        """End `get` after the frames that are in the queue."""
        self._is_closed = True
        self._filled.set()
