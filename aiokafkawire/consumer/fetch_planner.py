"""Plans Fetch requests: which partitions to fetch from which broker, and when."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from aiokafkawire.cluster.metadata import LeaderAndEpoch
from aiokafkawire.runtime import NEVER
from aiokafkawire.types import NodeId, TopicPartition

from .fetch_buffer import FetchBuffer
from .partition import AssignedPartition
from .partition_states import Fetching

__all__ = (
    "FULL_PARTITION_HOLD_S",
    "FetchLimits",
    "FetchPlan",
    "FetchPlanner",
    "LeaderOf",
    "PartitionFetch",
)

FULL_PARTITION_HOLD_S = 0.1
"""How long a broker is not fetched from while the buffer of one of its partitions is full.

A fetch without the full partition could wait at the broker when the application has drained the
buffer. A partition that stays full must not delay the others for longer, though.
"""

LeaderOf = Callable[[TopicPartition], LeaderAndEpoch | None]
"""Returns the leader of a partition, or None if it is unknown."""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Limits of the buffers, in bytes.

    Attributes:
        buffer_bytes: Nothing is fetched while the buffers of all partitions hold this much. The
            buffers of paused and excluded partitions do not count, so that these partitions never
            block the others.
        partition_bytes: A partition is not fetched while its buffer holds this much.
    """

    buffer_bytes: int
    partition_bytes: int


class PartitionFetch(NamedTuple):
    """One partition of a Fetch request. The response is valid while the partition is in `state`.

    `last_fetched_epoch` is the leader epoch of the record before `offset`. With `from_follower` the
    broker is not the leader.
    """

    partition: AssignedPartition
    state: Fetching
    buffer: FetchBuffer
    offset: int
    leader_epoch: int
    max_bytes: int
    last_fetched_epoch: int
    from_follower: bool

    @property
    def is_current(self) -> bool:
        """True if the response is still needed: no seek or revocation came in between."""
        partition = self.partition
        return (
            partition.state is self.state
            and not partition.pending_revocation
            and self.buffer.fetch_offset == self.offset
        )


class FetchPlan(NamedTuple):
    """One Fetch request. With `short_wait` a full partition is left out, which may drain soon."""

    node: NodeId
    parts: tuple[PartitionFetch, ...]
    short_wait: bool = False
    states: frozenset[Fetching] = frozenset()


