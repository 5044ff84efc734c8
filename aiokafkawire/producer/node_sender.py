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
from aiokafkawire.logs import fields_of
from aiokafkawire.producer.accumulator import Accumulator
from aiokafkawire.producer.answer import Answer, from_failure
from aiokafkawire.producer.batch import Batch
from aiokafkawire.producer.delivery import Appended, Split
from aiokafkawire.producer.exchange import (
    FIRST_WITH_FORMAT_2,
    BuiltRequest,
    Terms,
    build,
    build_usual,
    read,
)
from aiokafkawire.producer.outcomes import Verdict
from aiokafkawire.producer.senders import Way
from aiokafkawire.producer.topic_queues import TopicQueues
from aiokafkawire.producer.transactions import Transactions, concurrent_backoff
from aiokafkawire.producer.usual import FIRST_USUAL, UsualForm
from aiokafkawire.records import Compression
from aiokafkawire.runtime import NEVER, Alarm, Host, Promise, Runtime, Signal
from aiokafkawire.types import NodeId, TopicPartition
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages.produce import ProduceResponse

__all__ = ("OFFLOAD_BYTES", "Context", "NodeSender")

logger = logging.getLogger("aiokafkawire.producer")

OFFLOAD_BYTES = 64 * 1024
"""Batches from this size on are compressed outside the event loop."""

MAX_FORMS = 1_000
"""Topics of which it is remembered how a request looks; then all are forgotten."""

_PRODUCE, _NO_COMPRESSION = ApiKey.PRODUCE, Compression.NONE

FIRST_OF_KAFKA_1 = 4
"""In versions before, that of Kafka 0.11 among them, a log knows only the last batch again."""


class Context(Protocol):
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

    def check_identity(self) -> None:
        """Looking for batches may have used up the producer's identity."""
        ...

    def met_old_log(self, error: KafkaError) -> None:
        """A partition's leader, or its log, has no producer ids."""
        ...


