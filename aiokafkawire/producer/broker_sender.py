"""What is sent to one broker.

A request is made in one synchronous step, wherever it is found to be due: in the call that ends the
wait for more records, in the callback with the answer to the one before, or in the broker's task,
which waits for what has to be waited for: the time, the connection, compression. The batches are
taken at the moment when the connection takes the request, so the order of taking is the order on
the wire, and until then batches can still move to another leader.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Protocol
from uuid import UUID

from aiokafkawire.cluster import Cluster, MetadataSnapshot
from aiokafkawire.config import ProducerConfig
from aiokafkawire.connection import Backoff, Channel, Lane
from aiokafkawire.connection.versions import MAX_WITHOUT_TOPIC_IDS
from aiokafkawire.errors import ClientClosed, KafkaError, UnsupportedVersion
from aiokafkawire.logs import log_fields
from aiokafkawire.producer.accumulator import Accumulator
from aiokafkawire.producer.attempt_result import AttemptResult, result_from_failure
from aiokafkawire.producer.batch import Batch
from aiokafkawire.producer.batch_actions import BatchAction
from aiokafkawire.producer.delivery import BatchAppended, BatchSplit
from aiokafkawire.producer.produce_request import (
    FIRST_WITH_FORMAT_2,
    BuiltRequest,
    ProduceParams,
    build_from_template,
    build_request,
    parse_response,
)
from aiokafkawire.producer.produce_template import FIRST_FLEXIBLE_PRODUCE, ProduceTemplate
from aiokafkawire.producer.sender_interface import SendBatch
from aiokafkawire.producer.topic_queues import TopicQueues
from aiokafkawire.producer.transactions import Transactions, concurrent_backoff
from aiokafkawire.records import Compression
from aiokafkawire.runtime import NEVER, Alarm, Host, Promise, Runtime, Signal
from aiokafkawire.types import NodeId, TopicPartition
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages.produce import ProduceResponse

__all__ = ("OFFLOAD_BYTES", "BrokerSender", "SenderContext")

logger = logging.getLogger("aiokafkawire.producer")

OFFLOAD_BYTES = 64 * 1024
"""Batches from this size on are compressed outside the event loop."""

MAX_TEMPLATES = 1_000
"""Topics of which it is remembered how a request looks; then all are forgotten."""

_PRODUCE, _NO_COMPRESSION = ApiKey.PRODUCE, Compression.NONE

FIRST_WITH_FIVE_DEDUP_BATCHES = 4
"""In versions before, that of Kafka 0.11 among them, a log knows only the last batch again."""


class SenderContext(Protocol):
    """What the senders of all brokers share."""

    config: ProducerConfig
    runtime: Runtime
    host: Host
    cluster: Cluster
    accumulator: Accumulator
    transactions: Transactions | None

    def fail(self, error: KafkaError) -> None:
        """The producer cannot go on."""
        ...

    def check_producer_id(self) -> None:
        """Looking for batches may have used up the producer's identity."""
        ...

    def on_missing_producer_ids(self, error: KafkaError) -> None:
        """A partition's leader, or its log, has no producer ids."""
        ...


