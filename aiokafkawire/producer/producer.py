"""The producer that applications use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, Never, Unpack

from aiokafkawire.config import ProducerConfig, ProducerOptions, make_config
from aiokafkawire.config.name_hints import PRODUCER_HINTS
from aiokafkawire.connection import parse_api_version
from aiokafkawire.errors import ClientClosed
from aiokafkawire.logs import log_fields
from aiokafkawire.producer.delivery import (
    Deliveries,
    Delivery,
    add_waiter,
    remove_waiter,
    transfer_waiter,
)
from aiokafkawire.producer.record_args import validate_record
from aiokafkawire.producer.record_columns import RecordColumns
from aiokafkawire.producer.record_serializer import RecordSerializer
from aiokafkawire.producer.session import ProducerSession
from aiokafkawire.producer.transaction_calls import TransactionCalls
from aiokafkawire.records.kernel import Buffer, Header
from aiokafkawire.runtime import NEVER, Runtime, Supervisor, client_label
from aiokafkawire.telemetry import ClientTelemetryReporter, PushesMetrics
from aiokafkawire.types import (
    PingResult,
    RecordMetadata,
    SentKeyT,
    SentValueT,
    require_timeout,
)

__all__ = ("Producer",)


class Producer(
    TransactionCalls, PushesMetrics, Generic[SentKeyT, SentValueT], absent=PRODUCER_HINTS
):
    """Sends records to Kafka. Create one per application and share it among all tasks.

    ::

        async with Producer(bootstrap_servers="localhost:9092") as producer:
            metadata = await producer.send_and_wait("orders", value=b"...", key=b"customer 7")

    The defaults are those of the Java producer: `acks="all"`, at most 5 requests in flight per
    connection, and idempotence (KIP-98, KIP-360). With idempotence the records of a partition are
    written once and in the order they were sent, also across retries and leader changes. `acks` 0
    or 1 disables idempotence; a retry may then write a record twice.

    Records are collected in a buffer of `buffer_memory_bytes` and sent in batches. The `Delivery`
    of each record has its outcome. If records fail and no call raises that, `flush` and `stop`
    raise `DeliveriesFailed`; if the body of `async with` raises, its exception is raised instead,
    with the failures as a note.

    `stop`, or leaving `async with`, sends the buffered records for up to `close_timeout_ms`.
    Records that are left then fail with `ClientClosed`, or with `DeliveryUnknown` if a broker may
    have written them.

    With a `transactional_id` all records are sent in transactions (see `transaction`), and
    starting the producer fences earlier producers with the same id.

    Keys and values are bytes. With `key_serializer` and `value_serializer` they are what these
    accept: `Producer(value_serializer=Order, ...)` is a `Producer[bytes, Order]`.

    Use a producer only in the event loop that started it. Every call may be cancelled. A record
    that is in the buffer by then is still sent.

    Args:
        options: The fields of `ProducerConfig`; only `bootstrap_servers` is required.

    Raises:
        InvalidOption: An option is unknown, out of range, or contradicts another one.
        TypeError: A positional argument was given.
    """

    def __init__(
        self, *positional: Never, **options: Unpack[ProducerOptions[SentKeyT, SentValueT]]
    ) -> None:
        """Check the options. The producer connects in `start` or `async with`.

        `help(aiokafkawire.config.ProducerOptions)` lists all options.
        """
        if positional:
            raise TypeError(
                # Not with the value: a dict of options may have a password.
                f"Producer takes keyword arguments only, not a {type(positional[0]).__name__}:"
                " Producer(bootstrap_servers='host:port', linger_ms=5)"
            )
        self.config = make_config(ProducerConfig, options)
        parse_api_version(self.config.api_version)
        self._serializer = RecordSerializer.of_config(self.config)
        log_prefix = f"producer {self.config.client_id}"
        super().__init__(
            "producer",
            client_label("Producer", self.config),
            log_prefix=log_prefix,
            fields=log_fields(
                client_id=self.config.client_id, transactional_id=self.config.transactional_id
            ),
            hooks=self.config.hooks,
        )

    # --- start and stop ---

    async def start(self) -> None:
        """Connect to the cluster; the same as entering `async with`.

        With a `transactional_id` this gets the producer id (InitProducerId, KIP-98): earlier
        producers with that id are fenced, and their open transactions are aborted.

        With `connect_on_start=False` it returns at once and the producer connects in the
        background; `send` and `begin_transaction` wait for that.

        After a failure it may be called again. A stopped producer cannot be restarted.

        Raises:
            NoBrokerAvailable: No broker answered within `default_api_timeout_ms`.
            RequestTimedOut: No producer id was assigned within `max_block_ms`.
            UnsupportedVersion: Brokers before 0.11 have no transactions.
            KafkaError: Another error of the transaction coordinator.
        """
        await super().start()

    async def stop(self) -> None:
        """Send the buffered records for up to `close_timeout_ms`, then close all connections.

        An open transaction is aborted instead. With an empty buffer it waits for no broker. May
        be called in any task of the event loop, and again without effect.

        Raises:
            DeliveriesFailed: Records failed, and no call has raised their errors.
            KafkaError: The producer failed permanently and no call has raised the error yet.
        """
        await super().stop()

    async def _start(self, runtime: Runtime, supervisor: Supervisor) -> ProducerSession:
        session = ProducerSession(self.config, runtime, supervisor)
        timeout_s = self.config.default_api_timeout_ms / 1_000
        await session.start(runtime.clock.now() + timeout_s)
        return session

    async def _close(self, body_error: BaseException | None) -> Exception | None:
        self._lifecycle.check_loop()
        session = self._lifecycle.session
        if session is None:
            await self._lifecycle.stop(ProducerSession.close_gracefully, NEVER)
            return None
        sender = session.sender
        fatal = sender.unreported_failure or self._lifecycle.take_unreported_failure()
        closed = ClientClosed("the producer was closed before the record was acknowledged")
        sender.close_to_new_records(closed)
        deadline = session.runtime.clock.now() + self.config.close_timeout_ms / 1_000
        try:
            await self._lifecycle.stop(ProducerSession.close_gracefully, deadline)
        finally:
            sender.abort_all(closed)
        return sender.accumulator.unreported_failures.take() or fatal

    def _running(self) -> ProducerSession:
        return self._lifecycle.require_session_in_loop()

    def _telemetry(self) -> ClientTelemetryReporter:
        return self._running().telemetry

    # --- records ---

    async def send(  # noqa: PLR0917 - a record's parts in their usual order
        self,
        topic: str,
        value: SentValueT | None = None,
        key: SentKeyT | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, Buffer | None]] | None = None,
    ) -> Delivery:
        """Append a record to the buffer and return its `Delivery`.

        Waits up to `max_block_ms` for space in the buffer and for the metadata of a new topic, not
        for the broker. A cancelled call has not appended the record.

        ::

            delivery = await producer.send("orders", value=b"...", key=b"customer 7")
            metadata = await delivery

        Args:
            topic: Name of the topic.
            value: Value, bytes-like without a `value_serializer`; None is a tombstone.
            key: Key, bytes-like without a `key_serializer`.
            partition: Partition number. By default the key's murmur2 hash decides, as in Java.
                Without a key, a partition gets records until its batch is full (KIP-480, KIP-794).
            timestamp_ms: Milliseconds since 1970; defaults to the time of the call.
            headers: Pairs of name and bytes-like value or None (Kafka 0.11+).

        Raises:
            BufferFull: No space in the buffer within `max_block_ms`.
            UnknownTopic: The topic or partition does not exist after `max_block_ms`.
            RequestTimedOut: No broker returned the topic's metadata within `max_block_ms`.
            RecordTooLarge: The record is larger than `max_request_size_bytes`.
            SerializationFailed: A serializer raised an error; nothing is sent.
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range, or the name is not valid for a topic.
            InvalidTxnState: The producer is transactional and no transaction is open.
            KafkaError: The producer is closed (`ClientClosed`) or failed permanently.
        """
        lifecycle = self._lifecycle
        if self._serializer is not None:
            key, value = await self._serializer.serialize(topic, key, value)
        appender = (lifecycle.open_session or lifecycle.raise_not_running()).appender
        yield_budget = appender.yield_budget
        if timestamp_ms is None and not headers and yield_budget.calls_left > 0:
            delivery = appender.append_fast(topic, value, key, partition)
            if delivery is not None:
                yield_budget.calls_left -= 1
                return delivery
        lifecycle.check_loop()
        record = validate_record(
            topic, value, key, partition, timestamp_ms, headers, max_bytes=appender.max_bytes
        )
        if yield_budget.calls_left > 0:
            yield_budget.calls_left -= 1
        else:
            await appender.checkpoint()
        if appender.observer is None and (delivery := appender.append(record)) is not None:
            return delivery
        return await appender.append_or_wait(record)

    def send_nowait(  # noqa: PLR0917 - a record's parts in their usual order
        self,
        topic: str,
        value: SentValueT | None = None,
        key: SentKeyT | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, Buffer | None]] | None = None,
    ) -> Delivery:
        """Append a record to the buffer without waiting; otherwise like `send`.

        Await something from time to time: nothing is sent while the caller blocks the event loop.

        Raises:
            BufferFull: The buffer has no space.
            UnknownTopic: The topic's metadata is not known yet, or the partition does not exist.
                Await `partitions_for` or `send` first.
            SerializationFailed: A serializer raised an error, or is async.
        """
        lifecycle = self._lifecycle
        session = lifecycle.open_session or lifecycle.raise_not_running()
        if self._serializer is not None:
            key, value = self._serializer.serialize_nowait(topic, key, value)
        appender = session.appender
        if timestamp_ms is None and not headers:
            delivery = appender.append_fast(topic, value, key, partition)
            if delivery is not None:
                return delivery
        lifecycle.check_loop()
        return appender.append_nowait(
            validate_record(
                topic, value, key, partition, timestamp_ms, headers, max_bytes=appender.max_bytes
            )
        )

    async def send_and_wait(  # noqa: PLR0917 - a record's parts in their usual order
        self,
        topic: str,
        value: SentValueT | None = None,
        key: SentKeyT | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, Buffer | None]] | None = None,
    ) -> RecordMetadata:
        """Send a record and wait until it is acknowledged.

        If the call is cancelled while it waits for the broker, the record is still sent; if it
        then fails, `flush` and `stop` report it.

        Args:
            topic: See `send`, also for the other arguments.

        Returns:
            Topic, partition, offset and timestamp of the record.

        Raises:
            KafkaError: The errors of `send` and of `Delivery`.
        """
        appender = (self._lifecycle.open_session or self._lifecycle.raise_not_running()).appender
        delivery = None
        # If `send` is wrapped, for example to trace it, all records must pass through it.
        is_wrapped = type(self).send is not _SEND
        if timestamp_ms is None and not headers and not is_wrapped and self._serializer is None:
            delivery = appender.append_fast(topic, value, key, partition)
        if delivery is None:
            delivery = await self.send(topic, value, key, partition, timestamp_ms, headers)
            return await delivery
        waiter = add_waiter(delivery) if appender.on_asyncio else None
        if waiter is not None:
            try:
                metadata = await waiter
            except BaseException:
                remove_waiter(delivery, waiter)
                raise
            if metadata is not None:
                return metadata
            if delivery.done:
                return delivery.result()
            transfer_waiter(delivery)
        return await delivery

    async def send_many(  # noqa: PLR0917 - a record's parts in their usual order
        self,
        topic: str,
        values: Sequence[SentValueT | None],
        keys: Sequence[SentKeyT | None] | None = None,
        partition: int | None = None,
        timestamps_ms: Sequence[int | None] | None = None,
        headers: Sequence[Iterable[Header]] | None = None,
    ) -> Sequence[Delivery]:
        """Append records to the buffer, given as columns of equal length.

        All arguments are checked before the first record is appended. Waits for buffer space like
        `send`, up to `max_block_ms` per record. If a wait fails, a note on the error says how many
        records are in the buffer; these are sent.

        Args:
            topic: Name of the topic.
            values: A sequence or Arrow array of values.
            keys: A sequence or Arrow array of keys.
            partition: Partition of all records; see `send` for the default.
            timestamps_ms: A sequence of timestamps; see `send`.
            headers: A sequence of the headers of each record.

        Returns:
            The deliveries of the records, in order. Each access creates a new `Delivery`.

        Raises:
            ValueError: The columns differ in length, or a value is out of range.
            KafkaError: The errors of `send`.
        """
        appender = self._running().appender
        if self._serializer is not None:
            keys, values = await self._serializer.serialize_columns(topic, keys, values)
        columns = RecordColumns(
            topic, values, keys, partition, timestamps_ms, headers, max_bytes=appender.max_bytes
        )
        deliveries = Deliveries()
        try:
            await appender.append_columns(columns, deliveries)
        except BaseException as error:
            error.add_note(
                f"send_many: {len(deliveries)} of {columns.count} records are in the buffer"
            )
            raise
        return deliveries

    # --- flush and state ---

    async def flush(self, timeout_s: float | None = None) -> None:
        """Send all buffered records without linger and wait until their outcome is known.

        Takes at most `delivery_timeout_ms`.

        Args:
            timeout_s: Longest wait in seconds. The records are still sent after a timeout.

        Raises:
            DeliveriesFailed: Records failed since the last report, and no call has raised their
                errors.
            RequestTimedOut: `timeout_s` is over.
            TransactionFailed: A record of the open transaction failed.
            TypeError: `timeout_s` is not a number.
        """
        if timeout_s is not None:
            require_timeout("timeout_s", timeout_s)
        session = self._running()
        deadline = NEVER if timeout_s is None else session.runtime.clock.now() + timeout_s
        await session.appender.yield_budget.checkpoint()
        await session.sender.flush(deadline)
        if session.sender.transaction_manager is not None:
            session.sender.transaction_manager.raise_failure()
        failure = session.sender.accumulator.unreported_failures.take()
        if failure is not None:
            raise failure

    async def ping(
        self, timeout_ms: float = 2_000, *, topic: str | None = None, group: str | None = None
    ) -> PingResult:
        """Check whether a broker responds; for readiness probes.

        Sends a request and waits for its response, without caches and without reconnect backoff.
        Brokers are tried one after the other until one responds. Does not delay other requests.

        Args:
            timeout_ms: Longest duration of the call, in milliseconds.
            topic: Ask the leader of each partition of this topic; all must respond.
            group: Ask the coordinator of this group, which must be ready to serve it.

        Returns:
            The brokers that responded, and the time that the slowest of them took.

        Raises:
            NoBrokerAvailable: No broker responded; the text has the reason for each.
            RequestTimedOut: A leader or the coordinator did not respond; the error names the
                broker, as do `ConnectionFailed` and `ConnectionLost`.
            UnknownTopic: The topic does not exist.
            BrokerError: A partition has no leader, or the group has no coordinator.
            ClientClosed: The producer is not running.
            TypeError: `timeout_ms` is not a number.
            ValueError: `timeout_ms` is negative or NaN.
            KafkaError: Another error, if the producer failed permanently, for example with
                `ProducerFenced`.
        """
        session = self._running()
        session.sender.raise_if_failed()
        return await session.cluster.pinger.ping(timeout_ms, topic=topic, group=group)

    def metrics(self) -> dict[str, int | float]:
        """Return the current metrics of the producer and its connections.

        Names end in their unit; totals count from the start of the producer. The producer's
        documentation page describes each metric.
        """
        return self._running().metrics()

    async def partitions_for(self, topic: str) -> tuple[int, ...]:
        """Return the partition numbers of a topic, ascending.

        Also loads the topic's metadata for `send_nowait`.

        Raises:
            UnknownTopic: The topic does not exist after `max_block_ms`. With
                `allow_auto_create_topics=False`, raised as soon as a broker reports it.
            RequestTimedOut: No broker returned the topic's metadata within `max_block_ms`.
        """
        session = self._running()
        deadline = session.runtime.clock.now() + self.config.max_block_ms / 1_000
        topic_queues = await session.appender.wait_for_topic_queues(topic, deadline)
        return tuple(queue.topic_partition.partition for queue in topic_queues.queues)


_SEND = Producer.send
