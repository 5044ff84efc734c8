"""Fetched data as a consumer sees it: positions, corruption, control batches, fragments."""

from __future__ import annotations

import pytest

from aiokafkawire.errors import CorruptRecord
from aiokafkawire.records import (
    Compression,
    DecodeOptions,
    FetchedBatches,
    IsolationLevel,
    control_batch,
    decode_fetch,
    iter_batches,
    legacy,
    partial_message_size,
)
from aiokafkawire.records.aborted_transactions import control_type

from .record_data import batch, patched, raw_batch, record, with_crc

READ_COMMITTED = DecodeOptions(isolation=IsolationLevel.READ_COMMITTED)


def marker(producer_id: int, offset: int, commit: bool) -> bytes:
    return control_batch(
        producer_id, 0, commit=commit, coordinator_epoch=1, timestamp_ms=5, base_offset=offset
    )


def transactional(offset: int, producer_id: int) -> bytes:
    return batch(
        base_offset=offset, producer_id=producer_id, producer_epoch=0, base_sequence=0,
        transactional=True,
    )  # fmt: skip


def test_records_below_the_offset_are_dropped() -> None:
    fetched = decode_fetch("t", 0, batch(base_offset=10) + batch(base_offset=14), 12)
    assert fetched.position == 12
    assert not fetched.exhausted
    assert fetched.take(3).offsets() == [12, 13, 14]
    assert fetched.position == 15
    assert fetched.take(99).offsets() == [15, 16, 17]
    assert fetched.position == 18
    assert fetched.take(99).offsets() == []
    assert fetched.exhausted


def test_batches_wholly_below_the_offset_never_move_it_back() -> None:
    damaged = bytearray(batch(base_offset=0))
    damaged[-1] ^= 1
    fetched = decode_fetch("t", 0, bytes(damaged) + batch(base_offset=10), 11)
    assert fetched.take(99).offsets() == [11, 12, 13]
    fetched = decode_fetch("t", 0, batch(base_offset=0), 11)
    assert fetched.take(99).next_offset == fetched.position == 11


def test_only_what_is_needed_is_decoded() -> None:
    lies = raw_batch(record(0, size=9), 1, base_offset=14)
    fetched = decode_fetch("t", 0, batch(base_offset=10) + lies, 10)
    assert fetched.take(4).offsets() == [10, 11, 12, 13]
    with pytest.raises(CorruptRecord):
        fetched.take(1)


def test_damage_comes_after_what_is_good_and_stays() -> None:
    damaged = bytearray(batch(base_offset=14))
    damaged[-1] ^= 1
    data = batch(base_offset=10) + bytes(damaged) + batch(base_offset=18)
    fetched = decode_fetch("orders", 7, data, 10)
    assert fetched.take(99).offsets() == [10, 11, 12, 13]
    for _ in range(2):
        with pytest.raises(CorruptRecord, match="checksum") as caught:
            fetched.take(99)
        error = caught.value
        assert (error.topic, error.partition, error.offset) == ("orders", 7, 14)
        assert fetched.position == 14
        assert not fetched.exhausted
    with pytest.raises(CorruptRecord):
        list(decode_fetch("orders", 7, data, 10))
    unchecked = decode_fetch("orders", 7, data, 10, DecodeOptions(check_crcs=False))
    assert unchecked.take(99).offsets() == list(range(10, 22))


def test_a_partial_last_batch_is_left() -> None:
    fetched = decode_fetch("t", 0, batch(base_offset=10) + batch(base_offset=14)[:-1], 10)
    assert fetched.take(99).next_offset == 14
    assert decode_fetch("t", 0, None, 10).take(1).next_offset == 10


