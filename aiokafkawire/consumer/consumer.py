"""`Consumer`: the public interface."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Generic, Unpack, get_args, overload

from aiokafkawire.config import ConsumerConfig, ConsumerOptions, make_config
from aiokafkawire.config.name_hints import CONSUMER_HINTS
from aiokafkawire.connection import parse_api_version
from aiokafkawire.errors import IllegalState, InvalidOption
from aiokafkawire.group.assignors import create_assignors
from aiokafkawire.group.membership.context import GroupMembershipOperation
from aiokafkawire.logs import log_fields
from aiokafkawire.records import Record, Records
from aiokafkawire.runtime import NEVER, Runtime, Supervisor, client_label, current_task
from aiokafkawire.runtime.client_state import ClientState
from aiokafkawire.types import (
    KeyT,
    PartitionArgument,
    TopicPartition,
    ValueT,
    parse_topic_partitions,
    require_timeout,
)

from .iterators import BatchIterator, DeserializingIterator, RecordIterator
from .position_calls import PositionCalls
from .receiving import Receiving
from .record_deserializer import DeserializedRecords, RecordDeserializer
from .session import ConsumerSession
from .subscription import (
    ManualAssignment,
    NoSubscription,
    RebalanceListener,
    SubscribedPattern,
    SubscribedTopics,
    Subscription,
    SubscriptionPattern,
    parse_subscription,
    parse_topics,
    validate_listener,
)
from .topic_calls import TopicCalls
from .topic_subscription import PATTERN_REFUSED
from .validation import validate_partitions

__all__ = ("Consumer",)

FAST_CLOSE_S = 0.75
"""Time limit of `close` if there is nothing to commit, after a cancellation (Ctrl-C), or after a
task of the consumer has failed."""


class Consumer(PositionCalls, TopicCalls, Generic[KeyT, ValueT], absent=CONSUMER_HINTS):
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

    Keys and values are bytes. With `key_deserializer` and `value_deserializer` they are what these
    return: `Consumer("orders", value_deserializer=Order, ...)` is a `Consumer[bytes, Order]`, whose
    records are `Record[bytes, Order]`.

    Calls that return records wait without a deadline unless they get a timeout. Errors that do not
    pass by waiting are raised at once (`GroupFailed`, `FencedInstanceId`, `NoOffsetForPartition`,
    `CorruptRecord`, …); `UnknownTopic` is raised for a topic that has not existed for
    `default_api_timeout_ms`.
    """

    def __init__(self, *topics: str, **options: Unpack[ConsumerOptions[KeyT, ValueT]]) -> None:
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
        self._deserializer: RecordDeserializer[KeyT, ValueT] | None = RecordDeserializer.of_config(
            self.config
        )
        self._assignors = create_assignors(self.config.partition_assignment_strategy)
        group_id = self.config.group_id
        log_prefix = f"consumer {self.config.client_id}"
        super().__init__(
            "consumer",
            client_label("Consumer", self.config, group_id),
            log_prefix=log_prefix if group_id is None else f"{log_prefix} of group {group_id}",
            fields=log_fields(client_id=self.config.client_id, group=group_id),
            hooks=self.config.hooks,
        )
        try:
            self._subscription: Subscription = parse_topics(topics) if topics else NoSubscription()
        except ValueError as error:
            raise InvalidOption(str(error)) from None
        self._listener: RebalanceListener | None = None
        self._group_membership_operation: GroupMembershipOperation = "default"

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

    async def stop(
        self, *, group_membership_operation: GroupMembershipOperation = "default"
    ) -> None:
        """Commit processed records (with auto-commit), leave the group and close the connections.

        Records delivered to this task count as processed. Takes at most `close_timeout_ms` plus the
        time of the rebalance callback; less than a second if there is nothing to commit, or if
        `async with` is left by a cancellation. Calling it again does nothing.

        Args:
            group_membership_operation: Effect on the group (KIP-1092). By default a member leaves,
                and a static member keeps its partitions until its session times out. With
                "leave_group" a static member leaves too. With "remain_in_group" no member leaves.

        Raises:
            ValueError: `group_membership_operation` is none of these.
            KafkaError: An error of a background task that no call has raised yet.
            IllegalState: Called by a rebalance listener, which `stop` waits for.
        """
        if group_membership_operation not in get_args(GroupMembershipOperation):
            raise ValueError(
                "group_membership_operation must be 'default', 'leave_group' or 'remain_in_group',"
                f" not {group_membership_operation!r:.80}"
            )
        self._group_membership_operation = group_membership_operation
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
        latest = self._lifecycle.close_deadline.at
        deadline = min(latest, now + self.config.close_timeout_ms / 1000)
        if fast or not session.has_pending_commits:
            deadline = min(deadline, now + FAST_CLOSE_S)
        limit = deadline if fast else min(latest, session.close_limit(deadline))

        async def close(session: ConsumerSession) -> None:
            session.notifier.state_changed()
            await session.close(deadline, limit, self._group_membership_operation)

        await self._lifecycle.stop(close, limit)
        return self._lifecycle.take_unreported_failure() or session.unreported_error()

    # --- subscription ---

    def subscribe(
        self,
        topics: Iterable[str] | SubscriptionPattern = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Subscribe to topics, or to a pattern of topic names; this replaces the last subscription.

        May be called before `async with`. With a `group_id` the consumer joins the group
        (JoinGroup, KIP-429, KIP-345).

        Args:
            topics: Names of topics, or a `SubscriptionPattern` that the coordinator matches, which
                needs `group_protocol="consumer"`.
            pattern: Regular expression; all topics whose whole name matches are read, including
                topics created later.
            listener: Called when partitions are assigned, revoked or lost.

        Raises:
            IllegalState: Partitions are assigned with `assign`, or the member uses the classic
                protocol, which has no `SubscriptionPattern`.
            TypeError: A topic is not a string, or `listener` is not a `RebalanceListener`.
            ValueError: A topic name or the pattern is invalid, or both or neither is given.
        """
        subscription = parse_subscription(topics, pattern)
        if isinstance(subscription, SubscriptionPattern) and (
            self.config.group_protocol == "classic" or self.config.group_id is None
        ):
            raise IllegalState(PATTERN_REFUSED)
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
        """Return the subscribed topics; for a pattern, the topics that match it now.

        For a `SubscriptionPattern` these are the topics of the assigned partitions.
        """
        subscription, session = self._subscription, self._lifecycle.session
        if isinstance(subscription, SubscribedTopics):
            return frozenset(subscription.topics)
        if isinstance(subscription, SubscribedPattern) and session is not None:
            return frozenset(subscription.matches(session.cluster.metadata))
        if isinstance(subscription, SubscriptionPattern) and session is not None:
            return frozenset(tp.topic for tp in session.assignment)
        return frozenset()

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions assigned to this consumer."""
        return frozenset(self._running.assignment)

    # --- records ---

    def __aiter__(self) -> RecordIterator[KeyT, ValueT]:
        if self._deserializer is not None:
            return DeserializingIterator(self, self._deserializer)
        return RecordIterator(self)

    async def __anext__(self) -> Record[KeyT, ValueT]:
        """Return the next record, as `getone()` does, for `anext(consumer)`."""
        return await self.getone()

    def batches(self) -> BatchIterator[KeyT, ValueT]:
        """Iterate over batches: `Records` of one partition, up to `max_poll_records` each.

        A batch may be passed to `commit`. The iteration raises the same errors as `getone`.
        """
        self._lifecycle.require_session()
        return BatchIterator(self)

    @overload
    async def getone(self, *partitions: PartitionArgument) -> Record[KeyT, ValueT]: ...

    @overload
    async def getone(
        self, *partitions: PartitionArgument, timeout_ms: float
    ) -> Record[KeyT, ValueT] | None: ...

    async def getone(
        self, *partitions: PartitionArgument, timeout_ms: float | None = None
    ) -> Record[KeyT, ValueT] | None:
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
            DeserializationFailed: A deserializer raised an error. The next call returns the record
                after this one.
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
        if record is None:
            deadline = NEVER if timeout_ms is None else self._deadline(session, timeout_ms)
            record = await self._get_record(session, caller, deadline)
        if self._deserializer is None or record is None:
            return record
        return self._deserializer.deserialize(record)

    async def getmany(
        self,
        *partitions: PartitionArgument,
        timeout_ms: float = 0,
        max_records: int | None = None,
    ) -> dict[TopicPartition, Records[KeyT, ValueT]]:
        """Return the records fetched so far, by partition.

        If the call is cancelled, no record is lost: the next call returns them.

        Args:
            *partitions: Return records of these partitions alone.
            timeout_ms: The longest wait for the first record, in milliseconds.
            max_records: The most records to return. Defaults to `max_poll_records`.

        Returns:
            `Records` by partition; empty after `timeout_ms`. Their records are deserialized when
            they are accessed, which may raise `DeserializationFailed`.

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
    ) -> Record[Any, Any] | None:
        caller = current_task()
        receiving = Receiving.begin(session.hooks, session.runtime.clock)
        session.poll_started(caller)
        try:
            while True:
                self._lifecycle.require_session()
                session.raise_errors()
                record = session.delivery.next_record(owner, caller)
                if record is not None:
                    if receiving is not None and (cursor := session.delivery.cursor) is not None:
                        receiving.end({record.topic_partition: cursor.records})
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
    ) -> dict[TopicPartition, Records[KeyT, ValueT]]:
        caller = current_task()
        receiving = Receiving.begin(session.hooks, session.runtime.clock)
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
                    if receiving is not None:
                        receiving.end(records)
                    return self._deserialized(records)
        finally:
            session.poll_finished()

    def _deserialized(
        self, records_by_partition: dict[TopicPartition, Records[Any, Any]]
    ) -> dict[TopicPartition, Records[KeyT, ValueT]]:
        deserializer = self._deserializer
        if deserializer is None:
            return records_by_partition
        return {
            tp: DeserializedRecords.of(records, deserializer)
            for tp, records in records_by_partition.items()
        }


async def _close_session(session: ConsumerSession) -> None:
    await session.cluster.aclose()
