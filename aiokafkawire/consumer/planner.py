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
    states: frozenset[Positioned] = frozenset()


class FetchPlanner:
    """One fetch at a time for each node, and none for a partition that has data enough.

    `look` takes note of one partition that may be another now; `begin` costs by the nodes and the
    partitions with data, not by all partitions. Those that brought data go to the end of their
    node's next request: a broker fills its answer in their order. `held_back`: more than all may
    have is fetched, so nothing was planned last. `rested` are partitions that may be fetched from
    some time on, `followers` those that are fetched from a replica for some time, and `deferred`
    those whose fetch from another node has to end first: all of them have to be looked at again.
    """

    def __init__(self, limits: FetchLimits) -> None:
        self._limits = limits
        self._busy: dict[NodeId, FetchPlan] = {}
        self._in_doubt: set[Positioned] = set()
        self._resting: dict[NodeId, float] = {}
        self._full_since: dict[NodeId, float] = {}
        self._held: dict[NodeId, float] = {}
        self._parts: dict[NodeId, dict[Partition, FetchPart]] = {}
        self._node_of: dict[Partition, NodeId] = {}
        self._whole: dict[NodeId, FetchPlan] = {}
        self.rested: dict[Partition, None] = {}
        self.followers: dict[Partition, None] = {}
        self.deferred: dict[Partition, None] = {}
        self.held_back = False

    def plan(
        self,
        partitions: Collection[Partition],
        leader_of: LeaderOf,
        now: float,
        nodes: Container[NodeId] = (),
    ) -> list[FetchPlan]:
        """Look at exactly these partitions, and begin."""
        owned = dict.fromkeys(partitions)
        for partition in self.known():
            if partition not in owned:
                self.forget(partition)
        for partition in partitions:
            self.look(partition, leader_of, now, nodes)
        return self.begin(partitions, leader_of, now)

    def look(
        self,
        partition: Partition,
        leader_of: LeaderOf,
        now: float,
        nodes: Container[NodeId] = (),
    ) -> None:
        """Take note of a partition, whose state, buffer or limits may be others than before.

        A follower is fetched from only if it is among `nodes`. Partitions follow their leaders
        (`Partition.follow`) when the metadata changes; only one that has followed none yet is
        looked up here.
        """
        self.deferred.pop(partition, None)
        self.rested.pop(partition, None)
        self.followers.pop(partition, None)
        if partition.not_before > now:
            self.rested[partition] = None
        leader = _followed(partition, leader_of) if self._wants(partition, now) else None
        state = partition.state
        if leader is None or not isinstance(state, Positioned):
            self._leave_out(partition)
            return
        node = _source(partition, leader, now, nodes)
        if partition.replica is not None:
            self.followers[partition] = None
        before = self._node_of.get(partition)
        if before != node and self._is_under_way(state, node):
            self.deferred[partition] = None
            self._leave_out(partition)
            return
        part = self._part(partition, state, leader, node)
        if before == node and self._parts[node][partition] == part:
            return
        self._leave_out(partition)
        self._parts.setdefault(node, {})[partition] = part
        self._node_of[partition] = node
        self._whole.pop(node, None)

    def forget(self, partition: Partition) -> None:
        """The partition is not owned any more."""
        self.deferred.pop(partition, None)
        self.rested.pop(partition, None)
        self.followers.pop(partition, None)
        self._leave_out(partition)

    def known(self) -> list[Partition]:
        """The partitions that are to be fetched, now or later."""
        return [*(self._node_of | self.rested | self.deferred)]

    def _is_under_way(self, state: Positioned, node: NodeId) -> bool:
        """Whether it is fetched at present, from another node."""
        return any(state in plan.states for at, plan in self._busy.items() if at != node)

    def _leave_out(self, partition: Partition) -> None:
        node = self._node_of.pop(partition, None)
        if node is not None:
            del self._parts[node][partition]
            self._whole.pop(node, None)

    def begin(
        self, filled: Iterable[Partition], leader_of: LeaderOf, now: float
    ) -> list[FetchPlan]:
        """The fetches to begin now. `filled` are the partitions that have data."""
        self._resting = {node: until for node, until in self._resting.items() if until > now}
        self._held = {node: until for node, until in self._held.items() if until > now}
        full, buffered = self._survey(filled)
        full_nodes = {leader.node: now for p in full if (leader := leader_of(p.tp)) is not None}
        since = self._full_since
        self._full_since = full_nodes | {n: since[n] for n in full_nodes if n in since}
        self.held_back = buffered >= self._limits.buffer_bytes
        if self.held_back:
            return []
        plans: list[FetchPlan] = []
        for node, parts in self._parts.items():
            if not parts or node in self._busy or node in self._resting:
                continue
            if node in full_nodes and now < (until := self._full_since[node] + HOLD_S):
                self._held[node] = until
                continue
            plans.append(self._begin(node, node in full_nodes))
        return plans

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
            and state not in self._in_doubt
        )

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

    def _begin(self, node: NodeId, brief: bool) -> FetchPlan:
        plan = self._whole.get(node)
        if plan is None:
            parts = _alone(tuple(self._parts[node].values()))
            plan = FetchPlan(node, parts, states=frozenset(part.state for part in parts))
            self._whole[node] = plan
        plan = self._busy[node] = plan._replace(brief=brief)
        return plan

    def finished(self, plan: FetchPlan, rest_until: float | None = None) -> None:
        """A fetch is over; after a failure its node is left alone until then."""
        self._busy.pop(plan.node, None)
        if rest_until is not None:
            self._resting[plan.node] = rest_until

    def next_deadline(self, partitions: Iterable[Partition], now: float) -> float:
        """When one of these partitions, or a node that is left alone, may be fetched from again."""
        later = [p.not_before for p in partitions if p.not_before > now]
        later += [until for until in self._resting.values() if until > now]
        later += self._held.values()
        return min(later, default=NEVER)


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


def _alone(parts: tuple[FetchPart, ...]) -> tuple[FetchPart, ...]:
    """A partition whose next message needs more than usual is fetched by itself."""
    for part in parts:
        if part.partition.max_bytes is not None:
            return (part,)
    return parts
