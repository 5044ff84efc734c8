"""Runs of uncompressed batches: their ends, and equal results with and without them."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aiokafkawire.errors import CorruptRecord
from aiokafkawire.records import (
    Compression,
    DecodeOptions,
    FetchedBatches,
    IsolationLevel,
    control_batch,
    decode_fetch,
    uncompressed_runs,
)
from aiokafkawire.records.batch import MAX_OFFSET
from aiokafkawire.records.columns import Columns
from aiokafkawire.records.kernel import encode_varint
from aiokafkawire.records.uncompressed_runs import (
    BATCH_COST_BYTES,
    UncompressedBatch,
    batch_at_index,
    decode_uncompressed_run,
    find_uncompressed_run,
)

from .record_data import ROWS, Row, batch, patched, raw_batch, record, with_crc

ALL = 1 << 40


def found(data: bytes, **changed: Any) -> list[UncompressedBatch]:
    """The batches of the run at the beginning of these bytes."""
    options = {
        "start": 0,
        "limit": len(data),
        "position": 0,
        "budget_bytes": ALL,
        "high_watermark": None,
        "check_crcs": True,
        **changed,
    }
    return find_uncompressed_run(memoryview(data), **options)


def run(data: bytes, **changed: Any) -> tuple[list[UncompressedBatch], Columns | None]:
    batches = found(data, **changed)
    columns = decode_uncompressed_run(memoryview(data), batches) if batches else None
    return batches, columns


def of_epoch(data: bytes, epoch: int) -> bytes:
    """The batch with this leader epoch, which its checksum does not cover."""
    return data[:12] + struct.pack(">i", epoch) + data[16:]


def rows(count: int) -> list[Row]:
    return [(n, b"k", b"v%d" % n, ()) for n in range(count)]


def log(*counts: int, start: int = 0) -> bytes:
    parts = []
    for count in counts:
        parts.append(batch(rows(count), start))
        start += count
    return b"".join(parts)


# --- what is a run ----------------------------------------------------------------------------


def test_batches_that_follow_each_other_share_their_columns() -> None:
    data = b"\xff" * 5 + batch(ROWS, 10) + batch(rows(2), 20) + batch(ROWS, 22)
    batches = found(data, start=5, position=10)
    assert [(each.base_offset, each.last_offset, each.stop) for each in batches] == [
        (10, 13, 4), (20, 21, 6), (22, 25, 10),
    ]  # fmt: skip
    assert (batches[0].start, batches[-1].end) == (5, len(data))
    assert [each.end for each in batches[:-1]] == [each.start for each in batches[1:]]
    columns = decode_uncompressed_run(memoryview(data), batches)
    assert list(columns.offsets) == [*range(10, 14), 20, 21, *range(22, 26)]
    for first, made in ((0, ROWS), (4, rows(2)), (6, ROWS)):
        for n, (timestamp, key, value, headers) in enumerate(made, first):
            assert (columns.timestamps[n], columns.key(n)) == (timestamp, key)
            assert (columns.value(n), columns.headers(n)) == (value, tuple(headers))
    assert [batch_at_index(batches, n).base_offset for n in (0, 3, 4, 5, 6, 9)] == [
        10, 10, 20, 20, 22, 22,
    ]  # fmt: skip


def test_a_run_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    data = log(3, 3, 3, 3)
    size = len(data) // 4

    def count(**changed: int) -> int:
        return len(found(data, **changed))

    assert count() == 4
    assert [count(limit=n * size + more) for n in range(4) for more in (0, -1)] == [
        0, 0, 1, 0, 2, 1, 3, 2,
    ]  # fmt: skip
    cost = BATCH_COST_BYTES + size
    assert [count(budget_bytes=room) for room in (1, cost, cost + 1, 2 * cost + 1)] == [1, 1, 2, 3]
    with monkeypatch.context() as patch:
        patch.setattr(uncompressed_runs, "CHUNK_RECORDS", 8)
        assert count() == 2
        patch.setattr(uncompressed_runs, "CHUNK_RECORDS", 9)
        assert count() == 3
        patch.setattr(uncompressed_runs, "CHUNK_RECORDS", 2)
        assert count() == 0
    for bound, expected in ((0, 1), (1, 1), (2 * size - 1, 1), (2 * size, 2), (3 * size + 1, 3)):
        monkeypatch.setattr(uncompressed_runs, "MAX_RUN_BYTES", bound)
        assert count() == expected


def test_the_bounds_as_they_are() -> None:
    data = b"".join(batch([(0, None, bytes(60_000), ())], n) for n in range(9))
    assert len(found(data)) == 4
    assert found(data)[-1].end <= uncompressed_runs.MAX_RUN_BYTES
    many = log(*[1_000] * 6)
    assert found(many)[-1].stop == 4_000
    large = batch([(0, None, bytes(2 * uncompressed_runs.MAX_RUN_BYTES), ())]) + log(1, start=1)
    assert len(found(large)) == 1
    fetched = decode_fetch("t", 0, data, 0)
    assert fetched.take(1).segments[0].columns is fetched.take(1).segments[0].columns


def test_the_first_batch_has_to_reach_to_the_position() -> None:
    data = log(3, 3, 3)
    assert [len(found(data, position=at)) for at in (0, 1, 2, 3, 8, 9)] == [3, 3, 3, 0, 0, 0]
    assert len(found(data, start=len(log(3)), position=4)) == 2


COUNT_AT, DELTA_AT, ATTRIBUTES_AT, MAGIC_AT, SIZE_AT = 57, 23, 21, 16, 8


def damaged(data: bytes) -> bytes:
    return data[:-1] + bytes((data[-1] ^ 1,))


def reaching_over(base_offset: int, over: int) -> bytes:
    """A batch of two records whose last one extends `over` bytes past the batch's end."""
    whole = record(1, value=encode_varint(over) + bytes(over))
    return raw_batch(record(0) + whole[:-over], 2, base_offset=base_offset)


