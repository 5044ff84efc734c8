from __future__ import annotations

from aiokafkawire.consumer.assignment import ConsumerAssignment
from aiokafkawire.consumer.fetch_buffer import FetchBuffer
from aiokafkawire.consumer.partition import AssignedPartition
from aiokafkawire.consumer.partition_states import Fetching
from aiokafkawire.types import TopicPartition

from .record_data import P0, P1

P2 = TopicPartition("orders", 2)


def partition(tp: TopicPartition) -> AssignedPartition:
    return AssignedPartition(tp, "earliest", Fetching(FetchBuffer(0)))


def assignment(*partitions: AssignedPartition) -> ConsumerAssignment:
    owned = ConsumerAssignment()
    for one in partitions:
        owned.add(one)
    return owned


def test_partitions_are_kept_by_name() -> None:
    owned = assignment(partition(P1), partition(P0))
    assert owned.topic_partitions == (P0, P1)
    assert P0 in owned
    assert len(owned) == 2
    removed = owned.get(P1)
    assert removed is not None
    owned.remove([removed, partition(P2)])
    assert owned.get(P1) is None


def test_a_partition_that_was_replaced_is_not_removed() -> None:
    before, after = partition(P0), partition(P0)
    owned = assignment(before, after)
    owned.remove([before])
    assert owned.get(P0) is after
    owned.remove([after])
    assert len(owned) == 0
