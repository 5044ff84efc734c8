"""Sends the batches of one broker.

A Produce request is built and written in one synchronous step, wherever a batch is found to be due:
in the call that ends its linger, in the callback of the previous response, or in the broker's task.
The task does the waiting: for linger and backoff, for the connection, and for compression.

Batches are drained when the connection accepts the request. So the order of draining is the order
on the wire, and until then a batch can move to another leader.
"""

from __future__ import annotations

import logging
from functools import partial

from aiokafkawire.cluster import MetadataSnapshot
from aiokafkawire.connection import Channel, ConnectionKind
from aiokafkawire.connection.node_api_versions import MAX_WITHOUT_TOPIC_IDS
from aiokafkawire.errors import ClientClosed, KafkaError, UnsupportedVersion
from aiokafkawire.logs import log_fields
from aiokafkawire.producer.attempt_result import AttemptResult, result_from_failure
from aiokafkawire.producer.batch import Batch
from aiokafkawire.producer.batch_actions import BatchAction
from aiokafkawire.producer.batch_future import BatchAppended, BatchSplit
from aiokafkawire.producer.delivery import Delivery
from aiokafkawire.producer.partition_queue import PartitionQueue
from aiokafkawire.producer.produce_request import (
    FIRST_FLEXIBLE_PRODUCE,
    FIRST_WITH_FORMAT_2,
    BuiltRequest,
    ProduceTemplate,
    build_from_template,
    build_request,
    parse_response,
)
from aiokafkawire.producer.sender_context import SenderContext
from aiokafkawire.producer.topic_queues import TopicQueues
from aiokafkawire.records.kernel import Buffer, Headers
from aiokafkawire.runtime import AT_ONCE, NEVER, AutoResetEvent, Future, Timer
from aiokafkawire.types import NodeId, TopicPartition
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages.produce import ProduceResponse

__all__ = ("OFFLOAD_BYTES", "BrokerSender")

logger = logging.getLogger("aiokafkawire.producer")

OFFLOAD_BYTES = 64 * 1024
"""Batches of at least this size are compressed outside the event loop."""

_PRODUCE, _APPENDED = ApiKey.PRODUCE, BatchAction.APPENDED

FIRST_WITH_FIVE_DEDUP_BATCHES = 4
"""Before this version (Kafka 1.0), a broker deduplicates only against the last batch."""


