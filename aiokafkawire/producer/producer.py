"""The producer that applications use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Never, Unpack, overload

from aiokafkawire.cluster import Cluster
from aiokafkawire.config import ProducerConfig, ProducerOptions, make_config
from aiokafkawire.config.name_hints import PRODUCER_HINTS
from aiokafkawire.connection import parse_pin
from aiokafkawire.errors import (
    BufferFull,
    ClientClosed,
    InvalidTxnState,
    KafkaError,
    UnknownTopic,
)
from aiokafkawire.logs import log_fields
from aiokafkawire.producer.delivery import BatchFuture, Deliveries, Delivery
from aiokafkawire.producer.record_appender import RecordAppender
from aiokafkawire.producer.record_args import validate_record
from aiokafkawire.producer.record_columns import RecordColumns
from aiokafkawire.producer.sender import Sender
from aiokafkawire.producer.transactions import (
    OffsetsSource,
    PreparedTransaction,
    Transactions,
    TransactionScope,
    checked_offsets,
)
from aiokafkawire.records.kernel import Buffer, Header
from aiokafkawire.runtime import (
    NEVER,
    Client,
    Host,
    Runtime,
    Session,
    label,
)
from aiokafkawire.types import (
    GroupMetadata,
    OffsetsArgument,
    PartitionT,
    PingResult,
    RecordMetadata,
)

__all__ = ("Producer",)


class _Session(Session):
    """What a producer has between starting and stopping."""

    def __init__(self, config: ProducerConfig, runtime: Runtime, host: Host) -> None:
        self.runtime = runtime
        self.cluster = Cluster(config, runtime, host)
        self.sender = Sender(config, runtime, host, self.cluster)
        self.appender = RecordAppender(config, runtime, self.sender)

    def broken(self, failure: KafkaError) -> None:
        self.sender.abort_all(failure)

    def lost(self, error: ClientClosed) -> None:
        self.sender.abort_all(error)


class Producer(Client[_Session], absent=PRODUCER_HINTS):
    """Sends records to Kafka; one for the life of an application, shared by all its tasks.

    ::

        async with Producer(bootstrap_servers="localhost:9092") as producer:
            receipt = await producer.send_and_wait("orders", value=b"...", key=b"customer 7")

    Options are those of `ProducerConfig`, and the defaults the Java producer's: acks from all
    replicas in sync, idempotence (within one partition records are written once and in the order
    in which they were sent, through retries and moves of the leader), at most 5 requests in flight.
    acks 0 or 1 switch the defaulted idempotence off; then a retry may write a record twice.
    (Produce and InitProducerId; KIP-98, KIP-360.)

    Records collect in a buffer of `buffer_memory_bytes` and go out in batches. What becomes of each
    is told by its `Delivery`. Records whose failure nobody heard of make `flush` and leaving the
    producer raise `DeliveriesFailed`; if the body of `async with` raised, its own exception comes
    through with that as a note. Leaving sends what is in the buffer for up to `close_timeout_ms`;
    what is left then fails with `ClientClosed`, or `DeliveryUnknown` if a broker may have it.

    With a `transactional_id` records are sent in transactions (`transaction`), and starting fences
    earlier producers of that name.

    Must be used in the event loop in which it was entered. Any call may be cancelled: a record is
    then in the buffer or not, and if it is, it is sent.
    """

    def __init__(self, *positional: Never, **options: Unpack[ProducerOptions]) -> None:
        """Check the options; nothing is connected before `start` or `async with`.

        Only `bootstrap_servers` must be given; `help(aiokafkawire.config.ProducerOptions)` tells
        all. Raises `InvalidOption` for a name that is unknown, a value out of its range, and
        options that contradict each other.
        """
        if positional:
            raise TypeError(
                f"Producer takes keyword arguments only, not {positional[0]!r:.80}:"
                " Producer(bootstrap_servers='host:port', linger_ms=5)"
            )
        self.config = make_config(ProducerConfig, options)
        parse_pin(self.config.api_version)
        who = f"producer {self.config.client_id}"
        super().__init__(
            "producer",
            label("Producer", self.config),
            who=who,
            fields=log_fields(
                client_id=self.config.client_id, transactional_id=self.config.transactional_id
            ),
        )

    # --- life ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Find the cluster. Raises `NoBrokerAvailable` after `default_api_timeout_ms`.

        With `connect_on_start` off it returns at once, and the producer connects (and gets its
        producer id) in the background: `send` and `begin_transaction` wait for that.

        The same as entering `async with`; `stop` is then up to the caller, in whatever task. After
        a failure it may be called again. A producer that was stopped stays so.

        With a `transactional_id` it gets its producer id now: earlier producers of that name are
        fenced, and what they left open is aborted. Raises `RequestTimedOut` after `max_block_ms`,
        `UnsupportedVersion` with brokers before 0.11, and what else the coordinator answers.
        """
        await super().start()

    async def stop(self) -> None:
        """Send what is in the buffer, for at most `close_timeout_ms`, and close. A transaction that
        is open is aborted instead.

        With an empty buffer that takes no time, whatever the brokers do. Raises `DeliveriesFailed`
        if records failed and nobody awaited them, and what made the producer unable to go on if no
        call has raised it. Calling it again does nothing.
        """
        await super().stop()

    async def _start(self, runtime: Runtime, host: Host) -> _Session:
        session = _Session(self.config, runtime, host)
        timeout_s = self.config.default_api_timeout_ms / 1_000
        await session.cluster.start(runtime.clock.now() + timeout_s)
        session.sender.start()
        if session.sender.transactions is not None:
            await session.sender.transactions.initialise(wait=self.config.connect_on_start)
        return session

    async def _close(self, left_with: BaseException | None) -> Exception | None:
        self._lifecycle.check_loop()
        session = self._lifecycle.session
        if session is None:
            await self._lifecycle.leave(_close_gracefully, NEVER)
            return None
        sender = session.sender
        fatal = sender.unreported_failure or self._lifecycle.untold()
        closed = ClientClosed("the producer was closed before the record was acknowledged")
        sender.close_to_new_records(closed)
        deadline = session.runtime.clock.now() + self.config.close_timeout_ms / 1_000
        try:
            await self._lifecycle.leave(_close_gracefully, deadline)
        finally:
            sender.abort_all(closed)
        return sender.accumulator.unreported_failures.take() or fatal

    def _running(self) -> _Session:
        return self._lifecycle.running_here()

    # --- sending ------------------------------------------------------------------------------

    async def send(  # noqa: PLR0917 - a record's parts in their usual order
        self,
        topic: str,
        value: Buffer | None = None,
        key: Buffer | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, Buffer | None]] | None = None,
    ) -> Delivery:
        """Put a record into the buffer, and return its `Delivery` without waiting for the broker.

        Waits only for room in the buffer and for a topic seen for the first time, at most
        `max_block_ms`: then `BufferFull`, or `UnknownTopic` (`RequestTimedOut` if no broker could
        tell). `key`, `value` and header values are bytes-like or None; `timestamp_ms` counts from
        1970 and is by default the time of the call. Without `partition` the key decides (murmur2,
        as in Java), without both the records go to one partition until a batch is full.

        Raises `TypeError` or `ValueError` for a wrong argument and `RecordTooLarge` for a record
        over `max_request_size_bytes`, before anything is sent. A cancelled call has not put the
        record into the buffer.
        """
        life = self._lifecycle
        appender = (life.open or life.refuse()).appender
        yield_budget = appender.yield_budget
        if timestamp_ms is None and not headers and yield_budget.calls_left > 0:
            delivery = appender.append_fast(topic, value, key, partition)
            if delivery is not None:
                yield_budget.calls_left -= 1
                return delivery
        life.check_loop()
        record = validate_record(
            topic, value, key, partition, timestamp_ms, headers, max_bytes=appender.max_bytes
        )
        if yield_budget.calls_left > 0:
            yield_budget.calls_left -= 1
        else:
            await appender.checkpoint()
        delivery = appender.append(record)
        if delivery is None:
            delivery = await appender.wait_and_append(record)
        return delivery

    def send_nowait(  # noqa: PLR0917 - a record's parts in their usual order
        self,
        topic: str,
        value: Buffer | None = None,
        key: Buffer | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, Buffer | None]] | None = None,
    ) -> Delivery:
        """As `send`, without waiting: raises `BufferFull` if there is no room.

        The topic must be known already, from `partitions_for` or an earlier `send`: otherwise, and
        for a partition that it lacks, raises `UnknownTopic`. The caller must await something now
        and then, since nothing is sent while it keeps the event loop.
        """
        life = self._lifecycle
        session = life.open or life.refuse()
        appender = session.appender
        if timestamp_ms is None and not headers:
            delivery = appender.append_fast(topic, value, key, partition)
            if delivery is not None:
                return delivery
        life.check_loop()
        delivery = appender.append(
            validate_record(
                topic, value, key, partition, timestamp_ms, headers, max_bytes=appender.max_bytes
            )
        )
        if delivery is not None:
            return delivery
        known = session.sender.accumulator.topics.get(topic)
        if known is None:
            raise UnknownTopic(
                "the topic's partitions are not known yet: await partitions_for first", topic=topic
            )
        if partition is not None and partition not in known.by_partition:
            raise UnknownTopic(
                f"topic {topic!r} has no partition {partition}, only 0 to {len(known.queues) - 1}",
                topic=topic,
                partition=partition,
            )
        raise BufferFull("no room in the buffer: await something, or use send", topic=topic)

    async def send_and_wait(  # noqa: PLR0917 - a record's parts in their usual order
        self,
        topic: str,
        value: Buffer | None = None,
        key: Buffer | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, Buffer | None]] | None = None,
    ) -> RecordMetadata:
        """Send a record and wait until it is acknowledged.

        Arguments and errors are those of `send` and `Delivery`. A call that is cancelled while it
        waits for the broker leaves the record on its way; if that fails, it counts among those that
        nobody heard of.
        """
        appender = (self._lifecycle.open or self._lifecycle.refuse()).appender
        delivery = None
        # Whoever wraps `send`, as to trace it, hears of all that is sent.
        if timestamp_ms is None and not headers and type(self).send is _SEND:
            delivery = appender.append_fast(topic, value, key, partition)
        if delivery is None:
            delivery = await self.send(topic, value, key, partition, timestamp_ms, headers)
            return await delivery
        future: BatchFuture = delivery.future
        waited = future.add_waiter(delivery) if appender.on_asyncio else None
        if waited is not None:
            try:
                found = await waited
            except BaseException:
                future.remove_waiter(waited, delivery)
                raise
            if found is not None:
                return found
            if delivery.done:
                return delivery.result()
            future.transfer_waiter(delivery)
        return await delivery

    async def send_many(  # noqa: PLR0917 - a record's parts in their usual order
        self,
        topic: str,
        values: Sequence[Buffer | None],
        keys: Sequence[Buffer | None] | None = None,
        partition: int | None = None,
        timestamps_ms: Sequence[int | None] | None = None,
        headers: Sequence[Iterable[Header]] | None = None,
    ) -> Sequence[Delivery]:
        """Send records given as columns of equal length; one `Delivery` for each, in their order.

        A column is a sequence, or an Arrow array. Waits as `send` does, for each record anew. All
        arguments are checked before the first record is put into the buffer. If a later one finds
        no room in time, the error has a note that says how many records went before; these are
        sent. The deliveries are made when they are looked at, each time anew.
        """
        appender = self._running().appender
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

    # --- transactions -------------------------------------------------------------------------

    def transaction(self) -> TransactionScope:
        """A transaction, for `async with`: all its records and offsets become visible, or none.

        Leaving commits. If the body raises or is cancelled the transaction is aborted, and the
        exception goes on as it is; that the abort failed is a note on it. A cancellation is held up
        for at most a second, and the abort then goes on without its caller. One producer has one
        transaction at a time: entering a second one raises `InvalidTxnState`. (KIP-98.)
        """
        sender = self._lifecycle.running_here().sender
        return TransactionScope(_transactions_of(sender), sender)

    async def begin_transaction(self) -> None:
        """Begin a transaction; waits at most `max_block_ms` for the end of the one before.

        Raises `InvalidTxnState` if one is open, `TransactionFailed` if the one before could
        not be committed after the call for it had ended without an answer (it is aborted, and this
        may be called again), `ProducerFenced`, `RequestTimedOut`.
        """
        await self._transactions().begin()

    async def commit_transaction(self) -> None:
        """Send all that was taken, and commit.

        Raises `TransactionFailed` if a record failed or a coordinator refuses: then abort. After
        `RequestTimedOut` (`max_block_ms`), or if the call is cancelled, the commit goes on: whether
        it succeeded is told by calling this again, and `begin_transaction` waits for it.
        """
        await self._transactions().commit()

    async def abort_transaction(self) -> None:
        """Drop what was not sent, and make what was sent invisible to readers of committed records.

        The deliveries of records that were not acknowledged raise `TransactionAborted`. After
        `RequestTimedOut`, or if the call is cancelled, the abort goes on.
        """
        await self._transactions().abort()

    @overload
    async def send_offsets_to_transaction(self, offsets: OffsetsSource, /) -> None: ...

    @overload
    async def send_offsets_to_transaction(
        self,
        offsets: OffsetsArgument[PartitionT],
        group_metadata: GroupMetadata,
        /,
    ) -> None: ...

    async def send_offsets_to_transaction(
        self,
        offsets: OffsetsSource | OffsetsArgument[PartitionT],
        group_metadata: GroupMetadata | None = None,
        /,
    ) -> None:
        """Commit positions of a consumer group with the transaction (KIP-447).

        Give the consumer, for all that it has given out, or offsets (of the next record to read)
        and `consumer.group_metadata()`. The consumer must not commit by itself: raises `ValueError`
        unless its `enable_auto_commit` is False. Returns when the group's coordinator has the
        positions; they count when the transaction is committed. Raises `TransactionFailed`, with
        `CommitFailed` as its cause if the consumer has lost its membership meanwhile.
        """
        transactions = self._transactions()
        if isinstance(offsets, Mapping):
            if not isinstance(group_metadata, GroupMetadata):
                raise TypeError("give the GroupMetadata of the group that the offsets belong to")
            checked = checked_offsets(offsets, group_metadata)
            await transactions.send_offsets(checked, group_metadata)
            return
        if group_metadata is not None:
            raise TypeError("a consumer knows its group: give it alone")
        if offsets.config.enable_auto_commit:
            raise ValueError(
                "a consumer whose offsets go with transactions must not commit them by itself:"
                " make it with enable_auto_commit=False"
            )
        await transactions.send_offsets(
            offsets.positions(), offsets.group_metadata(), offsets.mark_committed
        )

    async def detach(self) -> PreparedTransaction:
        """Send all that was taken, and give the open transaction away, for `end_transaction`.

        The producer's part is over then: it makes no more transactions. Closing it leaves this one
        open. May be called again, also after `RequestTimedOut` or a cancellation; until it has
        returned, the transaction can still be aborted, and closing does so.
        """
        return await self._transactions().detach()

    def _transactions(self) -> Transactions:
        return _transactions_of(self._running().sender)

    # --- the rest -----------------------------------------------------------------------------

    async def flush(self, timeout_s: float | None = None) -> None:
        """Send at once, and wait until all records sent so far have their outcome.

        That is at most `delivery_timeout_ms` away; after `timeout_s` seconds raises
        `RequestTimedOut`, and the records stay on their way. Raises `DeliveriesFailed` if records
        failed since the last time and nobody awaited them.
        """
        session = self._running()
        deadline = NEVER if timeout_s is None else session.runtime.clock.now() + timeout_s
        await session.appender.yield_budget.checkpoint()
        await session.sender.flush(deadline)
        if session.sender.transactions is not None:
            session.sender.transactions.raise_failure()
        failure = session.sender.accumulator.unreported_failures.take()
        if failure is not None:
            raise failure

    async def ping(
        self, timeout_ms: float = 2_000, *, topic: str | None = None, group: str | None = None
    ) -> PingResult:
        """Ask a broker now whether it answers: for readiness probes.

        Sends a request and waits for its response. Nothing is taken from a cache, and no backoff
        after failed connections delays it. Brokers are asked one after the other, without waiting
        long for each, until one answers. It does not disturb what is sent otherwise.

        Args:
            timeout_ms: The longest that the call takes, in milliseconds.
            topic: Ask the leader of each partition of this topic; all must answer.
            group: Ask the coordinator of this group, which must be ready to serve it.

        Returns:
            The brokers that answered, and the time that the slowest of them took.

        Raises:
            NoBrokerAvailable: No broker answered; the text has the reason of each.
            RequestTimedOut: A leader, or the coordinator, did not answer. As `ConnectionFailed`
                and `ConnectionLost`, it names the broker.
            UnknownTopic: The topic does not exist.
            BrokerError: A partition has no leader, or no broker coordinates the group.
            ClientClosed: The producer does not run.
            ValueError: `timeout_ms` is negative or no number.
            KafkaError: What ended the producer, such as `ProducerFenced`.
        """
        session = self._running()
        session.sender.raise_if_failed()
        return await session.cluster.pinger.ping(timeout_ms, topic=topic, group=group)

    def metrics(self) -> dict[str, int | float]:
        """A snapshot of what this producer has done and holds now; the names end in their unit.

        With the numbers of its connections (`requests_total`, `request_latency_ms_avg` …). Every
        name is explained in the documentation of the producer. Totals count from entering.
        """
        session = self._running()
        return session.sender.metrics() | session.cluster.metrics()

    async def partitions_for(self, topic: str) -> tuple[int, ...]:
        """The partitions of a topic, ascending; makes the topic known to `send_nowait`.

        Raises `UnknownTopic` if there is none after `max_block_ms`, or soon with
        `allow_auto_create_topics` off.
        """
        session = self._running()
        deadline = session.runtime.clock.now() + self.config.max_block_ms / 1_000
        queues = await session.appender.wait_for_topic(topic, deadline)
        return tuple(queue.topic_partition.partition for queue in queues.queues)


def _transactions_of(sender: Sender) -> Transactions:
    if sender.failure is not None:
        sender.raise_if_failed()
    if sender.transactions is None:
        raise InvalidTxnState(
            "a producer without a transactional_id makes no transactions: give it one"
        )
    return sender.transactions


async def _close_gracefully(session: _Session) -> None:
    if session.sender.transactions is not None:
        await session.sender.transactions.close()
    await session.sender.flush(NEVER)
    await session.cluster.aclose()


_SEND = Producer.send
