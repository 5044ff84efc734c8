"""The producer's background work: broker senders, delivery timeouts, metadata."""

from __future__ import annotations

import logging
from collections.abc import Container

from aiokafkawire.cluster import Cluster, MetadataSnapshot, MetadataUpdate
from aiokafkawire.config import ProducerConfig
from aiokafkawire.errors import KafkaError, RequestTimedOut
from aiokafkawire.logs import log_fields
from aiokafkawire.producer.accumulator import Accumulator
from aiokafkawire.producer.accumulator_config import AccumulatorConfig, QueueConfig
from aiokafkawire.producer.batch_future import BatchFuture, BatchSplit
from aiokafkawire.producer.broker_sender import BrokerSender
from aiokafkawire.producer.buffer_waiters import BufferWaiters
from aiokafkawire.producer.observed_accumulator import ObservedAccumulator
from aiokafkawire.producer.producer_id import ProducerIdManager
from aiokafkawire.producer.send_observer import SendObserver
from aiokafkawire.producer.sender_context import ProduceSettings, SenderContext
from aiokafkawire.producer.sequences import ProducerIdState
from aiokafkawire.producer.topic_queues import TopicQueues
from aiokafkawire.producer.transactions import TransactionManager
from aiokafkawire.records import Compression
from aiokafkawire.runtime import NEVER, AutoResetEvent, Runtime, Supervisor, copy_error
from aiokafkawire.types import NodeId, TopicPartition
from aiokafkawire.wire import ZERO_UUID, ErrorCode

__all__ = ("LEADER_REFRESH_S", "Sender")

logger = logging.getLogger("aiokafkawire.producer")

LEADER_REFRESH_S = 1.0
"""Interval of metadata requests while a partition with batches has no leader."""


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


def max_record_bytes(config: ProducerConfig) -> int:
    """Return the limit of a record."""
    return min(config.max_request_size_bytes, config.buffer_memory_bytes)