PLAIN = batch(ROWS, 20)
NOT_PLAIN = {
    "compressed": batch(ROWS, 20, Compression.LZ4),
    "transactional": batch(
        ROWS, 20, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True
    ),
    "control": control_batch(
        1, 0, commit=True, coordinator_epoch=1, timestamp_ms=5, base_offset=20
    ),
    "append time": patched(PLAIN, ATTRIBUTES_AT, ">h", 8),
    "unknown attribute": patched(PLAIN, ATTRIBUTES_AT, ">h", -(1 << 15)),
    "old format": patched(batch([(5, b"k", b"v", ())], magic=1), 0, ">q", 20),
    "unknown format": PLAIN[:MAGIC_AT] + b"\3" + PLAIN[MAGIC_AT + 1 :],
    "other epoch": of_epoch(PLAIN, 7),
    "no records": raw_batch(b"", 0, base_offset=20, last_delta=3),
    "negative count": patched(PLAIN, COUNT_AT, ">i", -1),
    "far too many": patched(PLAIN, COUNT_AT, ">i", 4_096),
    "too many for their bytes": raw_batch(record(0) + record(1), 10, base_offset=20),
    "checksum": damaged(PLAIN),
    "size of nothing": PLAIN[:SIZE_AT] + struct.pack(">i", 0) + PLAIN[12:],
    "size below a header": PLAIN[:SIZE_AT] + struct.pack(">i", 48) + PLAIN[12:],
    "negative size": PLAIN[:SIZE_AT] + struct.pack(">i", -12) + PLAIN[12:],
    "size less by one": PLAIN[:SIZE_AT] + struct.pack(">i", len(PLAIN) - 13) + PLAIN[12:],
    "size past the end": PLAIN[:SIZE_AT] + struct.pack(">i", 1 << 30) + PLAIN[12:],
    "offsets go back": batch(ROWS, 10),
    "offsets overlap": batch(ROWS, 13),
    "before the first offset": batch(ROWS, -2),
    "ends before it begins": patched(PLAIN, DELTA_AT, ">i", -1),
    "ends after the last offset": patched(PLAIN, 0, ">q", MAX_OFFSET - 3),
    "reaches too far": patched(PLAIN, DELTA_AT, ">i", 500),
    "cut off": PLAIN[:-1],
    "cut off in its header": PLAIN[:60],
}
BADLY_DECODED = {
    "a count less": patched(PLAIN, COUNT_AT, ">i", len(ROWS) - 1),
    "a count more": patched(PLAIN, COUNT_AT, ">i", len(ROWS) + 1),
    "last offset before a record's": patched(PLAIN, DELTA_AT, ">i", 1),
    "record too long": raw_batch(record(0) + record(1, size=90), 2, base_offset=20),
    "record too short": raw_batch(record(0) + record(1, size=3), 2, base_offset=20),
    "record offsets go back": raw_batch(record(1) + record(0), 2, base_offset=20),
    "bytes after the records": raw_batch(record(0) + bytes(9), 1, base_offset=20),
    "no end of a varint": raw_batch(b"\xff" * 40, 1, base_offset=20),
    "a record of the next batch": reaching_over(20, 7),
    "time of more than 64 bits": raw_batch(
        record(0, timestamp_delta=encode_varint(5)), 1, base_offset=20, base_timestamp=MAX_OFFSET
    ),
}