class FetchPlanner:
    """Plans at most one fetch in flight per broker; full partitions are not fetched.

    `update` notes a changed partition. The cost of `start_fetches` grows with the brokers and the
    partitions with data, not with all partitions. A broker fills its response in the order of the
    request, so partitions that returned data go to the end of the next request.

    Attributes:
        backing_off: Partitions that may be fetched at a later time.
        followers: Partitions fetched from a preferred read replica, which expires.
        deferred: Partitions that wait for a fetch from another broker to end. The caller passes
            these, and the expired ones of the other two, to `update` again.
        buffers_full: The last `start_fetches` planned nothing, because `buffer_bytes` was reached.
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

    def update(
        self,
        partition: AssignedPartition,
        leader_of: LeaderOf,
        now: float,
        nodes: Container[NodeId] = (),
    ) -> None:
        """Note a partition whose state, buffer or limits may have changed.

        A follower is fetched from only if it is among `nodes`. The leader is the partition's
        (`AssignedPartition.update_leader`); `leader_of` is called only for one without a leader.
        """
        self.deferred.pop(partition, None)
        self.backing_off.pop(partition, None)
        self.followers.pop(partition, None)
        if partition.not_before > now:
            self.backing_off[partition] = None
        leader = None
        state = partition.state
        if isinstance(state, Fetching) and self._needs_fetch(partition, state, now):
            leader = state.leader
            if leader is None:
                leader = leader_of(partition.tp)
                partition.update_leader(leader)
                state = partition.state
        if leader is None or not isinstance(state, Fetching):
            self._exclude(partition)
            return
        node = _fetch_node(partition, leader, now, nodes)
        if partition.preferred_replica is not None:
            self.followers[partition] = None
        before = self._node_of.get(partition)
        if before != node and any(
            state in plan.states for at, plan in self._in_flight.items() if at != node
        ):
            # The fetch from the other broker ends first.
            self.deferred[partition] = None
            self._exclude(partition)
            return
        buffer = state.buffer
        part = PartitionFetch(
            partition,
            state,
            buffer,
            offset=buffer.fetch_offset,
            leader_epoch=leader.epoch,
            max_bytes=partition.max_bytes or self._limits.partition_bytes,
            last_fetched_epoch=buffer.last_fetched_epoch,
            from_follower=node != leader.node,
        )
        if before == node and self._parts[node][partition] == part:
            return
        self._exclude(partition)
        self._parts.setdefault(node, {})[partition] = part
        self._node_of[partition] = node
        self._cached_plans.pop(node, None)

    def forget(self, partition: AssignedPartition) -> None:
        """Remove a partition that is no longer assigned."""
        self.deferred.pop(partition, None)
        self.backing_off.pop(partition, None)
        self.followers.pop(partition, None)
        self._exclude(partition)

    def planned_partitions(self) -> list[AssignedPartition]:
        """Return the partitions to fetch, now or later."""
        return [*(self._node_of | self.backing_off | self.deferred)]

    def _exclude(self, partition: AssignedPartition) -> None:
        node = self._node_of.pop(partition, None)
        if node is not None:
            del self._parts[node][partition]
            self._cached_plans.pop(node, None)

    def start_fetches(
        self, with_data: Iterable[AssignedPartition], leader_of: LeaderOf, now: float
    ) -> list[FetchPlan]:
        """Return the fetches to start now. `with_data` are the partitions with buffered records."""
        self._nodes_backing_off = {
            node: until for node, until in self._nodes_backing_off.items() if until > now
        }
        self._held_until = {node: until for node, until in self._held_until.items() if until > now}
        full, buffered = self._measure_buffers(with_data)
        full_nodes = {
            leader.node: now
            for partition in full
            if (leader := leader_of(partition.tp)) is not None
        }
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
        """Return the full partitions, and the bytes in the buffers of all that count."""
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

    def _needs_fetch(self, partition: AssignedPartition, state: Fetching, now: float) -> bool:
        """Return whether to fetch a partition once its broker is idle."""
        return (
            not partition.paused
            and not partition.pending_revocation
            and partition.not_before <= now
            and state.buffer.size_bytes < self._limits.partition_bytes
            and state not in self._unverified
        )

    def suspend(self, state: Fetching) -> None:
        """Do not fetch at this position until `resume`, because the topic may be recreated."""
        self._unverified.add(state)

    def resume(self, state: Fetching) -> None:
        """Fetch at this position again."""
        self._unverified.discard(state)

    def _start_fetch(self, node: NodeId, short_wait: bool) -> FetchPlan:
        plan = self._cached_plans.get(node)
        if plan is None:
            parts = tuple(self._parts[node].values())
            # A partition with a larger fetch size is fetched alone.
            oversized = next((part for part in parts if part.partition.max_bytes is not None), None)
            parts = parts if oversized is None else (oversized,)
            plan = FetchPlan(node, parts, states=frozenset(part.state for part in parts))
            self._cached_plans[node] = plan
        plan = self._in_flight[node] = plan._replace(short_wait=short_wait)
        return plan

    def finished(self, plan: FetchPlan, backoff_until: float | None = None) -> None:
        """Note the end of a fetch; after a failure its broker is not fetched until the backoff."""
        self._in_flight.pop(plan.node, None)
        if backoff_until is not None:
            self._nodes_backing_off[plan.node] = backoff_until

    def next_deadline(self, now: float) -> float:
        """Return when to pass a partition to `update` again, or to start a fetch.

        A backoff that has ended since the last `update` counts too: nothing else would end it.
        """
        later = [partition.not_before for partition in self.backing_off]
        later += [until for until in self._nodes_backing_off.values() if until > now]
        later += self._held_until.values()
        return min(later, default=NEVER)


def _fetch_node(
    partition: AssignedPartition, leader: LeaderAndEpoch, now: float, nodes: Container[NodeId]
) -> NodeId:
    """Return the broker to fetch from: a valid preferred read replica, else the leader."""
    preferred_replica = partition.preferred_replica
    if (
        preferred_replica is None
        or preferred_replica.until <= now
        or preferred_replica.node not in nodes
    ):
        partition.preferred_replica = None
        return leader.node
    return preferred_replica.node
