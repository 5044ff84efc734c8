"""Offsets for a transaction, as callers give them."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafkawire.consumer import Consumer
from aiokafkawire.producer.transactions.offsets import OffsetsSource, checked_offsets
from aiokafkawire.types import OffsetAndMetadata, TopicPartition

TP = TopicPartition("t", 0)


def test_numbers_and_offsets_are_taken() -> None:
    noted = OffsetAndMetadata(7, "note", 3)
    assert checked_offsets({TP: 5}) == {TP: OffsetAndMetadata(5)}
    assert checked_offsets({("t", 0): noted}) == {TP: noted}
    assert checked_offsets({}) == {}


@pytest.mark.parametrize("value", ["5", None, True, 5.0])
def test_what_is_no_offset_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="an offset is a number"):
        checked_offsets({TP: value})


def test_a_negative_offset_is_refused() -> None:
    with pytest.raises(ValueError, match="must not be negative: -1"):
        checked_offsets({TP: -1})


def test_what_is_no_partition_is_refused() -> None:
    with pytest.raises(TypeError, match="a partition is"):
        checked_offsets({"t": 5})


def test_a_consumer_knows_what_a_transaction_asks() -> None:
    source: OffsetsSource = Consumer("t", bootstrap_servers="localhost:1", group_id="g")
    assert source.config.enable_auto_commit
