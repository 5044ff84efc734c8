"""Fetched batches in the order of the log, decoded when their records are needed.

Neither this module nor `fetch_sender` uses positions: `FetchBuffer` adds the position, `Fetcher`
the fetch sessions.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NoReturn

from aiokafkawire.errors import KafkaError
from aiokafkawire.records import FetchedBatches, Records

__all__ = ("BatchQueue",)


@dataclass(slots=True)
class FetchedChunk:
    """The records of one fetch. `size_bytes` of them are not decoded yet."""

    batches: FetchedBatches | UnreadableBatches
    size_bytes: int


@dataclass(slots=True)
class UnreadableBatches:
    """Takes the place of fetched batches that cannot be read: `take` raises the error."""

    error: KafkaError

    def take(self, max_records: int, max_bytes: int) -> NoReturn:
        """Raise the error."""
        raise self.error.with_traceback(None)


_NO_CHUNKS: deque[FetchedChunk] = deque(maxlen=0)
"""Shared by all queues without chunks, because an empty deque takes 600 bytes."""


class BatchQueue:
    """Fetched batches of one partition that are not decoded yet.

    Attributes:
        size_bytes: Bytes fetched and not decoded yet.
        decoded_bytes: Bytes that the last `decode` has decoded.
        suspended_batches: Batches that the last `decode` could not finish: one must be decompressed
            in a worker thread, or the decoding budget was used up before a record was found.
    """

    __slots__ = ("_chunks", "decoded_bytes", "size_bytes", "suspended_batches")

    def __init__(self) -> None:
        self._chunks: deque[FetchedChunk] = _NO_CHUNKS
        self.size_bytes = 0
        self.decoded_bytes = 0
        self.suspended_batches: FetchedBatches | None = None

    def append(self, batches: FetchedBatches | UnreadableBatches, size_bytes: int) -> None:
        """Append the batches of one response."""
        if self._chunks is _NO_CHUNKS:
            self._chunks = deque()
        self._chunks.append(FetchedChunk(batches, size_bytes))
        self.size_bytes += size_bytes

    def end_with_error(self, error: KafkaError, size_bytes: int) -> None:
        """Raise `error` after the buffered records. `size_bytes` keeps the buffer full."""
        self.append(UnreadableBatches(error), size_bytes)

    def clear(self) -> None:
        """Discard all batches."""
        self._chunks = _NO_CHUNKS
        self.size_bytes = 0
        self.suspended_batches = None

    def decode(self, max_records: int, max_bytes: int) -> Records | None:
        """Return the next records of one chunk; None if there are none, or decoding is suspended.

        Args:
            max_records: The most records to return.
            max_bytes: No further batch is decoded after this many bytes.

        Raises:
            CorruptRecord: All records before the corrupt data were returned.
            KafkaError: The error passed to `end_with_error`.
        """
        self.decoded_bytes = 0
        self.suspended_batches = None
        while self._chunks:
            chunk = self._chunks[0]
            batches, before = chunk.batches, chunk.size_bytes
            records = batches.take(max_records, max_bytes - self.decoded_bytes)
            assert not isinstance(batches, UnreadableBatches)
            self.decoded_bytes += batches.decoded_bytes
            if batches.exhausted:
                self._chunks.popleft()
                self.size_bytes -= before
            else:
                chunk.size_bytes = min(before, batches.remaining_bytes)
                self.size_bytes -= before - chunk.size_bytes
            if len(records):
                return records
            self.skip(batches)
            if not batches.exhausted:
                self.suspended_batches = batches
                return None
        return None

    def skip(self, batches: FetchedBatches) -> None:
        """Note that batches have no records for the application: only control batches, or records
        of aborted transactions.
        """