def test_the_position_moves_over_gaps_and_empty_batches() -> None:
    gap = raw_batch(record(1) + record(3), 2, last_delta=9, base_offset=100)
    empty = raw_batch(b"", 0, last_delta=4, base_offset=110)
    fetched = decode_fetch("t", 0, gap + empty, 100)
    assert fetched.take(1).next_offset == 102
    assert fetched.take(1).next_offset == 110
    assert not fetched.take(1)
    assert fetched.position == 115
    all_at_once = decode_fetch("t", 0, gap + empty, 100).take(99)
    assert (all_at_once.offsets(), all_at_once.next_offset) == ([101, 103], 115)


def test_a_large_batch_comes_in_chunks_with_the_right_positions() -> None:
    rows = [(n, None, b"v", ()) for n in range(10_000)]
    fetched = decode_fetch("t", 0, batch(rows, compression=Compression.ZSTD), 4000)
    assert [(len(part), part.next_offset) for part in fetched] == [
        (96, 4096), (4096, 8192), (1808, 10_000),
    ]  # fmt: skip
    fetched = decode_fetch("t", 0, batch(rows), 4090)
    assert fetched.take(10).offsets() == list(range(4090, 4100))


def test_damage_late_in_a_batch_keeps_what_came_before_it() -> None:
    good = [record(n) for n in range(5000)]
    fetched = decode_fetch("t", 0, raw_batch(b"".join(good) + record(1), 5001), 0)
    assert len(fetched.take(9999)) == 4096
    with pytest.raises(CorruptRecord) as caught:
        fetched.take(1)
    assert caught.value.offset == 5100
    assert fetched.position == 4196


def test_aborted_transactions() -> None:
    data = (
        transactional(10, 1)
        + transactional(14, 2)
        + marker(1, 18, commit=False)
        + transactional(19, 1)
        + marker(1, 23, commit=True)
        + batch(base_offset=24)
        + marker(2, 28, commit=True)
    )
    expected = [*range(14, 18), *range(19, 23), *range(24, 28)]
    committed = decode_fetch("t", 0, data, 10, READ_COMMITTED, aborted=[(1, 10)])
    assert committed.take(99).offsets() == expected
    assert committed.position == 29
    everything = decode_fetch("t", 0, data, 10, aborted=[(1, 10)])
    assert everything.take(99).offsets() == [*range(10, 18), *range(19, 23), *range(24, 28)]
    assert everything.position == 29


def test_several_transactions_of_one_producer_end_each_by_its_marker() -> None:
    data = b"".join(
        transactional(base, 1) + marker(1, base + 4, commit=base in {20, 40})
        for base in (10, 20, 30, 40)
    )
    fetched = decode_fetch("t", 0, data, 10, READ_COMMITTED, aborted=[(1, 30), (1, 10)])
    assert fetched.take(99).offsets() == [*range(20, 24), *range(40, 44)]
    assert fetched.position == 45


def test_an_aborted_tail_is_passed_over_to_its_end() -> None:
    data = batch(base_offset=10) + transactional(14, 1) + marker(1, 18, commit=False)
    fetched = decode_fetch("t", 0, data, 10, READ_COMMITTED, aborted=[(1, 14)])
    assert fetched.take(4).next_offset == 14
    assert fetched.take(1).next_offset == 19
    begun_inside = decode_fetch("t", 0, data, 16, READ_COMMITTED, aborted=[(1, 14)])
    assert begun_inside.take(1).next_offset == 19
    only_the_marker = decode_fetch("t", 0, marker(1, 18, commit=False), 18, READ_COMMITTED)
    assert only_the_marker.take(1).next_offset == 19