@pytest.mark.parametrize("what", NOT_PLAIN)
def test_what_is_not_plain_ends_a_run(what: str) -> None:
    before = batch(ROWS, 10) + batch(rows(2), 14)
    data = before + NOT_PLAIN[what] + batch(ROWS, 530)
    if what.startswith("cut off"):
        data = before + NOT_PLAIN[what]
    batches, columns = run(data, high_watermark=500)
    assert columns is not None
    assert list(columns.offsets) == list(range(10, 16))
    assert batches[-1].end == len(before)
    if what not in {"other epoch", "offsets go back", "offsets overlap"}:
        assert not found(data[len(before) :], high_watermark=500)


@pytest.mark.parametrize("what", BADLY_DECODED)
def test_what_cannot_be_decoded_is_cut_off_from_a_run(what: str) -> None:
    before = batch(ROWS, 10) + batch(rows(2), 14)
    for after in (b"", batch(ROWS, 30)):
        data = before + BADLY_DECODED[what] + after
        assert len(found(data)) == (4 if after else 3)
        batches, columns = run(data)
        assert columns is not None
        assert batches[-1].end == len(before)
        assert list(columns.offsets) == list(range(10, 16))
        for column in (columns.timestamps, columns.key_start, columns.key_length):
            assert len(column) == 6
        for column in (columns.value_start, columns.value_length):
            assert len(column) == 6
        batches, columns = run(data[len(before) :])
        assert columns is not None
        assert (batches, len(columns)) == ([], 0)


def test_a_high_watermark_below_young_batches_does_not_end_a_run() -> None:
    assert len(found(log(3, 3, 3), high_watermark=2)) == 3
    assert len(found(log(3, 3) + patched(log(3, start=6), DELTA_AT, ">i", 5))) == 3


def test_checksums_are_looked_at_only_if_they_are_asked_for() -> None:
    data = log(3) + damaged(log(3, start=3)) + log(3, start=6)
    assert len(found(data)) == 1
    assert len(found(data, check_crcs=False)) == 3


def test_a_record_cannot_reach_through_the_header_between_two_batches() -> None:
    following = raw_batch(record(0), 1, base_offset=30)
    over = len(following) - 1  # so that the byte after it, a count of headers, is the last one
    data = reaching_over(20, over) + following
    for check_crcs in (True, False):
        fetched = decode_fetch(
            "t", 0, log(3, start=10) + data, 10, DecodeOptions(check_crcs=check_crcs)
        )
        assert fetched.take(9).offsets() == [10, 11, 12]
        with pytest.raises(CorruptRecord, match="past the end") as caught:
            fetched.take(9)
        assert (caught.value.offset, caught.value.next_offset) == (20, 30)


# --- reading them -----------------------------------------------------------------------------


def gapped(base_offset: int, *deltas: int, last: int) -> bytes:
    """A batch that compaction left these records of."""
    payload = b"".join(record(delta) for delta in deltas)
    return raw_batch(payload, len(deltas), last_delta=last, base_offset=base_offset)


def test_after_the_last_record_of_a_batch_the_position_is_beyond_the_batch() -> None:
    data = gapped(100, 1, 3, last=9) + gapped(110, 0, 5, last=5) + gapped(120, 2, last=4)
    fetched = decode_fetch("t", 0, data, 100)
    taken = [(fetched.take(1).offsets(), fetched.position) for _ in range(6)]
    assert taken == [
        ([101], 102),
        ([103], 110),
        ([110], 111),
        ([115], 116),
        ([122], 125),
        ([], 125),
    ]
    assert decode_fetch("t", 0, data, 100).take(4).next_offset == 116


@pytest.mark.parametrize("position", [100, 103, 104, 109, 110, 113, 120, 122, 123, 124])
def test_a_position_inside(position: int) -> None:
    data = gapped(100, 1, 3, last=9) + gapped(110, 0, 5, last=5) + gapped(120, 2, last=4)
    expected = [offset for offset in (101, 103, 110, 115, 122) if offset >= position]
    fetched = decode_fetch("t", 0, data, position)
    assert fetched.position == position
    records = fetched.take(9)
    assert (records.offsets(), records.next_offset, fetched.exhausted) == (expected, 125, True)


