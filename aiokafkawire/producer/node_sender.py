"""The tasks that send to one broker.

As many tasks as requests may be in flight. One at a time has the turn: it waits until something is
due and until the broker can be reached; the batches are taken at the moment when the connection
takes the request, with no other task in between. So the order of taking is the order on the wire,
and until then batches can still move to another leader.
"""

from __future__ import annotations

from typing import Protocol

import anyio

from aiokafkawire.cluster import Cluster
from aiokafkawire.config import ProducerConfig
from aiokafkawire.connection import Backoff, ByVersion, Lane
from aiokafkawire.connection.versions import MAX_WITHOUT_TOPIC_IDS
from aiokafkawire.errors import ClientClosed, KafkaError, UnsupportedVersion
from aiokafkawire.producer.accumulator import Accumulator
from aiokafkawire.producer.answer import Answer, from_failure
from aiokafkawire.producer.batch import Batch
from aiokafkawire.producer.exchange import FIRST_WITH_FORMAT_2, BuiltRequest, build, read
from aiokafkawire.producer.outcomes import Verdict
from aiokafkawire.producer.transactions import Transactions, concurrent_backoff
from aiokafkawire.records import Compression
from aiokafkawire.runtime import Host, Runtime, Signal
from aiokafkawire.types import NodeId, TopicPartition
from aiokafkawire.wire import NO_ID, ApiKey, ErrorCode
from aiokafkawire.wire.messages.produce import ProduceRequest

__all__ = ("OFFLOAD_BYTES", "Context", "NodeSender")

OFFLOAD_BYTES = 64 * 1024
"""Batches from this size on are compressed outside the event loop."""

