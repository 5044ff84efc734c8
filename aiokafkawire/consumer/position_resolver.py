"""Finds positions: committed offsets from the coordinator, others from the leaders (ListOffsets).

Validates positions against the leaders' logs, too (OffsetForLeaderEpoch).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.cluster.metadata import MetadataSnapshot
from aiokafkawire.connection import Backoff
from aiokafkawire.errors import KafkaError, UnknownTopic
from aiokafkawire.logs import RateLimit, log_fields
from aiokafkawire.runtime import Runtime, Supervisor, in_slices
from aiokafkawire.types import NodeId, TopicPartition

from .assignment import ConsumerAssignment
from .group_session import GroupSession
from .leader_retry import LeaderlessPartitions
from .list_offsets import OffsetLister
from .notifier import Notifier
from .offset_for_leader_epoch import EpochQuery, fetch_epoch_ends
from .partition import AssignedPartition
from .partition_results import PartitionResults, by_leader
from .partition_states import (
    AwaitingCommitted,
    BeforeNow,
    CommittedOffsetFetched,
    EpochEndFetched,
    Event,
    Fetching,
    LookupFailed,
    OffsetListed,
    PartitionFailed,
    Resetting,
    State,
    Validating,
)
from .start_position_log import StartPositionLog

__all__ = ("PositionResolver",)

logger = logging.getLogger("aiokafkawire.consumer")

MAX_STALE_METADATA_RETRIES = 5
"""Metadata updates to wait for if a position has a newer leader epoch than the metadata."""

MAX_PARTITIONS_PER_REQUEST = 2_000
"""More partitions in one request would block the event loop for tens of milliseconds."""

Lookups = dict[AssignedPartition, State]


class PositionResolver:
    """Finds the positions of assigned partitions, and validates them after a leader change.

    Args:
        cluster: Sends the requests.
        runtime: Clock and random numbers.
        supervisor: Runs a task per request.
        assignment: The assigned partitions.
        group: The source of committed offsets, if there is one.
        lister: Sends ListOffsets requests.
        policy: `auto_offset_reset`.
        notifier: Says which partitions to check, and is notified of positions and errors.
    """

    def __init__(
        self,
        cluster: Cluster,
        runtime: Runtime,
        supervisor: Supervisor,
        *,
        assignment: ConsumerAssignment,
        group: GroupSession | None,
        lister: OffsetLister,
        policy: str,
        notifier: Notifier,
    ) -> None:
        config = cluster.config
        self._cluster = cluster
        self._runtime = runtime
        self._supervisor = supervisor
        self._assignment = assignment
        self._group = group
        self._lister = lister
        self._notifier = notifier
        self._backoff = Backoff.from_ms(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._failures = 0
        self._retry_at = 0.0
        self._in_flight: dict[State, None] = {}
        self._waiting: dict[AssignedPartition, None] = {}
        self._leaderless = LeaderlessPartitions(
            assignment, config.retry_backoff_ms / 1000, config.default_api_timeout_ms / 1000
        )
        self._rate_limit = RateLimit()
        self.log = StartPositionLog(supervisor.name, supervisor.fields, policy)

    async def run(self) -> None:
        """Start lookups as they become due, until the supervisor stops."""
        seen_metadata: MetadataSnapshot | None = None
        while self._supervisor.is_running:
            now = self._runtime.clock.now()
            self.log.log_seeks(now)
            metadata = self._cluster.metadata
            if metadata is not seen_metadata:
                seen_metadata = metadata
                self._notifier.to_resolve.check_all = True
            for due in await self._due_lookups(metadata):
                async for partitions in in_slices(due, MAX_PARTITIONS_PER_REQUEST):
                    self._start_lookups(partitions)
            for tp in self._leaderless.overdue(metadata, self._runtime.clock.now()):
                self._fail_missing(tp)
            if self._leaderless.should_request(self._runtime.clock.now(), self._runtime.rng):
                self._cluster.request_update()
            later = [_not_before(partition.state) for partition in self._waiting]
            await self._notifier.to_resolve.changed.wait(min([*later, self._leaderless.next_at]))

    async def _due_lookups(self, metadata: MetadataSnapshot) -> list[list[AssignedPartition]]:
        """Return the partitions to look up now, grouped by the broker to ask.

        Partitions are checked in slices; their states may change between slices.
        """
        if self._notifier.to_resolve.check_all:
            self._notifier.to_resolve.check_all = False
            self._notifier.to_resolve.partitions.update(dict.fromkeys(self._assignment.values()))
        now = self._runtime.clock.now()
        due_now = [partition for partition in self._waiting if _not_before(partition.state) <= now]
        self._notifier.to_resolve.partitions.update(dict.fromkeys(due_now))
        due: dict[NodeId | None, list[AssignedPartition]] = {}
        async for partitions in in_slices(self._notifier.to_resolve.take()):
            now = self._runtime.clock.now()
            for partition in partitions:
                self._waiting.pop(partition, None)
                if self._assignment.get(partition.tp) is not partition:
                    continue
                leader = metadata.leader(partition.tp)
                # A rebalance callback may ask for the position of a partition being revoked.
                if leader is None:
                    self._leaderless.add(partition)
                elif not partition.pending_revocation:
                    partition.update_leader(leader)
                state = partition.state
                if not isinstance(state, _LOOKUP_STATES) or state in self._in_flight:
                    continue
                if _not_before(state) > now:
                    self._waiting[partition] = None
                    continue
                needs_coordinator = isinstance(state, AwaitingCommitted)
                node = None if needs_coordinator or leader is None else leader.node
                due.setdefault(node, []).append(partition)
        return list(due.values())

    def _start_lookups(self, partitions: Iterable[AssignedPartition]) -> None:
        """Start the lookups of partitions that still need them."""
        if not self._supervisor.is_running:
            return
        by_state: dict[type[State], list[AssignedPartition]] = {}
        for partition in partitions:
            state = partition.state
            if self._assignment.get(partition.tp) is partition and state not in self._in_flight:
                by_state.setdefault(type(state), []).append(partition)
        if self._group is not None and (awaiting := by_state.get(AwaitingCommitted)):
            lookups = self._mark_in_flight(awaiting)
            self._supervisor.spawn(self._fetch_committed, self._group, lookups, name="offset-fetch")
        self._look_up_offsets(by_state.get(Resetting, []))
        self._validate(by_state.get(Validating, []), self._runtime.clock.now())

    def _fail_missing(self, tp: TopicPartition) -> None:
        partition = self._assignment.get(tp)
        if partition is None:
            return
        if self._assignment.whole_topics:
            # Without topic ids this is how a topic recreated with fewer partitions is detected.
            logger.log(
                self._rate_limit.level(
                    logging.WARNING, ("gone", tp.topic), self._runtime.clock.now()
                ),
                "%s: partition %s was deleted; it is no longer read",
                self._supervisor.name,
                tp,
                extra=log_fields(self._supervisor.fields, tp=tp),
            )
            self._assignment.remove([partition])
            return
        if not isinstance(partition.state, _STATES_THAT_CAN_FAIL):
            return
        error = UnknownTopic(
            f"topic {tp.topic!r} has no partition {tp.partition}, and it did not appear within"
            f" {self._cluster.config.default_api_timeout_ms / 1000:g} s (default_api_timeout_ms)",
            topic=tp.topic,
            partition=tp.partition,
        )
        partition.handle(PartitionFailed(partition.state, error))
        self._notifier.positions_changed([partition])

    # --- committed offsets ---

    async def _fetch_committed(self, group: GroupSession, lookups: Lookups) -> None:
        events: dict[TopicPartition, Event] = {}
        try:
            committed = await group.fetch([partition.tp for partition in lookups], self._deadline())
            self._notifier.request_finished(None)
            self._failures = 0
            events = {
                partition.tp: CommittedOffsetFetched(state, committed[partition.tp])
                for partition, state in lookups.items()
            }
        except KafkaError as error:
            self._notifier.request_finished(error)
            retry_at = self._next_retry_at()
            events = {
                partition.tp: LookupFailed(state, error, retry_at)
                for partition, state in lookups.items()
            }
        finally:
            self._apply_events(lookups, events)

    # --- offsets by time ---

    def _look_up_offsets(self, partitions: list[AssignedPartition]) -> None:
        by_name = {partition.tp: partition for partition in partitions}
        for node, tps in by_leader(self._cluster.metadata, by_name).items():
            lookups = self._mark_in_flight([by_name[tp] for tp in tps])
            self._supervisor.spawn(self._list_offsets, node, lookups, name=f"list-offsets-{node}")

    async def _list_offsets(self, node: NodeId, lookups: Lookups) -> None:
        wall_ms = self._runtime.clock.wall_ms()
        timestamps = {
            partition.tp: _timestamp(state.timestamp, wall_ms)
            for partition, state in lookups.items()
            if isinstance(state, Resetting)
        }
        leaders = {tp: self._cluster.metadata.leader(tp) for tp in timestamps}
        events: dict[TopicPartition, Event] = {}
        try:
            listed = await self._lister.list_from_node(node, timestamps, self._deadline())
            states = {partition.tp: state for partition, state in lookups.items()}
            events = self._failure_events(states, listed)
            for tp, offset in listed.found.items():
                events[tp] = (
                    OffsetListed(states[tp], None)
                    if offset is None
                    else OffsetListed(states[tp], offset.offset, offset.leader_epoch, leaders[tp])
                )
        finally:
            self._apply_events(lookups, events)

    # --- validation ---

    def _validate(self, partitions: list[AssignedPartition], now: float) -> None:
        by_node: dict[NodeId, list[AssignedPartition]] = {}
        for partition in partitions:
            state = partition.state
            assert isinstance(state, Validating)
            leader = state.leader
            if (
                state.buffer.last_fetched_epoch > leader.epoch
                and state.failures < MAX_STALE_METADATA_RETRIES
            ):
                # The position is from a newer leader than the metadata has.
                self._cluster.request_update()
                delay_s = self._backoff.delay(state.failures + 1, self._runtime.rng)
                error = KafkaError("the metadata has an older leader epoch", retriable=True)
                partition.handle(LookupFailed(state, error, now + delay_s))
                self._notifier.to_resolve.add([partition])
            else:
                by_node.setdefault(leader.node, []).append(partition)
        for node, node_partitions in by_node.items():
            self._supervisor.spawn(
                self._fetch_epoch_ends,
                node,
                self._mark_in_flight(node_partitions),
                name=f"validate-positions-{node}",
            )

    async def _fetch_epoch_ends(self, node: NodeId, lookups: Lookups) -> None:
        queries = {
            partition.tp: EpochQuery(state.buffer.last_fetched_epoch, state.leader.epoch)
            for partition, state in lookups.items()
            if isinstance(state, Validating)
        }
        events: dict[TopicPartition, Event] = {}
        try:
            ends = await fetch_epoch_ends(self._cluster, node, queries, self._deadline())
            states = {partition.tp: state for partition, state in lookups.items()}
            events = self._failure_events(states, ends)
            for tp, end in ends.found.items():
                events[tp] = EpochEndFetched(states[tp], end.epoch, end.end_offset)
        finally:
            self._apply_events(lookups, events)

    # --- requests and their results ---

    def _mark_in_flight(self, partitions: Iterable[AssignedPartition]) -> Lookups:
        lookups = {partition: partition.state for partition in partitions}
        self._in_flight.update((state, None) for state in lookups.values())
        return lookups

    def _failure_events(
        self, states: Mapping[TopicPartition, State], results: PartitionResults[Any]
    ) -> dict[TopicPartition, Event]:
        self._notifier.request_finished(
            next(iter(results.failed.values()), None) if not results.found else None
        )
        if not results.failed:
            self._failures = 0
            return {}
        retry_at = self._next_retry_at()
        return {
            tp: LookupFailed(states[tp], error, retry_at) for tp, error in results.failed.items()
        }

    def _apply_events(self, lookups: Lookups, events: dict[TopicPartition, Event]) -> None:
        for partition, state in lookups.items():
            self._in_flight.pop(state, None)
            event = events.get(partition.tp)
            if event is not None:
                partition.handle(event)
        self.log.log_lookup(lookups, events, self._runtime.clock.now())
        self._notifier.positions_changed(lookups)
        # mutation: failed-lookup-not-repeated
        self._notifier.to_resolve.add(lookups)

    def _deadline(self) -> float:
        return self._runtime.clock.now() + self._cluster.config.request_timeout_ms / 1000

    def _next_retry_at(self) -> float:
        """Return when to retry. Lookups that were in flight together count as one failure."""
        now = self._runtime.clock.now()
        if now >= self._retry_at:
            self._failures += 1
            self._retry_at = now + self._backoff.delay(self._failures, self._runtime.rng)
        return self._retry_at


_LOOKUP_STATES = (AwaitingCommitted, Resetting, Validating)
_STATES_THAT_CAN_FAIL = (Resetting, Validating, Fetching)


def _not_before(state: State) -> float:
    return (
        state.not_before if isinstance(state, AwaitingCommitted | Resetting | Validating) else 0.0
    )


def _timestamp(point: int | BeforeNow, wall_ms: int) -> int:
    return max(wall_ms - point.milliseconds, 0) if isinstance(point, BeforeNow) else point
