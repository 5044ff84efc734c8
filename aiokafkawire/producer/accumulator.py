"""All records that wait or are on their way: room for them, and what each broker may get now."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from uuid import UUID

from aiokafkawire.errors import KafkaError, TransactionAborted
from aiokafkawire.producer.accumulator_config import AccumulatorConfig, ProducerTotals
from aiokafkawire.producer.attempt_result import AttemptResult
from aiokafkawire.producer.batch import Batch, BatchState
from aiokafkawire.producer.delivery import (
    BatchAppended,
    BatchFailed,
    BatchFuture,
    BatchOutcome,
    Delivery,
    UnreportedFailures,
    YieldBudget,
)
from aiokafkawire.producer.partition_queue import PartitionQueue
from aiokafkawire.producer.sender_interface import SenderInterface
from aiokafkawire.producer.sequences import PartitionSequences, ProducerIdState
from aiokafkawire.producer.topic_queues import TopicQueues
from aiokafkawire.records import BatchBuilder, ClosedBatch, Compression
from aiokafkawire.records.batch import BATCH_OVERHEAD_BYTES
from aiokafkawire.records.kernel import Buffer, Headers
from aiokafkawire.runtime import NEVER
from aiokafkawire.types import NodeId, TopicPartition
from aiokafkawire.wire import ZERO_UUID

__all__ = ("MAX_IDLE_TOPICS", "Accumulator")

RESERVATION_DIVISOR = 512
"""A batch takes at most this part of the buffer at a time, beyond what a record needs."""

MAX_IDLE_TOPICS = 10_000
"""Topics that nothing is sent to any more and whose sequence numbers are kept."""

_DONE = BatchState.DONE

LeaderLookup = Callable[[TopicPartition], NodeId | None]


class Accumulator:
    """The producer's buffer: a queue of batches for each partition.

    Records occupy at most `buffer_memory_bytes` (keys, values and headers with their overhead)
    until their batch completes. There is one queue for each partition that was written to, of the
    topics in use and of up to `MAX_IDLE_TOPICS` idle ones. An open batch reserves memory for
    several records at once. It releases what it did not use when it closes, or when another record
    finds no room.

    Args:
        config: Limits and compression.
        producer_id_state: The producer id for idempotence; None without idempotence.
        sender: Is notified of batches that may be sent.
        on_completed: Called with the outcome of each batch, after its memory was released.

    Attributes:
        sends_immediately: A record that waits for nothing is sent in the call that appends it.
        unreported_failures: Stays empty with transactions, whose calls raise the failures.
    """

    def __init__(
        self,
        config: AccumulatorConfig,
        producer_id_state: ProducerIdState | None,
        *,
        sender: SenderInterface,
        on_completed: Callable[[BatchOutcome], None],
    ) -> None:
        self.config = config
        self.producer_id_state = producer_id_state
        self.topics: dict[str, TopicQueues] = {}
        self.totals = ProducerTotals()
        self.unreported_failures = UnreportedFailures(disabled=config.transactional)
        self.yield_budget = YieldBudget()
        self.used_bytes = 0
        self._reservation_bytes = min(
            config.queue.batch_size_bytes, config.buffer_memory_bytes // RESERVATION_DIVISOR
        )
        self._buffer_bytes = config.buffer_memory_bytes
        self._body_bytes = config.queue.batch_size_bytes - BATCH_OVERHEAD_BYTES
        # Open batches that have taken more of the buffer than they use.
        self._reserving: dict[Batch, None] = {}
        self.incomplete: dict[BatchFuture, None] = {}
        self.flushes_in_progress = 0
        self.abort_error: TransactionAborted | None = None
        self._active: dict[NodeId | None, dict[PartitionQueue, None]] = {}
        self._drained_at: dict[NodeId, float] = {}
        self._held_nodes: dict[NodeId, None] | None = None
        self.sends_immediately = (
            not config.queue.linger_s
            and not config.transactional
            and config.compression is Compression.NONE
        )
        self._idle_topics: dict[str, TopicQueues] = {}
        self._sender = sender
        self._on_completed = on_completed

    # --- records come in ----------------------------------------------------------------------

    def has_room(self, size_bytes: int) -> bool:
        """Whether a record fits into the buffer now."""
        if self._reserving and self.used_bytes > self._buffer_bytes - size_bytes:
            self.release_unused()
        # mutation: buffer-unbounded
        return self.used_bytes + size_bytes <= self._buffer_bytes

    def append(
        self,
        queue: PartitionQueue,
        key: Buffer | None,
        value: Buffer | None,
        headers: Headers,
        timestamp_ms: int,
        *,
        has_user_timestamp: bool = False,
        size_bytes: int,
        now: float,
        can_switch_partition: bool = False,
    ) -> Delivery | None:
        """Append a record to the open batch of its partition, or to a new one.

        The caller has checked `has_room`.

        Args:
            has_user_timestamp: The application gave `timestamp_ms`.
            size_bytes: Upper bound of the record's encoded size.
            can_switch_partition: If the open batch has no room, close it and return None, so that
                the caller can choose another partition.
        """
        batch, index, first = queue.open, None, False
        if batch is None and self.sends_immediately:
            delivery = self.append_and_send(
                queue,
                key,
                value,
                headers,
                timestamp_ms,
                has_user_timestamp=has_user_timestamp,
                size_bytes=size_bytes,
                now=now,
            )
            if delivery is not None:
                return delivery
        if batch is not None:
            builder = self._builder_with_space(batch, size_bytes)
            index = builder.append(timestamp_ms, key, value, headers)
            if index is None:
                self.close_batch(queue)
                if can_switch_partition:
                    return None
        if batch is None or index is None:
            first = not queue.waiting
            batch, builder = self._begin_batch(queue, now)
            self._reserve(batch, builder, size_bytes)
            index = builder.append(timestamp_ms, key, value, headers)
            assert index is not None
        delivery = Delivery(batch.future, index, timestamp_ms)
        if has_user_timestamp:
            batch.future.has_user_timestamp = True
        if builder.body_bytes >= self._body_bytes:
            self.close_batch(queue)
        elif self.flushes_in_progress:
            self.release_unused()
        if first:
            self._on_first_batch(queue, batch)
        return delivery

    def append_and_send(
        self,
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
        """Send a record as a batch of its own, if nothing has to be waited for.

        Fast path for `sends_immediately`, equivalent to appending, closing and draining a batch of
        one record. The caller has checked `has_room`. Returns None, without any effect, if the
        record has to wait or fills a batch.
        """
        node = queue.leader
        if node is None or node in self._active or self._held_nodes is not None:
            return None
        if size_bytes >= self._body_bytes or not queue.can_send_immediately(now):
            return None
        topic, partition = queue.topic_partition
        queues = self.topics[topic]
        send_batch = self._sender.immediate_sender(node, queues, now)
        if send_batch is None:
            return None
        records = ClosedBatch.single_record(timestamp_ms, key, value, headers)
        future = BatchFuture(topic, partition, self.unreported_failures, self.yield_budget)
        future.count = 1
        future.has_user_timestamp = has_user_timestamp
        order = queue.last_order = queue.last_order + 1
        expires_at = now + self.config.queue.delivery_timeout_s
        batch = Batch(future, records, (order,), now, expires_at)
        batch.reserved_bytes = body_bytes = records.size_bytes - BATCH_OVERHEAD_BYTES
        self.used_bytes += body_bytes
        queues.last_used_at = self._drained_at[node] = now
        self.incomplete[future] = None
        queue.mark_sent(batch)
        if queues.sticky_queue is queue:
            queues.update_sticky(body_bytes)
        totals = self.totals
        totals.batches_sent += 1
        totals.batch_bytes_sent += records.size_bytes
        send_batch(batch, now)
        return Delivery(future, 0, timestamp_ms)

    def _builder_with_space(self, batch: Batch, size_bytes: int) -> BatchBuilder:
        """What takes a batch's records, with room for one more of this size."""
        builder = batch.builder
        assert builder is not None
        lacking = builder.body_bytes + size_bytes - batch.reserved_bytes
        if lacking > 0:
            self._reserve(batch, builder, lacking)
        return builder

    def _reserve(self, batch: Batch, builder: BatchBuilder, lacking: int) -> None:
        """Let a batch have what it lacks of the buffer, and some more if there is."""
        used = self.used_bytes
        more = max(lacking, min(self._reservation_bytes, self._buffer_bytes - used))
        self.used_bytes = used + more
        batch.reserved_bytes = reserved = batch.reserved_bytes + more
        self._reserving[batch] = None
        builder.limit_bytes = min(self._body_bytes, reserved)
        builder.is_full = False

    def release_unused(self) -> None:
        """Give back what open batches have of the buffer and do not use: each record to come is
        looked at before it gets any."""
        while self._reserving:
            batch, _ = self._reserving.popitem()
            if batch.builder is not None:
                self._release_reservation(batch, batch.builder.body_bytes)
                batch.builder.limit_bytes = min(self._body_bytes, batch.builder.body_bytes)

    def _release_reservation(self, batch: Batch, body_bytes: int) -> None:
        unused = batch.reserved_bytes - body_bytes
        if unused > 0:
            batch.reserved_bytes = body_bytes
            self.used_bytes -= unused

    def _begin_batch(self, queue: PartitionQueue, now: float) -> tuple[Batch, BatchBuilder]:
        config = self.config
        queue_config = config.queue
        builder = BatchBuilder(
            config.compression, config.compression_level, queue_config.batch_size_bytes
        )
        topic, partition = queue.topic_partition
        self.topics[topic].last_used_at = now
        future = builder.future = BatchFuture(
            topic, partition, self.unreported_failures, self.yield_budget
        )
        builder.handle_class = Delivery
        queue.last_order += 1
        batch = Batch(
            future,
            builder,
            (queue.last_order,),
            now + queue_config.linger_s,
            now + queue_config.delivery_timeout_s,
        )
        queue.add_open_batch(batch, now)
        return batch, builder

    def _on_first_batch(self, queue: PartitionQueue, batch: Batch) -> None:
        """A batch was begun that nothing waits before."""
        node = queue.leader
        self._active.setdefault(node, {})[queue] = None
        if node is not None and not self.config.queue.linger_s:
            if self._held_nodes is None:
                self._sender.batch_ready(node)
            else:
                self._held_nodes[node] = None
        else:
            self._sender.wake(node, -NEVER if self.flushes_in_progress else batch.linger_until)

    def hold_ready_batches(self) -> None:
        """More records come in this same step: batches that do not linger wait for them."""
        self._held_nodes = {}

    def release_held_batches(self) -> None:
        """That was all: such batches may go."""
        held, self._held_nodes = self._held_nodes, None
        for node in held or ():
            self._sender.batch_ready(node)

    def choose_sticky_queue(
        self, topic: TopicQueues, rng: random.Random, now: float
    ) -> PartitionQueue:
        """The partition of a record without a key."""
        queue = topic.sticky_queue
        if queue is None:
            position = topic.sticky.choose(self._queue_lengths(topic, now), rng)
            queue = topic.sticky_queue = topic.queues[position]
        return queue

    def _queue_lengths(self, topic: TopicQueues, now: float) -> list[int | None]:
        """How many batches wait in each partition, None for those to be passed over."""
        adaptive = self.config.adaptive
        led = [
            None if queue.leader is None else len(queue.waiting) if adaptive else 0
            for queue in topic.queues
        ]
        if not self.config.availability_timeout_s:
            return led
        stuck = {
            node for node in self._active if node is not None and self._is_unavailable(node, now)
        }
        free = [
            None if queue.leader in stuck else length
            for queue, length in zip(topic.queues, led, strict=True)
        ]
        return led if free.count(None) == len(free) else free

    def _is_unavailable(self, node: NodeId, now: float) -> bool:
        """Whether a broker has taken nothing for long, though there was something for it."""
        since = now - self.config.availability_timeout_s
        if self._drained_at.get(node, -NEVER) > since:
            return False
        return any(queue.waiting[0].linger_until <= since for queue in self._active[node])

    def close_batch(self, queue: PartitionQueue) -> None:
        """A partition's open batch takes no more records."""
        queue.close_open()
        self.yield_budget.batch_ended()
        self._sender.wake(queue.leader, -NEVER)

    # --- batches come and go ------------------------------------------------------------------

    def batch_opened(self, batch: Batch) -> None:
        """A queue has a batch more."""
        self.incomplete[batch.future] = None

    def batch_closed(self, queue: PartitionQueue, batch: Batch, body_bytes: int) -> None:
        """A batch takes no more records."""
        self._reserving.pop(batch, None)
        self._release_reservation(batch, body_bytes)
        topic = self.topics[batch.future.topic]
        if topic.sticky_queue is queue:
            topic.update_sticky(body_bytes)

    def batch_completed(self, batch: Batch) -> None:
        """A batch has its outcome: its room is free."""
        future = batch.future
        del self.incomplete[future]
        self._reserving.pop(batch, None)
        # mutation: failed-batches-keep-buffer-space
        self.used_bytes -= batch.reserved_bytes
        outcome = future.value
        assert outcome is not None
        if type(outcome) is BatchAppended:
            self.totals.records_delivered += future.count
        elif isinstance(outcome, BatchFailed):
            self.totals.records_failed += future.count
        else:
            self.totals.batches_split += 1
        self._on_completed(outcome)

    def begin_flush(self) -> None:
        """Send batches without linger until the matching `end_flush`; calls may overlap."""
        self.flushes_in_progress += 1
        self.release_unused()
        for node in list(self._active):
            if node is not None:
                self._sender.end_linger(node)

    def end_flush(self) -> None:
        """End one `begin_flush`; batches linger again after the last one."""
        self.flushes_in_progress -= 1

    # --- metadata -----------------------------------------------------------------------------

    def set_topic(self, name: str, partitions: Iterable[int], topic_id: UUID) -> TopicQueues:
        """Take over what metadata says of a topic; queues that exist stay."""
        topic = self.topics.get(name)
        if topic is None:
            topic = self.resume_topic(name) or TopicQueues(name, self.config.queue.batch_size_bytes)
            self.topics[name] = topic
        numbers = sorted(partitions)
        for number in numbers:
            if number not in topic.all_queues:
                topic.all_queues[number] = PartitionQueue(
                    TopicPartition(name, number),
                    self.config.queue,
                    self,
                    None
                    if self.producer_id_state is None
                    else PartitionSequences(self.producer_id_state),
                )
        topic.set_queues([topic.all_queues[number] for number in numbers])
        known = topic.topic_id
        if topic_id != ZERO_UUID:
            topic.topic_id = topic_id
            if known not in {ZERO_UUID, topic_id}:
                self.topic_recreated(name)
        return topic

    def topic_recreated(self, name: str) -> None:
        """A topic was deleted and made anew: its partitions number their batches anew."""
        for queue in self.topics[name].all_queues.values():
            queue.topic_recreated()

    def resume_topic(self, name: str) -> TopicQueues | None:
        """Use a topic again that was let go; None if it is not one of those."""
        topic = self._idle_topics.pop(name, None)
        if topic is not None:
            self.topics[name] = topic
        return topic

    def remove_idle_topics(self, before: float) -> list[str]:
        """Let topics go that nothing was sent to since a time; returns their names.

        Their sequence numbers are kept: a broker that gets a number again takes the records for
        what it has already.
        """
        idle = [
            name
            for name, topic in self.topics.items()
            if topic.last_used_at <= before and not topic.has_unfinished_batches
        ]
        for name in idle:
            topic = self._idle_topics[name] = self.topics.pop(name)
            topic.clear_key_cache()
        while len(self._idle_topics) > MAX_IDLE_TOPICS:
            del self._idle_topics[next(iter(self._idle_topics))]
            if self.producer_id_state is not None and self.producer_id_state.current is not None:
                self.producer_id_state.bump_epoch(self.producer_id_state.current)
        return idle

    def set_leaders(
        self, leader_of: LeaderLookup, only: Iterable[TopicQueues] | None = None
    ) -> None:
        """Move queues, those of some topics or all, to the brokers that lead them now."""
        for topic in self.topics.values() if only is None else only:
            for queue in topic.all_queues.values():
                leader = leader_of(queue.topic_partition)
                if leader != queue.leader:
                    # mutation: moved-partition-stays-with-old-leader
                    self._deactivate(queue)
                    queue.leader = leader
                    self._queue_changed(queue)

    def disable_idempotence(self) -> None:
        """No broker gives producer ids: go on without idempotence."""
        self.producer_id_state = None
        for topic in (*self.topics.values(), *self._idle_topics.values()):
            for queue in topic.all_queues.values():
                queue.sequences = None
        self.wake_all()

    def wake_all(self) -> None:
        """Let every broker's task look again."""
        for node in list(self._active):
            self._sender.wake(node, -NEVER)

    @property
    def leader_missing(self) -> bool:
        """Whether records wait for a partition without a leader."""
        return bool(self._active.get(None))

    # --- batches go out -----------------------------------------------------------------------

    def has_waiting(self, node: NodeId) -> bool:
        """Whether batches wait to be sent to a broker, or still take records."""
        return node in self._active

    def sendable_at(self, node: NodeId) -> float:
        """When there is something to send to a broker; NEVER: after a `wake` at the earliest."""
        queues = self._active.get(node)
        if queues is None:
            return NEVER
        flushing = self.flushes_in_progress > 0
        if len(queues) > 1:
            return min([queue.sendable_at(flushing) for queue in queues])
        (queue,) = queues
        return queue.sendable_at(flushing)

    def all_have_ids(self, node: NodeId) -> bool:
        """Whether the ids of all topics are known that have something for a broker."""
        for queue in self._active.get(node, ()):
            if not self.topics[queue.topic_partition.topic].topic_id.int:
                return False
        return True

    def close_due(self, node: NodeId, now: float, min_bytes: int) -> list[Batch]:
        """Close the batches from `min_bytes` on that are due at a broker; they stay where they
        are."""
        flushing = self.flushes_in_progress > 0
        return [
            queue.close_head()
            for queue in self._active.get(node, ())
            if queue.sendable_at(flushing) <= now
            and (head := queue.head()) is not None
            and head.size_bytes >= min_bytes
        ]

    def oversize_suspect_due(self, node: NodeId, now: float) -> bool:
        """Whether what goes next may have made the broker close the connection by its size."""
        flushing = self.flushes_in_progress > 0
        for queue in self._active.get(node, ()):
            if queue.sendable_at(flushing) <= now:
                head = queue.head()
                return head is not None and head.oversize_disconnects > 0
        return False

    def drain(self, node: NodeId, now: float, max_bytes: int, *, due: bool = False) -> list[Batch]:
        """Take the batches for one request: one of each partition, at most `max_bytes` in all
        unless the first is larger. Who was left out comes first the next time. What may have made
        the broker close the connection by its size goes alone. `due`: `sendable_at` has just told
        that there is something."""
        flushing = self.flushes_in_progress > 0
        taken: list[Batch] = []
        size = 0
        active = self._active.get(node, {})
        if due and len(active) == 1:
            (queue,) = active
            return [self.drain_only(node, queue, now)]
        for queue in list(active):
            if queue.sendable_at(flushing) > now:
                continue
            batch = queue.close_head()
            batch_bytes = batch.size_bytes
            size += batch_bytes
            if taken and (size > max_bytes or batch.oversize_disconnects):
                break
            taken.append(queue.take_head(batch))
            self._count_sent(batch, batch_bytes)
            del active[queue]
            if queue.waiting:
                active[queue] = None  # after the others
            if batch.oversize_disconnects:
                break
        if taken:
            self._drained_at[node] = now
            if not active:
                del self._active[node]
        return taken

    def only_active_queue(self, node: NodeId) -> PartitionQueue | None:
        """What has something for a broker, if it is one partition."""
        active = self._active.get(node)
        return next(iter(active)) if active is not None and len(active) == 1 else None

    def drain_only(self, node: NodeId, queue: PartitionQueue, now: float) -> Batch:
        """Take the batch that is due at a broker; like `drain`, for its `only_active_queue`."""
        batch = queue.take_head()
        if not queue.waiting:
            del self._active[node]
        self._drained_at[node] = now
        self._count_sent(batch, batch.size_bytes)
        return batch

    def _count_sent(self, batch: Batch, size_bytes: int) -> None:
        totals = self.totals
        totals.batches_sent += 1
        totals.batches_resent += batch.attempts > 1
        totals.batch_bytes_sent += size_bytes

    def handle_result(
        self, batch: Batch, result: AttemptResult, now: float, not_before: float
    ) -> None:
        """What became of an attempt; see `PartitionQueue.handle_result`."""
        future = batch.future
        if batch.state is _DONE:  # it expired, and its topic may have been let go
            topic = self.topics.get(future.topic) or self._idle_topics.get(future.topic)
            if topic is not None:
                topic.all_queues[future.partition].expired_in_flight.discard(batch)
            return
        queue = self.topics[future.topic].all_queues[future.partition]
        queue.handle_result(batch, result, now, not_before)
        if queue.waiting or self._active:
            self._queue_changed(queue)

    def node_unreachable(self, node: NodeId, error: KafkaError) -> None:
        """A broker could not be reached: should batches expire, that is the reason."""
        for queue in self._active.get(node, ()):
            head = queue.head()
            if head is not None and not head.uncertain:
                head.last_error = error

    # --- ends ---------------------------------------------------------------------------------

    def expire(self, now: float) -> float:
        """Settle batches that are past their delivery timeout; returns when the next one is."""
        soonest = NEVER
        for topic in self.topics.values():
            for queue in topic.all_queues.values():
                if queue.next_expiry() <= now:
                    queue.expire(now)
                    self._queue_changed(queue)
                soonest = min(soonest, queue.next_expiry())
        return soonest

    def abort(self, error: KafkaError) -> None:
        """Settle everything."""
        for topic in self.topics.values():
            for queue in topic.all_queues.values():
                queue.abort(error)
                self._deactivate(queue)

    def remove_node(self, node: NodeId) -> None:
        """A broker is gone, and nothing waits to be sent to it."""
        self._drained_at.pop(node, None)

    def abort_node(self, node: NodeId, error: KafkaError) -> None:
        """Settle everything that waits to be sent to a broker which cannot be used."""
        for queue in list(self._active.get(node, ())):
            queue.abort(error)
            self._deactivate(queue)

    def abort_transaction(self, error: TransactionAborted, *, in_flight: bool) -> None:
        """Settle what waits to be sent with `error`; what is refused from now on is not sent again.

        With `in_flight` also what is under way is settled, whatever becomes of it.
        """
        self.abort_error = error
        for topic in self.topics.values():
            for queue in topic.all_queues.values():
                queue.abort_transaction(error, in_flight=in_flight)
                self._deactivate(queue)

    def resume_sequences(self) -> None:
        """Go on under the same epoch wherever it is sure which number a log expects."""
        for topic in self.topics.values():
            for queue in topic.all_queues.values():
                if queue.sequences is not None:
                    queue.sequences.resume()

    @property
    def has_expired_in_flight(self) -> bool:
        """Whether a log may still take a batch that has expired."""
        return any(
            queue.expired_in_flight
            for topic in self.topics.values()
            for queue in topic.all_queues.values()
        )

    @property
    def has_sequence_gap(self) -> bool:
        """Whether a partition's sequence numbers cannot go on under their epoch."""
        return any(
            queue.sequences is not None and queue.sequences.draining
            for topic in self.topics.values()
            for queue in topic.all_queues.values()
        )

    def _queue_changed(self, queue: PartitionQueue, at: float = -NEVER) -> None:
        """A queue changed: from a time on its broker's task looks at it, if there is anything to
        send."""
        if queue.waiting:
            self._active.setdefault(queue.leader, {})[queue] = None
            self._sender.wake(queue.leader, -NEVER if self.flushes_in_progress else at)
        elif self._active:
            self._deactivate(queue)

    def _deactivate(self, queue: PartitionQueue) -> None:
        queues = self._active.get(queue.leader)
        if queues is not None:
            queues.pop(queue, None)
            if not queues:
                del self._active[queue.leader]
