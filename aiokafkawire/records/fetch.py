"""What a consumer sees of the bytes that a fetch response has for one partition."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from enum import IntEnum
from struct import Struct

from aiokafkawire.errors import CorruptRecords

from .batch import BatchView, iter_batches
from .compression import DEFAULT_MAX_DECOMPRESSED_BYTES
from .kernel import Buffer
from .legacy import HEAD_BYTES
from .sequence import Records, Segment

__all__ = ("FetchedBatches", "IsolationLevel", "decode_fetch", "partial_message_size")

_OFFSET_AND_SIZE = Struct(">qi")

ABORT_MARKER = 0
"""The type of an abort marker, in the second half of a control record's key."""


class IsolationLevel(IntEnum):
    """Which records a fetch returns, under the numbers of the protocol."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class FetchedBatches:
    """The batches of one partition, decoded one at a time as records are taken from them.

    Control batches, records below the fetch offset and, when only committed records are read,
    those of aborted transactions are left out; a last batch that is cut off is ignored.
    `position` is the offset to fetch next after all that was taken: it also moves over what was
    left out. `CorruptRecords` comes after all records before the damage were taken, and again at
    each further call: the position stays before it.
    """

    __slots__ = (
        "_aborted",
        "_aborted_producers",
        "_batches",
        "_check_crcs",
        "_committed_only",
        "_failure",
        "_max_decompressed_bytes",
        "_partition",
        "_rest",
        "_rest_next_offset",
        "_topic",
        "exhausted",
        "position",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        data: Buffer,
        fetch_offset: int,
        *,
        check_crcs: bool = True,
        isolation: int = IsolationLevel.READ_UNCOMMITTED,
        aborted: Iterable[tuple[int, int]] = (),
        max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    ) -> None:
        """`aborted` holds (producer id, first offset) of each aborted transaction."""
        self._topic = topic
        self._partition = partition
        self._batches = iter_batches(data)
        self._check_crcs = check_crcs
        self._committed_only = isolation == IsolationLevel.READ_COMMITTED
        self._aborted = sorted(aborted, key=lambda entry: entry[1], reverse=True)
        self._aborted_producers: set[int] = set()
        self._max_decompressed_bytes = max_decompressed_bytes
        self._failure: CorruptRecords | None = None
        self._rest: Segment | None = None
        self._rest_next_offset = fetch_offset
        self.position = fetch_offset
        self.exhausted = False

    def take(self, max_records: int) -> Records:
        """At most `max_records` records, fewer only at the end; empty when `exhausted`."""
        segments: list[Segment] = []
        missing = max_records
        while missing > 0:
            if self._rest is None and not self._load(raise_failure=not segments):
                break
            segment = self._take_from_rest(missing)
            segments.append(segment)
            missing -= segment.stop - segment.start
        return Records(self._topic, self._partition, segments, self.position)

    def __iter__(self) -> Iterator[Records]:
        """One `Records` a batch, empty ones left out."""
        while self._rest is not None or self._load(raise_failure=True):
            rest = self._take_from_rest(None)
            yield Records(self._topic, self._partition, (rest,), self.position)

    def _take_from_rest(self, limit: int | None) -> Segment:
        rest = self._rest
        assert rest is not None
        size = rest.stop - rest.start
        if limit is None or limit >= size:
            self._rest = None
            self.position = self._rest_next_offset
            return rest
        cut = rest.start + limit
        self._rest = rest._replace(start=cut)
        self.position = rest.columns.offsets[cut - 1] + 1
        return rest._replace(stop=cut)

    def _load(self, raise_failure: bool) -> bool:
        """Find the next batch with records to give; False at the end, or before a failure."""
        try:
            while self._failure is None:
                batch = next(self._batches, None)
                if batch is None:
                    self.exhausted = True
                    return False
                self._rest = self._visible(batch)
                next_offset = max(batch.next_offset, self.position)
                if self._rest is not None:
                    self._rest_next_offset = next_offset
                    return True
                self.position = next_offset
        except CorruptRecords as error:
            error.topic = self._topic
            error.partition = self._partition
            self._failure = error
        if raise_failure and self._failure is not None:
            raise self._failure
        return False

    def _visible(self, batch: BatchView) -> Segment | None:
        """The part of a batch that the application may see, None if there is none."""
        if batch.last_offset < self.position and not batch.is_control:
            return None
        if self._check_crcs:
            batch.check_crc()
        if self._committed_only and self._is_aborted(batch):
            return None
        if batch.is_control:
            return None
        columns = batch.columns(self._max_decompressed_bytes)
        count = len(columns)
        if count and not self._in_order(batch, columns.offsets):
            raise CorruptRecords("offsets of a message set do not rise", offset=batch.last_offset)
        start = bisect_left(columns.offsets, self.position)
        if start == count:
            return None
        return Segment(columns, start, count, batch.timestamp_type, batch.partition_leader_epoch)

    @staticmethod
    def _in_order(batch: BatchView, offsets: Iterable[int]) -> bool:
        if batch.producer_id >= 0 or batch.magic > 1:
            return True  # the decoder has seen to it
        previous = -1
        for offset in offsets:
            if offset <= previous:
                return False
            previous = offset
        return previous <= batch.last_offset

    def _is_aborted(self, batch: BatchView) -> bool:
        """Follow the aborted transactions up to this batch, and say whether it is of one."""
        if batch.producer_id < 0:
            return False
        while self._aborted and self._aborted[-1][1] <= batch.last_offset:
            self._aborted_producers.add(self._aborted.pop()[0])
        if batch.producer_id not in self._aborted_producers:
            return False
        if batch.is_control:
            if control_type(batch, self._max_decompressed_bytes) == ABORT_MARKER:
                self._aborted_producers.discard(batch.producer_id)
            return False
        return batch.is_transactional


def control_type(
    batch: BatchView, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
) -> int | None:
    """The type of a control batch: 0 abort, 1 commit …; None if compaction left it empty."""
    columns = batch.columns(max_decompressed_bytes)
    if not len(columns):
        return None
    key = columns.key(0)
    if key is None or len(key) < 4:
        raise CorruptRecords("a control record has no type", offset=batch.base_offset)
    return int.from_bytes(key[2:4], signed=True)


def decode_fetch(
    topic: str,
    partition: int,
    data: Buffer | None,
    fetch_offset: int,
    *,
    check_crcs: bool = True,
    isolation: int = IsolationLevel.READ_UNCOMMITTED,
    aborted: Iterable[tuple[int, int]] | None = (),
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> FetchedBatches:
    """What a fetch response has for one partition; null records and null `aborted` are none."""
    return FetchedBatches(
        topic,
        partition,
        b"" if data is None else data,
        fetch_offset,
        check_crcs=check_crcs,
        isolation=isolation,
        aborted=aborted or (),
        max_decompressed_bytes=max_decompressed_bytes,
    )


def partial_message_size(buffer: Buffer | None) -> int | None:
    """The whole size in bytes of a first message that does not fit into its response.

    Fetch before version 3 gives its beginning and no error. None if the first message is whole, or
    if too little came to tell.
    """
    if buffer is None or len(buffer) < HEAD_BYTES:
        return None
    _, size = _OFFSET_AND_SIZE.unpack_from(buffer)
    whole = HEAD_BYTES + int(size)
    return whole if whole > len(buffer) else None
