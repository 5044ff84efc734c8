"""Log of one partition in Kafka 0.7: bytes in segments; offsets are byte positions."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

from aiokafkawire.wire import kafka07

__all__ = ("Log", "OffsetOutOfRange")


class OffsetOutOfRange(Exception):
    """The log does not contain the offset."""


@dataclass(slots=True, eq=False)
class Kafka07LogSegment:
    """Segment of a log; readers see only flushed bytes. `written_ms` is the last write."""

    start: int
    written_ms: int
    data: bytearray = field(default_factory=bytearray)
    flushed: int = 0

    @property
    def end(self) -> int:
        return self.start + self.flushed


class Log:
    """Log of one partition. Beyond `retention_bytes`, the oldest segments are deleted.

    An append starts a new segment if the last one exceeds `segment_bytes`, so a message set is
    never split.
    """

    def __init__(self, segment_bytes: int, retention_bytes: int, now_ms: int) -> None:
        self._segment_bytes = segment_bytes
        self._retention_bytes = retention_bytes
        self._size = 0
        self._segments = [Kafka07LogSegment(0, now_ms)]

    @property
    def start(self) -> int:
        return self._segments[0].start

    @property
    def end(self) -> int:
        """End offset for readers."""
        return self._segments[-1].end

    def append(self, data: bytes, count: int, now_ms: int) -> None:
        """Append a set of `count` messages, including those in compressed sets.

        A set without messages is not flushed; readers see it after the next one with messages.
        """
        last = self._segments[-1]
        if len(last.data) > self._segment_bytes:
            last.flushed = len(last.data)
            last = Kafka07LogSegment(last.end, now_ms)
            self._segments.append(last)
        if data:
            last.data += data
            last.written_ms = now_ms
            self._size += len(data)
        if count:
            last.flushed = len(last.data)
        self._clean()

    def read(self, offset: int, max_size: int) -> bytes:
        """Return at most `max_size` bytes from `offset`, up to the end of its segment.

        Raises:
            OffsetOutOfRange: The log does not contain the offset.
        """
        if not self.start <= offset <= self.end:
            raise OffsetOutOfRange
        index = bisect.bisect_right(self._segments, offset, key=lambda each: each.start) - 1
        segment = self._segments[index]
        position = offset - segment.start
        return bytes(segment.data[position : min(position + max_size, segment.flushed)])

    def offsets(self, time: int, max_number: int, now_ms: int) -> tuple[int, ...]:
        """Return start offsets of segments that were last written before `time`, newest first.

        The end offset counts as written now. `LATEST` selects all, `EARLIEST` the first. At most
        `max_number` offsets are returned.
        """
        known = [(segment.start, segment.written_ms) for segment in self._segments]
        if self._segments[-1].flushed:
            known.append((self.end, now_ms))
        if time == kafka07.LATEST:
            count = len(known)
        elif time == kafka07.EARLIEST:
            count = 1
        else:
            newest_first = range(len(known), 0, -1)
            count = next((count for count in newest_first if known[count - 1][1] <= time), 0)
        wanted = [offset for offset, _ in known[:count]]
        return tuple(wanted[::-1][:max_number])

    def _clean(self) -> None:
        while len(self._segments) > 1 and self._size > self._retention_bytes:
            self._size -= len(self._segments.pop(0).data)