def test_what_a_list_of_aborted_transactions_may_say() -> None:
    unordered = [(1, 19), (2, 14), (77, 3), (-1, 0), (1, -5), (2, 14), (1, 2**63 - 1), (-8, -8)]
    data = (
        batch(base_offset=6)
        + transactional(10, 1)
        + transactional(14, 2)
        + marker(1, 18, commit=False)
        + transactional(19, 1)
        + batch(base_offset=23, producer_id=2, producer_epoch=0, base_sequence=4)
    )
    # From a negative offset on: as if it had begun before what was fetched.
    fetched = decode_fetch("t", 0, data, 6, READ_COMMITTED, aborted=unordered)
    assert fetched.take(99).offsets() == [*range(6, 10), *range(23, 27)]
    without = [entry for entry in unordered if entry != (1, -5)]
    fetched = decode_fetch("t", 0, data, 6, READ_COMMITTED, aborted=without)
    assert fetched.take(99).offsets() == [*range(6, 14), *range(23, 27)]
    many = [(number, 2**40 - number) for number in range(100_000)]
    assert len(decode_fetch("t", 0, data, 6, READ_COMMITTED, aborted=many).take(99)) == 20


def test_only_the_first_record_of_a_control_batch_is_decoded() -> None:
    marked = control_batch(1, 0, commit=False, coordinator_epoch=1, timestamp_ms=5)
    (one,) = iter_batches(marked)
    key = one.columns().key(0)
    assert key is not None
    rows = [(0, key, None, ())] * 50_000
    data = batch(rows, compression=Compression.ZSTD, producer_id=1, control=True)
    (control,) = iter_batches(data)
    assert control_type(control) == 0
    assert control._columns is None
    fetched = decode_fetch("t", 0, data, 0, READ_COMMITTED, aborted=[(1, 0)])
    assert fetched.take(1).next_offset == 50_000


def test_a_control_batch_that_lies() -> None:
    data = patched(batch([(0, b"ab", None, ())], producer_id=1, control=True), 0, ">q", 5)
    with pytest.raises(CorruptRecord, match="no type"):
        decode_fetch("t", 0, data, 0, READ_COMMITTED, aborted=[(1, 0)]).take(1)
    assert decode_fetch("t", 0, data, 0).take(1).next_offset == 6


def test_a_control_batch_that_compaction_left_empty() -> None:
    empty = raw_batch(b"", 0, last_delta=0, base_offset=14, attributes=48)
    data = transactional(10, 1) + patched(empty, 43, ">q", 1) + transactional(15, 1)
    fetched = decode_fetch("t", 0, data, 10, READ_COMMITTED, aborted=[(1, 10)])
    assert fetched.take(99).next_offset == 19
    assert fetched.exhausted


@pytest.mark.parametrize("offsets", [[3, 2], [2, 2], [0, 9], [-1, 3]])
def test_offsets_in_a_wrapper_that_lie(offsets: list[int]) -> None:
    inner = b"".join(legacy.encode_message(0, offset, 0, None, b"") for offset in offsets)
    content = legacy.compress(Compression.GZIP, inner)
    data = legacy.encode_message(0, 3, 0, None, content, attributes=1)
    with pytest.raises(CorruptRecord, match="offset"):
        decode_fetch("t", 0, data, 0).take(9)


def test_the_limit_of_decompression_is_the_callers() -> None:
    for magic in (1, 2):
        data = batch([(0, None, bytes(5000), ())], compression=Compression.GZIP, magic=magic)
        fetched = decode_fetch("t", 0, data, 0, DecodeOptions(max_decompressed_bytes=4096))
        with pytest.raises(CorruptRecord, match="more than 4096 bytes"):
            fetched.take(1)
        fetched = decode_fetch("t", 0, data, 0, DecodeOptions(max_decompressed_bytes=8192))
        assert len(fetched.take(1)) == 1


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_the_size_of_a_message_that_was_cut_off(magic: int) -> None:
    data = batch([(0, None, b"x" * 500, ())], magic=magic)
    for cut in range(len(data)):
        expected = None if cut < 12 else len(data)
        assert partial_message_size(data[:cut]) == expected
    assert partial_message_size(data) is None
    assert partial_message_size(data + data[:20]) is None
    assert partial_message_size(None) is None