class BrokerSender:
    """Sends the batches of one broker in Produce requests."""

    def __init__(self, node_id: NodeId, context: SenderContext) -> None:
        self.node_id = node_id
        self._context = context
        self._settings = context.settings
        self._accumulator = context.accumulator
        # The task waits here until a batch is due.
        self._timer = Timer(self.send_now)
        self._in_flight = 0
        # Set while the task waits for the responses of the requests in flight.
        self._response_received: AutoResetEvent | None = None
        # The request in flight may cause a disconnect by its size: no other request is sent.
        self._exclusive = False
        # Requests are being built or responses handled; `send_now` runs again afterwards.
        self._sending = False
        self._request_error: KafkaError | None = None
        self._stopping = False
        self._failures = 0
        # The connection, and the metadata with which it was looked up.
        self._channel: Channel | None = None
        self._metadata: MetadataSnapshot | None = None
        self._now = context.runtime.clock.now

    def start(self) -> None:
        """Start the broker's task."""
        self._context.supervisor.spawn(self._run, name=f"send to broker {self.node_id}")

    def wake(self, at: float) -> None:
        """Check for batches at time `at`."""
        if at < self._timer.deadline and not self._sending:
            self._timer.reschedule(at)

    def batch_ready(self) -> None:
        """Send now if no request is in flight; else let the task send.

        The task runs later, so that batches of the same event loop iteration share a request.
        """
        if self._in_flight:
            self.wake(AT_ONCE)
        else:
            self.send_now()

    def stop_if_idle(self) -> bool:
        """End the broker's task; return False if a request is in flight or due."""
        if self._timer.deadline == AT_ONCE or self._in_flight:
            return False
        self._stopping = True
        self._timer.reschedule(AT_ONCE)
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
        while not self._stopping and self._request_error is None:
            due_at = self._due_at()
            if due_at <= self._now():
                return
            await self._timer.wait(due_at)

    def _due_at(self) -> float:
        """Return when the next request may be sent; NEVER if a response must arrive first."""
        due_at = self._accumulator.sendable_at(self.node_id)
        producer_id_state = self._accumulator.producer_id_state
        if producer_id_state is not None and producer_id_state.current is None:
            self._context.producer_ids.check()
        full = self._in_flight >= self._settings.max_in_flight
        return NEVER if full or self._exclusive else due_at

    async def _compress_due(self) -> None:
        """Compress large batches outside the event loop, before they are drained."""
        for batch in self._batches_to_compress(self._now()):
            if batch.records is not None:  # It may have expired during another compression.
                await self._context.runtime.offload(batch.records.compress)

    def _batches_to_compress(self, now: float) -> list[Batch]:
        """Return the large batches that are due and not compressed yet."""
        if not self._settings.compresses:
            return []
        due = self._accumulator.close_due(self.node_id, now, OFFLOAD_BYTES)
        return [batch for batch in due if batch.records is not None and not batch.records.ready]

    async def _wait_exclusive(self) -> None:
        """Wait until no request is in flight, if the next batch may cause a disconnect by its size.

        Sent alone, a disconnect can be attributed to it.
        """
        suspect_due = self._accumulator.oversize_suspect_due
        try:
            while self._in_flight and suspect_due(self.node_id, self._now()):
                self._response_received = AutoResetEvent()
                await self._response_received.wait()
        finally:
            self._response_received = None

    async def _wait_connected(self) -> bool:
        """Wait for the connection; return False, after a backoff, if the broker is unreachable."""
        error, self._request_error = self._request_error, None
        if error is None:
            try:
                client = self._context.cluster.broker_client(self.node_id)
                deadline = self._now() + self._settings.request_timeout_s
                await client.ready(ApiKey.PRODUCE, deadline, ConnectionKind.PRODUCE)
            except ClientClosed:
                raise
            except KafkaError as failure:
                error = failure
        if error is None:
            return True
        await self._back_off_unreachable(error)
        return False

    # --- requests ---

    def send_now(self) -> None:
        """Send the due batches that need no wait; the task sends the others.

        Never raises. Must not be called while a queue is being changed.
        """
        if self._sending or self._stopping:
            return
        due_at = self._due_at()
        if due_at != NEVER:
            self._sending = True
            try:
                while due_at <= self._now():
                    if (self._in_flight or self._settings.compresses) and self._must_wait():
                        break
                    if not self._send_next():
                        break
                    due_at = self._due_at()
            finally:
                self._sending = False
        if due_at != self._timer.deadline:
            self._timer.reschedule(due_at)

    def _must_wait(self) -> bool:
        """Return whether the due batches need `_compress_due` or `_wait_exclusive` first."""
        now = self._now()
        if self._in_flight and self._accumulator.oversize_suspect_due(self.node_id, now):
            return True
        return bool(self._batches_to_compress(now))

    def _send_next(self) -> bool:
        """Send the due batches in one request; return False if the task has to wait first."""
        channel: Channel | None = None
        try:
            channel = self._open_channel(self._now())
            if channel is None:
                return False
            built = self._build_next_request(channel)
        except KafkaError as error:
            error.broker = error.broker or (None if channel is None else channel.name)
            self._request_error = error
            self._timer.reschedule(AT_ONCE)
            return False
        if built is not None:
            self._submit(built, channel, self._now())
        return True

    def send_alone(  # noqa: PLR0917 - a record's parts in their usual order
        self,
        topic: TopicQueues,
        queue: PartitionQueue,
        key: Buffer | None,
        value: Buffer | None,
        headers: Headers,
        timestamp_ms: int,
        *,
        has_user_timestamp: bool = False,
        size_bytes: int,
        now: float,
    ) -> Delivery | None:
        """Send a record as a batch of its own; return None, without any effect, if it must wait.

        See `Accumulator.append` for the arguments.
        """
        if self._in_flight or self._sending or self._stopping or self._request_error:
            return None
        try:
            channel = self._open_channel(now)
            if channel is None:
                return None
            max_version = None if topic.topic_id.int else MAX_WITHOUT_TOPIC_IDS[_PRODUCE]
            version = channel.api_versions.latest_usable_version(_PRODUCE, max_version)
        except KafkaError:  # `_send_next` reports it.
            return None
        if version < FIRST_FLEXIBLE_PRODUCE:
            return None
        batch = self._accumulator.append_alone(
            topic,
            queue,
            key,
            value,
            headers,
            timestamp_ms,
            has_user_timestamp=has_user_timestamp,
            size_bytes=size_bytes,
            now=now,
        )
        if batch is None:
            return None
        template = topic.templates.get(version) or self._make_template(topic, version)
        self._submit(build_from_template(batch, template), channel, now)
        return Delivery(batch.future, 0, timestamp_ms)

    def _submit(self, built: BuiltRequest, channel: Channel, now: float) -> None:
        """Send a request whose batches were drained."""
        message, settings = built.encoded or built.request, self._settings
        deadline = now + settings.request_timeout_s
        try:
            request = channel.submit(message, built.version, deadline, settings.expects_response)
        except KafkaError as error:
            self._fail_request(built, error)
            self._context.perform()
            return
        self._in_flight += 1
        self._exclusive = built.batches[0].oversize_disconnects > 0
        request.set_done_callback(partial(self._on_response, built, channel.name))

    def _open_channel(self, now: float) -> Channel | None:
        """Return the connection if it can be written to now.

        Looks it up again after a disconnect or with new metadata.
        """
        channel, metadata = self._channel, self._context.cluster.metadata
        if channel is None or not channel.is_usable or metadata is not self._metadata:
            client = self._context.cluster.broker_client(self.node_id)
            channel = self._channel = client.ready_channel(ConnectionKind.PRODUCE)
            self._metadata = metadata
        elif channel.throttled_until > now:
            return None
        return channel

    def _build_next_request(self, channel: Channel) -> BuiltRequest | None:
        """Drain the due batches and build a request; None if it would have no batch."""
        context, accumulator = self._context, self._accumulator
        min_version, max_version = 0, None
        if context.transaction_manager is not None:
            min_version, max_version = context.transaction_manager.produce_versions()
        if max_version is None and not accumulator.all_have_ids(self.node_id):
            max_version = MAX_WITHOUT_TOPIC_IDS[_PRODUCE]
        version = channel.api_versions.latest_usable_version(_PRODUCE, max_version, min_version)
        if version < FIRST_WITH_FIVE_DEDUP_BATCHES:
            if accumulator.producer_id_state is not None:
                accumulator.producer_id_state.max_dedup_batches = 1
            if version < FIRST_WITH_FORMAT_2:
                context.producer_ids.on_idempotence_unsupported(
                    UnsupportedVersion("a partition leader is older", broker=channel.name)
                )
        limit = self._settings.max_request_bytes
        batches = accumulator.drain(self.node_id, self._now(), limit, due=True)
        if len(batches) == 1 and version >= FIRST_FLEXIBLE_PRODUCE:
            topic = accumulator.topics[batches[0].future.topic]
            template = topic.templates.get(version) or self._make_template(topic, version)
            built = build_from_template(batches[0], template)
        else:
            if version < FIRST_WITH_FORMAT_2 and accumulator.producer_id_state is None:
                for batch in batches:
                    # It may have got its sequence number for a leader with a newer version.
                    batch.sequence = None
            built = build_request(
                batches,
                version,
                topic_ids={
                    batch.future.topic: accumulator.topics[batch.future.topic].topic_id
                    for batch in batches
                },
                **self._settings.params,
            )
        for batch, error in built.unsupported:
            self._handle_result(batch, AttemptResult(BatchAction.FAIL, error))
        if built.unsupported:
            context.perform()
        if not built.batches:
            return None
        if context.transaction_manager is not None:
            context.transaction_manager.on_records_sent()
        return built

    def _make_template(self, topic: TopicQueues, version: int) -> ProduceTemplate:
        template = topic.templates[version] = ProduceTemplate(
            topic.name, topic.topic_id, version, **self._settings.params
        )
        return template

    def _on_response(
        self, built: BuiltRequest, broker: str, future: Future[ProduceResponse | AttemptResult]
    ) -> None:
        """Handle the end of a request: its response, or the error."""
        self._in_flight -= 1
        self._exclusive = False
        if self._response_received is not None:
            self._response_received.set()
        value, error = future.value, future.error
        if error is not None and isinstance(error, ClientClosed):
            return
        transaction_manager = self._context.transaction_manager
        if transaction_manager is not None:
            transaction_manager.requests.hold()
        was_sending, self._sending = self._sending, True
        try:
            if error is not None:
                self._fail_request(built, error)
            else:
                self._failures = 0
                if isinstance(value, AttemptResult):  # appended, by a template
                    now = self._now()
                    if not self._accumulator.handle_result(built.batches[0], value, now, now):
                        self._on_late_response()
                else:
                    self._handle_response(built, broker, value)
            self._context.perform()
        finally:
            self._sending = was_sending
            if transaction_manager is not None:
                transaction_manager.requests.release()
        # Usually no batch waits, and the task sleeps.
        if self._timer.deadline != NEVER or self._accumulator.has_waiting(self.node_id):
            self.send_now()

    def _handle_response(
        self, built: BuiltRequest, broker: str, response: ProduceResponse | None
    ) -> None:
        context = self._context
        if response is None:  # acks=0
            for batch in built.batches:
                self._handle_result(batch, AttemptResult(BatchAction.APPENDED))
            return
        results, hints = parse_response(response, built.batches, built.request, broker)
        for hint in hints:
            context.cluster.update_leader(*hint)
        leader_of = context.cluster.metadata.leader
        moved = [
            hint.topic_partition
            for hint in hints
            if (leader := leader_of(hint.topic_partition)) and leader.node != self.node_id
        ]
        for batch, result in results:
            # No backoff if the response named the new leader (KIP-951).
            retry_now = (batch.future.topic, batch.future.partition) in moved
            self._handle_result(batch, result, retry_now=retry_now)

    def _fail_request(self, built: BuiltRequest, error: BaseException) -> None:
        """Apply the error of a request without a response to its batches."""
        assert isinstance(error, KafkaError)
        result = result_from_failure(error, built.size_bytes)
        for batch in built.batches:
            self._handle_result(batch, result)

    async def _back_off_unreachable(self, error: KafkaError) -> None:
        """Handle an unreachable broker; no batch was drained. Wait for the backoff."""
        context = self._context
        if not error.retriable:
            context.accumulator.abort(error, self.node_id)
            context.perform()
            return
        self._failures += 1
        context.accumulator.node_unreachable(self.node_id, error)
        context.cluster.request_update()
        wait_s = self._settings.backoff.delay(self._failures, context.runtime.rng)
        await context.runtime.clock.sleep_until(self._now() + wait_s)

    def _handle_result(
        self, batch: Batch, result: AttemptResult, *, retry_now: bool = False
    ) -> None:
        """Apply the result of an attempt: complete or retry the batch, refresh stale metadata."""
        context, now = self._context, self._now()
        if result.action is _APPENDED and self._accumulator.handle_result(batch, result, now, now):
            return
        if result.stale_metadata:
            context.cluster.request_update()
        wait_s = 0.0
        if result.action is not BatchAction.SPLIT and not retry_now:
            concurrent = getattr(result.error, "code", None) == ErrorCode.CONCURRENT_TRANSACTIONS
            backoff = self._settings.backoff
            if concurrent:
                backoff = self._settings.concurrent_transactions_backoff
            wait_s = backoff.delay(batch.attempts, context.runtime.rng)
        if result.action is BatchAction.OLD_MESSAGE_FORMAT:
            # Message formats before v2 have no producer ids.
            assert isinstance(result.error, KafkaError)
            context.producer_ids.on_idempotence_unsupported(result.error)
        # A batch that expired in flight has its outcome already. The late result must not fail the
        # producer, because it may belong to an earlier epoch.
        expired = not context.accumulator.handle_result(batch, result, now, now + wait_s)
        if logger.isEnabledFor(logging.DEBUG) and not expired:
            self._log_result(batch, result, wait_s)
        if expired:
            self._on_late_response()
        if result.action is BatchAction.FATAL and not expired:
            assert isinstance(result.error, KafkaError)
            context.fail(result.error)

    def _on_late_response(self) -> None:
        """Handle the response to a batch that had expired."""
        if self._context.transaction_manager is not None:
            self._context.transaction_manager.on_late_response()

    def _log_result(self, batch: Batch, result: AttemptResult, wait_s: float) -> None:
        supervisor, outcome = self._context.supervisor, batch.future.value
        if outcome is None:
            outcome_text = f"retrying in {wait_s:.3f} s"
        elif isinstance(outcome, BatchSplit):
            outcome_text = f"split into {len(outcome.parts)} batches"
        else:
            outcome_text = "delivered" if isinstance(outcome, BatchAppended) else "failed"
        tp = TopicPartition(batch.future.topic, batch.future.partition)
        logger.debug(
            "%s: batch for %s, attempt %d: %s: %s",
            supervisor.name,
            tp,
            batch.attempts,
            outcome_text,
            result.error,
            extra=log_fields(
                supervisor.fields, error=result.error, tp=tp, broker=str(self.node_id)
            ),
        )
