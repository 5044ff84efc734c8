"""A running consumer: its cluster client, fetcher, positions and group."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.cluster.metadata import MetadataUpdate
from aiokafkawire.config import ConsumerConfig
from aiokafkawire.errors import ClientClosed, CommitFailed, InvalidOption, KafkaError
from aiokafkawire.group.assignors import Assignor
from aiokafkawire.group.states import NO_GENERATION
from aiokafkawire.logs import FailureStreak, RateLimit, log_fields
from aiokafkawire.records import Record, Records
from aiokafkawire.runtime import (
    Runtime,
    Session,
    Supervisor,
    checkpoint,
    copy_error,
    get_loop_checkpoint,
    in_slices,
)
from aiokafkawire.types import OffsetAndMetadata, TopicPartition
from aiokafkawire.wire import ErrorCode

from .assignment import ConsumerAssignment, offsets_to_commit
from .counters import ConsumerCounters
from .fetch_buffer import RecordCursor
from .fetcher import Fetcher, isolation_level
from .group_session import GroupSession
from .list_offsets import OffsetLister
from .missing_topics import MissingTopics
from .notifier import Notifier
from .outage_log import OutageLog
from .partition import (
    AssignedPartition,
    AwaitingCommitted,
    CommittedOffsetFetched,
    OffsetSpec,
    ResetOffset,
    Resetting,
    TopicRecreated,
    Validating,
)
from .position_resolver import PositionResolver
from .rebalance import ConsumerCallbacks
from .subscription import (
    ManualAssignment,
    NoSubscription,
    RebalanceListener,
    SubscribedPattern,
    SubscribedTopics,
    Subscription,
)

__all__ = ("ConsumerSession",)

logger = logging.getLogger("aiokafkawire.consumer")


class ConsumerSession(Session):
    """The parts of a running consumer; their tasks run in `supervisor`."""

    def __init__(
        self,
        config: ConsumerConfig,
        runtime: Runtime,
        supervisor: Supervisor,
        assignors: Sequence[Assignor],
    ) -> None:
        self.config = config
        self.runtime = runtime
        self.cluster = Cluster(config, runtime, supervisor)
        self.assignment = ConsumerAssignment(config.max_partition_fetch_bytes)
        self.lister = OffsetLister(self.cluster, runtime, isolation_level(config))
        self.subscription: Subscription = NoSubscription()
        self.cursor: RecordCursor | None = None
        self.checkpoint = get_loop_checkpoint()
        self._supervisor = supervisor
        self._notifier = Notifier()
        self._rate_limit = RateLimit()
        self._commit_failures = FailureStreak()
        self._pending_error: Exception | None = None
        self._outage_log = OutageLog()
        self._missing_topics = MissingTopics(config.default_api_timeout_ms / 1000)
        callbacks = ConsumerCallbacks(
            self._stop_delivery,
            self.on_state_changed,
            self.raise_in_next_call,
            self._on_result,
            self.counters,
        )
        self.group = (
            None
            if config.group_id is None
            else GroupSession(
                self.cluster,
                runtime,
                supervisor,
                config,
                assignors=assignors,
                assignment=self.assignment,
                callbacks=callbacks,
                notifier=self._notifier,
                on_committed=self.on_committed,
            )
        )
        self.fetcher = Fetcher(
            self.cluster,
            runtime,
            supervisor,
            config,
            assignment=self.assignment,
            on_data=self._notifier.notify_all,
            on_change=self.on_state_changed,
            on_result=self._on_result,
            raise_in_next_call=self.raise_in_next_call,
            counters=self.counters,
        )
        self.position_resolver = PositionResolver(
            self.cluster,
            runtime,
            supervisor,
            assignment=self.assignment,
            committed_offsets=self.group,
            lister=self.lister,
            policy=config.auto_offset_reset,
            drop_if_deleted=self._drop_if_deleted,
            on_change=self._positions_changed,
            on_result=self._on_result,
        )

    # --- start and close ---

    async def start(self) -> None:
        """Connect to the cluster and start all tasks."""
        now = self.runtime.clock.now()
        await self.cluster.start(now + self.config.default_api_timeout_ms / 1000)
        self.cluster.add_metadata_listener(self._metadata_changed)
        self._supervisor.spawn(self.fetcher.run, name="fetcher")
        self._supervisor.spawn(self.position_resolver.run, name="position-resolver")
        if self.group is not None:
            self._supervisor.spawn(self.group.member.run, name="membership")
            self._supervisor.spawn(self.group.offsets.run, name="commits")
            if self.config.enable_auto_commit:
                self._supervisor.spawn(self._auto_commit, self.group, name="auto-commit")

    @property
    def has_pending_commits(self) -> bool:
        """True if `close` must wait for the coordinator: for a commit, or for the member id."""
        if self.group is None:
            return False
        if self.group.member.awaiting_member_id:
            return True
        if self.group.manual_commits or self.group.offsets.has_waiters:
            return True
        return self.config.enable_auto_commit and any(
            partition.offset_to_commit() is not None for partition in self.assignment.values()
        )

    async def close(self, deadline: float, limit: float) -> None:
        """Commit processed records, leave the group and close the connections.

        Args:
            deadline: Time at which to give up. A rebalance callback that runs then moves it.
            limit: The latest deadline.
        """
        self._stop_delivery()
        if self.group is not None:
            await self._leave_group(self.group, deadline, limit)
        await self.cluster.aclose()

    async def _leave_group(self, group: GroupSession, deadline: float, limit: float) -> None:
        clock, rebalance = self.runtime.clock, group.rebalance
        allowed_s = deadline - clock.now()
        rebalance.close_deadline = deadline
        if group.manual and self.config.enable_auto_commit:
            await group.wait_until_left(deadline)
            await rebalance.commit_processed(self.assignment.values())
        while not await group.member.close(deadline) and rebalance.in_callback:
            while rebalance.in_callback and await self._notifier.wait(limit):
                pass
            if clock.now() >= limit:
                break
            rebalance.close_deadline = deadline = min(limit, clock.now() + allowed_s)

    def close_limit(self, deadline: float) -> float:
        """Return the close deadline plus the time that a rebalance callback may take."""
        if self.group is None or self.group.rebalance.listener is None:
            return deadline
        return deadline + self.config.rebalance_callback_timeout_ms / 1000

    def on_task_failed(self, failure: KafkaError) -> None:
        """Wake all waiting calls, which raise the failure of a background task."""
        self._notifier.notify_all()

    def on_tasks_cancelled(self, error: ClientClosed) -> None:
        """Wake all waiting calls, because all tasks of the event loop were cancelled."""
        self._notifier.notify_all()

    def unreported_error(self) -> Exception | None:
        """Return the background error that the next call would have raised, if any."""
        error = self._take_error()
        if error is not None:
            return error
        if self.group is None or self.group.member.unreported_error is None:
            return None
        return copy_error(self.group.member.unreported_error)

    # --- subscription ---

    def subscribe(self, subscription: Subscription, listener: RebalanceListener | None) -> None:
        """Replace the subscription.

        Between topics or a pattern and a `ManualAssignment` the caller sets `NoSubscription`, which
        leaves the group.
        """
        # Raises for an invalid topic, before anything has changed.
        self.cluster.add_topics(subscription.topics)
        before, self.subscription = self.subscription, subscription
        if isinstance(before, ManualAssignment):
            kept = subscription.partitions if isinstance(subscription, ManualAssignment) else ()
            # Partitions that the group is still revoking are released by the group.
            manual = [
                partition
                for partition in self.assignment.values()
                if not partition.pending_revocation
            ]
            self._remove_partitions([partition for partition in manual if partition.tp not in kept])
        if self.group is not None:
            self.group.manual = isinstance(subscription, ManualAssignment)
            self.group.rebalance.listener = listener
        self.cluster.remove_topics(before.topics)
        self.cluster.all_topics = isinstance(subscription, SubscribedPattern)
        if isinstance(subscription, ManualAssignment):
            known = before.partitions if isinstance(before, ManualAssignment) else ()
            for tp in subscription.partitions:
                if tp not in known:
                    self._add_partition(tp)
        self._stop_delivery()
        self._apply_subscription()
        self.on_state_changed()

    def _add_partition(self, tp: TopicPartition) -> None:
        state = AwaitingCommitted()
        partition = AssignedPartition(
            tp, self.config.auto_offset_reset, state, self._supervisor.fields
        )
        if self.group is None:
            # Nothing can be committed without a group: `auto_offset_reset` decides.
            partition.handle(CommittedOffsetFetched(state, None))
        self.assignment.add(partition)

    def _remove_partitions(self, partitions: Collection[AssignedPartition]) -> None:
        """Remove manually assigned partitions, and commit their processed records."""
        group = self.group
        if group is not None and self.config.enable_auto_commit:
            offsets = offsets_to_commit(
                partitions, group.offsets.pending_offsets(partition.tp for partition in partitions)
            )
            if offsets:
                group.manual_commits += 1
                self._supervisor.spawn(self._commit_before_joining, group, offsets, name="commit")
        self.assignment.remove(partitions)

    async def _commit_before_joining(
        self, group: GroupSession, offsets: dict[TopicPartition, OffsetAndMetadata]
    ) -> None:
        try:
            await self._commit_quietly(group, [group.offsets.submit(offsets)], len(offsets))
        finally:
            group.manual_commits -= 1
            self._apply_subscription()

    def _apply_subscription(self) -> None:
        """Update the group's topics, or without a group the partitions, to match the metadata."""
        subscription, metadata = self.subscription, self.cluster.metadata
        if isinstance(subscription, ManualAssignment):
            return
        topics: tuple[str, ...] = ()
        if isinstance(subscription, SubscribedTopics):
            topics = subscription.topics
        elif isinstance(subscription, SubscribedPattern):
            topics = subscription.matches(metadata)
            if self.group is None:
                topics = self._with_missing(subscription, topics)
        if self.group is not None:
            member = self.group.member
            if self.group.manual_commits:
                # Once it is a member it cannot commit manually assigned partitions: it joins after
                # these commits.
                return
            if tuple(sorted(topics)) != member.topics:
                member.subscribe(topics)
                self.group.rebalance.limit_to_topics(topics)
            return
        present = {
            TopicPartition(topic, number): None
            for topic in topics
            for number in metadata.partitions(topic)
        }
        known = {tp.topic for tp in self.assignment.topic_partitions}
        self.assignment.remove(
            [
                partition
                for partition in self.assignment.values()
                if partition.tp.topic not in topics
            ]
        )
        for tp in present:
            if tp not in self.assignment:
                self._add_partition(tp)
                added = self.assignment.get(tp)
                if tp.topic in known and added is not None and isinstance(added.state, Resetting):
                    # Partitions added to a topic are read from the beginning.
                    added.handle(ResetOffset(OffsetSpec.EARLIEST))

    def _with_missing(
        self, subscription: SubscribedPattern, topics: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Add topics that match and may be missing from the metadata for a moment only."""
        owned = dict.fromkeys(tp.topic for tp in self.assignment.topic_partitions)
        result = self._missing_topics.check_missing(
            self.cluster.metadata,
            topics,
            [topic for topic in owned if subscription.pattern.fullmatch(topic)],
            self.runtime.clock.now(),
        )
        self._restart_recreated(result.recreated)
        return (*topics, *result.kept)

    def _restart_recreated(self, topics: Collection[str]) -> list[AssignedPartition]:
        """Reset the partitions of recreated topics; remove those that no longer exist."""
        recreated = [
            partition for partition in self.assignment.values() if partition.tp.topic in topics
        ]
        for partition in recreated:
            partition.handle(TopicRecreated())
        if self._reads_whole_topics:
            existing = {topic: self.cluster.metadata.partitions(topic) for topic in topics}
            self.assignment.remove(
                [
                    partition
                    for partition in recreated
                    if partition.tp.partition not in existing[partition.tp.topic]
                ]
            )
        return recreated

    @property
    def _reads_whole_topics(self) -> bool:
        """True if the consumer reads all partitions of its topics: no group, no `assign`."""
        return self.group is None and not isinstance(self.subscription, ManualAssignment)

    def _drop_if_deleted(self, partition: AssignedPartition) -> bool:
        """Remove a partition that was missing in its topic's metadata for the timeout.

        Without topic ids this is how a topic recreated with fewer partitions is detected.

        Returns:
            False if the partition is assigned by the group or by `assign`; then it stays.
        """
        if self._reads_whole_topics:
            now = self.runtime.clock.now()
            logger.log(
                self._rate_limit.level(logging.WARNING, ("gone", partition.tp.topic), now),
                "%s: partition %s was deleted; it is no longer read",
                self._supervisor.name,
                partition.tp,
                extra=log_fields(self._supervisor.fields, tp=partition.tp),
            )
            self.assignment.remove([partition])
        return self._reads_whole_topics

    def _metadata_changed(self, update: MetadataUpdate) -> None:
        if update.leaders_only:
            self.on_state_changed()
            return
        recreated = self._restart_recreated(update.recreated_topics)
        if recreated and self.group is not None:
            reason = "the topic was deleted and created again"
            self.group.offsets.end_ownership(
                [partition.tp for partition in recreated], reason, lost=True
            )
        self._apply_subscription()
        if self.group is not None and not self.group.manual:
            self.group.member.metadata_changed()
        self.on_state_changed()

    # --- delivery ---

    def poll_started(self, caller: object) -> None:
        """Note that the application calls for records, as Kafka's `poll` does."""
        self._stop_delivery()
        self.assignment.mark_processed(caller)
        if self.group is not None:
            self.group.member.poll_started()

    def poll_finished(self) -> None:
        """Note that the call for records returns."""
        if self.group is not None:
            self.group.member.poll_finished()

    def next_buffered(self, owner: object) -> Record | None:
        """Return the next record of this owner's cursor, if any; this resets the poll timer."""
        cursor = self.cursor
        if cursor is None or cursor.owner is not owner:
            return None
        record = cursor.next()
        # mutation: buffered-records-do-not-reset-poll-timer
        if record is not None:
            self.record_poll()
        return record

    def record_poll(self) -> None:
        """Reset the poll timer of the group member."""
        if self.group is not None:
            self.group.member.record_poll()

    def next_record(self, owner: object, caller: object) -> Record | None:
        """Return the next record, and open a cursor for those after it."""
        if self.in_callback:
            return None
        try:
            cursor = self.assignment.open_cursor(caller)
        finally:
            self.fetcher.on_records_delivered()
        if cursor is None:
            return None
        # Another waiting caller may have opened a cursor meanwhile.
        self._stop_delivery()
        cursor.owner = owner
        self.cursor = cursor
        return cursor.next()

    def take(
        self,
        caller: object,
        max_records: int,
        only: Collection[TopicPartition] | None,
        *,
        single_partition: bool,
    ) -> dict[TopicPartition, Records]:
        """Return buffered records; see `ConsumerAssignment.take`."""
        if self.in_callback:
            return {}
        try:
            return self.assignment.take(
                caller, max_records, only, single_partition=single_partition
            )
        finally:
            self.fetcher.on_records_delivered()

    async def continue_decoding(self) -> bool:
        """Yield to other tasks, or decompress the next batch, if the last call stopped for that.

        Returns:
            False if the last call did not stop.
        """
        assignment = self.assignment
        if not assignment.decoding_suspended:
            return False
        assignment.decoding_suspended = False
        if assignment.offloaded is None:
            await checkpoint()
        else:
            await self.runtime.offload(assignment.offloaded.decompress)
        return True

    @property
    def in_callback(self) -> bool:
        """True while a rebalance callback runs. Until it ends, no records may be delivered."""
        return self.group is not None and self.group.rebalance.in_callback

    async def wait(self, deadline: float) -> bool:
        """Wait for a change. Return False at the deadline."""
        return await self._notifier.wait(deadline)

    def raise_errors(self) -> None:
        """Raise an error that the application must know about, if there is one."""
        raised = self._take_error()
        if raised is not None:
            raise raised
        if self.group is not None and (error := self.group.member.error) is not None:
            self.group.member.mark_error_reported()
            raise copy_error(error)
        self.raise_partition_error()
        subscription = self.subscription
        if isinstance(subscription, NoSubscription):
            raise KafkaError("nothing to read: call subscribe() or assign() first")
        if subscription.topics:
            now = self.runtime.clock.now()
            missing = self._missing_topics.find_error(
                self.cluster.metadata, subscription.topics, now
            )
            if missing is not None:
                # The topic may have been created, or permitted, since the last refresh.
                self.cluster.request_update()
                raise missing

    @property
    def counters(self) -> ConsumerCounters:
        """The counters of the consumer."""
        return self.assignment.counters

    def raise_partition_error(self) -> None:
        """Raise the error of a partition that cannot be read, if there is one."""
        try:
            self.assignment.raise_partition_error()
        except KafkaError:
            # A reported error may be retried.
            self.fetcher.wake()
            self.position_resolver.wake()
            raise

    def metrics(self) -> dict[str, int | float]:
        """Return the metrics of the consumer and its cluster client."""
        return self.assignment.metrics() | self.cluster.metrics()

    def validated_position(self, partition: AssignedPartition) -> int | None:
        """Return the position, or None until it is validated against the leader's log."""
        partition.update_leader(self.cluster.metadata.leader(partition.tp))
        if isinstance(partition.state, Validating):
            self.position_resolver.wake_for([partition])
            return None
        return partition.position

    def on_position_changed(self) -> None:
        """Stop the current delivery, because the application has sought, paused or resumed."""
        self._stop_delivery()
        self.on_state_changed()

    # --- signals ---

    def on_state_changed(self) -> None:
        """Wake all tasks and waiting calls, because partitions, positions or leaders changed."""
        if self.group is not None and self.group.member.is_outside_group:
            self.group.offsets.on_rejoined(NO_GENERATION, ())
        self._notifier.notify_all()
        self.fetcher.wake()
        self.position_resolver.wake()

    def _positions_changed(self, partitions: Collection[AssignedPartition]) -> None:
        """Wake waiting calls and the fetcher for these partitions."""
        self._notifier.notify_all()
        self.fetcher.wake_for(partitions)

    def raise_in_next_call(self, error: Exception) -> None:
        """Raise an error in the application's next call. Further errors are only logged."""
        if self._pending_error is None:
            self._pending_error = error
        else:
            now = self.runtime.clock.now()
            logger.log(
                self._rate_limit.level(logging.WARNING, type(error), now),
                "%s: %r is not raised, because an earlier error has not been raised yet",
                self._supervisor.name,
                error,
                extra=log_fields(self._supervisor.fields, error=error),
            )
        self._notifier.notify_all()

    def _take_error(self) -> Exception | None:
        error, self._pending_error = self._pending_error, None
        return error

    def _stop_delivery(self) -> None:
        if self.cursor is not None:
            self.cursor.close()
            self.cursor = None

    @property
    def last_failure(self) -> KafkaError | None:
        """The last error while no broker responds, or None."""
        return self._outage_log.failure

    def _on_result(self, failure: KafkaError | None) -> None:
        text = self._outage_log.record(failure, self.runtime.clock.now())
        if text is not None:
            extra = log_fields(self._supervisor.fields, error=failure)
            logger.warning("%s: %s", self._supervisor.name, text, extra=extra)
        elif (outage_s := self._outage_log.ended_after_s) is not None:
            logger.info(
                "%s: brokers respond again after %.3f s",
                self._supervisor.name,
                outage_s,
                extra=log_fields(self._supervisor.fields, outage_ms=round(outage_s * 1_000)),
            )

    # --- committing ---

    async def _auto_commit(self, group: GroupSession) -> None:
        interval_s = self.config.auto_commit_interval_ms / 1000
        clock = self.runtime.clock
        due = clock.now()
        while True:
            due = max(due + interval_s, clock.now())
            await clock.sleep_until(due)
            commit_ids: list[int] = []
            count = 0
            async for partitions in in_slices(self.assignment.values()):
                offsets = self._uncommitted(group, partitions)
                if offsets:
                    commit_ids.append(group.offsets.submit(offsets))
                    count += len(offsets)
            if commit_ids:
                await self._commit_quietly(group, commit_ids, count)

    def _uncommitted(
        self, group: GroupSession, partitions: Iterable[AssignedPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets to commit of those partitions that are still assigned."""
        errors = self.cluster.metadata.errors
        owned = [
            partition
            for partition in partitions
            # The coordinator refuses commits of a deleted topic.
            if not partition.pending_revocation
            and self.assignment.get(partition.tp) is partition
            and errors.get(partition.tp.topic) != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ]
        return offsets_to_commit(
            owned, group.offsets.pending_offsets(partition.tp for partition in owned)
        )

    async def _commit_quietly(
        self, group: GroupSession, commit_ids: Sequence[int], count: int
    ) -> None:
        """Wait for commits of `count` partitions. A failure is logged, not raised."""
        clock = self.runtime.clock
        deadline = clock.now() + self.config.default_api_timeout_ms / 1000
        try:
            await group.offsets.wait_acknowledged(commit_ids, deadline)
        except KafkaError as error:
            self.counters.commit_failures += 1
            is_lost = isinstance(error, CommitFailed)
            logger.log(
                self._commit_failures.failed(logging.WARNING, clock.now()),
                "Group %s: auto-commit failed: %s; %s",
                self.config.group_id,
                error,
                "the new owner reads the uncommitted records again" if is_lost else "retrying",
                extra=log_fields(self._supervisor.fields, error=error, partitions=count),
            )
            return
        outage_s = self._commit_failures.ended(clock.now())
        if outage_s is not None:
            logger.info(
                "Group %s: auto-commit succeeds again after %.3f s",
                self.config.group_id,
                outage_s,
                extra=log_fields(self._supervisor.fields, outage_ms=round(outage_s * 1_000)),
            )

    def on_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Note that the coordinator has acknowledged these offsets."""
        self.counters.commits += 1
        self.assignment.mark_committed(offsets)

    async def commit(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit offsets. Raises `CommitFailed` for a partition that is not assigned."""
        group = self.require_group()
        if not group.manual and not self.assignment.has_all(offsets):
            for tp in offsets:
                if tp not in self.assignment:
                    reason = group.rebalance.lost_uncommitted.pop(tp, None)
                    raise CommitFailed(
                        "the partition is not assigned to this consumer"
                        + (f": {reason}" if reason else ""),
                        group=self.config.group_id,
                        topic=tp.topic,
                        partition=tp.partition,
                    )
        await checkpoint()
        deadline = self.runtime.clock.now() + self.config.default_api_timeout_ms / 1000
        await group.require_not_member(deadline, "OffsetCommit")
        before_revocation = group.rebalance.is_any_being_revoked(offsets)
        try:
            await group.offsets.commit(offsets, deadline, before_revocation=before_revocation)
        except KafkaError:
            self.counters.commit_failures += 1
            raise

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that `commit()` would commit.

        Raises `CommitFailed`, once, if delivered records were lost before they were committed.
        """
        group = self.group
        if group is not None and group.rebalance.released_uncommitted:
            raise _lost_error(group.rebalance.released_uncommitted, group.member.group_id)
        return self.assignment.delivered_offsets()

    def require_group(self) -> GroupSession:
        """Return the group. Raises `InvalidOption` without a `group_id`."""
        if self.group is None:
            raise InvalidOption("committed offsets require a group_id")
        return self.group

    def raise_lost_partitions(self) -> None:
        """Raise `CommitFailed`, once, if partitions were lost with uncommitted records."""
        group = self.require_group()
        if group.rebalance.lost_uncommitted:
            raise _lost_error(group.rebalance.lost_uncommitted, group.member.group_id)


def _lost_error(partitions: dict[TopicPartition, str], group_id: str) -> CommitFailed:
    """Return the error for partitions lost with uncommitted records, and clear `partitions`."""
    names = ", ".join(map(str, sorted(partitions)))
    reason = next(iter(partitions.values()))
    partitions.clear()
    return CommitFailed(
        f"these partitions were lost before their records were committed: {names} ({reason})",
        group=group_id,
    )
