"""The producer's background work: broker senders, producer id, delivery timeouts, metadata."""

from __future__ import annotations

import logging
from collections.abc import Container

from aiokafkawire.cluster import Cluster, MetadataUpdate, ToAnyNode
from aiokafkawire.config import ProducerConfig
from aiokafkawire.connection import Backoff
from aiokafkawire.errors import ClientClosed, KafkaError, RequestTimedOut, UnsupportedVersion
from aiokafkawire.logs import log_fields
from aiokafkawire.producer.accumulator import Accumulator
from aiokafkawire.producer.accumulator_config import AccumulatorConfig
from aiokafkawire.producer.broker_sender import BrokerSender
from aiokafkawire.producer.buffer_waiters import BufferWaiters
from aiokafkawire.producer.delivery import BatchFuture, BatchOutcome, BatchSplit
from aiokafkawire.producer.partition_queue import QueueConfig
from aiokafkawire.producer.sender_interface import SendBatch
from aiokafkawire.producer.sequences import ProducerIdState
from aiokafkawire.producer.topic_queues import TopicQueues
from aiokafkawire.producer.transactions import TransactionManager
from aiokafkawire.records import Compression
from aiokafkawire.runtime import AT_ONCE, NEVER, AutoResetEvent, Runtime, Supervisor, copy_error
from aiokafkawire.types import NodeId, ProducerIdAndEpoch, TopicPartition
from aiokafkawire.wire import ZERO_UUID, ErrorCode, error_for
from aiokafkawire.wire.messages.init_producer_id import InitProducerIdRequest

__all__ = ("LEADER_REFRESH_S", "Sender")

logger = logging.getLogger("aiokafkawire.producer")

WARN_AFTER_FAILURES = 3
"""Consecutive failures to get a producer id that are logged below WARNING."""

LEADER_REFRESH_S = 1.0
"""Interval of metadata requests while a partition with batches has no leader."""

MAX_TRANSACTION_TIMEOUT_MS = 2**31 - 1  # for a producer without transactions


def make_accumulator_config(config: ProducerConfig) -> AccumulatorConfig:
    """Return the accumulator's configuration from the producer's options."""
    queue = QueueConfig(
        batch_size_bytes=config.batch_size_bytes,
        linger_s=config.linger_ms / 1_000,
        delivery_timeout_s=config.delivery_timeout_ms / 1_000,
        max_in_flight=config.max_in_flight_requests_per_connection,
        retries=config.retries,
    )
    return AccumulatorConfig(
        queue,
        config.buffer_memory_bytes,
        Compression[config.compression_type.upper()],
        config.compression_level,
        config.partitioner_adaptive_partitioning_enable,
        config.partitioner_availability_timeout_ms / 1_000,
        transactional=config.transactional_id is not None,
    )


