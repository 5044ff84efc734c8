"""Which partitions to fetch from which node now."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from aiokafkawire.cluster.metadata import Leader
from aiokafkawire.runtime import NEVER
from aiokafkawire.types import NodeId, TopicPartition

from .fetch_buffer import FetchBuffer
from .partition import AssignedPartition, Fetching

__all__ = (
    "FULL_PARTITION_HOLD_S",
    "FetchLimits",
    "FetchPlan",
    "FetchPlanner",
    "LeaderOf",
    "PartitionFetch",
)

FULL_PARTITION_HOLD_S = 0.1
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


class PartitionFetch(NamedTuple):
    """One partition of a fetch. The answer is of use only while `state` is the partition's.

    `fetch_epoch` is the epoch of the record before `offset`; `from_follower` tells that the node is
    not the leader.
    """

    partition: AssignedPartition
    state: Fetching
    buffer: FetchBuffer
    offset: int
    leader_epoch: int
    max_bytes: int
    fetch_epoch: int
    from_follower: bool

    @property
    def is_current(self) -> bool:
        """Whether nothing happened since that makes the answer useless: a seek, a revocation."""
        partition = self.partition
        return (
            partition.state is self.state
            and not partition.pending_revocation
            and self.buffer.fetch_offset == self.offset
        )


class FetchPlan(NamedTuple):
    """One fetch. A `short_wait` one leaves out a partition that may need data at any moment."""

    node: NodeId
    parts: tuple[PartitionFetch, ...]
    short_wait: bool = False
    states: frozenset[Fetching] = frozenset()


class FetchPlanner:
    """One fetch at a time for each node, and none for a partition that has data enough.

    `update` takes note of one partition that may be another now; `start_fetches` costs by the nodes
    and the partitions with data, not by all partitions. Those that brought data go to the end of
    their node's next request: a broker fills its answer in their order. `buffers_full`: more than
    all may have is fetched, so nothing was planned last. `backing_off` are partitions that may be
    fetched from some time on, `followers` those that are fetched from a replica for some time, and
    `deferred` those whose fetch from another node has to end first: all of them have to be looked
    at again.
    """

    def __init__(self, limits: FetchLimits) -> None:
        self._limits = limits
        self._in_flight: dict[NodeId, FetchPlan] = {}
        self._unverified: set[Fetching] = set()
        self._nodes_backing_off: dict[NodeId, float] = {}
        self._full_since: dict[NodeId, float] = {}
        self._held_until: dict[NodeId, float] = {}
        self._parts: dict[NodeId, dict[AssignedPartition, PartitionFetch]] = {}
        self._node_of: dict[AssignedPartition, NodeId] = {}
        self._cached_plans: dict[NodeId, FetchPlan] = {}
        self.backing_off: dict[AssignedPartition, None] = {}
        self.followers: dict[AssignedPartition, None] = {}
        self.deferred: dict[AssignedPartition, None] = {}
        self.buffers_full = False

    def plan(
        self,
        partitions: Collection[AssignedPartition],
        leader_of: LeaderOf,
        now: float,
        nodes: Container[NodeId] = (),
    ) -> list[FetchPlan]:
        """Look at exactly these partitions, and begin."""
        owned = dict.fromkeys(partitions)
        for partition in self.planned_partitions():
            if partition not in owned:
                self.forget(partition)
        for partition in partitions:
            self.update(partition, leader_of, now, nodes)
        return self.start_fetches(partitions, leader_of, now)

    def update(
        self,
        partition: AssignedPartition,
        leader_of: LeaderOf,
        now: float,
        nodes: Container[NodeId] = (),
    ) -> None:
        """Take note of a partition, whose state, buffer or limits may be others than before.

        A follower is fetched from only if it is among `nodes`. Partitions follow their leaders
        (`AssignedPartition.update_leader`) when the metadata changes; only one that has followed
        none yet is looked up here.
        """
        self.deferred.pop(partition, None)
        self.backing_off.pop(partition, None)
        self.followers.pop(partition, None)
        if partition.not_before > now:
            self.backing_off[partition] = None
        leader = (
            _leader_to_fetch_from(partition, leader_of)
            if self._needs_fetch(partition, now)
            else None
        )
        state = partition.state
        if leader is None or not isinstance(state, Fetching):
            self._exclude(partition)
            return
        node = _fetch_node(partition, leader, now, nodes)
        if partition.preferred_replica is not None:
            self.followers[partition] = None
        before = self._node_of.get(partition)
        if before != node and self._is_in_flight(state, node):
            self.deferred[partition] = None
            self._exclude(partition)
            return
        part = self._part(partition, state, leader, node)
        if before == node and self._parts[node][partition] == part:
            return
        self._exclude(partition)
        self._parts.setdefault(node, {})[partition] = part
        self._node_of[partition] = node
        self._cached_plans.pop(node, None)

    def forget(self, partition: AssignedPartition) -> None:
        """The partition is not owned any more."""
        self.deferred.pop(partition, None)
        self.backing_off.pop(partition, None)
        self.followers.pop(partition, None)
        self._exclude(partition)

    def planned_partitions(self) -> list[AssignedPartition]:
        """The partitions that are to be fetched, now or later."""
        return [*(self._node_of | self.backing_off | self.deferred)]

    def _is_in_flight(self, state: Fetching, node: NodeId) -> bool:
        """Whether it is fetched at present, from another node."""
        return any(state in plan.states for at, plan in self._in_flight.items() if at != node)

    def _exclude(self, partition: AssignedPartition) -> None:
        node = self._node_of.pop(partition, None)
        if node is not None:
            del self._parts[node][partition]
            self._cached_plans.pop(node, None)

    def start_fetches(
        self, with_data: Iterable[AssignedPartition], leader_of: LeaderOf, now: float
    ) -> list[FetchPlan]:
        """The fetches to begin now. `with_data` are the partitions that have data."""
        self._nodes_backing_off = {
            node: until for node, until in self._nodes_backing_off.items() if until > now
        }
        self._held_until = {node: until for node, until in self._held_until.items() if until > now}
        full, buffered = self._measure_buffers(with_data)
        full_nodes = {leader.node: now for p in full if (leader := leader_of(p.tp)) is not None}
        since = self._full_since
        self._full_since = full_nodes | {n: since[n] for n in full_nodes if n in since}
        self.buffers_full = buffered >= self._limits.buffer_bytes
        if self.buffers_full:
            return []
        plans: list[FetchPlan] = []
        for node, parts in self._parts.items():
            if not parts or node in self._in_flight or node in self._nodes_backing_off:
                continue
            if node in full_nodes and now < (
                until := self._full_since[node] + FULL_PARTITION_HOLD_S
            ):
                self._held_until[node] = until
                continue
            plans.append(self._start_fetch(node, node in full_nodes))
        return plans

    def _measure_buffers(
        self, partitions: Iterable[AssignedPartition]
    ) -> tuple[list[AssignedPartition], int]:
        """Who has enough of data, and how many bytes there are."""
        full: list[AssignedPartition] = []
        buffered = 0
        for partition in partitions:
            state = partition.state
            if not isinstance(state, Fetching) or partition.paused:
                continue
            size_bytes = state.buffer.size_bytes
            buffered += 0 if partition.excluded else size_bytes
            if size_bytes >= self._limits.partition_bytes and not partition.pending_revocation:
                full.append(partition)
        return full, buffered

    def _needs_fetch(self, partition: AssignedPartition, now: float) -> bool:
        """Whether a partition is to be fetched, once its node is free."""
        state = partition.state
        return (
            isinstance(state, Fetching)
            and not partition.paused
            and not partition.pending_revocation
            and partition.not_before <= now
            and state.buffer.size_bytes < self._limits.partition_bytes
            and state not in self._unverified
        )

    def suspend(self, state: Fetching) -> None:
        """Do not fetch at this position until it is known what it is worth."""
        self._unverified.add(state)

    def resume(self, state: Fetching) -> None:
        """It is known now."""
        self._unverified.discard(state)

    def _part(
        self, partition: AssignedPartition, state: Fetching, leader: Leader, node: NodeId
    ) -> PartitionFetch:
        buffer = state.buffer
        return PartitionFetch(
            partition,
            state,
            buffer,
            offset=buffer.fetch_offset,
            leader_epoch=leader.epoch,
            max_bytes=partition.max_bytes or self._limits.partition_bytes,
            fetch_epoch=buffer.fetch_epoch,
            from_follower=node != leader.node,
        )

    def _start_fetch(self, node: NodeId, short_wait: bool) -> FetchPlan:
        plan = self._cached_plans.get(node)
        if plan is None:
            parts = _oversized_alone(tuple(self._parts[node].values()))
            plan = FetchPlan(node, parts, states=frozenset(part.state for part in parts))
            self._cached_plans[node] = plan
        plan = self._in_flight[node] = plan._replace(short_wait=short_wait)
        return plan

    def finished(self, plan: FetchPlan, backoff_until: float | None = None) -> None:
        """A fetch is over; after a failure its node is left alone until then."""
        self._in_flight.pop(plan.node, None)
        if backoff_until is not None:
            self._nodes_backing_off[plan.node] = backoff_until

    def next_deadline(self, partitions: Iterable[AssignedPartition], now: float) -> float:
        """When one of these partitions, or a node that is left alone, may be fetched from again."""
        later = [p.not_before for p in partitions if p.not_before > now]
        later += [until for until in self._nodes_backing_off.values() if until > now]
        later += self._held_until.values()
        return min(later, default=NEVER)


def _leader_to_fetch_from(partition: AssignedPartition, leader_of: LeaderOf) -> Leader | None:
    """The leader that a partition is to be fetched from, if there is one."""
    state = partition.state
    if isinstance(state, Fetching) and state.leader is not None:
        return state.leader
    leader = leader_of(partition.tp)
    partition.update_leader(leader)
    return leader


def _fetch_node(
    partition: AssignedPartition, leader: Leader, now: float, nodes: Container[NodeId]
) -> NodeId:
    """The node to fetch from: the leader, unless it named a follower, which is not known away."""
    preferred_replica = partition.preferred_replica
    if (
        preferred_replica is None
        or preferred_replica.until <= now
        or preferred_replica.node not in nodes
    ):
        partition.preferred_replica = None
        return leader.node
    return preferred_replica.node


def _oversized_alone(parts: tuple[PartitionFetch, ...]) -> tuple[PartitionFetch, ...]:
    """A partition whose next message needs more than usual is fetched by itself."""
    for part in parts:
        if part.partition.max_bytes is not None:
            return (part,)
    return parts