def old_messages(magic: int, offsets: list[int], attributes: int = 0) -> list[bytes]:
    return [
        legacy.encode_message(magic, offset, 7, b"k", b"%d" % offset, attributes=attributes)
        for offset in offsets
    ]


@pytest.mark.parametrize("magic", [0, 1])
def test_runs_of_old_messages(magic: int) -> None:
    wrapped = b"".join(old_messages(magic, [20, 22] if magic == 0 else [0, 2]))
    content = legacy.compress(Compression.GZIP, wrapped, magic=magic)
    data = b"".join(
        [
            *old_messages(magic, [3, 4, 9]),
            legacy.encode_message(magic, 22, 7, None, content, attributes=1),
            *old_messages(magic, [30]),
            *old_messages(magic, [31, 33], attributes=8),
            *old_messages(1, [40]),
            batch(base_offset=50),
            *old_messages(magic, [60]),
            old_messages(magic, [61])[0][:-1],
        ]
    )
    fetched = decode_fetch("t", 0, data, 4)
    expected = [4, 9, 20, 22, 30, 31, 33, 40, 50, 51, 52, 53, 60]
    assert fetched.take(2).next_offset == 10
    assert fetched.take(99).offsets() == expected[2:]
    assert (fetched.position, fetched.exhausted) == (61, True)
    types = [records[0].timestamp_type for records in decode_fetch("t", 0, data, 31)][:2]
    assert types == ([-1, 0] if magic == 0 else [1, 0])


@pytest.mark.parametrize("check_crcs", [True, False])
@pytest.mark.parametrize("fits", [True, False])
def test_damage_in_a_run_of_old_messages(check_crcs: bool, fits: bool) -> None:
    damaged = bytearray(old_messages(1, [12])[0])
    damaged[26:30] = (100).to_bytes(4)  # the key's length
    messages = [*old_messages(1, [10, 11]), bytes(damaged), *old_messages(1, [13])]
    if fits:
        messages[2] = with_crc(messages[2])
    fetched = decode_fetch("t", 0, b"".join(messages), 10, DecodeOptions(check_crcs=check_crcs))
    assert fetched.take(99).offsets() == [10, 11]
    with pytest.raises(CorruptRecord) as caught:
        fetched.take(99)
    assert (caught.value.topic, caught.value.offset, fetched.position) == ("t", 12, 12)


def test_old_messages_whose_offsets_do_not_rise_are_not_read_twice() -> None:
    data = b"".join(old_messages(1, [10, 11, 11, 10, 12]))
    assert decode_fetch("t", 0, data, 10).take(99).offsets() == [10, 11, 12]
    with pytest.raises(CorruptRecord):
        decode_fetch("t", 0, b"".join(old_messages(1, [-3, 4])), -5).take(1)


def test_long_runs_come_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legacy, "MAX_RUN_MESSAGES", 3)
    data = b"".join(old_messages(0, list(range(8))))
    assert [part.offsets() for part in decode_fetch("t", 0, data, 1)] == [[1, 2, 3], [4, 5, 6], [7]]


# --- how far a batch reaches ------------------------------------------------------------------


def test_a_batch_that_ends_before_it_begins_is_not_passed_over() -> None:
    fetched = decode_fetch("t", 0, reaching(-2) + batch(base_offset=18), 14, high_watermark=22)
    with pytest.raises(CorruptRecord, match="claims to end at 12") as caught:
        fetched.take(99)
    assert (caught.value.offset, caught.value.next_offset) == (14, 18)


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_batch_that_begins_before_the_first_offset_is_not_passed_over(magic: int) -> None:
    first = batch(base_offset=10) if magic == 2 else old_messages(magic, [10])[0]
    data = patched(first, 0, ">q", -3) + batch(base_offset=18)
    fetched = decode_fetch("t", 0, data, 14)
    with pytest.raises(CorruptRecord, match="offset -3") as caught:
        fetched.take(99)
    assert (caught.value.next_offset, fetched.position) == (18, 14)


