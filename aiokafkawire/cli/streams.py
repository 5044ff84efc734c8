"""Async stdin and stdout, each served by a daemon thread.

The threads use descriptors directly: a thread that blocks in Python's buffered streams would hold
their locks when the interpreter exits.
"""

from __future__ import annotations

import os
import queue
import select
import threading
from collections import deque
from functools import partial

from aiokafkawire.cli.error_text import CommandFailed
from aiokafkawire.runtime import AutoResetEvent, Future
from aiokafkawire.runtime.supervisor import get_call_soon_threadsafe

__all__ = ("CHUNK_BYTES", "MAX_CHUNKS", "InputStream", "OutputStream", "RecordSplitter")

CHUNK_BYTES = 64 * 1024
MAX_CHUNKS = 8
"""Limit of chunks read ahead."""

MAX_RECORD_BYTES = 16 * 2**20
"""Limit of a record, for input without a delimiter."""


class InputStream:
    """Reads chunks from a descriptor. Create it inside a running event loop."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._notify = get_call_soon_threadsafe()
        self._free_chunks = threading.Semaphore(MAX_CHUNKS)
        self._input_changed = AutoResetEvent()
        self._chunks: deque[bytes] = deque()
        self._started = False
        self._ended = False
        self._error: OSError | None = None

    async def read(self) -> bytes:
        """Return the next chunk, empty at the end. Raises `OSError`."""
        if not self._started:
            self._started = True
            threading.Thread(target=self._run_thread, name="stdin", daemon=True).start()
        while not self._chunks and not self._ended:
            await self._input_changed.wait()
        if self._chunks:
            self._free_chunks.release()
            return self._chunks.popleft()
        if self._error is not None:
            raise self._error
        return b""

    def _run_thread(self) -> None:
        try:
            while True:
                self._free_chunks.acquire()
                try:
                    chunk = os.read(self._descriptor, CHUNK_BYTES)
                except OSError as error:
                    self._notify(partial(self._finish, error))
                    return
                if not chunk:
                    self._notify(partial(self._finish, None))
                    return
                self._notify(partial(self._add_chunk, chunk))
        except RuntimeError:
            # `_notify` failed because the event loop has ended: no task reads.
            return

    def _add_chunk(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._input_changed.set()

    def _finish(self, error: OSError | None) -> None:
        self._error = error
        self._ended = True
        self._input_changed.set()


class OutputStream:
    """Writes to a descriptor. Create it inside a running event loop."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._notify = get_call_soon_threadsafe()
        self._writes: queue.SimpleQueue[tuple[bytes, Future[None]]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def write(self, data: bytes) -> None:
        """Write all bytes. Raises `BrokenPipeError` if the reader has exited."""
        if not data:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run_thread, name="stdout", daemon=True)
            self._thread.start()
        written: Future[None] = Future()
        self._writes.put((data, written))
        await written.wait()

    def _run_thread(self) -> None:
        try:
            while True:
                data, written = self._writes.get()
                try:
                    view = memoryview(data)
                    while view:
                        view = view[self._write_some(view) :]
                except OSError as error:
                    self._notify(partial(written.set_exception, error))
                else:
                    self._notify(partial(written.set_result, None))
        except RuntimeError:
            # `_notify` failed because the event loop has ended: no task waits for the write.
            return

    def _write_some(self, data: memoryview) -> int:
        """Write some bytes; another process may have made a shared terminal non-blocking."""
        while True:
            try:
                return os.write(self._descriptor, data)
            except BlockingIOError:
                select.select([], [self._descriptor], [])


class RecordSplitter:
    """Splits a byte stream at a delimiter. The last record needs no delimiter."""

    def __init__(self, delimiter: bytes) -> None:
        self._delimiter = delimiter
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the records that a chunk completes. Raises `CommandFailed` if too large."""
        *pieces, self._rest = (self._rest + chunk).split(self._delimiter)
        if len(self._rest) > MAX_RECORD_BYTES:
            raise CommandFailed(
                f"no delimiter {self._delimiter!r} within {MAX_RECORD_BYTES} bytes of input;"
                " set it with -D"
            )
        return pieces

    def finish(self) -> list[bytes]:
        """Return the bytes after the last delimiter as a record, if any."""
        rest, self._rest = self._rest, b""
        return [rest] if rest else []
