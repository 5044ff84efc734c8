"""The offsets argument of `send_offsets_to_transaction`."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafkawire.consumer import Consumer
from aiokafkawire.producer.transactions.group_offsets import OffsetsSource, validate_offsets
from aiokafkawire.types import GroupMetadata, OffsetAndMetadata, TopicPartition

TP = TopicPartition("t", 0)
GROUP = GroupMetadata("g")


def test_ints_and_offsets_are_accepted() -> None:
    noted = OffsetAndMetadata(7, "note", 3)
    assert validate_offsets({TP: 5}, GROUP) == {TP: OffsetAndMetadata(5)}
    assert validate_offsets({("t", 0): noted}, GROUP) == {TP: noted}
    assert validate_offsets({}, GROUP) == {}


@pytest.mark.parametrize("value", ["5", None, True, 5.0])
def test_other_types_of_offsets_are_rejected(value: Any) -> None:
    with pytest.raises(TypeError, match="an offset must be an int"):
        validate_offsets({TP: value}, GROUP)


def test_a_negative_offset_is_rejected() -> None:
    with pytest.raises(ValueError, match="must not be negative: -1"):
        validate_offsets({TP: -1}, GROUP)


@pytest.mark.parametrize(
    ("offsets", "group", "field"),
    [
        ({TP: 2**63}, GROUP, "committed_offset"),
        ({TP: OffsetAndMetadata(5, leader_epoch=2**31)}, GROUP, "committed_leader_epoch"),
        ({TP: OffsetAndMetadata(5, "\ud800")}, GROUP, "committed_metadata"),
        ({TP: OffsetAndMetadata(5, "x" * 2**15)}, GROUP, "committed_metadata"),
        ({("t", 2**31): 5}, GROUP, "a partition number"),
        ({("\ud800", 0): 5}, GROUP, "cannot be encoded as UTF-8"),
        ({TP: 5}, GroupMetadata("g", 2**31), "generation_id"),
        ({TP: 5}, GroupMetadata(None), "group_id"),  # type: ignore[arg-type]
    ],
)
def test_offsets_that_no_request_can_carry_are_rejected(
    offsets: dict[Any, Any], group: GroupMetadata, field: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=field):
        validate_offsets(offsets, group)


def test_keys_that_are_no_partitions_are_rejected() -> None:
    with pytest.raises(TypeError, match="a partition must be"):
        validate_offsets({"t": 5}, GROUP)


def test_a_consumer_is_an_offsets_source() -> None:
    source: OffsetsSource = Consumer("t", bootstrap_servers="localhost:1", group_id="g")
    assert source.config.enable_auto_commit
