"""`ShareConsumer`: the public interface."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar, Unpack, overload

import anyio

from aiokafkawire.config import ShareConsumerConfig, ShareConsumerOptions, make_config
from aiokafkawire.connection import parse_api_version
from aiokafkawire.consumer.receiving import Receiving
from aiokafkawire.consumer.subscription import parse_topics
from aiokafkawire.errors import (
    AcknowledgementFailed,
    CorruptRecord,
    InvalidOption,
    KafkaError,
    RequestTimedOut,
)
from aiokafkawire.logs import log_fields
from aiokafkawire.runtime import (
    NEVER,
    BaseClient,
    Runtime,
    Supervisor,
    client_label,
    current_task,
)
from aiokafkawire.runtime.client_state import ClientState
from aiokafkawire.telemetry import ClientTelemetryReporter, PushesMetrics
from aiokafkawire.types import TopicPartition, require_timeout

from .acknowledgements import Acknowledgement, AcknowledgeType, lock_ended_error, wait_done
from .consumer_session import ShareConsumerSession
from .iterators import ShareBatchIterator, ShareRecordIterator
from .record import ShareRecord
from .records import ShareRecords
from .sessions import AcknowledgementCommitCallback

__all__ = ("ShareConsumer",)

T = TypeVar("T")

FAST_CLOSE_S = 0.75
"""Time limit of `close` after a cancellation (Ctrl-C), or after a task of the consumer failed."""


class ShareConsumer(BaseClient[ShareConsumerSession], PushesMetrics):
    """Reads topics as a member of a share group (KIP-932): as from a queue.

    ::

        async with ShareConsumer("jobs", bootstrap_servers="localhost:9092", group_id="work") as c:
            async for record in c:
                await run_job(record.value)

    All members of a share group may read a partition at the same time. A broker locks each record
    for the member that receives it, until the member acknowledges it or the lock expires (30 s by
    default); then it delivers the record again, to any member. Needs Kafka 4.2, or 4.1 with the
    feature `share.version`.

    By default a record is accepted when the task that received it calls the consumer again, or
    leaves `async with` without an exception. If the task ends before that, even without an error,
    the record is released. `accept`, `release`, `reject` and `renew` of a record decide
    otherwise. With `share_acknowledgement_mode="explicit"` only these methods acknowledge records;
    those that are left are delivered again.

    Calls that return records wait without a deadline unless they get a timeout. Errors that do not
    pass by waiting are raised at once (`GroupFailed`, `CorruptRecord`, …).
    """

    config: ShareConsumerConfig

    def __init__(self, *topics: str, **options: Unpack[ShareConsumerOptions]) -> None:
        """Check the arguments. `start` or `async with` connects.

        Args:
            *topics: Topics to subscribe to. Without any, call `subscribe`.
            **options: Options of `ShareConsumerConfig`, which
                `help(aiokafkawire.config.ShareConsumerOptions)` describes. `bootstrap_servers` and
                `group_id` are required.

        Raises:
            InvalidOption: An option is unknown or invalid, or a topic has an invalid name.
            TypeError: A topic is not a string.
        """
        self.config = make_config(ShareConsumerConfig, options)
        parse_api_version(self.config.api_version)
        group_id = self.config.group_id
        super().__init__(
            "share consumer",
            client_label("ShareConsumer", self.config, group_id),
            log_prefix=f"share consumer {self.config.client_id} of group {group_id}",
            fields=log_fields(client_id=self.config.client_id, group=group_id),
            hooks=self.config.hooks,
        )
        try:
            self._topics = parse_topics(topics).topics
        except ValueError as error:
            raise InvalidOption(str(error)) from None
        self._on_acknowledgement: AcknowledgementCommitCallback | None = None

    # --- start and close ---

    async def start(self) -> None:
        """Connect and join the share group, as entering `async with` does.

        Call `stop` at the end, in any task. After a failure `start` may be called again; after
        `stop` it may not.

        Raises:
            NoBrokerAvailable: No broker answered within `default_api_timeout_ms`.
            AuthenticationFailed: The brokers refused the credentials.
        """
        await super().start()

    async def stop(self) -> None:
        """Send all acknowledgements, release all other records and leave the group.

        Records delivered to this task are accepted in the implicit mode. Takes at most
        `close_timeout_ms`; less than a second if `async with` is left by a cancellation. Calling it
        again does nothing.

        Raises:
            KafkaError: An error of a background task that no call has raised yet.
        """
        await super().stop()

    async def _start(self, runtime: Runtime, supervisor: Supervisor) -> ShareConsumerSession:
        session = ShareConsumerSession(self.config, runtime, supervisor)
        await session.start()
        session.sessions.on_acknowledgement = self._on_acknowledgement
        session.subscribe(self._topics)
        return session

    async def _close(self, body_error: BaseException | None) -> Exception | None:
        self._lifecycle.check_loop()
        session = self._lifecycle.session
        if session is None:
            await self._lifecycle.stop(_close_cluster, NEVER)
            return None
        session.delivery.stop()
        # mutation: records-accepted-after-exception
        if body_error is None:
            session.delivery.mark_processed(current_task())
            session.delivery.accept_processed()
        cancelled = body_error is not None and not isinstance(body_error, Exception)
        # After a task has failed, the task that would complete a request may be gone.
        fast = cancelled or self._lifecycle.state is ClientState.FAILED
        limit_s = FAST_CLOSE_S if fast else self.config.close_timeout_ms / 1000
        now, latest = session.runtime.clock.now(), self._lifecycle.close_deadline.at
        deadline = min(latest, now + limit_s)

        async def close(session: ShareConsumerSession) -> None:
            session.notifier.notify_all()
            await session.close(deadline)

        await self._lifecycle.stop(close, deadline)
        return self._lifecycle.take_unreported_failure() or session.unreported_error()

    # --- subscription ---

    @property
    def _running(self) -> ShareConsumerSession:
        return self._lifecycle.require_session_in_loop()

    def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribe to topics; this replaces the last subscription. May be called before `start`.

        Undelivered records of topics that are not subscribed to any more are released.

        Args:
            topics: Names of topics; a single string is one topic.

        Raises:
            TypeError: A topic is not a string.
            ValueError: A topic name is invalid, or none is given.
        """
        names = parse_topics(topics).topics
        if not names:
            raise ValueError("subscribe() takes topics")
        self._set_topics(names)

    def unsubscribe(self) -> None:
        """Stop reading and leave the group. Delivered records may still be acknowledged."""
        self._set_topics(())

    def _set_topics(self, topics: tuple[str, ...]) -> None:
        if self._lifecycle.state not in {ClientState.NEW, ClientState.STARTING}:
            self._running.subscribe(topics)
        self._topics = topics

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics."""
        return frozenset(self._topics)

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that this member reads. Other members may read them too."""
        return frozenset(
            partition.topic_partition for partition in self._running.sessions.assignment
        )

    # --- records ---

    def __aiter__(self) -> ShareRecordIterator:
        self._lifecycle.require_session()
        return ShareRecordIterator(self)

    async def __anext__(self) -> ShareRecord:
        """Return the next record, as `getone()` does, for `anext(consumer)`."""
        return await self.getone()

    def batches(self) -> ShareBatchIterator:
        """Iterate over batches: records of one partition, up to `max_poll_records` each.

        The iteration raises the same errors as `getone`.
        """
        self._lifecycle.require_session()
        return ShareBatchIterator(self)

    @overload
    async def getone(self) -> ShareRecord: ...

    @overload
    async def getone(self, *, timeout_ms: float) -> ShareRecord | None: ...

    async def getone(self, *, timeout_ms: float | None = None) -> ShareRecord | None:
        """Return the next record.

        If the call is cancelled, no record is lost: the next call returns it.

        Args:
            timeout_ms: The longest wait, in milliseconds. Defaults to no limit.

        Returns:
            The record, or None after `timeout_ms`.

        Raises:
            IllegalState: No topic is subscribed to.
            KafkaError: Records cannot be read, and waiting does not help; see `ShareConsumer`.
            TypeError: `timeout_ms` is not a number.
        """
        if timeout_ms is not None:
            require_timeout("timeout_ms", timeout_ms)
        records_by_partition = await self._get_records(1, timeout_ms)
        return next((records[0] for records in records_by_partition.values()), None)

    async def getmany(
        self, *, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, ShareRecords]:
        """Return the records acquired so far, by partition.

        If the call is cancelled, no record is lost: the next call returns them.

        Args:
            timeout_ms: The longest wait for the first record, in milliseconds.
            max_records: The most records to return. Defaults to `max_poll_records`.

        Returns:
            `ShareRecords` by partition; empty after `timeout_ms`.

        Raises:
            IllegalState: No topic is subscribed to.
            KafkaError: Records cannot be read, and waiting does not help; see `ShareConsumer`.
            TypeError: `timeout_ms` or `max_records` is not a number.
            ValueError: `max_records` is less than 1.
        """
        require_timeout("timeout_ms", timeout_ms)
        limit = self.config.max_poll_records if max_records is None else max_records
        if isinstance(limit, bool) or not isinstance(limit, int):
            raise TypeError(f"max_records must be a whole number or None, not {limit!r:.80}")
        if limit < 1:
            raise ValueError(f"max_records must be at least 1, not {limit}")
        return await self._get_records(limit, timeout_ms)

    def _deadline(self, session: ShareConsumerSession, timeout_ms: float | None) -> float:
        return NEVER if timeout_ms is None else session.runtime.clock.now() + timeout_ms / 1000

    async def _get_records(
        self, max_records: int, timeout_ms: float | None, *, single_partition: bool = False
    ) -> dict[TopicPartition, ShareRecords]:
        session = self._running
        receiving = Receiving.begin(session.hooks, session.runtime.clock)

        def take(caller: object) -> dict[TopicPartition, ShareRecords]:
            return session.delivery.take(caller, max_records, single_partition=single_partition)

        records = await self._poll(session, take, self._deadline(session, timeout_ms)) or {}
        if receiving is not None:
            receiving.end(records)
        return records

    async def _poll(
        self, session: ShareConsumerSession, take: Callable[[object], T | None], deadline: float
    ) -> T | None:
        """Wait until `take`, called with the current task, returns records."""
        caller = current_task()
        session.poll_started(caller)
        try:
            await session.checkpoint()
            while True:
                self._lifecycle.require_session()
                session.raise_errors()
                if taken := take(caller):
                    return taken
                session.sessions.update_demand()
                if not await session.notifier.wait(deadline):
                    return None
        finally:
            session.poll_finished()

    # --- acknowledgements ---

    def acknowledge(
        self, topic: str, partition: int, offset: int, type: AcknowledgeType
    ) -> Acknowledgement:
        """Acknowledge a record by its offset, for example one that raised `CorruptRecord`.

        Args:
            topic: Topic of the record.
            partition: Partition of the record.
            offset: Offset of the record.
            type: The decision about the record.

        Raises:
            AcknowledgementFailed: This consumer does not hold the record.
            ValueError: `type` is not an `AcknowledgeType`.
        """
        kind = AcknowledgeType(type)
        found = self._running.sessions.holder_of(TopicPartition(topic, partition), offset)
        pending = lock = None
        if found is not None:
            node, owned = found
            lock = node.locks(owned).get(offset)
            pending = node.acknowledge(owned, (offset,), kind, lock)
        if found is None or lock is None or pending is None:
            raise AcknowledgementFailed(
                "the record is not held by this consumer",
                topic=topic,
                partition=partition,
                offset=offset,
            )
        return Acknowledgement(pending, offset, lock, found[0].flush)

    def corrupt_records(self, error: CorruptRecord) -> list[ShareRecord]:
        """Return the records of a corrupt batch that this consumer holds.

        They have offsets, but neither key nor value. Until you acknowledge them, or their locks
        expire, no member gets them again::

            for record in consumer.corrupt_records(error):
                record.reject()

        Args:
            error: What a call for records of this consumer has raised last for its partition.
        """
        return self._running.delivery.corrupt_records(error)

    async def commit(
        self, *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Send all acknowledgements and wait for the results.

        In the implicit mode the records delivered to this task are accepted first.

        Args:
            timeout_ms: The longest wait, in milliseconds. Defaults to `default_api_timeout_ms`.

        Returns:
            The failure, or None, by partition with acknowledgements. `AcknowledgementFailed` says
            that records are delivered again, `RequestTimedOut` that the broker did not respond in
            time and the outcome is unknown.
        """
        session = self._running
        limit_ms = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        require_timeout("timeout_ms", limit_ms)
        session.delivery.mark_processed(current_task())
        lost = session.delivery.accept_processed()
        unconfirmed = session.sessions.unconfirmed()
        session.sessions.flush()
        await session.checkpoint()
        with anyio.CancelScope(deadline=self._deadline(session, limit_ms)):
            for waiting in unconfirmed.values():
                for acknowledgements in waiting:
                    await wait_done(acknowledgements.result)
        results: dict[TopicPartition, KafkaError | None] = {tp: lock_ended_error() for tp in lost}
        for partition, waiting in unconfirmed.items():
            for acknowledgements in waiting:
                error: KafkaError | None
                if acknowledgements.result.done:
                    error = acknowledgements.error
                else:
                    error = RequestTimedOut(
                        f"acknowledgements were not confirmed within {limit_ms:g} ms",
                        group=self.config.group_id,
                        topic=partition.topic,
                        partition=partition.partition,
                    )
                tp = partition.topic_partition
                results[tp] = results.get(tp) or error
        return results

    def set_acknowledgement_commit_callback(
        self, callback: AcknowledgementCommitCallback | None
    ) -> None:
        """Call a function with the result of each acknowledgement; None removes it.

        Args:
            callback: Called with the partition, the offsets, and an `AcknowledgementFailed` or
                None, in the event loop; it must not block. Its exceptions are logged.
        """
        self._on_acknowledgement = callback
        if self._lifecycle.session is not None:
            self._lifecycle.session.sessions.on_acknowledgement = callback

    # --- information ---

    @property
    def member_id(self) -> str:
        """The member id in the share group."""
        return self._running.member.member_id

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """Duration of a record's lock in milliseconds; None before the first fetch.

        It is the group's `share.record.lock.duration.ms`.
        """
        return self._running.sessions.acquisition_lock_timeout_ms

    def _telemetry(self) -> ClientTelemetryReporter:
        return self._running.telemetry

    def metrics(self) -> dict[str, int | float]:
        """Return counters of the consumer and its cluster client."""
        return self._running.metrics()


async def _close_cluster(session: ShareConsumerSession) -> None:
    await session.cluster.aclose()