def reaching(last_offset_delta: int) -> bytes:
    return patched(batch(base_offset=14), 23, ">i", last_offset_delta)


def test_a_batch_that_reaches_over_the_high_watermark_with_too_few_records_is_damage() -> None:
    data = batch(base_offset=10) + reaching(500)
    fetched = decode_fetch("orders", 7, data, 10, high_watermark=18)
    assert fetched.take(99).offsets() == [10, 11, 12, 13]
    with pytest.raises(CorruptRecord, match="claims to end at 514") as caught:
        fetched.take(1)
    assert (caught.value.offset, caught.value.next_offset) == (14, None)
    # Where the log ends is not known, or the batch was compacted.
    for end in (None, 515):
        assert decode_fetch("orders", 7, data, 10, high_watermark=end).take(99).next_offset == 515


def test_a_young_batch_may_lie_behind_the_high_watermark() -> None:
    fetched = decode_fetch("orders", 7, batch(base_offset=10), 10, high_watermark=11)
    assert fetched.take(99).next_offset == 14


@pytest.mark.parametrize(
    ("after", "next_offset"),
    [(b"", 18), (batch(base_offset=21), 21), (b"\xff" * 40, 18), (batch(base_offset=3), None)],
)
def test_damage_says_where_it_ends(after: bytes, next_offset: int | None) -> None:
    damaged = bytearray(batch(base_offset=14))
    damaged[-1] ^= 1
    fetched = decode_fetch("orders", 7, bytes(damaged) + after, 14)
    with pytest.raises(CorruptRecord) as caught:
        fetched.take(1)
    assert caught.value.next_offset == next_offset


def test_the_epoch_of_what_was_passed_is_known() -> None:
    def of_epoch(data: bytes, epoch: int) -> bytes:
        return data[:12] + epoch.to_bytes(4) + data[16:]

    data = of_epoch(batch(base_offset=10), 3) + of_epoch(marker(9, 14, commit=True), 5)
    fetched = decode_fetch("t", 0, data, 10)
    assert fetched.leader_epoch == -1
    records = fetched.take(2)
    assert (records.leader_epoch, fetched.leader_epoch) == (3, 3)
    records = fetched.take(99)
    assert (records.next_offset, records.leader_epoch) == (15, 5)
    assert records[:1].leader_epoch == 3
    assert records[1:].leader_epoch == 5


# --- what takes long --------------------------------------------------------------------------

LARGE = [(n, b"k", bytes((n,)) * 3_000, ()) for n in range(4)]


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
@pytest.mark.parametrize("magic", [1, 2])
def test_a_batch_that_is_large_when_it_is_decompressed_waits_to_be_unpacked(
    codec: Compression, magic: int
) -> None:
    if magic == 1 and codec is Compression.ZSTD:
        return
    large = batch(LARGE, base_offset=14, compression=codec, magic=magic)
    if magic == 1:
        large = patched(large, 0, ">q", 17)  # a wrapper bears its last offset
    assert len(large) < 4_000
    data = batch(base_offset=10) + large + batch(base_offset=18)
    fetched = decode_fetch("t", 0, data, 10, DecodeOptions(max_inline_bytes=4_000))
    assert fetched.take(99).offsets() == [10, 11, 12, 13]
    for _ in range(2):
        assert len(fetched.take(99)) == 0
    assert (fetched.exhausted, fetched.position) == (False, 14)
    assert fetched.offloaded is not None
    fetched.offloaded.decompress()
    assert fetched.take(5).offsets() == [14, 15, 16, 17, 18]
    fetched = decode_fetch("t", 0, data, 10, DecodeOptions(max_inline_bytes=15_000))
    assert fetched.take(99).next_offset == 22


