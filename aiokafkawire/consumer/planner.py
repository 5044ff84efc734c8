"""Which partitions to fetch from which node now."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from aiokafkawire.cluster.metadata import Leader
from aiokafkawire.runtime import NEVER
from aiokafkawire.types import NodeId, TopicPartition

from .buffer import FetchBuffer
from .partition import Partition, Positioned

__all__ = (
    "HOLD_S",
    "FetchLimits",
    "FetchPart",
    "FetchPlan",
    "FetchPlanner",
    "LeaderOf",
    "source_of",
)

HOLD_S = 0.1
"""How long a node that leads a full partition is not fetched from.

A fetch that waits at the broker for the other partitions would keep this one waiting once the
application has read it. A partition that stays full must not keep the others waiting, though.
"""

LeaderOf = Callable[[TopicPartition], Leader | None]
"""The leader of a partition, if there is one."""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Bounds in bytes. Once `buffer_bytes` are fetched and not given, nothing more is fetched.

    Partitions that are paused, or that the application does not ask for, keep up to
    `partition_bytes` and one answer each beside that, so that they never hold back the others.
    """

    buffer_bytes: int
    partition_bytes: int


class FetchPart(NamedTuple):
    """One partition of a fetch. The answer is of use only while `state` is the partition's.

    `fetch_epoch` is the epoch of the record before `offset`; `from_follower` tells that the node is
    not the leader.
    """

    partition: Partition
    state: Positioned
    buffer: FetchBuffer
    offset: int
    leader_epoch: int
    max_bytes: int
    fetch_epoch: int
    from_follower: bool

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
    `held_back`: more than all may have is fetched, so nothing was planned last.
    """

    def __init__(self, limits: FetchLimits) -> None:
        self._limits = limits
        self._busy: dict[NodeId, FetchPlan] = {}
        self._under_way: set[Positioned] = set()
        self._in_doubt: set[Positioned] = set()
        self._resting: dict[NodeId, float] = {}
        self._full_since: dict[NodeId, float] = {}
        self._held: dict[NodeId, float] = {}
        self._turns: dict[TopicPartition, int] = {}
        self._turn = 0
        self._sources: dict[NodeId, list[Partition]] = {}
        self.held_back = False
        self.outdated = False

    def plan(
        self,
        partitions: Collection[Partition],
        leader_of: LeaderOf,
        now: float,
        nodes: Container[NodeId] = (),
    ) -> list[FetchPlan]:
        """The fetches to begin now. Followers are fetched from only if they are among `nodes`.

        Partitions follow their leaders (`Partition.follow`) when the metadata changes; only those
        that have followed none yet are looked up here.
        """
        if len(self._turns) > 2 * len(partitions):
            self._turns = {p.tp: self._turns[p.tp] for p in partitions if p.tp in self._turns}
        plans = self._plan(partitions, partitions, leader_of, now, nodes)
        self._sources = {}
        for partition in partitions:
            source = source_of(partition, leader_of)
            if source is not None:
                self._sources.setdefault(source, []).append(partition)
        self.outdated = False
        return plans

    def plan_some(
        self,
        free: Collection[NodeId],
        filled: Collection[Partition],
        leader_of: LeaderOf,
        now: float,
        nodes: Container[NodeId] = (),
    ) -> list[FetchPlan]:
        """As `plan`, where nothing changed since but that these nodes answered, or that there is
        room in partitions that were fetched from them. `filled` are those that have data.

        So what an answer costs goes by what its node leads. `outdated` says that a partition is to
        be fetched from another node by now: `plan` finds out.
        """
        some = [partition for node in free for partition in self._sources.get(node, ())]
        plans = self._plan(some, filled, leader_of, now, nodes)
        self.outdated = any(source_of(partition, leader_of) not in free for partition in some)
        return plans

    def _plan(
        self,
        partitions: Iterable[Partition],
        filled: Iterable[Partition],
        leader_of: LeaderOf,
        now: float,
        nodes: Container[NodeId],
    ) -> list[FetchPlan]:
        self._resting = {node: until for node, until in self._resting.items() if until > now}
        self._held = {node: until for node, until in self._held.items() if until > now}
        full, buffered = self._survey(filled)
        full_nodes = {leader.node: now for p in full if (leader := leader_of(p.tp)) is not None}
        since = self._full_since
        self._full_since = full_nodes | {n: since[n] for n in full_nodes if n in since}
        self.held_back = buffered >= self._limits.buffer_bytes
        if self.held_back:
            return []
        wanting = [partition for partition in partitions if self._wants(partition, now)]
        by_node: dict[NodeId, list[FetchPart]] = {}
        for partition in sorted(wanting, key=lambda p: self._turns.get(p.tp, 0)):
            leader = _followed(partition, leader_of)
            if leader is None:
                continue
            node = _source(partition, leader, now, nodes)
            if node in self._busy or node in self._resting:
                continue
            if node in full_nodes and now < (until := self._full_since[node] + HOLD_S):
                self._held[node] = until
                continue
            state = partition.state
            if isinstance(state, Positioned):
                part = self._part(partition, state, leader, node)
                by_node.setdefault(node, []).append(part)
        return [self._begin(node, parts, node in full_nodes) for node, parts in by_node.items()]

    def _survey(self, partitions: Iterable[Partition]) -> tuple[list[Partition], int]:
        """Who has enough of data, and how many bytes there are."""
        full: list[Partition] = []
        buffered = 0
        for partition in partitions:
            state = partition.state
            if not isinstance(state, Positioned) or partition.paused:
                continue
            size_bytes = state.buffer.size_bytes
            buffered += 0 if partition.passed_over else size_bytes
            if size_bytes >= self._limits.partition_bytes and not partition.revoked:
                full.append(partition)
        return full, buffered

    def _wants(self, partition: Partition, now: float) -> bool:
        """Whether a partition is to be fetched, once its node is free."""
        state = partition.state
        return (
            isinstance(state, Positioned)
            and not partition.paused
            and not partition.revoked
            and partition.not_before <= now
            and state.buffer.size_bytes < self._limits.partition_bytes
            and not self._waits(state)
        )

    def _waits(self, state: Positioned) -> bool:
        return state in self._under_way or state in self._in_doubt

    def doubt(self, state: Positioned) -> None:
        """Do not fetch at this position until it is known what it is worth."""
        self._in_doubt.add(state)

    def doubted(self, state: Positioned) -> None:
        """It is known now."""
        self._in_doubt.discard(state)

    def _part(
        self, partition: Partition, state: Positioned, leader: Leader, node: NodeId
    ) -> FetchPart:
        buffer = state.buffer
        return FetchPart(
            partition,
            state,
            buffer,
            offset=buffer.fetch_offset,
            leader_epoch=leader.epoch,
            max_bytes=partition.max_bytes or self._limits.partition_bytes,
            fetch_epoch=buffer.fetch_epoch,
            from_follower=node != leader.node,
        )

    def _begin(self, node: NodeId, parts: list[FetchPart], brief: bool) -> FetchPlan:
        plan = FetchPlan(node, _alone(parts), brief)
        self._busy[node] = plan
        self._under_way.update(part.state for part in plan.parts)
        return plan

    def finished(self, plan: FetchPlan, rest_until: float | None = None) -> None:
        """A fetch is over; after a failure its node is left alone until then."""
        self._busy.pop(plan.node, None)
        self._under_way.difference_update(part.state for part in plan.parts)
        if rest_until is not None:
            self._resting[plan.node] = rest_until

    def got_data(self, tp: TopicPartition) -> None:
        """The partition had its turn."""
        self._turn += 1
        self._turns[tp] = self._turn

    def next_deadline(self, partitions: Iterable[Partition], now: float) -> float:
        """When one of these partitions, or a node that is left alone, may be fetched from again."""
        later = [p.not_before for p in partitions if p.not_before > now]
        later += [until for until in self._resting.values() if until > now]
        later += self._held.values()
        return min(later, default=NEVER)


def source_of(partition: Partition, leader_of: LeaderOf) -> NodeId | None:
    """The node that a partition is fetched from as things stand, if it is."""
    state = partition.state
    if not isinstance(state, Positioned):
        return None
    if partition.replica is not None:
        return partition.replica.node
    leader = state.leader or leader_of(partition.tp)
    return None if leader is None else leader.node


def _followed(partition: Partition, leader_of: LeaderOf) -> Leader | None:
    """The leader that a partition is to be fetched from, if there is one."""
    state = partition.state
    if isinstance(state, Positioned) and state.leader is not None:
        return state.leader
    leader = leader_of(partition.tp)
    partition.follow(leader)
    return leader


def _source(partition: Partition, leader: Leader, now: float, nodes: Container[NodeId]) -> NodeId:
    """The node to fetch from: the leader, unless it named a follower, which is not known away."""
    replica = partition.replica
    if replica is None or replica.until <= now or replica.node not in nodes:
        partition.replica = None
        return leader.node
    return replica.node


def _alone(parts: list[FetchPart]) -> tuple[FetchPart, ...]:
    """A partition whose next message needs more than usual is fetched by itself."""
    for part in parts:
        if part.partition.max_bytes is not None:
            return (part,)
    return tuple(parts)
