"""Decoding of the acquired records in the batches of a ShareFetch response."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from aiokafkawire.errors import CorruptRecord
from aiokafkawire.records import Buffer, DecodeOptions, FetchedBatches, Records, decode_fetch
from aiokafkawire.runtime import Runtime, checkpoint

from .session_events import AcquiredOffsets

__all__ = ("DecodedRecords", "decode_acquired")

INLINE_BYTES = 256 * 1024
"""Largest batch that is decompressed on the event loop; larger ones go to a worker thread."""

RECORDS_PER_STEP = 4_000
BYTES_PER_STEP = 2 * 1024 * 1024
"""Records and bytes that are decoded before other tasks may run."""


@dataclass(slots=True)
class DecodedRecords:
    """The acquired records of one partition.

    Attributes:
        records: Records with the count of their deliveries, in ascending order of offsets.
        gaps: Acquired offsets without a record: control records, or compacted ones.
        missing: Acquired offsets behind the last complete batch of the response.
        unreadable: Acquired offsets in batches that cannot be read.
        error: The error of the first batch that cannot be read, or of `missing`.
    """

    records: list[tuple[Records, int]]
    gaps: list[int]
    missing: list[int] = field(default_factory=list)
    unreadable: list[AcquiredOffsets] = field(default_factory=list)
    error: CorruptRecord | None = None


async def decode_acquired(
    runtime: Runtime,
    topic: str,
    partition: int,
    data: Buffer | None,
    acquired: Sequence[AcquiredOffsets],
    *,
    check_crcs: bool,
    max_decompressed_bytes: int,
) -> DecodedRecords:
    """Decode the records in the acquired ranges.

    Batches are complete: they also hold records that other members have acquired, or that were
    acknowledged before. An offset of a batch that cannot be read is neither a record nor a gap: the
    application acknowledges it. Decoding goes on behind that batch, if its end can be found.
    Brokers acquire no offset behind the last complete batch.

    Args:
        runtime: Decompresses large batches.
        topic: Topic of the records.
        partition: Partition of the records.
        data: Batches of the response.
        acquired: Ranges in ascending order.
        check_crcs: Verify the checksum of each batch.
        max_decompressed_bytes: Maximum size of one batch.
    """
    decoded = DecodedRecords([], [])
    options = DecodeOptions(
        check_crcs, max_decompressed_bytes=max_decompressed_bytes, max_inline_bytes=INLINE_BYTES
    )
    if not acquired:
        return decoded
    begin: int | None = acquired[0].first
    while begin is not None:
        batches = decode_fetch(topic, partition, data, begin, options)
        parts, error = await _take_all(runtime, batches)
        wanted = [
            part._replace(first=max(part.first, begin)) for part in acquired if part.last >= begin
        ]
        _select(parts, wanted, batches.position, decoded)
        begin = None
        if error is not None:
            decoded.error = decoded.error or error
            begin = error.next_offset
            decoded.unreadable += _between(acquired, batches.position, begin)
    if decoded.error is None and acquired[-1].last >= batches.position:
        _add_missing(topic, partition, acquired, batches.position, decoded)
    return decoded


def _between(
    acquired: Sequence[AcquiredOffsets], first: int, end: int | None
) -> Iterator[AcquiredOffsets]:
    """Yield the acquired offsets from `first` on, before `end` unless it is None."""
    for each in acquired:
        last = each.last if end is None else min(each.last, end - 1)
        if max(each.first, first) <= last:
            yield AcquiredOffsets(max(each.first, first), last, each.delivery_count)


async def _take_all(
    runtime: Runtime, batches: FetchedBatches
) -> tuple[list[Records], CorruptRecord | None]:
    """Return the records before the first batch that cannot be read, and its error."""
    parts: list[Records] = []
    try:
        while not batches.exhausted:
            records = batches.take(RECORDS_PER_STEP, BYTES_PER_STEP)
            if len(records):
                parts.append(records)
            if batches.offloaded is not None and not batches.offloaded.done:
                await runtime.offload(batches.offloaded.decompress)
            elif not batches.exhausted:
                await checkpoint()
    except CorruptRecord as error:
        return parts, error
    return parts, None


def _add_missing(
    topic: str,
    partition: int,
    acquired: Sequence[AcquiredOffsets],
    end: int,
    decoded: DecodedRecords,
) -> None:
    """Add the acquired offsets from `end` on, for which the response has no data."""
    for wanted in acquired:
        decoded.missing += range(max(wanted.first, end), wanted.last + 1)
    decoded.error = CorruptRecord(
        f"the response has no data for the acquired offsets {decoded.missing[0]} to"
        f" {decoded.missing[-1]}, which are released",
        topic=topic,
        partition=partition,
        offset=decoded.missing[0],
    )


def _select(
    parts: Sequence[Records], acquired: Sequence[AcquiredOffsets], end: int, decoded: DecodedRecords
) -> None:
    """Add the records of the acquired ranges, and the offsets before `end` without a record."""
    first_part = 0
    for wanted in acquired:
        missing = wanted.first  # the next offset for which no record was found
        for number in range(first_part, len(parts)):
            part = parts[number]
            assert part.first_offset is not None
            assert part.last_offset is not None
            if part.last_offset < wanted.first:
                first_part = number + 1
                continue
            if part.first_offset > wanted.last:
                break
            # mutation: records-outside-acquired-ranges-delivered
            records = part.between(wanted.first, wanted.last)
            last = records.last_offset
            if last is None:
                continue
            decoded.records.append((records, wanted.delivery_count))
            if last - missing + 1 != len(records):
                present = set(records.offsets())
                decoded.gaps += [offset for offset in range(missing, last) if offset not in present]
            missing = last + 1
        decoded.gaps += range(missing, min(wanted.last + 1, end))
