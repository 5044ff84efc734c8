from __future__ import annotations

from typing import Any

import pytest

from aiokafkawire.consumer.assignment import ConsumerAssignment
from aiokafkawire.consumer.fetch_buffer import FetchBuffer
from aiokafkawire.consumer.partition import AssignedPartition
from aiokafkawire.consumer.partition_states import Fetching
from aiokafkawire.consumer.validation import (
    MAX_INT64,
    parse_commit_argument,
    validate_offset,
    validate_timestamps,
)
from aiokafkawire.errors import CommitFailed
from aiokafkawire.records import Records
from aiokafkawire.types import OffsetAndMetadata

from .record_data import P0, P1, fetched, log, mark_delivered


def partition_with_batch() -> tuple[AssignedPartition, Records]:
    """Return a partition, and a batch that it has not delivered."""
    data = log(5, leader_epoch=3)
    batch = fetched(data).take(10)
    return AssignedPartition(P0, "earliest", Fetching(FetchBuffer(5))), batch


def owning(partition: AssignedPartition) -> ConsumerAssignment:
    assignment = ConsumerAssignment()
    assignment.add(partition)
    return assignment


def test_a_mapping_is_committed_as_it_is() -> None:
    noted = OffsetAndMetadata(7, "note", 2)
    given: Any = {("orders", 0): 5, P1: noted}
    assert parse_commit_argument(ConsumerAssignment(), given) == {
        P0: OffsetAndMetadata(5),
        P1: noted,
    }
    assert parse_commit_argument(ConsumerAssignment(), {}) == {}


def test_a_batch_is_committed_up_to_its_end() -> None:
    partition, batch = partition_with_batch()
    mark_delivered(partition, 0, 5)
    assert parse_commit_argument(owning(partition), batch) == {
        P0: OffsetAndMetadata(5, leader_epoch=3)
    }


def test_a_batch_of_an_unassigned_partition_is_parsed() -> None:
    _, batch = partition_with_batch()
    assert parse_commit_argument(ConsumerAssignment(), batch)[P0].offset == 5


@pytest.mark.parametrize("given", [None, (0, 3), (3, 5)])
def test_a_batch_delivered_before_its_partition_was_lost_is_refused(
    given: tuple[int, int] | None,
) -> None:
    partition, batch = partition_with_batch()
    if given is not None:
        mark_delivered(partition, *given)
    with pytest.raises(CommitFailed, match="lost and assigned again") as caught:
        parse_commit_argument(owning(partition), batch)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("orders", 0, 0)


def test_other_types_raise() -> None:
    _, batch = partition_with_batch()
    for wrong in (batch[0], "orders", [P0], 5):
        given: Any = wrong
        with pytest.raises(TypeError, match=r"^commit takes a batch of .*, or offsets"):
            parse_commit_argument(ConsumerAssignment(), given)
    by_topic: Any = {"orders": 5}
    with pytest.raises(TypeError, match=r"must be a .topic, number. tuple, not 'orders'"):
        parse_commit_argument(ConsumerAssignment(), by_topic)


@pytest.mark.parametrize(
    "offset", ["5", 5.0, True, None, (5, "note"), OffsetAndMetadata(5, leader_epoch=True)]
)
def test_an_offset_is_a_whole_number(offset: Any) -> None:
    with pytest.raises(TypeError, match="an offset must be a whole number, not"):
        validate_offset(offset)


def test_offset_metadata_is_a_string() -> None:
    note: Any = b"note"
    with pytest.raises(TypeError, match="the metadata of an offset must be a string, not b'note'"):
        validate_offset(OffsetAndMetadata(5, note))


def test_an_offset_fits_into_the_protocol() -> None:
    assert validate_offset(MAX_INT64) == OffsetAndMetadata(MAX_INT64)
    for offset in (-1, MAX_INT64 + 1):
        with pytest.raises(ValueError, match=f"from 0 to {MAX_INT64}, not {offset}"):
            validate_offset(offset)


@pytest.mark.parametrize(
    ("offset", "message"),
    [
        (OffsetAndMetadata(5, leader_epoch=-2), "a leader epoch must be from -1 to"),
        (OffsetAndMetadata(5, leader_epoch=2**31), "a leader epoch must be from -1 to"),
        (OffsetAndMetadata(5, "\ud800"), "cannot be encoded as UTF-8"),
        (OffsetAndMetadata(5, "\xe9" * 2**14), "at most 32767 bytes"),
    ],
)
def test_values_out_of_the_protocols_range_are_refused(
    offset: OffsetAndMetadata, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        validate_offset(offset)


def test_timestamps_are_given_by_partition() -> None:
    given: Any = {("orders", 0): 5, P1: 0}
    assert validate_timestamps(given) == {P0: 5, P1: 0}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([P0], "timestamps must be a mapping"),
        ({P0: "5"}, "a timestamp must be a whole number of milliseconds, not '5'"),
        ({P0: 5.0}, "a timestamp must be a whole number of milliseconds, not 5.0"),
        ({"orders": 5}, "a partition must be"),
    ],
)
def test_invalid_timestamps_raise(given: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        validate_timestamps(given)


def test_a_timestamp_is_not_negative() -> None:
    with pytest.raises(ValueError, match="a timestamp must not be negative, but is -1"):
        validate_timestamps({P0: -1})