def test_the_remaining_count_is_by_batches() -> None:
    data = log(2, 3, 1)
    one, two = len(log(2)), len(log(2, 3))
    fetched = decode_fetch("t", 0, data, 0)
    left = []
    for _ in range(6):
        fetched.take(1)
        left.append(len(data) - fetched.remaining_bytes)
    assert left == [0, one, one, one, two, len(data)]


def test_going_through_them_gives_one_batch_at_a_time() -> None:
    data = log(2, 3) + batch(rows(2), 5, Compression.LZ4) + log(1, 2, start=7)
    whole = [part.offsets() for part in decode_fetch("t", 0, data, 0)]
    assert whole == [[0, 1], [2, 3, 4], [5, 6], [7], [8, 9]]
    fetched = decode_fetch("t", 0, data, 0)
    assert fetched.take(3).offsets() == [0, 1, 2]
    parts = list(fetched)
    assert [part.offsets() for part in parts] == [[3, 4], [5, 6], [7], [8, 9]]
    assert [part.next_offset for part in parts] == [5, 7, 8, 10]


def test_each_record_has_the_epoch_of_its_batch() -> None:
    epochs = [3, 3, 4, 4, 2]
    data = b"".join(of_epoch(log(2, start=2 * n), epoch) for n, epoch in enumerate(epochs))
    fetched = decode_fetch("t", 0, data, 0)
    assert fetched.take(3).leader_epoch == 3
    assert fetched.take(2).leader_epoch == fetched.leader_epoch == 4
    rest = fetched.take(9)
    assert [each.leader_epoch for each in rest] == [4, 4, 4, 2, 2]
    records = decode_fetch("t", 0, data, 0).take(99)
    assert [each.leader_epoch for each in records] == [3, 3, 3, 3, 4, 4, 4, 4, 2, 2]
    assert [segment.stop for segment in records.segments] == [4, 4, 2]


def test_one_call_keeps_within_its_limit() -> None:
    data = log(*[1] * 10)
    cost = BATCH_COST_BYTES + len(log(1))
    fetched = decode_fetch("t", 0, data, 0)
    assert len(fetched.take(99, 3 * cost - 10)) == 3
    assert fetched.decoded_bytes == 3 * cost
    assert len(fetched.take(1, 4 * cost - 10)) == 1
    assert fetched.decoded_bytes == 4 * cost
    assert len(fetched.take(99, 1)) == 4  # three that were decoded, and one more
    assert fetched.decoded_bytes == cost


def test_large_batches_are_not_decoded_at_once() -> None:
    data = log(3, 3, 3)
    size = len(data) // 3
    for max_inline_bytes, expected in ((size, [3, 3, 3]), (2 * size, [6, 3]), (3 * size, [9])):
        for limit in (
            DecodeOptions(max_inline_bytes=max_inline_bytes),
            DecodeOptions(max_decompressed_bytes=max_inline_bytes),
        ):
            records = decode_fetch("t", 0, data, 0, limit).take(99)
            assert [segment.stop for segment in records.segments] == expected
    for max_inline_bytes in (size - 1, 0):
        fetched = decode_fetch("t", 0, data, 0, DecodeOptions(max_inline_bytes=max_inline_bytes))
        assert not fetched.take(99)
        assert fetched.offloaded is not None


# --- as if they were read one by one ----------------------------------------------------------


@contextmanager
def read_as(way: str, max_records: int, max_bytes: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uncompressed_runs, "CHUNK_RECORDS", max_records)
        patch.setattr(uncompressed_runs, "MAX_RUN_BYTES", 0 if way == "one by one" else max_bytes)
        if way == "none is plain":
            patch.setattr(FetchedBatches, "_load_uncompressed_run", lambda *_: False)
        yield


def take_all(
    data: bytes, sizes: Sequence[int], max_bytes: int | None, offset: int, **response: Any
) -> tuple[list[object], list[object]]:
    """Return the results of each call of `take`, and the final state."""
    fetched = decode_fetch("t", 3, data, offset, **response)
    seen: list[object] = []
    records: list[object] = []
    failure: object = None
    for size in (*sizes, *[50] * 40):
        try:
            part = fetched.take(size, max_bytes)
        except CorruptRecord as error:
            failure = str(error), error.topic, error.partition, error.offset, error.next_offset
            seen.append(failure)
        else:
            place = part.next_offset, part.leader_epoch, len(part)
            records += part
            seen.append([*part, place])
        if fetched.offloaded is not None:
            fetched.offloaded.decompress()
        seen.append(
            (fetched.position, fetched.leader_epoch, fetched.remaining_bytes, fetched.exhausted)
        )
        if fetched.exhausted or (failure is not None and len(seen) > len(sizes)):
            break
    assert fetched.exhausted or failure is not None
    return seen, [*records, seen[-1], failure]