class Sender:
    """Sends the accumulator's batches to the brokers.

    Attributes:
        observer: Calls the hooks of records; None without any.
    """

    def __init__(
        self, config: ProducerConfig, runtime: Runtime, supervisor: Supervisor, cluster: Cluster
    ) -> None:
        self.config = config
        self.runtime = runtime
        self.supervisor = supervisor
        self.cluster = cluster
        self.buffer_waiters = BufferWaiters(config.max_block_ms / 1_000)
        self.observer = SendObserver.of(
            supervisor.hooks, max_record_bytes(config), supervisor.fields
        )
        self.accumulator = self._make_accumulator()
        self.transaction_manager: TransactionManager | None = None
        if config.transactional_id is not None:
            self.transaction_manager = TransactionManager(
                config,
                runtime,
                cluster,
                self.accumulator,
                on_fatal_error=self._fail_all,
                perform=self.perform,
            )
        self.failure: KafkaError | None = None
        # The permanent failure, until a call raises it; None if records have failed with it.
        self.unreported_failure: KafkaError | None = None
        self.broker_senders: dict[NodeId, BrokerSender] = {}
        self._expiry_changed = AutoResetEvent()
        self._producer_ids = ProducerIdManager(
            config,
            runtime,
            supervisor,
            cluster,
            self.accumulator,
            fail=self.fail,
            perform=self.perform,
        )
        self._context = SenderContext(
            ProduceSettings.from_config(config, self.accumulator.config.compression),
            runtime,
            supervisor,
            cluster,
            self.accumulator,
            self.transaction_manager,
            self._producer_ids,
            fail=self.fail,
            perform=self.perform,
        )
        self._unknown_topics: set[str] = set()

    def _make_accumulator(self) -> Accumulator:
        config = make_accumulator_config(self.config)
        producer_id_state = ProducerIdState() if self.config.idempotent else None
        on_batch_written = self.supervisor.hooks.on_batch_written
        if on_batch_written is None and self.observer is None:
            return Accumulator(config, producer_id_state)
        return ObservedAccumulator(
            config, producer_id_state, on_batch_written=on_batch_written, observer=self.observer
        )

    def start(self) -> None:
        """Start the tasks, after the cluster."""
        self.cluster.add_metadata_listener(self._on_metadata_changed)
        self._set_nodes_in_rack(self.cluster.metadata)
        self.supervisor.spawn(self._expire_batches, name="delivery timeouts")
        if self.transaction_manager is not None:
            self.transaction_manager.start(self.supervisor)
        self._producer_ids.start()

    def close_to_new_records(self, error: KafkaError) -> None:
        """Reject new records with `error`; buffered records are still sent."""
        if self.failure is None:
            self.failure = error
        self.accumulator.pool.release_unused()
        self.buffer_waiters.close(error)

    def abort_all(self, error: KafkaError) -> None:
        """Fail all buffered records and reject new ones."""
        self.close_to_new_records(error)
        if self.transaction_manager is not None:
            self.transaction_manager.fail(error)
        self.accumulator.abort(error)
        self.perform()

    def fail(self, error: KafkaError) -> None:
        """Fail the producer permanently: all records and all later calls raise `error`."""
        if self.transaction_manager is not None:
            reported = self.transaction_manager.calls.any_waiting
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

    def perform(self) -> None:
        """Perform what follows from a call of the accumulator."""
        effects = self.accumulator.effects
        if effects.any_completed:
            effects.any_completed = False
            if self.buffer_waiters.has_waiters:
                self.buffer_waiters.space_freed()
            if self.transaction_manager is not None:
                self.transaction_manager.on_batches_completed(effects.take_failure())
        while effects.wakeups:
            wakeups, effects.wakeups = effects.wakeups, {}
            for node, at in wakeups.items():
                if node is None:
                    self._expiry_changed.set()
                elif (sender := self.broker_senders.get(node)) is not None:
                    sender.wake(at)
                elif self.supervisor.is_running:
                    self._start_sender(node)
        while effects.ready:
            ready, effects.ready = effects.ready, {}
            for node in ready:
                sender = self.broker_senders.get(node)
                if sender is not None:
                    sender.batch_ready()
                elif self.supervisor.is_running:
                    self._start_sender(node)

    def _start_sender(self, node: NodeId) -> None:
        sender = self.broker_senders[node] = BrokerSender(node, self._context)
        sender.start()

    async def flush(self, deadline: float) -> None:
        """Send all buffered batches without linger, and wait until they are complete."""
        accumulator = self.accumulator
        left = list(accumulator.incomplete)
        accumulator.begin_flush()
        self.perform()
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
            "buffer_used_bytes": accumulator.pool.used_bytes,
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
        self.perform()
        return True

    def reactivate_topic(self, name: str) -> TopicQueues | None:
        """Use an idle topic again, before its metadata is updated."""
        topic = self.accumulator.all_topics.reactivate(name)
        if topic is not None:
            topic.last_used_at = self.runtime.clock.now()
            self.cluster.add_topics((name,))
            self.accumulator.set_leaders(self._leader_of, [topic])
            self.perform()
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
        self._set_nodes_in_rack(snapshot)
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
        self.perform()
        self._stop_idle_senders(snapshot.nodes)

    def _set_nodes_in_rack(self, snapshot: MetadataSnapshot) -> None:
        """Prefer the nodes of the client's rack (KIP-1123)."""
        rack = self.config.client_rack
        if self.config.partitioner_rack_aware and rack:
            self.accumulator.all_topics.nodes_in_rack = frozenset(
                node.node_id for node in snapshot.nodes.values() if node.rack == rack
            )

    def _stop_idle_senders(self, listed: Container[NodeId]) -> None:
        """Stop the senders of brokers that left the cluster and have no batches."""
        for node_id, sender in list(self.broker_senders.items()):
            idle = node_id not in listed and self.accumulator.sendable_at(node_id) == NEVER
            if idle and sender.stop_if_idle():
                del self.broker_senders[node_id]
                self.accumulator.remove_node(node_id)

    # --- tasks ---

    async def _expire_batches(self) -> None:
        """Fail expired batches, and request metadata while a leader is missing."""
        clock = self.runtime.clock
        while True:
            now = clock.now()
            # Records that are appended during the sleep expire later than that.
            next_at = now + self.accumulator.config.queue.delivery_timeout_s
            next_at = min(next_at, self.accumulator.expire(now))
            self.perform()
            if self.accumulator.leader_missing:
                self.cluster.request_update()
                next_at = min(next_at, now + LEADER_REFRESH_S)
                await clock.sleep_until(next_at)
            else:
                await self._expiry_changed.wait(next_at)


async def _wait_completed(future: BatchFuture, deadline: float) -> None:
    outcome = await future.wait(deadline)
    if isinstance(outcome, BatchSplit):
        for part in outcome.parts:
            await _wait_completed(part, deadline)