class BrokerSender:
    """Sends to one broker what is due there."""

    def __init__(self, node_id: NodeId, context: SenderContext) -> None:
        config = context.config
        self.node_id = node_id
        self._context = context
        self._cluster = context.cluster
        self._accumulator = context.accumulator
        # While the task waits for something to be due.
        self._timer = Alarm(self.send_now)
        self._in_flight = 0
        # While the task waits for the end of what is under way.
        self._response_received: Signal | None = None
        # A request is suspected for its size: no other one goes with it.
        self._exclusive = False
        # Requests are made, or their answers are read: what is due is looked for when that is done.
        self._sending = False
        self._request_error: KafkaError | None = None
        self._stopping = False
        self._backoff = Backoff.from_ms(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._concurrent_backoff = concurrent_backoff(self._backoff)
        self._failures = 0
        self._request_timeout_s = config.request_timeout_ms / 1_000
        self._acks = config.required_acks
        self._params: ProduceParams = {
            # mutation: acks-one-instead-of-all
            "acks": self._acks,
            "timeout_ms": config.request_timeout_ms,
            "transactional_id": config.transactional_id,
        }
        self._templates: dict[str, ProduceTemplate] = {}
        # What sends one batch of a topic, made by its id, at once on the connection there is now.
        self._send_cache: dict[str, tuple[UUID, SendBatch | None]] = {}
        self._use_templates = context.transactions is None and self._acks in {-1, 1}
        # Where requests go, and the metadata by which that was found.
        self._channel: Channel | None = None
        self._broker = ""
        self._metadata: MetadataSnapshot | None = None
        self._max_in_flight = config.max_in_flight_requests_per_connection
        self._compression_enabled = context.accumulator.config.compression is not _NO_COMPRESSION
        self._now = context.runtime.clock.now

    def start(self) -> None:
        """Start the task."""
        self._context.host.spawn(self._run, name=f"send to {self.node_id} what is due")

    def wake(self, at: float) -> None:
        """From a time on there may be something to send."""
        if at < self._timer.at and not self._sending:
            self._timer.move(at)

    def batch_ready(self) -> None:
        """There is something to send: at once, unless something is under way; then what comes in
        this turn of the event loop goes together."""
        if self._in_flight:
            self.wake(-NEVER)
        else:
            self.send_now()

    def stop_if_idle(self) -> bool:
        """End the task of a broker that is gone; False if there is something to wait for."""
        if self._timer.at == -NEVER or self._in_flight:
            return False
        self._stopping = True
        self._timer.move(-NEVER)
        return True

    async def _run(self) -> None:
        try:
            while True:
                await self._wait_due()
                if self._stopping:
                    return
                await self._compress_due()
                await self._wait_exclusive()
                if await self._wait_connected():
                    self.send_now()
        except ClientClosed:
            return

    async def _wait_due(self) -> None:
        clock = self._context.runtime.clock
        while not self._stopping and self._request_error is None:
            due_at = self._due_at()
            if due_at <= clock.now():
                return
            await self._timer.wait(due_at)

    def _due_at(self) -> float:
        """When the next request may go; NEVER: when another one has its answer."""
        due_at = self._accumulator.sendable_at(self.node_id)
        producer_id_state = self._accumulator.producer_id_state
        if producer_id_state is not None and producer_id_state.current is None:
            self._context.check_producer_id()
        return NEVER if self._exclusive or self._in_flight >= self._max_in_flight else due_at

    async def _compress_due(self) -> None:
        """Do the heavy part of large batches elsewhere, before they are taken."""
        context = self._context
        now = context.runtime.clock.now()
        for batch in self._batches_to_compress(now):
            if batch.records is not None:  # None: it expired while another one was compressed
                await context.runtime.offload(batch.records.compress)

    def _batches_to_compress(self, now: float) -> list[Batch]:
        """The large batches that are due and not compressed yet."""
        if not self._compression_enabled:
            return []
        due = self._context.accumulator.close_due(self.node_id, now, OFFLOAD_BYTES)
        return [batch for batch in due if batch.records is not None and not batch.records.ready]

    async def _wait_exclusive(self) -> None:
        """What is suspected for its size goes when no other request can be suspected with it."""
        context = self._context
        now = context.runtime.clock.now
        try:
            while self._in_flight and context.accumulator.oversize_suspect_due(self.node_id, now()):
                self._response_received = Signal()
                await self._response_received.wait()
        finally:
            self._response_received = None

    async def _wait_connected(self) -> bool:
        """Wait until the broker can be written to; False if it cannot be reached."""
        context = self._context
        error, self._request_error = self._request_error, None
        if error is None:
            try:
                client = context.cluster.broker_client(self.node_id)
                deadline = context.runtime.clock.now() + self._request_timeout_s
                await client.ready(ApiKey.PRODUCE, deadline, Lane.PRODUCE)
            except ClientClosed:
                raise
            except KafkaError as failure:
                error = failure
        if error is None:
            return True
        await self._back_off_unreachable(error)
        return False

    # --- requests -----------------------------------------------------------------------------

    def send_now(self) -> None:
        """Send what is due, as far as nothing has to be waited for before; the task does the rest.

        Never raises; to be called where the accumulator is at rest.
        """
        if self._sending or self._stopping:
            return
        due_at = self._due_at()
        if due_at != NEVER:
            self._sending = True
            try:
                while due_at <= self._now():
                    if (self._in_flight or self._compression_enabled) and self._must_wait():
                        break
                    if not self._send_from_template() and not self._send_request():
                        break
                    due_at = self._due_at()
            finally:
                self._sending = False
        if due_at != self._timer.at:
            self._timer.move(due_at)

    def _must_wait(self) -> bool:
        """Whether what is due has to wait for `_compress_due` or `_wait_exclusive`."""
        now = self._now()
        if self._in_flight and self._accumulator.oversize_suspect_due(self.node_id, now):
            return True
        return bool(self._batches_to_compress(now))

    def _send_from_template(self) -> bool:
        """Send the only batch that is due with a template; return False if that is not possible."""
        accumulator = self._accumulator
        queue = accumulator.only_active_queue(self.node_id) if self._use_templates else None
        if queue is None:
            return False
        now = self._now()
        send_batch = self.immediate_sender(
            accumulator.topics[queue.topic_partition.topic], now, due=True
        )
        if send_batch is None:
            return False
        send_batch(accumulator.drain_only(self.node_id, queue, now), now)
        return True

    def _send_request(self) -> bool:
        """Make one request of what is due; False if there is something to wait for before."""
        try:
            channel = self._open_channel(self._now())
            if channel is None:
                return False
            min_version, max_version = self._version_bounds()
            version = channel.versions.highest(_PRODUCE, max_version, min_version)
            built = self._drain(version)
        except KafkaError as error:
            error.broker = error.broker or self._broker
            self._request_error = error
            self._timer.move(-NEVER)
            return False
        if built is not None:
            self._submit(built, channel, version, self._now())
        return True

    def immediate_sender(
        self, topic: TopicQueues, now: float, *, due: bool = False
    ) -> SendBatch | None:
        """What sends one batch of a topic at once, if it would be a usual request, and no other is
        under way or about to be made; or it is this one that is `due`."""
        if not due and (self._in_flight or self._sending or self._stopping or self._request_error):
            return None
        channel, known = self._channel, self._send_cache.get(topic.name)
        if (
            known is not None
            and known[0] is topic.topic_id
            and channel is not None
            and channel.usable
            and channel.silent_until <= now
            and self._cluster.metadata is self._metadata
        ):
            return known[1]
        return self._make_immediate_sender(topic, now)

    def _make_immediate_sender(self, topic: TopicQueues, now: float) -> SendBatch | None:
        try:
            channel = self._open_channel(now) if self._use_templates else None
            if channel is None:
                return None
            max_version = None if topic.topic_id.int else MAX_WITHOUT_TOPIC_IDS[_PRODUCE]
            version = channel.versions.highest(_PRODUCE, max_version)
        except KafkaError:  # told when it is sent
            return None
        send_batch = None
        if version >= FIRST_FLEXIBLE_PRODUCE:
            send_batch = partial(
                self._send_single_batch, channel, self._template(topic.name, version)
            )
        if len(self._send_cache) >= MAX_TEMPLATES:
            self._send_cache.clear()
        self._send_cache[topic.name] = topic.topic_id, send_batch
        return send_batch

    def _send_single_batch(
        self, channel: Channel, template: ProduceTemplate, batch: Batch, now: float
    ) -> None:
        self._submit(build_from_template(batch, template), channel, template.version, now)

    def _submit(self, built: BuiltRequest, channel: Channel, version: int, now: float) -> None:
        """Send a request whose batches have been taken."""
        try:
            call = channel.submit(
                built.raw_request or built.request,
                version,
                deadline=now + self._request_timeout_s,
                expect_response=self._acks != 0,
            )
        except KafkaError as error:
            self._fail_request(built, error)
            return
        self._in_flight += 1
        self._exclusive = built.batches[0].oversize_disconnects > 0
        call.payload.when_done(partial(self._on_response, built, self._broker))

    def _open_channel(self, now: float) -> Channel | None:
        """The connection, if it can be written to now; it is looked up where the metadata is
        another one, or it was lost."""
        channel, metadata = self._channel, self._cluster.metadata
        if channel is None or not channel.usable or metadata is not self._metadata:
            client = self._cluster.broker_client(self.node_id)
            channel = self._channel = client.at_once(Lane.PRODUCE)
            self._broker, self._metadata = client.name, metadata
            self._send_cache.clear()
        elif channel.silent_until > now:
            return None
        return channel

    def _drain(self, version: int) -> BuiltRequest | None:
        """A request of what is due, taken out of the buffer; None if nothing of it can go."""
        context, accumulator = self._context, self._accumulator
        now = self._now()
        if version < FIRST_WITH_FIVE_DEDUP_BATCHES:
            if accumulator.producer_id_state is not None:
                accumulator.producer_id_state.max_dedup_batches = 1
            if version < FIRST_WITH_FORMAT_2:
                broker = context.cluster.broker_client(self.node_id).name
                context.on_missing_producer_ids(
                    UnsupportedVersion("it leads partitions", broker=broker)
                )
        limit = context.config.max_request_size_bytes
        batches = accumulator.drain(self.node_id, now, limit, due=True)
        if len(batches) == 1 and version >= FIRST_FLEXIBLE_PRODUCE:
            (batch,) = batches
            built = build_from_template(batch, self._template(batch.future.topic, version))
        else:
            if version < FIRST_WITH_FORMAT_2 and accumulator.producer_id_state is None:
                for batch in batches:
                    # It may have been numbered for a newer leader.
                    batch.sequence = None
            built = build_request(
                batches,
                version,
                topic_ids={
                    batch.future.topic: accumulator.topics[batch.future.topic].topic_id
                    for batch in batches
                },
                **self._params,
            )
        for batch, error in built.unsupported:
            self.handle_result(batch, AttemptResult(BatchAction.FAIL, error))
        if not built.batches:
            return None
        if context.transactions is not None:
            context.transactions.sent()
        return built

    def _template(self, topic: str, version: int) -> ProduceTemplate:
        """How a request with one batch of a topic looks."""
        topic_id = self._accumulator.topics[topic].topic_id
        template = self._templates.get(topic)
        if template is None or template.version != version or template.topic_id is not topic_id:
            if len(self._templates) >= MAX_TEMPLATES:
                self._templates.clear()
            template = self._templates[topic] = ProduceTemplate(
                topic, topic_id, version, **self._params
            )
        return template

    def _on_response(
        self, built: BuiltRequest, broker: str, promise: Promise[ProduceResponse | AttemptResult]
    ) -> None:
        """A request is under way no more."""
        self._in_flight -= 1
        self._exclusive = False
        if self._response_received is not None:
            self._response_received.set()
        if promise.error is not None and isinstance(promise.error, ClientClosed):
            return
        transactions = self._context.transactions
        was_sending, self._sending = self._sending, True
        try:
            if transactions is not None:
                with transactions.steps:
                    self._handle_response(built, broker, promise)
            elif isinstance(promise.value, AttemptResult):  # as usual
                self._failures = 0
                now = self._now()
                self._accumulator.handle_result(built.batches[0], promise.value, now, now)
            else:
                self._handle_response(built, broker, promise)
        finally:
            self._sending = was_sending
        # Mostly nothing waits, and the task sleeps until something does.
        if self._timer.at != NEVER or self._accumulator.has_waiting(self.node_id):
            self.send_now()

    def _handle_response(
        self, built: BuiltRequest, broker: str, promise: Promise[ProduceResponse | AttemptResult]
    ) -> None:
        context = self._context
        if promise.error is not None:
            self._fail_request(built, promise.error)
            return
        self._failures = 0
        response = promise.value
        if response is None:
            for batch in built.batches:
                self.handle_result(batch, AttemptResult(BatchAction.APPENDED))
            return
        if isinstance(response, AttemptResult):
            (batch,) = built.batches
            if batch.done:
                self.handle_result(batch, response)
            else:
                now = self._now()
                self._accumulator.handle_result(batch, response, now, now)
            return
        results, hints = parse_response(response, built.batches, built.request, broker)
        for hint in hints:
            context.cluster.update_leader(*hint)
        moved = [h.topic_partition for h in hints if self._leader_moved(h.topic_partition)]
        for batch, result in results:
            if result.action is BatchAction.APPENDED and not batch.done:
                now = self._now()
                self._accumulator.handle_result(batch, result, now, now)
                continue
            # Whose new leader is known need not wait.
            retry_now = (batch.future.topic, batch.future.partition) in moved
            self.handle_result(batch, result, retry_now=retry_now)

    def _fail_request(self, built: BuiltRequest, error: BaseException) -> None:
        """A request got no answer."""
        assert isinstance(error, KafkaError)
        result = result_from_failure(error, built.size_bytes)
        for batch in built.batches:
            self.handle_result(batch, result)

    def _leader_moved(self, topic_partition: TopicPartition) -> bool:
        leader = self._context.cluster.metadata.leader(topic_partition)
        return leader is not None and leader.node != self.node_id

    def _version_bounds(self) -> tuple[int, int | None]:
        """The versions in which the next request may go."""
        with_ids = self._context.accumulator.all_have_ids(self.node_id)
        max_version = None if with_ids else MAX_WITHOUT_TOPIC_IDS[ApiKey.PRODUCE]
        if self._context.transactions is None:
            return 0, max_version
        low, high = self._context.transactions.produce_versions()
        return low, max_version if high is None else high

    async def _back_off_unreachable(self, error: KafkaError) -> None:
        """There is no connection; nothing was taken. Wait before the next attempt."""
        context = self._context
        if not error.retriable:
            context.accumulator.abort_node(self.node_id, error)
            return
        self._failures += 1
        context.accumulator.node_unreachable(self.node_id, error)
        context.cluster.request_update()
        wait_s = self._backoff.delay(self._failures, context.runtime.rng)
        await context.runtime.clock.sleep_until(context.runtime.clock.now() + wait_s)

    def handle_result(
        self, batch: Batch, result: AttemptResult, *, retry_now: bool = False
    ) -> None:
        """An attempt to send a batch ended."""
        context = self._context
        if result.stale_metadata:
            context.cluster.request_update()
        now = context.runtime.clock.now()
        wait_s = 0.0
        if result.action is not BatchAction.SPLIT and not retry_now:
            concurrent = getattr(result.error, "code", None) == ErrorCode.CONCURRENT_TRANSACTIONS
            backoff = self._concurrent_backoff if concurrent else self._backoff
            wait_s = backoff.delay(batch.attempts, context.runtime.rng)
        if result.action is BatchAction.OLD_MESSAGE_FORMAT:
            assert isinstance(result.error, KafkaError)
            context.on_missing_producer_ids(result.error)
        # What is said of a batch that was given up may be of an epoch that is over.
        late = batch.done
        context.accumulator.handle_result(batch, result, now, now + wait_s)
        if logger.isEnabledFor(logging.DEBUG) and not late:
            self._log_result(batch, result, wait_s)
        if late and context.transactions is not None:
            context.transactions.landed()
        if result.action is BatchAction.FATAL and not late:
            assert isinstance(result.error, KafkaError)
            context.fail(result.error)

    def _log_result(self, batch: Batch, result: AttemptResult, wait_s: float) -> None:
        outcome = batch.future.value
        if outcome is None:
            what = f"sent again in {wait_s:.3f} s"
        elif isinstance(outcome, BatchSplit):
            what = f"split into {len(outcome.parts)} batches"
        else:
            what = "delivered" if isinstance(outcome, BatchAppended) else "failed"
        tp = TopicPartition(batch.future.topic, batch.future.partition)
        logger.debug(
            "%s: batch for %s, attempt %d: %s: %s",
            self._context.host.name,
            tp,
            batch.attempts,
            what,
            result.error,
            extra=log_fields(
                self._context.host.fields,
                error=result.error,
                tp=tp,
                broker=str(self.node_id),
            ),
        )
