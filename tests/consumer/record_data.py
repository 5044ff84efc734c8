"""Fetched bytes for tests without a network."""

from __future__ import annotations

from collections.abc import Collection, Container

from aiokafkawire.consumer.fetch_planner import FetchPlan, FetchPlanner, LeaderOf
from aiokafkawire.consumer.partition import AssignedPartition
from aiokafkawire.records import FetchedBatches, assign_offsets, decode_fetch, iter_batches
from aiokafkawire.types import NodeId, TopicPartition
from tests.broker.raw_client import batch

P0 = TopicPartition("orders", 0)
P1 = TopicPartition("orders", 1)


def log(*sizes: int, start: int = 0, leader_epoch: int = 0, magic: int = 2) -> bytes:
    """Return batches with `sizes` records and consecutive offsets."""
    parts = []
    for size in sizes:
        values = [b"%d" % (start + index) for index in range(size)]
        for view in iter_batches(batch(*values, magic=magic)):
            parts.append(bytes(assign_offsets(view, start, leader_epoch)))
            start += view.count
    return b"".join(parts)


def fetched(data: bytes, offset: int = 0, tp: TopicPartition = P0) -> FetchedBatches:
    return decode_fetch(*tp, data, offset)


def mark_delivered(partition: AssignedPartition, first: int, next_offset: int) -> None:
    """Mark these offsets as delivered to the application."""
    low, high = partition.delivered_range or (first, next_offset)
    partition._delivered_range = min(low, first), max(high, next_offset)


class Planner(FetchPlanner):
    """A planner that is given all partitions each time."""

    def plan(
        self,
        partitions: Collection[AssignedPartition],
        leader_of: LeaderOf,
        now: float,
        nodes: Container[NodeId] = (),
    ) -> list[FetchPlan]:
        """Update exactly these partitions, and return the fetches to start."""
        for partition in self.planned_partitions():
            if partition not in partitions:
                self.forget(partition)
        for partition in partitions:
            self.update(partition, leader_of, now, nodes)
        return self.start_fetches(partitions, leader_of, now)
