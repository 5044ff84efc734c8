"""Which partitions to fetch from which node now."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from aiokafkawire.types import NodeId, TopicPartition

from .buffer import FetchBuffer
from .partition import Partition, Positioned

__all__ = ("HOLD_S", "FetchLimits", "FetchPart", "FetchPlan", "FetchPlanner", "Leader")

HOLD_S = 0.1
"""How long a node that leads a full partition is not fetched from.

A fetch that waits at the broker for the other partitions would keep this one waiting once the
application has read it. A partition that stays full must not keep the others waiting, though.
"""

Leader = Callable[[TopicPartition], tuple[NodeId, int] | None]
"""Node id and leader epoch of a partition's leader, if there is one."""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Bounds in bytes. Once `buffer_bytes` are fetched and not given, nothing more is fetched."""

    buffer_bytes: int
    partition_bytes: int


class FetchPart(NamedTuple):
    """One partition of a fetch. The answer is of use only while `state` is the partition's."""

    partition: Partition
    state: Positioned
    buffer: FetchBuffer
    offset: int
    leader_epoch: int
    max_bytes: int

    @property
    def awaited(self) -> bool:
        """Whether nothing happened since that makes the answer useless: a seek, a revocation."""
        partition = self.partition
        return (
            partition.state is self.state
            and not partition.revoked
            and self.buffer.fetch_offset == self.offset
        )


class FetchPlan(NamedTuple):
    """One fetch. A `brief` one leaves out a partition that may need data at any moment."""

    node: NodeId
    parts: tuple[FetchPart, ...]
    brief: bool = False


class FetchPlanner:
    """One fetch at a time for each node, and none for a partition that has data enough.

    Partitions take turns at the front of a request: a broker fills its answer in their order.
    """

    def __init__(self, limits: FetchLimits) -> None:
        self._limits = limits
        self._busy: dict[NodeId, FetchPlan] = {}
        self._resting: dict[NodeId, float] = {}
        self._full_since: dict[NodeId, float] = {}
        self._held: dict[NodeId, float] = {}
        self._turns: dict[TopicPartition, int] = {}
        self._turn = 0
        self.leaderless = False

    @property
    def busy(self) -> tuple[NodeId, ...]:
        """The nodes that a fetch is under way at."""
        return tuple(self._busy)

    def plan(self, partitions: Iterable[Partition], leader: Leader, now: float) -> list[FetchPlan]:
        """The fetches to begin now. `leaderless` then says that the metadata is not enough."""
        owned = list(partitions)
        self.leaderless = False
        self._resting = {node: until for node, until in self._resting.items() if until > now}
        self._turns = {p.tp: self._turns.get(p.tp, 0) for p in owned}
        full = {found[0]: now for p in owned if self._full(p) and (found := leader(p.tp))}
        self._held = {}
        self._full_since = full | {n: t for n, t in self._full_since.items() if n in full}
        buffered = sum(p.buffer.size_bytes for p in owned if p.buffer is not None)
        if buffered >= self._limits.buffer_bytes:
            return []
        under_way = {part.buffer for plan in self._busy.values() for part in plan.parts}
        by_node: dict[NodeId, list[FetchPart]] = {}
        for partition in sorted(owned, key=lambda p: self._turns[p.tp]):
            state = partition.state
            if not isinstance(state, Positioned) or state.buffer in under_way:
                continue
            if not self._wants(partition, state.buffer, now):
                continue
            found = leader(partition.tp)
            if found is None:
                self.leaderless = True
                continue
            node, epoch = found
            if node in self._busy or node in self._resting:
                continue
            if node in full and now < (until := self._full_since[node] + HOLD_S):
                self._held[node] = until
                continue
            max_bytes = partition.max_bytes or self._limits.partition_bytes
            part = FetchPart(
                partition, state, state.buffer, state.buffer.fetch_offset, epoch, max_bytes
            )
            by_node.setdefault(node, []).append(part)
        plans = [FetchPlan(node, _alone(parts), node in full) for node, parts in by_node.items()]
        self._busy.update({plan.node: plan for plan in plans})
        return plans

    def _wants(self, partition: Partition, buffer: FetchBuffer, now: float) -> bool:
        return (
            not partition.paused
            and not partition.revoked
            and partition.not_before <= now
            and buffer.size_bytes < self._limits.partition_bytes
        )

    def _full(self, partition: Partition) -> bool:
        """Whether it has data enough, and will want more as soon as that is read."""
        buffer = partition.readable
        return buffer is not None and buffer.size_bytes >= self._limits.partition_bytes

    def finished(self, plan: FetchPlan, rest_until: float | None = None) -> None:
        """A fetch is over; after a failure its node is left alone until then."""
        self._busy.pop(plan.node, None)
        if rest_until is not None:
            self._resting[plan.node] = rest_until

    def got_data(self, tp: TopicPartition) -> None:
        """The partition had its turn."""
        self._turn += 1
        self._turns[tp] = self._turn

    def next_deadline(self, partitions: Iterable[Partition], now: float) -> float:
        """When a partition or a node that is left alone may be fetched from again."""
        later = [p.not_before for p in partitions if p.not_before > now]
        later += [until for until in self._resting.values() if until > now]
        later += self._held.values()
        return min(later, default=float("inf"))


def _alone(parts: list[FetchPart]) -> tuple[FetchPart, ...]:
    """A partition whose next message needs more than usual is fetched by itself."""
    for part in parts:
        if part.partition.max_bytes is not None:
            return (part,)
    return tuple(parts)
