"""Records: a lazy sequence over several batches."""

from __future__ import annotations

import copy
import pickle

import pytest

from aiokafkawire.records import Record, Records, decode_fetch
from aiokafkawire.types import TimestampType, TopicPartition

from .record_data import ROWS, batch

DATA = batch(base_offset=10, leader_epoch=3) + batch(base_offset=20, leader_epoch=4)
OFFSETS = [10, 11, 12, 13, 20, 21, 22, 23]


def records(fetch_offset: int = 10) -> Records:
    return decode_fetch("orders", 2, DATA, fetch_offset).take(100)


def test_a_sequence_of_records() -> None:
    found = records()
    assert len(found) == 8
    assert [record.offset for record in found] == found.offsets() == OFFSETS
    assert found[0] == Record(
        "orders", 2, 10, timestamp_ms=1_000, key=b"k0", value=b"v0", leader_epoch=3
    )
    assert found[-1].headers == (("é", b""),)
    assert found[-1].leader_epoch == found.leader_epoch == 4
    assert found[5].headers == (("trace", b"abc"), ("none", None))
    assert found[6].value is None
    assert found[6].key == b""
    assert found[7].timestamp_type is TimestampType.CREATE_TIME
    assert list(reversed(found)) == list(found)[::-1]
    assert found[3] in found
    assert found.index(found[3]) == 3
    for beyond in (8, -9):
        with pytest.raises(IndexError):
            found[beyond]


def test_positions() -> None:
    found = records(12)
    assert found.topic_partition == TopicPartition("orders", 2)
    assert (found.topic, found.partition) == ("orders", 2)
    assert (found.first_offset, found.last_offset, found.next_offset) == (12, 23, 24)
    assert found.keys() == [b"", b"k3"] + [row[1] for row in ROWS]
    assert found.values() == [None, b"x" * 300] + [row[2] for row in ROWS]
    assert found.size_bytes == sum(len(r.key or b"") + len(r.value or b"") for r in found)


def test_slices_know_where_reading_goes_on() -> None:
    found = records()
    for start in range(9):
        for stop in range(9):
            part = found[start:stop]
            assert part.offsets() == OFFSETS[start:stop]
            assert list(part) == list(found)[start:stop]
            assert part.next_offset == [*OFFSETS, 24][max(start, stop)]
    assert found[2:7][1:3].offsets() == [13, 20]
    assert found[-3:].offsets() == OFFSETS[-3:]
    with pytest.raises(ValueError, match="step"):
        found[::2]


def test_an_empty_one() -> None:
    empty = records(24)
    assert not empty
    assert list(empty) == []
    assert (empty.first_offset, empty.last_offset, empty.next_offset) == (None, None, 24)
    assert empty.leader_epoch == -1
    assert empty[0:5].next_offset == 24


def test_records_are_values() -> None:
    record = records()[1]
    same = records()[1]
    assert record == same
    assert hash(record) == hash(same)
    assert record != records()[2]
    assert record != "record"
    assert pickle.loads(pickle.dumps(record)) == copy.copy(record) == record
    assert record.topic_partition == TopicPartition("orders", 2)
    assert repr(record).startswith("Record(orders-2 offset 11, ")
    assert "8 records, offsets 10 to 23" in repr(records())