LAST_WITH_MORE_ACKS = 0
"""In this version of Produce, that of Kafka 0.8, acks may be a number of replicas above 1."""


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
        self.signal = Signal()
        self._context = context
        self._turn = anyio.Lock()
        self._tasks = 0
        self._under_way = 0
        self._landed = Signal()
        self._idle = False
        self._retired = False
        self._backoff = Backoff.from_ms(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._concurrent = concurrent_backoff(self._backoff)
        self._failures = 0
        self._request_timeout_s = config.request_timeout_ms / 1_000

    def start(self) -> None:
        """Start the first task; each starts the next one when it is busy."""
        self._tasks += 1
        self._context.host.spawn(self._run, name=f"send to {self.node_id} #{self._tasks}")

    def retire(self) -> bool:
        """End the tasks of a broker that is gone; False if there is something to wait for."""
        if not self._idle or self._under_way:
            return False
        self._retired = True
        self.signal.set()
        return True

    async def _run(self) -> None:
        try:
            while True:
                await self._turn.acquire()
                attempt = _Attempt(self, self._context)
                try:
                    await self._wait_due()
                    if self._retired:
                        return
                    await self._compress_due()
                    await self._wait_alone()
                    await self._exchange(attempt)
                finally:
                    attempt.leave_turn()
                    if attempt.built is not None:
                        self._under_way -= 1
                        self._landed.set()
        except ClientClosed:
            return

    def pass_turn(self) -> None:
        """Let the next task wait for what is due; start one if all others are busy."""
        self._turn.release()
        limit = self._context.config.max_in_flight_requests_per_connection
        alone = not self._turn.statistics().tasks_waiting and not self._retired
        if alone and self._tasks < limit and self._context.host.running:
            self.start()

    def sent(self) -> None:
        """One request more is under way."""
        self._under_way += 1

    async def _wait_due(self) -> None:
        clock = self._context.runtime.clock
        while not self._retired:
            due_at = self._context.accumulator.sendable_at(self.node_id)
            self._context.check_identity()
            if due_at <= clock.now():
                return
            self._idle = True
            try:
                await self.signal.wait(due_at)
            finally:
                self._idle = False

    async def _compress_due(self) -> None:
        """Do the heavy part of large batches elsewhere, before they are taken."""
        context = self._context
        if context.accumulator.settings.compression is Compression.NONE:
            return
        now = context.runtime.clock.now()
        for batch in context.accumulator.close_due(self.node_id, now, OFFLOAD_BYTES):
            if batch.records is not None:  # None: it expired while another one was compressed
                await context.runtime.offload(batch.records.compress)

    async def _wait_alone(self) -> None:
        """What is suspected for its size goes when no other request can be suspected with it."""
        context = self._context
        now = context.runtime.clock.now
        while self._under_way and context.accumulator.suspect_due(self.node_id, now()):
            await self._landed.wait()

    # --- one request --------------------------------------------------------------------------

    async def _exchange(self, attempt: _Attempt) -> None:
        context = self._context
        min_version, max_version = self._versions()
        try:
            client = context.cluster.broker(self.node_id)
            response = await client.request(
                ByVersion(ApiKey.PRODUCE, attempt.take),
                deadline=context.runtime.clock.now() + self._request_timeout_s,
                answer_s=self._request_timeout_s,
                lane=Lane.PRODUCE,
                min_version=min_version,
                max_version=max_version,
                expect_response=context.config.required_acks != 0,
            )
        except NothingDue:
            return
        except ClientClosed:
            raise
        except KafkaError as error:
            if attempt.built is None:
                await self._unreachable(error)
            else:
                answer = from_failure(error, attempt.built.size_bytes)
                for batch in attempt.built.sent:
                    self.answered(batch, answer)
            return
        self._failures = 0
        assert attempt.built is not None
        if response is None:
            for batch in attempt.built.sent:
                self.answered(batch, Answer(Verdict.APPENDED))
            return
        reading = read(response, attempt.built.sent, attempt.built.request, client.name)
        for hint in reading.hints:
            context.cluster.leader_hint(*hint)
        moved = {h.topic_partition for h in reading.hints if self._led_elsewhere(h.topic_partition)}
        for batch, answer in reading.answers:
            # Whose new leader is known need not wait.
            at_once = (batch.receipt.topic, batch.receipt.partition) in moved
            self.answered(batch, answer, at_once=at_once)

    def _led_elsewhere(self, topic_partition: TopicPartition) -> bool:
        leader = self._context.cluster.metadata.leader(topic_partition)
        return leader is not None and leader.node != self.node_id

    def _versions(self) -> tuple[int, int | None]:
        """The versions in which the next request may go."""
        topics = self._context.accumulator.due_topics(self.node_id)
        without_id = any(topic.topic_id == NO_ID for topic in topics)
        by_name = MAX_WITHOUT_TOPIC_IDS[ApiKey.PRODUCE] if without_id else None
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
        if late and context.transactions is not None:
            context.transactions.landed()
        if answer.verdict is Verdict.FATAL and not late:
            assert isinstance(answer.error, KafkaError)
            context.fail(answer.error)


class NothingDue(Exception):
    """While the connection was opened, what was due has moved away or has ended."""


class _Attempt:
    """One request, which takes its batches when the connection is there."""

    def __init__(self, sender: NodeSender, context: Context) -> None:
        self.built: BuiltRequest | None = None
        self._sender = sender
        self._context = context
        self._has_turn = True

    def take(self, version: int) -> ProduceRequest:
        """Take what is due, and pass the turn."""
        context = self._context
        accumulator, config = context.accumulator, context.config
        if config.required_acks > 1 and version > LAST_WITH_MORE_ACKS:
            context.fail(
                UnsupportedVersion(
                    f"acks={config.required_acks} works with Kafka 0.8 only; take 'all', 0 or 1",
                    broker=context.cluster.broker(self._sender.node_id).name,
                    api="Produce",
                )
            )
            raise NothingDue
        if version < FIRST_WITH_FORMAT_2:
            broker = context.cluster.broker(self._sender.node_id).name
            context.met_old_log(UnsupportedVersion("it leads partitions", broker=broker))
        batches = accumulator.drain(
            self._sender.node_id, context.runtime.clock.now(), config.max_request_size_bytes
        )
        if version < FIRST_WITH_FORMAT_2 and accumulator.identities is None:
            for batch in batches:
                # It may have been numbered for a newer leader.
                batch.stamp = None
        built = build(
            batches,
            version,
            acks=config.required_acks,
            timeout_ms=config.request_timeout_ms,
            topic_ids={
                batch.receipt.topic: accumulator.topics[batch.receipt.topic].topic_id
                for batch in batches
            },
            transactional_id=config.transactional_id,
        )
        for batch, error in built.refused:
            self._sender.answered(batch, Answer(Verdict.FAIL, error))
        if not built.sent:
            raise NothingDue
        self.built = built
        self._sender.sent()
        if context.transactions is not None:
            context.transactions.sent()
        if not built.sent[0].large_losses:
            self.leave_turn()
        return built.request

    def leave_turn(self) -> None:
        """Pass the turn, if that was not done yet."""
        if self._has_turn:
            self._has_turn = False
            self._sender.pass_turn()