class Sender:
    """Sends the accumulator's batches to the brokers."""

    def __init__(
        self, config: ProducerConfig, runtime: Runtime, supervisor: Supervisor, cluster: Cluster
    ) -> None:
        self.config = config
        self.runtime = runtime
        self.supervisor = supervisor
        self.cluster = cluster
        self.buffer_waiters = BufferWaiters(config.max_block_ms / 1_000)
        self.accumulator = Accumulator(
            make_accumulator_config(config),
            ProducerIdState() if config.idempotent else None,
            sender=self,
            on_completed=self._on_batch_completed,
        )
        self.transaction_manager: TransactionManager | None = None
        if config.transactional_id is not None:
            self.transaction_manager = TransactionManager(
                config, runtime, cluster, self.accumulator, self._fail_all
            )
        self.failure: KafkaError | None = None
        # The permanent failure, until a call raises it; None if records have failed with it.
        self.unreported_failure: KafkaError | None = None
        self._broker_senders: dict[NodeId, BrokerSender] = {}
        self._expiry_changed = AutoResetEvent()
        self._producer_id_needed = AutoResetEvent()
        self._unknown_topics: set[str] = set()

    def start(self) -> None:
        """Start the tasks, after the cluster."""
        self.cluster.add_metadata_listener(self._on_metadata_changed)
        self.supervisor.spawn(self._expire_batches, name="delivery timeouts")
        producer_id_state = self.accumulator.producer_id_state
        if self.transaction_manager is not None:
            self.transaction_manager.start(self.supervisor)
        elif producer_id_state is not None:
            self.supervisor.spawn(self._maintain_producer_id, producer_id_state, name="producer id")

    def close_to_new_records(self, error: KafkaError) -> None:
        """Reject new records with `error`; buffered records are still sent."""
        if self.failure is None:
            self.failure = error
        self.accumulator.release_unused()
        self.buffer_waiters.close(error)

    def abort_all(self, error: KafkaError) -> None:
        """Fail all buffered records and reject new ones."""
        self.close_to_new_records(error)
        if self.transaction_manager is not None:
            self.transaction_manager.fail(error)
        self.accumulator.abort(error)

    def fail(self, error: KafkaError) -> None:
        """Fail the producer permanently: all records and all later calls raise `error`."""
        if self.transaction_manager is not None:
            reported = self.transaction_manager.has_waiters
        else:
            reported = bool(self.accumulator.incomplete)
        self._fail_all(error, reported)

    def _fail_all(self, error: KafkaError, reported: bool) -> None:
        if self.failure is None and (self.transaction_manager is None or not reported):
            logger.error(
                "%s: the producer failed permanently: %s",
                self.supervisor.name,
                error,
                extra=log_fields(self.supervisor.fields, error=error),
            )
            if not reported:
                self.unreported_failure = error
        self.abort_all(error)

    def raise_if_failed(self) -> None:
        """Raise the error of a producer that failed or is closing."""
        if self.failure is not None:
            self.unreported_failure = None
            raise copy_error(self.failure)

    def check_producer_id(self) -> None:
        """Request a producer id, if the epochs of the current one are used up."""
        producer_id_state = self.accumulator.producer_id_state
        if producer_id_state is not None and producer_id_state.needs_producer_id:
            self._producer_id_needed.set()

    def on_idempotence_unsupported(self, error: KafkaError) -> None:
        """Handle a leader or a log without producer ids, for example during an upgrade.

        If the producer is idempotent only by default, this disables idempotence for good.
        Otherwise the batch fails.
        """
        config = self.config
        wanted = config.enable_idempotence or config.transactional_id is not None
        if self.accumulator.producer_id_state is not None and not wanted:
            self._disable_idempotence(error)

    def _on_batch_completed(self, outcome: BatchOutcome) -> None:
        if self.buffer_waiters.has_waiters:
            self.buffer_waiters.space_freed()
        if self.transaction_manager is not None:
            self.transaction_manager.on_batch_completed(outcome)

    async def flush(self, deadline: float) -> None:
        """Send all buffered batches without linger, and wait until they are complete."""
        accumulator = self.accumulator
        left = list(accumulator.incomplete)
        accumulator.begin_flush()
        try:
            for number, future in enumerate(left):
                try:
                    await _wait_completed(future, deadline)
                except TimeoutError:
                    count = len(left) - number
                    raise RequestTimedOut(f"flush timed out; incomplete batches: {count}") from None
        finally:
            accumulator.end_flush()

    def metrics(self) -> dict[str, int | float]:
        """Return the metrics of `Producer.metrics`, without those of the connections."""
        accumulator, totals = self.accumulator, self.accumulator.totals
        producer_id_state = accumulator.producer_id_state
        return {
            "buffer_size_bytes": accumulator.config.buffer_memory_bytes,
            "buffer_used_bytes": accumulator.used_bytes,
            "callers_waiting": len(self.buffer_waiters),
            "topics_in_use": len(accumulator.topics),
            "batches_unfinished": len(accumulator.incomplete),
            "records_delivered_total": totals.records_delivered,
            "records_failed_total": totals.records_failed,
            "batches_sent_total": totals.batches_sent,
            "batches_resent_total": totals.batches_resent,
            "batches_split_total": totals.batches_split,
            "batch_bytes_sent_total": totals.batch_bytes_sent,
            "epochs_raised_total": 0
            if producer_id_state is None
            else producer_id_state.epoch_bumps,
            **({} if self.transaction_manager is None else self.transaction_manager.metrics()),
        }

    def add_topic(self, name: str) -> bool:
        """Add a topic whose metadata was requested; return False if it was deleted meanwhile."""
        known = self.cluster.metadata.topics.get(name)
        gone = known is None or not known.partitions
        if gone or name in self.accumulator.topics:
            # Several calls may have requested the topic; one reference is enough.
            self.cluster.remove_topics((name,))
        if known is None or gone:
            return False
        topic = self.accumulator.set_topic(name, known.partitions, known.topic_id)
        # Other topics keep their leaders; a producer may write to thousands of topics.
        self.accumulator.set_leaders(self._leader_of, [topic])
        return True

    def reactivate_topic(self, name: str) -> TopicQueues | None:
        """Use an idle topic again, before its metadata is updated."""
        topic = self.accumulator.reactivate_topic(name)
        if topic is not None:
            topic.last_used_at = self.runtime.clock.now()
            self.cluster.add_topics((name,))
            self.accumulator.set_leaders(self._leader_of, [topic])
        return topic

    # --- metadata ---

    def _leader_of(self, topic_partition: TopicPartition) -> NodeId | None:
        leader = self.cluster.metadata.leader(topic_partition)
        return leader.node if leader is not None else None

    def _on_metadata_changed(self, update: MetadataUpdate) -> None:
        snapshot, accumulator = update.snapshot, self.accumulator
        if not update.leaders_only:
            idle_since = self.runtime.clock.now() - self.config.metadata_max_idle_ms / 1_000
            self.cluster.remove_topics(accumulator.deactivate_idle_topics(idle_since))
        topics = accumulator.topics
        names = (
            list(topics)
            if update.topics is None
            else [name for name in update.topics if name in topics]
        )
        for name in names:
            known = snapshot.topics.get(name)
            if known is not None and known.partitions:
                accumulator.set_topic(name, known.partitions, known.topic_id)
                if known.topic_id == ZERO_UUID and name in self._unknown_topics:
                    # Without topic ids, a topic that disappeared counts as recreated.
                    accumulator.topic_recreated(name)
                self._unknown_topics.discard(name)
            elif snapshot.errors.get(name) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._unknown_topics.add(name)
        accumulator.set_leaders(self._leader_of, [topics[name] for name in names])
        self._stop_idle_senders(snapshot.nodes)

    def _stop_idle_senders(self, listed: Container[NodeId]) -> None:
        """Stop the senders of brokers that left the cluster and have no batches."""
        for node_id, sender in list(self._broker_senders.items()):
            idle = node_id not in listed and self.accumulator.sendable_at(node_id) == NEVER
            if idle and sender.stop_if_idle():
                del self._broker_senders[node_id]
                self.accumulator.remove_node(node_id)

    def wake(self, node: NodeId | None, at: float) -> None:
        """Check a broker's batches at time `at`; node None means that a leader is missing."""
        if node is None:
            self._expiry_changed.set()
            return
        sender = self._broker_senders.get(node)
        if sender is not None:
            sender.wake(at)
        elif self.supervisor.is_running:
            sender = self._broker_senders[node] = BrokerSender(node, self)
            sender.start()

    def end_linger(self, node: NodeId) -> None:
        """Send a broker's batches without linger."""
        sender = self._broker_senders.get(node)
        if sender is not None:
            sender.send_now()

    def batch_ready(self, node: NodeId) -> None:
        """Send a batch that is ready, if no request is in flight."""
        sender = self._broker_senders.get(node)
        if sender is not None:
            sender.batch_ready()
        else:
            self.wake(node, AT_ONCE)

    def immediate_sender(self, node: NodeId, topic: TopicQueues, now: float) -> SendBatch | None:
        """Return a function that sends a batch of the topic now; None if it has to wait."""
        sender = self._broker_senders.get(node)
        return None if sender is None else sender.immediate_sender(topic, now)

    # --- tasks ---

    async def _expire_batches(self) -> None:
        """Fail expired batches, and request metadata while a leader is missing."""
        clock = self.runtime.clock
        while True:
            now = clock.now()
            # Records that are appended during the sleep expire later than that.
            next_at = now + self.accumulator.config.queue.delivery_timeout_s
            next_at = min(next_at, self.accumulator.expire(now))
            if self.accumulator.leader_missing:
                self.cluster.request_update()
                next_at = min(next_at, now + LEADER_REFRESH_S)
                await clock.sleep_until(next_at)
            else:
                await self._expiry_changed.wait(next_at)

    async def _maintain_producer_id(self, producer_id_state: ProducerIdState) -> None:
        """Get a producer id at the start, and again after its last epoch."""
        clock = self.runtime.clock
        backoff = Backoff.from_ms(self.config.retry_backoff_ms, self.config.retry_backoff_max_ms)
        failures = 0
        while True:
            if not producer_id_state.needs_producer_id:
                await self._producer_id_needed.wait()
                continue
            try:
                await self._request_producer_id(producer_id_state)
                failures = 0
            except UnsupportedVersion as error:
                self._disable_idempotence(error)
                return
            except ClientClosed:
                return
            except KafkaError as error:
                if not error.retriable:
                    self.fail(error)
                    return
                failures += 1
                producer_id_state.failure = error
                # A broker that has just started is still loading: not worth a warning.
                level = logging.WARNING if failures == WARN_AFTER_FAILURES + 1 else logging.DEBUG
                logger.log(
                    level,
                    "%s: no producer id yet: %s; retrying",
                    self.supervisor.name,
                    error,
                    extra=log_fields(self.supervisor.fields, error=error),
                )
                await clock.sleep_until(clock.now() + backoff.delay(failures, self.runtime.rng))

    async def _request_producer_id(self, producer_id_state: ProducerIdState) -> None:
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=MAX_TRANSACTION_TIMEOUT_MS
        )
        deadline = self.runtime.clock.now() + self.config.request_timeout_ms / 1_000
        response, broker = await self.cluster.request_with_broker(
            request, to=ToAnyNode(), deadline=deadline
        )
        if response.error_code != ErrorCode.NONE:
            raise error_for(response.error_code, api="InitProducerId", broker=broker)
        producer_id_state.set_producer_id(response.producer_id, response.producer_epoch)
        log_producer_id(
            self.supervisor, ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
        )
        self.accumulator.wake_all()

    def _disable_idempotence(self, error: KafkaError) -> None:
        if self.config.enable_idempotence:
            self.fail(error)
            return
        logger.warning(
            "%s: brokers before Kafka 0.11 have no producer ids (%s): idempotence is disabled, so"
            " that a retry may write a record twice",
            self.supervisor.name,
            error,
            extra=log_fields(self.supervisor.fields, error=error),
        )
        self.accumulator.disable_idempotence()


def log_producer_id(supervisor: Supervisor, identity: ProducerIdAndEpoch) -> None:
    """Log an assigned producer id."""
    logger.info(
        "%s: producer id %d, epoch %d",
        supervisor.name,
        identity.producer_id,
        identity.epoch,
        extra=log_fields(
            supervisor.fields, producer_id=identity.producer_id, producer_epoch=identity.epoch
        ),
    )


async def _wait_completed(future: BatchFuture, deadline: float) -> None:
    outcome = await future.wait(deadline)
    if isinstance(outcome, BatchSplit):
        for part in outcome.parts:
            await _wait_completed(part, deadline)