class NodeSender:
    """Sends to one broker what is due there."""

    def __init__(self, node_id: NodeId, context: Context) -> None:
        config = context.config
        self.node_id = node_id
        self._context = context
        self._cluster = context.cluster
        self._accumulator = context.accumulator
        # While the task waits for something to be due.
        self._alarm = Alarm(self.send_now)
        self._under_way = 0
        # While the task waits for the end of what is under way.
        self._landed: Signal | None = None
        # A request is suspected for its size: no other one goes with it.
        self._alone = False
        # Requests are made, or their answers are read: what is due is looked for when that is done.
        self._busy = False
        self._refusal: KafkaError | None = None
        self._retired = False
        self._backoff = Backoff.from_ms(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._concurrent = concurrent_backoff(self._backoff)
        self._failures = 0
        self._request_timeout_s = config.request_timeout_ms / 1_000
        self._acks = config.required_acks
        self._terms: Terms = {
            # mutation: acks-one-instead-of-all
            "acks": self._acks,
            "timeout_ms": config.request_timeout_ms,
            "transactional_id": config.transactional_id,
        }
        self._forms: dict[str, UsualForm] = {}
        # What sends one batch of a topic, made by its id, at once on the connection there is now.
        self._ways: dict[str, tuple[UUID, Way | None]] = {}
        self._usual = context.transactions is None and self._acks in {-1, 1}
        # Where requests go, and the metadata by which that was found.
        self._channel: Channel | None = None
        self._broker = ""
        self._found_by: MetadataSnapshot | None = None
        self._limit = config.max_in_flight_requests_per_connection
        self._compresses = context.accumulator.settings.compression is not _NO_COMPRESSION
        self._now = context.runtime.clock.now

    def start(self) -> None:
        """Start the task."""
        self._context.host.spawn(self._run, name=f"send to {self.node_id} what is due")

    def wake(self, at: float) -> None:
        """From a time on there may be something to send."""
        if at < self._alarm.at and not self._busy:
            self._alarm.move(at)

    def offer(self) -> None:
        """There is something to send: at once, unless something is under way; then what comes in
        this turn of the event loop goes together."""
        if self._under_way:
            self.wake(-NEVER)
        else:
            self.send_now()

    def retire(self) -> bool:
        """End the task of a broker that is gone; False if there is something to wait for."""
        if self._alarm.at == -NEVER or self._under_way:
            return False
        self._retired = True
        self._alarm.move(-NEVER)
        return True

    async def _run(self) -> None:
        try:
            while True:
                await self._wait_due()
                if self._retired:
                    return
                await self._compress_due()
                await self._wait_alone()
                if await self._connected():
                    self.send_now()
        except ClientClosed:
            return

    async def _wait_due(self) -> None:
        clock = self._context.runtime.clock
        while not self._retired and self._refusal is None:
            due_at = self._due_at()
            if due_at <= clock.now():
                return
            await self._alarm.wait(due_at)

    def _due_at(self) -> float:
        """When the next request may go; NEVER: when another one has its answer."""
        due_at = self._accumulator.sendable_at(self.node_id)
        identities = self._accumulator.identities
        if identities is not None and identities.current is None:
            self._context.check_identity()
        return NEVER if self._alone or self._under_way >= self._limit else due_at

    async def _compress_due(self) -> None:
        """Do the heavy part of large batches elsewhere, before they are taken."""
        context = self._context
        now = context.runtime.clock.now()
        for batch in self._heavy(now):
            if batch.records is not None:  # None: it expired while another one was compressed
                await context.runtime.offload(batch.records.compress)

    def _heavy(self, now: float) -> list[Batch]:
        """The large batches that are due and not compressed yet."""
        if not self._compresses:
            return []
        due = self._context.accumulator.close_due(self.node_id, now, OFFLOAD_BYTES)
        return [batch for batch in due if batch.records is not None and not batch.records.ready]

    async def _wait_alone(self) -> None:
        """What is suspected for its size goes when no other request can be suspected with it."""
        context = self._context
        now = context.runtime.clock.now
        try:
            while self._under_way and context.accumulator.suspect_due(self.node_id, now()):
                self._landed = Signal()
                await self._landed.wait()
        finally:
            self._landed = None

    async def _connected(self) -> bool:
        """Wait until the broker can be written to; False if it cannot be reached."""
        context = self._context
        error, self._refusal = self._refusal, None
        if error is None:
            try:
                client = context.cluster.broker(self.node_id)
                deadline = context.runtime.clock.now() + self._request_timeout_s
                await client.ready(ApiKey.PRODUCE, deadline, Lane.PRODUCE)
            except ClientClosed:
                raise
            except KafkaError as failure:
                error = failure
        if error is None:
            return True
        await self._unreachable(error)
        return False

    # --- requests -----------------------------------------------------------------------------

    def send_now(self) -> None:
        """Send what is due, as far as nothing has to be waited for before; the task does the rest.

        Never raises; to be called where the accumulator is at rest.
        """
        if self._busy or self._retired:
            return
        due_at = self._due_at()
        if due_at != NEVER:
            self._busy = True
            try:
                while due_at <= self._now():
                    if (self._under_way or self._compresses) and self._something_before():
                        break
                    if not self._send_usual() and not self._send():
                        break
                    due_at = self._due_at()
            finally:
                self._busy = False
        if due_at != self._alarm.at:
            self._alarm.move(due_at)

    def _something_before(self) -> bool:
        """Whether what is due has to wait for `_compress_due` or `_wait_alone`."""
        now = self._now()
        if self._under_way and self._accumulator.suspect_due(self.node_id, now):
            return True
        return bool(self._heavy(now))

    def _send_usual(self) -> bool:
        """As `_send`, if one partition alone has something, and what goes is as usual; else False,
        and nothing is done."""
        accumulator = self._accumulator
        queue = accumulator.only(self.node_id) if self._usual else None
        if queue is None:
            return False
        now = self._now()
        way = self.free_way(accumulator.topics[queue.topic_partition.topic], now, due=True)
        if way is None:
            return False
        way(accumulator.take_only(self.node_id, queue, now), now)
        return True

    def _send(self) -> bool:
        """Make one request of what is due; False if there is something to wait for before."""
        try:
            channel = self._open_channel(self._now())
            if channel is None:
                return False
            least, most = self._versions()
            version = channel.versions.highest(_PRODUCE, most, least)
            built = self._take(version)
        except KafkaError as error:
            error.broker = error.broker or self._broker
            self._refusal = error
            self._alarm.move(-NEVER)
            return False
        if built is not None:
            self._submit(built, channel, version, self._now())
        return True

    def free_way(self, topic: TopicQueues, now: float, *, due: bool = False) -> Way | None:
        """What sends one batch of a topic at once, if it would be a usual request, and no other is
        under way or about to be made; or it is this one that is `due`."""
        if not due and (self._under_way or self._busy or self._retired or self._refusal):
            return None
        channel, known = self._channel, self._ways.get(topic.name)
        if (
            known is not None
            and known[0] is topic.topic_id
            and channel is not None
            and channel.usable
            and channel.silent_until <= now
            and self._cluster.metadata is self._found_by
        ):
            return known[1]
        return self._make_way(topic, now)

    def _make_way(self, topic: TopicQueues, now: float) -> Way | None:
        try:
            channel = self._open_channel(now) if self._usual else None
            if channel is None:
                return None
            most = None if topic.topic_id.int else MAX_WITHOUT_TOPIC_IDS[_PRODUCE]
            version = channel.versions.highest(_PRODUCE, most)
        except KafkaError:  # told when it is sent
            return None
        way = None
        if version >= FIRST_USUAL:
            way = partial(self._send_alone, channel, self._form(topic.name, version))
        if len(self._ways) >= MAX_FORMS:
            self._ways.clear()
        self._ways[topic.name] = topic.topic_id, way
        return way

    def _send_alone(self, channel: Channel, form: UsualForm, batch: Batch, now: float) -> None:
        self._submit(build_usual(batch, form), channel, form.version, now)

    def _submit(self, built: BuiltRequest, channel: Channel, version: int, now: float) -> None:
        """Send a request whose batches have been taken."""
        try:
            call = channel.submit(
                built.written or built.request,
                version,
                deadline=now + self._request_timeout_s,
                expect_response=self._acks != 0,
            )
        except KafkaError as error:
            self._fail(built, error)
            return
        self._under_way += 1
        self._alone = built.sent[0].large_losses > 0
        call.payload.when_done(partial(self._answer, built, self._broker))

    def _open_channel(self, now: float) -> Channel | None:
        """The connection, if it can be written to now; it is looked up where the metadata is
        another one, or it was lost."""
        channel, metadata = self._channel, self._cluster.metadata
        if channel is None or not channel.usable or metadata is not self._found_by:
            client = self._cluster.broker(self.node_id)
            channel = self._channel = client.at_once(Lane.PRODUCE)
            self._broker, self._found_by = client.name, metadata
            self._ways.clear()
        elif channel.silent_until > now:
            return None
        return channel

    def _take(self, version: int) -> BuiltRequest | None:
        """A request of what is due, taken out of the buffer; None if nothing of it can go."""
        context, accumulator = self._context, self._accumulator
        now = self._now()
        if version < FIRST_OF_KAFKA_1:
            if accumulator.identities is not None:
                accumulator.identities.remembered = 1
            if version < FIRST_WITH_FORMAT_2:
                broker = context.cluster.broker(self.node_id).name
                context.met_old_log(UnsupportedVersion("it leads partitions", broker=broker))
        limit = context.config.max_request_size_bytes
        batches = accumulator.drain(self.node_id, now, limit, due=True)
        if len(batches) == 1 and version >= FIRST_USUAL:
            (batch,) = batches
            built = build_usual(batch, self._form(batch.receipt.topic, version))
        else:
            if version < FIRST_WITH_FORMAT_2 and accumulator.identities is None:
                for batch in batches:
                    # It may have been numbered for a newer leader.
                    batch.stamp = None
            built = build(
                batches,
                version,
                topic_ids={
                    batch.receipt.topic: accumulator.topics[batch.receipt.topic].topic_id
                    for batch in batches
                },
                **self._terms,
            )
        for batch, error in built.refused:
            self.answered(batch, Answer(Verdict.FAIL, error))
        if not built.sent:
            return None
        if context.transactions is not None:
            context.transactions.sent()
        return built

    def _form(self, topic: str, version: int) -> UsualForm:
        """How a request with one batch of a topic looks."""
        topic_id = self._accumulator.topics[topic].topic_id
        form = self._forms.get(topic)
        if form is None or form.version != version or form.topic_id is not topic_id:
            if len(self._forms) >= MAX_FORMS:
                self._forms.clear()
            form = self._forms[topic] = UsualForm(topic, topic_id, version, **self._terms)
        return form

    def _answer(
        self, built: BuiltRequest, broker: str, promise: Promise[ProduceResponse | Answer]
    ) -> None:
        """A request is under way no more."""
        self._under_way -= 1
        self._alone = False
        if self._landed is not None:
            self._landed.set()
        if promise.error is not None and isinstance(promise.error, ClientClosed):
            return
        transactions = self._context.transactions
        busy, self._busy = self._busy, True
        try:
            if transactions is not None:
                with transactions.steps:
                    self._read(built, broker, promise)
            elif isinstance(promise.value, Answer):  # as usual
                self._failures = 0
                now = self._now()
                self._accumulator.answered(built.sent[0], promise.value, now, now)
            else:
                self._read(built, broker, promise)
        finally:
            self._busy = busy
        # Mostly nothing waits, and the task sleeps until something does.
        if self._alarm.at != NEVER or self._accumulator.has_waiting(self.node_id):
            self.send_now()

    def _read(
        self, built: BuiltRequest, broker: str, promise: Promise[ProduceResponse | Answer]
    ) -> None:
        context = self._context
        if promise.error is not None:
            self._fail(built, promise.error)
            return
        self._failures = 0
        response = promise.value
        if response is None:
            for batch in built.sent:
                self.answered(batch, Answer(Verdict.APPENDED))
            return
        if isinstance(response, Answer):
            (batch,) = built.sent
            if batch.done:
                self.answered(batch, response)
            else:
                now = self._now()
                self._accumulator.answered(batch, response, now, now)
            return
        answers, hints = read(response, built.sent, built.request, broker)
        for hint in hints:
            context.cluster.leader_hint(*hint)
        moved = [h.topic_partition for h in hints if self._led_elsewhere(h.topic_partition)]
        for batch, answer in answers:
            if answer.verdict is Verdict.APPENDED and not batch.done:
                now = self._now()
                self._accumulator.answered(batch, answer, now, now)
                continue
            # Whose new leader is known need not wait.
            at_once = (batch.receipt.topic, batch.receipt.partition) in moved
            self.answered(batch, answer, at_once=at_once)

    def _fail(self, built: BuiltRequest, error: BaseException) -> None:
        """A request got no answer."""
        assert isinstance(error, KafkaError)
        answer = from_failure(error, built.size_bytes)
        for batch in built.sent:
            self.answered(batch, answer)

    def _led_elsewhere(self, topic_partition: TopicPartition) -> bool:
        leader = self._context.cluster.metadata.leader(topic_partition)
        return leader is not None and leader.node != self.node_id

    def _versions(self) -> tuple[int, int | None]:
        """The versions in which the next request may go."""
        with_ids = self._context.accumulator.all_have_ids(self.node_id)
        by_name = None if with_ids else MAX_WITHOUT_TOPIC_IDS[ApiKey.PRODUCE]
        if self._context.transactions is None:
            return 0, by_name
        low, high = self._context.transactions.produce_versions()
        return low, by_name if high is None else high

    async def _unreachable(self, error: KafkaError) -> None:
        """There is no connection; nothing was taken. Wait before the next attempt."""
        context = self._context
        if not error.retriable:
            context.accumulator.abort_node(self.node_id, error)
            return
        self._failures += 1
        context.accumulator.unreachable(self.node_id, error)
        context.cluster.request_update()
        wait_s = self._backoff.delay(self._failures, context.runtime.rng)
        await context.runtime.clock.sleep_until(context.runtime.clock.now() + wait_s)

    def answered(self, batch: Batch, answer: Answer, *, at_once: bool = False) -> None:
        """An attempt to send a batch ended."""
        context = self._context
        if answer.stale_metadata:
            context.cluster.request_update()
        now = context.runtime.clock.now()
        wait_s = 0.0
        if answer.verdict is not Verdict.SPLIT and not at_once:
            concurrent = getattr(answer.error, "code", None) == ErrorCode.CONCURRENT_TRANSACTIONS
            backoff = self._concurrent if concurrent else self._backoff
            wait_s = backoff.delay(batch.attempts, context.runtime.rng)
        if answer.verdict is Verdict.OLD_FORMAT:
            assert isinstance(answer.error, KafkaError)
            context.met_old_log(answer.error)
        # What is said of a batch that was given up may be of an epoch that is over.
        late = batch.done
        context.accumulator.answered(batch, answer, now, now + wait_s)
        if logger.isEnabledFor(logging.DEBUG) and not late:
            self._log_answer(batch, answer, wait_s)
        if late and context.transactions is not None:
            context.transactions.landed()
        if answer.verdict is Verdict.FATAL and not late:
            assert isinstance(answer.error, KafkaError)
            context.fail(answer.error)

    def _log_answer(self, batch: Batch, answer: Answer, wait_s: float) -> None:
        outcome = batch.receipt.value
        if outcome is None:
            what = f"sent again in {wait_s:.3f} s"
        elif isinstance(outcome, Split):
            what = f"split into {len(outcome.parts)} batches"
        else:
            what = "delivered" if isinstance(outcome, Appended) else "failed"
        tp = TopicPartition(batch.receipt.topic, batch.receipt.partition)
        logger.debug(
            "%s: batch for %s, attempt %d: %s: %s",
            self._context.host.name,
            tp,
            batch.attempts,
            what,
            answer.error,
            extra=fields_of(
                self._context.host.fields,
                error=answer.error,
                tp=tp,
                broker=str(self.node_id),
            ),
        )