def test_a_batch_that_is_large_as_it_is_waits_to_be_checked() -> None:
    data = bytearray(batch(LARGE, base_offset=14))
    for damage in (0, 1):
        data[-1] ^= damage
        fetched = decode_fetch("t", 0, bytes(data), 14, DecodeOptions(max_inline_bytes=4_000))
        assert len(fetched.take(99)) == 0
        assert fetched.offloaded is not None
        fetched.offloaded.decompress()
        if damage:
            with pytest.raises(CorruptRecord, match="checksum") as caught:
                fetched.take(99)
            assert (caught.value.topic, caught.value.offset, fetched.position) == ("t", 14, 14)
        else:
            assert fetched.take(99).next_offset == 18


def test_the_limit_of_decompression_holds_for_what_is_unpacked_elsewhere() -> None:
    data = batch(LARGE, compression=Compression.ZSTD)
    options = DecodeOptions(max_inline_bytes=1_000, max_decompressed_bytes=5_000)
    fetched = decode_fetch("t", 0, data, 0, options)
    assert len(fetched.take(99)) == 0
    assert fetched.offloaded is not None
    fetched.offloaded.decompress()
    with pytest.raises(CorruptRecord, match="more than 5000 bytes"):
        fetched.take(1)


def test_one_call_decodes_so_many_bytes_and_no_further_batch() -> None:
    data = b"".join(batch(LARGE, base_offset=offset) for offset in (0, 4, 8))
    fetched = decode_fetch("t", 0, data, 0)
    assert fetched.remaining_bytes == len(data)
    assert fetched.take(99, 15_000).offsets() == list(range(4))
    assert fetched.decoded_bytes >= 12_000
    assert fetched.remaining_bytes == len(data) * 2 // 3
    assert fetched.take(2, 15_000).offsets() == [4, 5]
    assert fetched.take(99, 1).offsets() == list(range(6, 12))
    assert len(fetched.take(99, 50_000)) == 0
    assert (fetched.remaining_bytes, fetched.exhausted) == (0, True)


def test_batches_without_records_to_see_take_their_time_too() -> None:
    data = b"".join(marker(1, offset, commit=True) for offset in range(100))
    fetched = decode_fetch("t", 0, data, 0)
    assert len(fetched.take(1, 100_000)) == 0
    assert 0 < fetched.position < 50
    assert not fetched.exhausted
    while not fetched.exhausted:
        fetched.take(1, 100_000)
    assert fetched.position == 100


@pytest.mark.parametrize(
    "data",
    [
        batch(base_offset=10),
        batch(base_offset=8),
        batch(base_offset=8, compression=Compression.LZ4),
        patched(batch(base_offset=10), 21, ">h", 8),
        transactional(10, 7),
        patched(batch(base_offset=10), 23, ">i", 9),
        patched(batch(base_offset=10), 57, ">i", 3),
        patched(batch(base_offset=10), 57, ">i", 5),
        patched(batch(base_offset=10), 23, ">i", 2),
        batch(base_offset=10)[:-1],
        batch(base_offset=10)[:-1] + b"?",
        raw_batch(b"", 0),
        marker(7, 10, commit=False),
    ],
)
@pytest.mark.parametrize("high_watermark", [None, 12, 100])
def test_the_short_way_for_common_batches_leads_where_the_long_one_does(
    data: bytes, high_watermark: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    data += batch(base_offset=30)
    seen_offsets = []
    for short in (True, False):
        if not short:
            monkeypatch.setattr(FetchedBatches, "_load_uncompressed_run", lambda *_: False)
        fetched = decode_fetch("t", 0, data, 9, READ_COMMITTED, high_watermark=high_watermark)
        seen: list[object] = []
        for size in (1, 2, 99, 99):
            try:
                records = fetched.take(size)
            except CorruptRecord as error:
                seen.append((str(error), error.offset, error.next_offset, fetched.position))
            else:
                place = records.next_offset, records.leader_epoch, fetched.remaining_bytes
                seen += [*records, place, fetched.position, fetched.exhausted]
        seen_offsets.append(seen)
    assert seen_offsets[0] == seen_offsets[1]