BROKEN = [
    "checksum",
    "count",
    "last offset",
    "size",
    "record",
    "over",
    "back",
]
KINDS = ["plain", "gap", "lz4", "control", "transaction", "empty", "append time", "old", *BROKEN]


def made(kind: str, start: int, count: int, number: int) -> bytes:
    """A batch of this kind from the offset `start` on, which is `number` in one way or another."""
    data = batch([ROWS[(number + n) % 4] for n in range(count)], start)
    match kind:
        case "gap":
            data = gapped(start, *range(number % 3, 2 * count + 2, 2), last=2 * count + 4)
        case "lz4":
            data = batch(ROWS[:count], start, Compression.LZ4)
        case "control":
            data = control_batch(
                number, 0, commit=number > 1, coordinator_epoch=1, timestamp_ms=5, base_offset=start
            )
        case "transaction":
            data = batch(
                ROWS[:count], start, producer_id=number, producer_epoch=0, base_sequence=0,
                transactional=True,
            )  # fmt: skip
        case "empty":
            data = raw_batch(b"", 0, last_delta=number, base_offset=start)
        case "append time":
            data = patched(data, ATTRIBUTES_AT, ">h", 8)
        case "old":
            data = patched(batch([(5, b"k", b"v", ())], magic=number % 2), 0, ">q", start)
        case "checksum":
            data = damaged(data)
        case "count":
            data = patched(data, COUNT_AT, ">i", count + number - 2)
        case "last offset":
            data = patched(data, DELTA_AT, ">i", count + number - 3)
        case "size":
            data = with_crc(data[:SIZE_AT] + struct.pack(">i", len(data) - 14 + number) + data[12:])
        case "record":
            data = raw_batch(record(0) + record(1, size=5 + number), 2, base_offset=start)
        case "over":
            data = reaching_over(start, 1 + 20 * number)
        case "back":
            data = patched(data, 0, ">q", start - number)
    return data


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, int]:
    """Batches that follow each other, some of them broken, and the offset where they end."""
    data, start, epoch = b"", draw(st.integers(0, 5)), 0
    kinds = st.one_of(st.just("plain"), st.sampled_from(["gap", "back"]), st.sampled_from(KINDS))
    for _ in range(draw(st.integers(1, 12))):
        kind, count, number = draw(kinds), draw(st.integers(1, 4)), draw(st.integers(0, 3))
        one = made(kind, start, count, number)
        epoch += draw(st.sampled_from([0, 0, 0, 1]))
        data += one if kind == "old" else of_epoch(one, epoch)
        start += (2 * count + 5 if kind == "gap" else count) + draw(st.sampled_from([0, 0, 3]))
    return data[: len(data) - draw(st.sampled_from([0, 0, 0, 1, 30]))], start


@settings(max_examples=300, deadline=None)
@given(
    logs(),
    st.lists(st.integers(1, 9), max_size=12),
    st.integers(0, 20),
    st.tuples(
        st.sampled_from([7, 20, 4_096]),
        st.sampled_from(
            [150, 600, uncompressed_runs.MAX_RUN_BYTES, uncompressed_runs.MAX_RUN_BYTES]
        ),
    ),
    st.fixed_dictionaries(
        {
            "options": st.builds(
                DecodeOptions,
                check_crcs=st.booleans(),
                isolation=st.sampled_from(IsolationLevel),
                max_inline_bytes=st.sampled_from([None, None, 300, 4_000]),
            ),
            "aborted": st.sampled_from([(), ((1, 3),), ((0, 9), (2, 2))]),
            "high_watermark": st.sampled_from([None, 0, 12, 100]),
        }
    ),
)
@example(
    (log(2, 3) + damaged(log(2, start=5)), 7), [1, 3], 0, (4_096, 400), {"options": DecodeOptions()}
)
def test_reading_gives_equal_results_with_and_without_runs(
    log: tuple[bytes, int],
    sizes: list[int],
    offset: int,
    bounds: tuple[int, int],
    response: dict[str, Any],
) -> None:
    data, end = log
    offset = min(offset, end)
    for room in (None, 3 * BATCH_COST_BYTES):
        results = []
        for way in ("runs", "one by one", "none is plain"):
            with read_as(way, *bounds):
                results.append(take_all(data, sizes, room, offset, **response))
        runs, *others = results
        for other in others:
            if room is None:
                assert runs == other
            else:
                assert runs[1] == other[1]
