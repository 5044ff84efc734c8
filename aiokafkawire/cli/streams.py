"""stdin and stdout beside an event loop: each has a thread of its own that may be abandoned.

Descriptors are used directly: a thread that hangs in Python's buffered streams would hold their
locks when the interpreter ends.
"""

from __future__ import annotations

import os
import queue
import threading
from collections import deque
from functools import partial

from aiokafkawire.cli.problems import Failure
from aiokafkawire.runtime import Promise, Signal
from aiokafkawire.runtime.host import thread_notifier

__all__ = ("CHUNK_BYTES", "MAX_CHUNKS", "Input", "Output", "Splitter")

CHUNK_BYTES = 64 * 1024
MAX_CHUNKS = 8
"""Chunks read ahead; the reader waits until one of them is taken."""

MAX_RECORD_BYTES = 16 * 2**20
"""An input without its delimiter is not collected beyond this."""


class Input:
    """Reads a descriptor in chunks, as they come. Must be made inside a running event loop."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._notify = thread_notifier()
        self._room = threading.Semaphore(MAX_CHUNKS)
        self._arrived = Signal()
        self._chunks: deque[bytes] = deque()
        self._started = False
        self._ended = False
        self._error: OSError | None = None

    async def read(self) -> bytes:
        """The next chunk, of no bytes at the end; raises `OSError` if it cannot be read."""
        if not self._started:
            self._started = True
            threading.Thread(target=self._work, name="stdin", daemon=True).start()
        while not self._chunks and not self._ended:
            await self._arrived.wait()
        if self._chunks:
            self._room.release()
            return self._chunks.popleft()
        if self._error is not None:
            raise self._error
        return b""

    def _work(self) -> None:
        try:
            while True:
                self._room.acquire()
                try:
                    chunk = os.read(self._descriptor, CHUNK_BYTES)
                except OSError as error:
                    self._notify(partial(self._end, error))
                    return
                if not chunk:
                    self._notify(partial(self._end, None))
                    return
                self._notify(partial(self._arrive, chunk))
        except RuntimeError:
            # The event loop has gone, and nobody reads any more.
            return

    def _arrive(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._arrived.set()

    def _end(self, error: OSError | None) -> None:
        self._error = error
        self._ended = True
        self._arrived.set()


class Output:
    """Writes to a descriptor. Must be made inside a running event loop."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._notify = thread_notifier()
        self._jobs: queue.SimpleQueue[tuple[bytes, Promise[None]]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def write(self, data: bytes) -> None:
        """Return when all is written; raises `BrokenPipeError` if nobody reads any more."""
        if not data:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="stdout", daemon=True)
            self._thread.start()
        done: Promise[None] = Promise()
        self._jobs.put((data, done))
        await done.wait()

    def _work(self) -> None:
        try:
            while True:
                data, done = self._jobs.get()
                try:
                    view = memoryview(data)
                    while view:
                        view = view[os.write(self._descriptor, view) :]
                except OSError as error:
                    self._notify(partial(done.fail, error))
                else:
                    self._notify(partial(done.resolve, None))
        except RuntimeError:
            # The event loop has gone; what waited for this has gone with it.
            return


class Splitter:
    """Cuts a byte stream into pieces at a delimiter. The last piece needs none after it."""

    def __init__(self, delimiter: bytes) -> None:
        self._delimiter = delimiter
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The pieces that this chunk completes; raises `Failure` if one grows too large."""
        *pieces, self._rest = (self._rest + chunk).split(self._delimiter)
        if len(self._rest) > MAX_RECORD_BYTES:
            raise Failure(
                f"no delimiter {self._delimiter!r} within {MAX_RECORD_BYTES} bytes of input;"
                " choose it with -D"
            )
        return pieces

    def finish(self) -> list[bytes]:
        """What stands after the last delimiter, if anything."""
        rest, self._rest = self._rest, b""
        return [rest] if rest else []
