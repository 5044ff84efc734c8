"""`Consumer`: the public interface."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Self, Unpack, overload

from aiokafkawire.cluster.routing import ToAnyNode
from aiokafkawire.config import ConsumerConfig, ConsumerOptions, make_config
from aiokafkawire.config.name_hints import CONSUMER_HINTS
from aiokafkawire.connection import VersionedRequest, parse_api_version
from aiokafkawire.errors import IllegalState, InvalidOption, KafkaError, RequestTimedOut
from aiokafkawire.group.assignors import create_assignors
from aiokafkawire.logs import log_fields
from aiokafkawire.records import Record, Records
from aiokafkawire.runtime import (
    NEVER,
    BaseClient,
    Runtime,
    Supervisor,
    checkpoint,
    client_label,
    current_task,
    in_slices,
)
from aiokafkawire.runtime.client_state import ClientState
from aiokafkawire.types import (
    AnyPartition,
    GroupMetadata,
    NodeId,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionArgument,
    PartitionT,
    PingResult,
    TopicPartition,
    parse_topic_partition,
    parse_topic_partitions,
    require_timeout,
)
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.messages.metadata import MetadataRequest, MetadataResponse

from .fetch_buffer import RecordCursor, UnprocessedRange
from .partition import AssignedPartition
from .partition_states import OffsetSpec, ResetOffset, Seek, SeekToCommitted
from .session import ConsumerSession
from .subscription import (
    ManualAssignment,
    NoSubscription,
    RebalanceListener,
    SubscribedPattern,
    SubscribedTopics,
    Subscription,
    parse_pattern,
    parse_topics,
    validate_listener,
)
from .validation import (
    CommitArgument,
    parse_commit_argument,
    validate_offset,
    validate_partitions,
    validate_timestamps,
)

__all__ = ("BatchIterator", "Consumer", "RecordIterator")

FAST_CLOSE_S = 0.75
"""Time limit of `close` if there is nothing to commit, after a cancellation (Ctrl-C), or after a
task of the consumer has failed."""


class Consumer(BaseClient[ConsumerSession], absent=CONSUMER_HINTS):
    """Reads topics, by itself or as a member of a consumer group.

    ::

        async with Consumer("orders", bootstrap_servers="localhost:9092", group_id="billing") as c:
            async for record in c:
                await bill(record)

    With a `group_id` the partitions of the topics are divided among the members of the group, and
    offsets are committed; without one all partitions are read. Nothing is read before `async with`
    is entered.

    Records count as processed when the task that received them calls the consumer again, or leaves
    `async with` without an exception. Auto-commit commits processed records only, and a rebalance
    revokes a partition only after its records are processed. An application that makes no call
    within `max_poll_interval_ms` loses its partitions.

    Calls that return records wait without a deadline unless they get a timeout. Errors that do not
    pass by waiting are raised at once (`GroupFailed`, `FencedInstanceId`, `NoOffsetForPartition`,
    `CorruptRecord`, …); `UnknownTopic` is raised for a topic that has not existed for
    `default_api_timeout_ms`.
    """

    def __init__(self, *topics: str, **options: Unpack[ConsumerOptions]) -> None:
        """Check the arguments. `start` or `async with` connects.

        Args:
            *topics: Topics to subscribe to. Without any, call `subscribe` or `assign`.
            **options: Options of `ConsumerConfig`, which
                `help(aiokafkawire.config.ConsumerOptions)` describes. Only `bootstrap_servers` is
                required.

        Raises:
            InvalidOption: An option is unknown or invalid, or a topic has an invalid name.
            TypeError: A topic is not a string.
        """
        self.config = make_config(ConsumerConfig, options)
        parse_api_version(self.config.api_version)
        self._assignors = create_assignors(self.config.partition_assignment_strategy)
        group_id = self.config.group_id
        log_prefix = f"consumer {self.config.client_id}"
        super().__init__(
            "consumer",
            client_label("Consumer", self.config, group_id),
            log_prefix=log_prefix if group_id is None else f"{log_prefix} of group {group_id}",
            fields=log_fields(client_id=self.config.client_id, group=group_id),
        )
        try:
            self._subscription: Subscription = parse_topics(topics) if topics else NoSubscription()
        except ValueError as error:
            raise InvalidOption(str(error)) from None
        self._listener: RebalanceListener | None = None

    # --- start and close ---

    async def start(self) -> None:
        """Connect and start to fetch, as entering `async with` does.

        With `connect_on_start=False` it returns at once, and the consumer connects in the
        background. Call `stop` at the end, in any task. After a failure `start` may be called
        again; after `stop` it may not.

        Raises:
            NoBrokerAvailable: No broker answered within `default_api_timeout_ms`.
            AuthenticationFailed: The brokers refused the credentials.
        """
        await super().start()

    async def stop(self) -> None:
        """Commit processed records (with auto-commit), leave the group and close the connections.

        Records delivered to this task count as processed. Takes at most `close_timeout_ms` plus the
        time of the rebalance callback; less than a second if there is nothing to commit, or if
        `async with` is left by a cancellation. Calling it again does nothing.

        Raises:
            KafkaError: An error of a background task that no call has raised yet.
            IllegalState: Called by a rebalance listener, which `stop` waits for.
        """
        await super().stop()

    async def _start(self, runtime: Runtime, supervisor: Supervisor) -> ConsumerSession:
        session = ConsumerSession(self.config, runtime, supervisor, self._assignors)
        await session.start()
        session.topics.subscribe(self._subscription, self._listener)
        return session

    async def _close(self, body_error: BaseException | None) -> Exception | None:
        self._lifecycle.check_loop()
        session = self._lifecycle.session
        if session is None:
            await self._lifecycle.stop(_close_session, NEVER)
            return None
        group = session.group
        if group is not None and group.rebalance.callbacks.is_callback_task(current_task()):
            raise IllegalState(
                "a rebalance listener cannot stop its consumer, because stop() waits for the"
                " listener to return; raise an exception in the listener, and stop the consumer"
                " where the next call raises it"
            )
        if body_error is None:
            session.delivery.mark_processed(current_task())
        cancelled = body_error is not None and not isinstance(body_error, Exception)
        # After a task has failed, the task that would complete a commit may be gone.
        fast = cancelled or self._lifecycle.state is ClientState.FAILED
        now = session.runtime.clock.now()
        deadline = now + self.config.close_timeout_ms / 1000
        if fast or not session.has_pending_commits:
            deadline = min(deadline, now + FAST_CLOSE_S)
        limit = deadline if fast else session.close_limit(deadline)

        async def close(session: ConsumerSession) -> None:
            session.notifier.state_changed()
            await session.close(deadline, limit)

        await self._lifecycle.stop(close, limit)
        return self._lifecycle.take_unreported_failure() or session.unreported_error()

    @property
    def _running(self) -> ConsumerSession:
        session = self._lifecycle.session
        if (
            session is not None
            and self._lifecycle.state is ClientState.CLOSING
            and session.in_callback
        ):
            # The listener may still seek, and commit the partitions being revoked.
            return session
        return self._lifecycle.require_session_in_loop()

    def _deadline(self, session: ConsumerSession, timeout_ms: float | None = None) -> float:
        limit = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        return session.runtime.clock.now() + limit / 1000

    # --- subscription ---

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Subscribe to topics, or to a pattern of topic names; this replaces the last subscription.

        May be called before `async with`. With a `group_id` the consumer joins the group
        (JoinGroup, KIP-429, KIP-345).

        Args:
            topics: Names of topics.
            pattern: Regular expression; all topics whose whole name matches are read, including
                topics created later.
            listener: Called when partitions are assigned, revoked or lost.

        Raises:
            IllegalState: Partitions are assigned with `assign`.
            TypeError: A topic is not a string, or `listener` is not a `RebalanceListener`.
            ValueError: A topic name or the pattern is invalid, or both or neither is given.
        """
        names = parse_topics(topics)
        if bool(names.topics) == (pattern is not None):
            raise ValueError("subscribe() takes either topics or a pattern")
        subscription: Subscription = names if pattern is None else parse_pattern(pattern)
        if isinstance(self._subscription, ManualAssignment):
            raise IllegalState("partitions are assigned with assign(): call unsubscribe() first")
        self._set_subscription(subscription, validate_listener(listener))

    def assign(self, *partitions: PartitionArgument) -> None:
        """Read exactly these partitions, without group management; replaces the last assignment.

        With a `group_id` offsets are committed, though the consumer is not a member of the group.

        Raises:
            IllegalState: Topics are subscribed to.
            TypeError: An argument is not a partition.
        """
        chosen = tuple(dict.fromkeys(parse_topic_partitions(partitions)))
        if not isinstance(self._subscription, ManualAssignment | NoSubscription):
            raise IllegalState("the consumer subscribes to topics: call unsubscribe() first")
        self._set_subscription(ManualAssignment(chosen), None)

    def unsubscribe(self) -> None:
        """Stop reading: give up all partitions, and leave the group."""
        self._set_subscription(NoSubscription(), self._listener)

    def _set_subscription(
        self, subscription: Subscription, listener: RebalanceListener | None
    ) -> None:
        if self._lifecycle.state not in {ClientState.NEW, ClientState.STARTING}:
            self._running.topics.subscribe(subscription, listener)
        self._subscription, self._listener = subscription, listener

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics; for a pattern, the topics that match it now."""
        subscription, session = self._subscription, self._lifecycle.session
        if isinstance(subscription, SubscribedTopics):
            return frozenset(subscription.topics)
        if isinstance(subscription, SubscribedPattern) and session is not None:
            return frozenset(subscription.matches(session.cluster.metadata))
        return frozenset()

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions assigned to this consumer."""
        return frozenset(self._running.assignment)

    # --- records ---

    def __aiter__(self) -> RecordIterator:
        return RecordIterator(self)

    async def __anext__(self) -> Record:
        """Return the next record, as `getone()` does, for `anext(consumer)`."""
        return await self.getone()

    def batches(self) -> BatchIterator:
        """Iterate over batches: `Records` of one partition, up to `max_poll_records` each.

        A batch may be passed to `commit`. The iteration raises the same errors as `getone`.
        """
        self._lifecycle.require_session()
        return BatchIterator(self)

    @overload
    async def getone(self, *partitions: PartitionArgument) -> Record: ...

    @overload
    async def getone(self, *partitions: PartitionArgument, timeout_ms: float) -> Record | None: ...

    async def getone(
        self, *partitions: PartitionArgument, timeout_ms: float | None = None
    ) -> Record | None:
        """Return the next record.

        If the call is cancelled, no record is lost: the next call returns it. Prefer `timeout_ms`
        to `asyncio.wait_for`, which before Python 3.12 makes each call in a new task, so that no
        record counts as processed.

        Args:
            *partitions: Return a record of these partitions alone.
            timeout_ms: The longest wait, in milliseconds. Defaults to no limit.

        Returns:
            The record, or None after `timeout_ms`.

        Raises:
            KafkaError: Records cannot be read, and waiting does not help; see `Consumer`.
            TypeError: `timeout_ms` is not a number.
        """
        if timeout_ms is not None:
            require_timeout("timeout_ms", timeout_ms)
        session = self._running
        if partitions:
            limit = NEVER if timeout_ms is None else self._deadline(session, timeout_ms)
            records_by_partition = await self._get_records(
                session, validate_partitions(partitions) or None, 1, limit
            )
            return next((records[0] for records in records_by_partition.values()), None)
        caller = current_task()
        await session.checkpoint()
        record = session.next_buffered(caller)
        if record is not None:
            return record
        deadline = NEVER if timeout_ms is None else self._deadline(session, timeout_ms)
        return await self._get_record(session, caller, deadline)

    async def getmany(
        self,
        *partitions: PartitionArgument,
        timeout_ms: float = 0,
        max_records: int | None = None,
    ) -> dict[TopicPartition, Records]:
        """Return the records fetched so far, by partition.

        If the call is cancelled, no record is lost: the next call returns them.

        Args:
            *partitions: Return records of these partitions alone.
            timeout_ms: The longest wait for the first record, in milliseconds.
            max_records: The most records to return. Defaults to `max_poll_records`.

        Returns:
            `Records` by partition; empty after `timeout_ms`.

        Raises:
            KafkaError: Records cannot be read, and waiting does not help; see `Consumer`.
            TypeError: `timeout_ms` or `max_records` is not a number.
            ValueError: `max_records` is less than 1.
        """
        require_timeout("timeout_ms", timeout_ms)
        limit = self.config.max_poll_records if max_records is None else max_records
        if isinstance(limit, bool) or not isinstance(limit, int):
            raise TypeError(f"max_records must be a whole number or None, not {limit!r:.80}")
        if limit < 1:
            raise ValueError(f"max_records must be at least 1, not {limit}")
        session = self._running
        only = validate_partitions(partitions) or None
        return await self._get_records(session, only, limit, self._deadline(session, timeout_ms))

    async def _get_record(
        self, session: ConsumerSession, owner: object, deadline: float
    ) -> Record | None:
        caller = current_task()
        session.poll_started(caller)
        try:
            while True:
                self._lifecycle.require_session()
                session.raise_errors()
                record = session.delivery.next_record(owner, caller)
                if record is not None:
                    return record
                if (
                    not await session.delivery.continue_decoding()
                    and not await session.notifier.wait(deadline)
                ):
                    return None
        finally:
            session.poll_finished()

    async def _get_records(
        self,
        session: ConsumerSession,
        only: list[TopicPartition] | None,
        max_records: int,
        deadline: float,
        *,
        single_partition: bool = False,
    ) -> dict[TopicPartition, Records]:
        caller = current_task()
        session.poll_started(caller)
        try:
            await session.checkpoint()
            while True:
                self._lifecycle.require_session()
                session.raise_errors()
                records = session.delivery.take(
                    caller, max_records, only, single_partition=single_partition
                )
                if records or (
                    not await session.delivery.continue_decoding()
                    and not await session.notifier.wait(deadline)
                ):
                    return records
        finally:
            session.poll_finished()

    # --- offsets ---

    async def commit(self, offsets: CommitArgument[PartitionT] | None = None) -> None:
        """Commit offsets, and wait for the coordinator's acknowledgement (OffsetCommit).

        Args:
            offsets: Offset of the next record to read, by partition; or a batch of `batches` or
                `getmany`, which is committed up to its end. Defaults to the positions of all
                partitions: everything delivered so far.

        Raises:
            CommitFailed: A partition is not assigned to this consumer. Its new owner reads from the
                last commit.
            BrokerError: The coordinator refused the commit.
            RequestTimedOut: No acknowledgement within `default_api_timeout_ms`.
            InvalidOption: The consumer has no `group_id`.
            TypeError: `offsets` is neither a mapping nor a batch. Nothing is sent.
            ValueError: An offset is out of range. Nothing is sent.
        """
        session = self._running
        group = session.require_group()
        group.member.record_poll()
        if isinstance(offsets, Mapping):
            to_commit: dict[TopicPartition, OffsetAndMetadata] = {}
            async for items in in_slices([*offsets.items()]):
                to_commit |= parse_commit_argument(session.assignment, dict(items))
            await group.commit(to_commit)
        elif offsets is not None:
            await group.commit(parse_commit_argument(session.assignment, offsets))
        else:
            group.raise_uncommitted(group.rebalance.lost_uncommitted)
            await group.commit(session.assignment.delivered_offsets())
            # All delivered records count as processed: a rebalance that waits may go on.
            session.poll_started(current_task())
            session.poll_finished()

    async def committed(
        self, *partitions: PartitionArgument, stable: bool = False
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offsets from the coordinator (OffsetFetch).

        The coordinator waits for open transactions that change the offsets (KIP-447); brokers
        before 2.5 do not.

        Args:
            *partitions: Defaults to all assigned partitions.
            stable: Raise `UnsupportedVersion` on brokers before 2.5.

        Returns:
            The committed offset by partition, or None where nothing is committed.

        Raises:
            RequestTimedOut: No response within `default_api_timeout_ms`.
            BrokerError: The coordinator refused the request.
            UnsupportedVersion: `stable` is set and the broker is older than 2.5.
            InvalidOption: The consumer has no `group_id`.
        """
        session = self._running
        group = session.require_group()
        requested = parse_topic_partitions(partitions) or list(session.assignment.topic_partitions)
        if not requested:
            return {}
        return dict(await group.offsets.fetch(requested, self._deadline(session), stable=stable))

    async def position(self, partition: AnyPartition) -> int:
        """Return the offset of the next record to deliver, once it is known and validated.

        Raises:
            NoOffsetForPartition: No offset is committed or in range, and `auto_offset_reset` is
                `none`.
            RequestTimedOut: The position was not found within `default_api_timeout_ms`.
            IllegalState: The partition is not assigned.
        """
        session = self._running
        deadline = self._deadline(session)
        await checkpoint()
        while (
            position := session.validated_position(self._owned_partition(session, partition))
        ) is None:
            session.raise_partition_error()
            if not await session.notifier.wait(deadline):
                topic, number = partition
                failure = session.notifier.outage.failure
                why = "" if failure is None else f"; the last error: {failure}"
                raise RequestTimedOut(
                    f"the position was not found before the deadline{why}",
                    topic=topic,
                    partition=number,
                ) from failure
            session = self._running
        return position

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions of all partitions with uncommitted records, for a transaction.

        Raises:
            CommitFailed: Partitions were revoked or lost while delivered records were uncommitted:
                results of these records must not be committed (KIP-447). Raised once.
        """
        return self._running.positions()

    def mark_committed(self, offsets: CommitArgument[PartitionT]) -> None:
        """Note that offsets were committed by other means than `commit`.

        For offsets stored in a database with the results. A transaction notes its offsets itself
        (`send_offsets_to_transaction(consumer)`).

        Args:
            offsets: A mapping or a batch, as for `commit`.

        Raises:
            CommitFailed: The batch was delivered before its partition was lost.
            TypeError: `offsets` is neither a mapping nor a batch.
            ValueError: An offset is out of range.
        """
        session = self._running
        session.assignment.mark_committed(parse_commit_argument(session.assignment, offsets))

    def group_metadata(self) -> GroupMetadata:
        """Return the group id, generation and member id, for a transaction (KIP-447).

        If the group has removed this member, the old generation and member id stay until the next
        call that returns records, so that the coordinator refuses the offsets. They are -1 and ""
        before the first rebalance and with `assign`.

        Raises:
            InvalidOption: The consumer has no `group_id`.
        """
        return self._running.require_group().metadata()

    def seek(self, partition: AnyPartition, offset: int | OffsetAndMetadata) -> None:
        """Set the position of a partition, at once; fetched records are discarded.

        Args:
            partition: An assigned partition.
            offset: Offset of the next record to read. The leader epoch, if any, is validated
                (KIP-320).

        Raises:
            IllegalState: The partition is not assigned.
            TypeError: `offset` is not an integer.
            ValueError: `offset` is out of range.
        """
        session = self._running
        target = validate_offset(offset)
        assigned = self._owned_partition(session, partition)
        first = assigned.position is None
        assigned.handle(Seek(target.offset, target.leader_epoch))
        if first:
            session.position_resolver.log.note_seek(assigned)
        session.on_position_changed()

    async def seek_to_beginning(self, *partitions: PartitionArgument) -> None:
        """Seek to the first offset of these partitions, or of all assigned ones.

        Waits until the positions are known; raises the same errors as `position`.
        """
        await self._reset(partitions, ResetOffset(OffsetSpec.EARLIEST))

    async def seek_to_end(self, *partitions: PartitionArgument) -> None:
        """Seek to the end of these partitions, or of all assigned ones.

        Waits until the positions are known; raises the same errors as `position`.
        """
        await self._reset(partitions, ResetOffset(OffsetSpec.LATEST))

    async def seek_to_committed(self, *partitions: PartitionArgument) -> None:
        """Seek to the committed offsets of these partitions, or of all assigned ones.

        Where nothing is committed, `auto_offset_reset` decides. Waits until the positions are
        known; raises the same errors as `position`, and `InvalidOption` without a `group_id`.
        """
        self._running.require_group()
        await self._reset(partitions, SeekToCommitted())

    async def _reset(
        self, partitions: tuple[PartitionArgument, ...], event: ResetOffset | SeekToCommitted
    ) -> None:
        session = self._running
        chosen = parse_topic_partitions(partitions) or session.assignment.topic_partitions
        for tp in chosen:
            self._owned_partition(session, tp).handle(event)
        session.on_position_changed()
        for tp in chosen:
            try:
                await self.position(tp)
            except KafkaError:
                # With "all assigned partitions", one that is revoked meanwhile does not matter.
                if partitions or tp in self._running.assignment:
                    raise

    def _owned_partition(self, session: ConsumerSession, tp: AnyPartition) -> AssignedPartition:
        partition = session.assignment.get(parse_topic_partition(tp))
        if partition is None:
            raise IllegalState(
                "the partition is not assigned to this consumer", topic=tp[0], partition=tp[1]
            )
        return partition

    # --- pausing ---

    def pause(self, *partitions: PartitionArgument) -> None:
        """Return no records of these partitions until `resume`; fetched records are kept.

        Raises:
            IllegalState: A partition is not assigned.
        """
        self._set_paused(partitions, True)

    def resume(self, *partitions: PartitionArgument) -> None:
        """Return records of paused partitions again.

        Raises:
            IllegalState: A partition is not assigned.
        """
        self._set_paused(partitions, False)

    def paused(self) -> frozenset[TopicPartition]:
        """Return the paused partitions."""
        return frozenset(
            partition.tp for partition in self._running.assignment.values() if partition.paused
        )

    def _set_paused(self, partitions: tuple[PartitionArgument, ...], paused: bool) -> None:
        session = self._running
        for tp in parse_topic_partitions(partitions):
            # mutation: resume-ignored
            self._owned_partition(session, tp).paused = paused
        session.on_position_changed()

    # --- offsets, topics and metrics ---

    async def beginning_offsets(self, *partitions: PartitionArgument) -> dict[TopicPartition, int]:
        """Return the first offset of each partition's log (ListOffsets).

        Args:
            *partitions: Defaults to all assigned partitions.

        Raises:
            UnknownTopic: A topic or partition does not exist.
            BrokerError: A broker refused the request.
            RequestTimedOut: No response within `default_api_timeout_ms`.
        """
        return await self._list_offsets(partitions, OffsetSpec.EARLIEST)

    async def end_offsets(self, *partitions: PartitionArgument) -> dict[TopicPartition, int]:
        """Return the offset after the last readable record of each partition (ListOffsets).

        This is the high watermark; with `read_committed` the last stable offset. Arguments and
        errors are those of `beginning_offsets`.
        """
        return await self._list_offsets(partitions, OffsetSpec.LATEST)

    async def _list_offsets(
        self, partitions: tuple[PartitionArgument, ...], spec: OffsetSpec
    ) -> dict[TopicPartition, int]:
        session = self._running
        requested = parse_topic_partitions(partitions) or session.assignment.topic_partitions
        offsets = await session.lister.list_all(
            dict.fromkeys(requested, int(spec)), self._deadline(session)
        )
        return {tp: 0 if offset is None else offset.offset for tp, offset in offsets.items()}

    async def offsets_for_times(
        self, timestamps_ms: Mapping[PartitionT, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after a timestamp, per partition (ListOffsets, KIP-79).

        Args:
            timestamps_ms: Milliseconds since 1970, by partition.

        Returns:
            Offset and timestamp by partition, or None where no record is that young.

        Raises:
            UnsupportedVersion: A broker is older than 0.10.1.
            UnknownTopic: A topic or partition does not exist.
            RequestTimedOut: No response within `default_api_timeout_ms`.
            TypeError: A timestamp is not an integer.
            ValueError: A timestamp is negative.
        """
        session = self._running
        return await session.lister.list_all(
            validate_timestamps(timestamps_ms), self._deadline(session)
        )

    def _fetch_node(self, tp: TopicPartition) -> NodeId:
        """Return the broker to fetch from: preferred read replica or leader; -1 if unknown."""
        session = self._running
        owned = session.assignment.get(tp)
        if owned is not None and owned.preferred_replica is not None:
            return owned.preferred_replica.node
        leader = session.cluster.metadata.leader(tp)
        return -1 if leader is None else leader.node

    def lag(self, partition: AnyPartition) -> int | None:
        """Return the distance of the position from the end, as of the last fetch.

        None before the first fetch. With `read_committed` the end is the last stable offset.
        """
        return self._owned_partition(self._running, partition).lag

    def highwater(self, partition: AnyPartition) -> int | None:
        """Return the high watermark as of the last fetch: the offset after the last replicated
        record. None before the first fetch.
        """
        return self._owned_partition(self._running, partition).watermarks.high

    def last_stable_offset(self, partition: AnyPartition) -> int | None:
        """Return the last stable offset as of the last fetch: all transactions before it are over.

        None before the first fetch, and from brokers before 0.11.
        """
        return self._owned_partition(self._running, partition).watermarks.last_stable

    async def ping(
        self, timeout_ms: float = 2_000, *, topic: str | None = None, group: str | None = None
    ) -> PingResult:
        """Check that a broker responds now, for readiness probes.

        Sends a request and waits for its response. Nothing is taken from a cache, and no backoff
        after failed connections delays it. Brokers are tried one after the other, with a short wait
        for each, until one responds. The call does not reset the poll timer.

        Args:
            timeout_ms: The longest that the call takes, in milliseconds.
            topic: Check the leader of each partition of this topic; all must respond.
            group: Check the coordinator of this group, which must be ready to serve it.

        Returns:
            The brokers that responded, and the time that the slowest of them took.

        Raises:
            NoBrokerAvailable: No broker responded; the text has the reason of each.
            RequestTimedOut: A leader, or the coordinator, did not respond. As `ConnectionFailed`
                and `ConnectionLost`, it names the broker.
            UnknownTopic: The topic does not exist.
            BrokerError: A partition has no leader, or no broker coordinates the group.
            ClientClosed: The consumer is not running.
            TypeError: `timeout_ms` is not a number.
            ValueError: `timeout_ms` is negative or NaN.
        """
        return await self._running.cluster.pinger.ping(timeout_ms, topic=topic, group=group)

    def metrics(self) -> dict[str, int | float]:
        """Return the metrics that the documentation of the consumer lists.

        A name ends in its unit; `_total` counts since `async with`. `records_lag{topic="t",
        partition="0"}` is the lag of one partition, present after its first fetch.
        """
        return self._running.metrics()

    async def partitions_for(self, topic: str) -> tuple[int, ...]:
        """Return the partition numbers of a topic.

        Raises:
            UnknownTopic: The topic does not exist.
            RequestTimedOut: No response within `default_api_timeout_ms`.
        """
        session = self._running
        return tuple(
            (await session.cluster.topic_metadata(topic, self._deadline(session))).partitions
        )

    async def topics(self) -> tuple[str, ...]:
        """Return the names of all topics that this client may see, sorted.

        Raises:
            RequestTimedOut: No response within `default_api_timeout_ms`.
        """
        session = self._running

        def build(version: int) -> MetadataRequest:
            return MetadataRequest(topics=None if version else [])

        request: VersionedRequest[MetadataResponse] = VersionedRequest(ApiKey.METADATA, build)
        response = await session.cluster.request(
            request, to=ToAnyNode(), deadline=self._deadline(session)
        )
        return tuple(sorted(topic.name for topic in response.topics if topic.name))


class RecordIterator:
    """Iterates over records: `async for record in consumer`. For use by one task."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        session = consumer._running
        self._record_poll = None if session.group is None else session.group.member.record_poll
        self._cursor = RecordCursor((), UnprocessedRange(0))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        """Return the next record. Other tasks run at least every 256 records."""
        for record in self._cursor.ready:
            # mutation: iterated-records-do-not-reset-poll-timer
            if self._record_poll is not None:
                self._record_poll()
            return record
        await self._consumer._running.checkpoint()
        session = self._consumer._running
        next_record = await self._consumer._get_record(session, self, NEVER)
        assert next_record is not None
        cursor = session.delivery.cursor
        if cursor is not None and cursor.owner is self:
            self._cursor = cursor
        return next_record


class BatchIterator:
    """Iterates over batches: `async for batch in consumer.batches()`."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Records:
        """Return the next records of one partition."""
        consumer = self._consumer
        records_by_partition = await consumer._get_records(
            consumer._running, None, consumer.config.max_poll_records, NEVER, single_partition=True
        )
        return next(iter(records_by_partition.values()))


async def _close_session(session: ConsumerSession) -> None:
    await session.cluster.aclose()
