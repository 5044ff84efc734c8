"""All records that wait or are on their way: room for them, and what each broker may get now."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from uuid import UUID

from aiokafkawire.errors import KafkaError, TransactionAborted
from aiokafkawire.producer.answer import Answer
from aiokafkawire.producer.batch import Batch, BatchState
from aiokafkawire.producer.delivery import (
    Appended,
    Delivery,
    Failed,
    FailureTally,
    Outcome,
    Pacer,
    Receipt,
)
from aiokafkawire.producer.partition_queue import PartitionQueue
from aiokafkawire.producer.senders import Senders
from aiokafkawire.producer.sequences import Identities, PartitionSequences
from aiokafkawire.producer.settings import Settings, Totals
from aiokafkawire.producer.topic_queues import TopicQueues
from aiokafkawire.records import BatchBuilder, ClosedBatch, Compression
from aiokafkawire.records.batch import BATCH_OVERHEAD_BYTES
from aiokafkawire.records.kernel import Buffer, Headers
from aiokafkawire.runtime import NEVER
from aiokafkawire.types import NodeId, TopicPartition
from aiokafkawire.wire import ZERO_UUID

__all__ = ("MAX_PARKED_TOPICS", "Accumulator")

GRANTS = 512
"""A batch takes at most this part of the buffer at a time, beyond what a record needs."""

MAX_PARKED_TOPICS = 10_000
"""Topics that nothing is sent to any more and whose sequence numbers are kept."""

_DONE = BatchState.DONE

LeaderOf = Callable[[TopicPartition], NodeId | None]


class Accumulator:
    """The producer's buffer.

    Bounds: records take at most `buffer_memory_bytes` (keys, values and headers with their
    overhead) until they have their outcome; queues are as many as partitions were written to, of
    topics in use and of `MAX_PARKED_TOPICS` others. A batch takes of the buffer for several
    records at once, and gives back what it did not use when it ends, or when somebody finds no
    room. `direct`: records that come one by one go one by one.
    `settled` is called with the outcome of each batch, when its room came back. With transactions a
    failure is told by the transaction, and not counted.
    """

    def __init__(
        self,
        settings: Settings,
        identities: Identities | None,
        *,
        senders: Senders,
        settled: Callable[[Outcome], None],
    ) -> None:
        self.settings = settings
        self.identities = identities
        self.topics: dict[str, TopicQueues] = {}
        self.totals = Totals()
        self.tally = FailureTally(quiet=settings.transactional)
        self.pacer = Pacer()
        self.used_bytes = 0
        self._grant_bytes = min(
            settings.policy.batch_size_bytes, settings.buffer_memory_bytes // GRANTS
        )
        self._buffer_bytes = settings.buffer_memory_bytes
        self._body_bytes = settings.policy.batch_size_bytes - BATCH_OVERHEAD_BYTES
        # Open batches that have taken more of the buffer than they use.
        self._granted: dict[Batch, None] = {}
        self.incomplete: dict[Receipt, None] = {}
        self.pressing = 0
        self.abandoned: TransactionAborted | None = None
        self._active: dict[NodeId | None, dict[PartitionQueue, None]] = {}
        self._drained_at: dict[NodeId, float] = {}
        self._held: dict[NodeId, None] | None = None
        self.direct = (
            not settings.policy.linger_s
            and not settings.transactional
            and settings.compression is Compression.NONE
        )
        self._parked: dict[str, TopicQueues] = {}
        self._senders = senders
        self._settled = settled

    # --- records come in ----------------------------------------------------------------------

    def has_room(self, size_bytes: int) -> bool:
        """Whether a record fits into the buffer now."""
        if self._granted and self.used_bytes > self._buffer_bytes - size_bytes:
            self.take_back()
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
        dated: bool = False,
        size_bytes: int,
        now: float,
        movable: bool = False,
    ) -> Delivery | None:
        """Put a record, at most `size_bytes` of a batch, into its partition's open batch; the
        caller has looked for room.

        `dated` tells that its time was given. A `movable` record for which the batch has no room
        may go elsewhere: the batch is ended, and the answer is None.
        """
        batch, index, first = queue.open, None, False
        if batch is None and self.direct:
            delivery = self.append_alone(
                queue,
                key,
                value,
                headers,
                timestamp_ms,
                dated=dated,
                size_bytes=size_bytes,
                now=now,
            )
            if delivery is not None:
                return delivery
        if batch is not None:
            builder = self._granted_for(batch, size_bytes)
            index = builder.append(timestamp_ms, key, value, headers)
            if index is None:
                self.end_batch(queue)
                if movable:
                    return None
        if batch is None or index is None:
            first = not queue.waiting
            batch, builder = self._begin_batch(queue, now)
            self._grant(batch, builder, size_bytes)
            index = builder.append(timestamp_ms, key, value, headers)
            assert index is not None
        delivery = Delivery(batch.receipt, index, timestamp_ms)
        if dated:
            batch.receipt.dated = True
        if builder.body_bytes >= self._body_bytes:
            self.end_batch(queue)
        elif self.pressing:
            self.take_back()
        if first:
            self._first(queue, batch)
        return delivery

    def append_alone(
        self,
        queue: PartitionQueue,
        key: Buffer | None,
        value: Buffer | None,
        headers: Headers,
        timestamp_ms: int,
        *,
        dated: bool = False,
        size_bytes: int,
        now: float,
    ) -> Delivery | None:
        """Send a record, while records are sent one by one (`direct`): its batch comes to be as one
        does that is begun, closed and drained, without these steps. The caller has looked for room.

        None if the record has to wait, or fills a batch; then nothing is done.
        """
        node = queue.leader
        if node is None or node in self._active or self._held is not None:
            return None
        if size_bytes >= self._body_bytes or not queue.at_rest(now):
            return None
        topic, partition = queue.topic_partition
        queues = self.topics[topic]
        way = self._senders.free_way(node, queues, now)
        if way is None:
            return None
        records = ClosedBatch.single_record(timestamp_ms, key, value, headers)
        receipt = Receipt(topic, partition, self.tally, self.pacer)
        receipt.count = 1
        receipt.dated = dated
        order = queue.last_order = queue.last_order + 1
        expires_at = now + self.settings.policy.delivery_timeout_s
        batch = Batch(receipt, records, (order,), now, expires_at)
        batch.reserved_bytes = body_bytes = records.size_bytes - BATCH_OVERHEAD_BYTES
        self.used_bytes += body_bytes
        queues.used_at = self._drained_at[node] = now
        self.incomplete[receipt] = None
        queue.send(batch)
        if queues.sticky_queue is queue:
            queues.filled(body_bytes)
        totals = self.totals
        totals.batches_sent += 1
        totals.batch_bytes_sent += records.size_bytes
        way(batch, now)
        return Delivery(receipt, 0, timestamp_ms)

    def _granted_for(self, batch: Batch, size_bytes: int) -> BatchBuilder:
        """What takes a batch's records, with room for one more of this size."""
        builder = batch.builder
        assert builder is not None
        lacking = builder.body_bytes + size_bytes - batch.reserved_bytes
        if lacking > 0:
            self._grant(batch, builder, lacking)
        return builder

    def _grant(self, batch: Batch, builder: BatchBuilder, lacking: int) -> None:
        """Let a batch have what it lacks of the buffer, and some more if there is."""
        used = self.used_bytes
        more = max(lacking, min(self._grant_bytes, self._buffer_bytes - used))
        self.used_bytes = used + more
        batch.reserved_bytes = reserved = batch.reserved_bytes + more
        self._granted[batch] = None
        builder.limit_bytes = min(self._body_bytes, reserved)
        builder.is_full = False

    def take_back(self) -> None:
        """Give back what open batches have of the buffer and do not use: each record to come is
        looked at before it gets any."""
        while self._granted:
            batch, _ = self._granted.popitem()
            if batch.builder is not None:
                self._give_back(batch, batch.builder.body_bytes)
                batch.builder.limit_bytes = min(self._body_bytes, batch.builder.body_bytes)

    def _give_back(self, batch: Batch, body_bytes: int) -> None:
        unused = batch.reserved_bytes - body_bytes
        if unused > 0:
            batch.reserved_bytes = body_bytes
            self.used_bytes -= unused

    def _begin_batch(self, queue: PartitionQueue, now: float) -> tuple[Batch, BatchBuilder]:
        settings = self.settings
        policy = settings.policy
        builder = BatchBuilder(
            settings.compression, settings.compression_level, policy.batch_size_bytes
        )
        topic, partition = queue.topic_partition
        self.topics[topic].used_at = now
        receipt = builder.receipt = Receipt(topic, partition, self.tally, self.pacer)
        builder.delivery = Delivery
        queue.last_order += 1
        batch = Batch(
            receipt,
            builder,
            (queue.last_order,),
            now + policy.linger_s,
            now + policy.delivery_timeout_s,
        )
        queue.add(batch, now)
        return batch, builder

    def _first(self, queue: PartitionQueue, batch: Batch) -> None:
        """A batch was begun that nothing waits before."""
        node = queue.leader
        self._active.setdefault(node, {})[queue] = None
        if node is not None and not self.settings.policy.linger_s:
            if self._held is None:
                self._senders.offer(node)
            else:
                self._held[node] = None
        else:
            self._senders.wake(node, -NEVER if self.pressing else batch.linger_until)

    def hold_offers(self) -> None:
        """More records come in this same step: batches that do not linger wait for them."""
        self._held = {}

    def make_offers(self) -> None:
        """That was all: such batches may go."""
        held, self._held = self._held, None
        for node in held or ():
            self._senders.offer(node)

    def without_key(self, topic: TopicQueues, rng: random.Random, now: float) -> PartitionQueue:
        """The partition of a record without a key."""
        queue = topic.sticky_queue
        if queue is None:
            position = topic.sticky.choose(self._weights(topic, now), rng)
            queue = topic.sticky_queue = topic.queues[position]
        return queue

    def _weights(self, topic: TopicQueues, now: float) -> list[int | None]:
        """How many batches wait in each partition, None for those to be passed over."""
        adaptive = self.settings.adaptive
        led = [
            None if queue.leader is None else len(queue.waiting) if adaptive else 0
            for queue in topic.queues
        ]
        if not self.settings.availability_timeout_s:
            return led
        stuck = {node for node in self._active if node is not None and self._stuck(node, now)}
        free = [
            None if queue.leader in stuck else length
            for queue, length in zip(topic.queues, led, strict=True)
        ]
        return led if free.count(None) == len(free) else free

    def _stuck(self, node: NodeId, now: float) -> bool:
        """Whether a broker has taken nothing for long, though there was something for it."""
        since = now - self.settings.availability_timeout_s
        if self._drained_at.get(node, -NEVER) > since:
            return False
        return any(queue.waiting[0].linger_until <= since for queue in self._active[node])

    def end_batch(self, queue: PartitionQueue) -> None:
        """A partition's open batch takes no more records."""
        queue.close_open()
        self.pacer.batch_ended()
        self._senders.wake(queue.leader, -NEVER)

    # --- batches come and go ------------------------------------------------------------------

    def opened(self, batch: Batch) -> None:
        """A queue has a batch more."""
        self.incomplete[batch.receipt] = None

    def closed(self, queue: PartitionQueue, batch: Batch, body_bytes: int) -> None:
        """A batch takes no more records."""
        self._granted.pop(batch, None)
        self._give_back(batch, body_bytes)
        topic = self.topics[batch.receipt.topic]
        if topic.sticky_queue is queue:
            topic.filled(body_bytes)

    def settled(self, batch: Batch) -> None:
        """A batch has its outcome: its room is free."""
        receipt = batch.receipt
        del self.incomplete[receipt]
        self._granted.pop(batch, None)
        # mutation: failed-batches-keep-buffer-space
        self.used_bytes -= batch.reserved_bytes
        outcome = receipt.value
        assert outcome is not None
        if type(outcome) is Appended:
            self.totals.records_delivered += receipt.count
        elif isinstance(outcome, Failed):
            self.totals.records_failed += receipt.count
        else:
            self.totals.batches_split += 1
        self._settled(outcome)

    def press(self, by: int) -> None:
        """Begin (1) or end (-1) a time in which open batches do not wait for more records."""
        self.pressing += by
        if by > 0:
            self.take_back()
            for node in list(self._active):
                if node is not None:
                    self._senders.hurry(node)

    # --- metadata -----------------------------------------------------------------------------

    def set_topic(self, name: str, partitions: Iterable[int], topic_id: UUID) -> TopicQueues:
        """Take over what metadata says of a topic; queues that exist stay."""
        topic = self.topics.get(name)
        if topic is None:
            topic = self.take_up(name) or TopicQueues(name, self.settings.policy.batch_size_bytes)
            self.topics[name] = topic
        numbers = sorted(partitions)
        for number in numbers:
            if number not in topic.all_queues:
                topic.all_queues[number] = PartitionQueue(
                    TopicPartition(name, number),
                    self.settings.policy,
                    self,
                    None if self.identities is None else PartitionSequences(self.identities),
                )
        topic.set_queues([topic.all_queues[number] for number in numbers])
        known = topic.topic_id
        if topic_id != ZERO_UUID:
            topic.topic_id = topic_id
            if known not in {ZERO_UUID, topic_id}:
                self.renew(name)
        return topic

    def renew(self, name: str) -> None:
        """A topic was deleted and made anew: its partitions number their batches anew."""
        for queue in self.topics[name].all_queues.values():
            queue.renumber()

    def take_up(self, name: str) -> TopicQueues | None:
        """Use a topic again that was let go; None if it is not one of those."""
        topic = self._parked.pop(name, None)
        if topic is not None:
            self.topics[name] = topic
        return topic

    def park_idle(self, before: float) -> list[str]:
        """Let topics go that nothing was sent to since a time; returns their names.

        Their sequence numbers are kept: a broker that gets a number again takes the records for
        what it has already.
        """
        idle = [
            name
            for name, topic in self.topics.items()
            if topic.used_at <= before and not topic.busy
        ]
        for name in idle:
            topic = self._parked[name] = self.topics.pop(name)
            topic.forget_keys()
        while len(self._parked) > MAX_PARKED_TOPICS:
            del self._parked[next(iter(self._parked))]
            if self.identities is not None and self.identities.current is not None:
                self.identities.leave(self.identities.current)
        return idle

    def set_leaders(self, leader_of: LeaderOf, only: Iterable[TopicQueues] | None = None) -> None:
        """Move queues, those of some topics or all, to the brokers that lead them now."""
        for topic in self.topics.values() if only is None else only:
            for queue in topic.all_queues.values():
                leader = leader_of(queue.topic_partition)
                if leader != queue.leader:
                    # mutation: moved-partition-stays-with-old-leader
                    self._drop_active(queue)
                    queue.leader = leader
                    self._touch(queue)

    def without_identity(self) -> None:
        """No broker gives producer ids: go on without idempotence."""
        self.identities = None
        for topic in (*self.topics.values(), *self._parked.values()):
            for queue in topic.all_queues.values():
                queue.sequences = None
        self.wake_all()

    def wake_all(self) -> None:
        """Let every broker's task look again."""
        for node in list(self._active):
            self._senders.wake(node, -NEVER)

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
        pressing = self.pressing > 0
        if len(queues) > 1:
            return min([queue.sendable_at(pressing) for queue in queues])
        (queue,) = queues
        return queue.sendable_at(pressing)

    def all_have_ids(self, node: NodeId) -> bool:
        """Whether the ids of all topics are known that have something for a broker."""
        for queue in self._active.get(node, ()):
            if not self.topics[queue.topic_partition.topic].topic_id.int:
                return False
        return True

    def close_due(self, node: NodeId, now: float, min_bytes: int) -> list[Batch]:
        """Close the batches from `min_bytes` on that are due at a broker; they stay where they
        are."""
        pressing = self.pressing > 0
        return [
            queue.close_head()
            for queue in self._active.get(node, ())
            if queue.sendable_at(pressing) <= now
            and (head := queue.head()) is not None
            and head.size_bytes >= min_bytes
        ]

    def suspect_due(self, node: NodeId, now: float) -> bool:
        """Whether what goes next may have made the broker close the connection by its size."""
        pressing = self.pressing > 0
        for queue in self._active.get(node, ()):
            if queue.sendable_at(pressing) <= now:
                head = queue.head()
                return head is not None and head.large_losses > 0
        return False

    def drain(self, node: NodeId, now: float, max_bytes: int, *, due: bool = False) -> list[Batch]:
        """Take the batches for one request: one of each partition, at most `max_bytes` in all
        unless the first is larger. Who was left out comes first the next time. What may have made
        the broker close the connection by its size goes alone. `due`: `sendable_at` has just told
        that there is something."""
        pressing = self.pressing > 0
        taken: list[Batch] = []
        size = 0
        active = self._active.get(node, {})
        if due and len(active) == 1:
            (queue,) = active
            return [self.take_only(node, queue, now)]
        for queue in list(active):
            if queue.sendable_at(pressing) > now:
                continue
            batch = queue.close_head()
            batch_bytes = batch.size_bytes
            size += batch_bytes
            if taken and (size > max_bytes or batch.large_losses):
                break
            taken.append(queue.take(batch))
            self._count_sent(batch, batch_bytes)
            del active[queue]
            if queue.waiting:
                active[queue] = None  # after the others
            if batch.large_losses:
                break
        if taken:
            self._drained_at[node] = now
            if not active:
                del self._active[node]
        return taken

    def only(self, node: NodeId) -> PartitionQueue | None:
        """What has something for a broker, if it is one partition."""
        active = self._active.get(node)
        return next(iter(active)) if active is not None and len(active) == 1 else None

    def take_only(self, node: NodeId, queue: PartitionQueue, now: float) -> Batch:
        """`drain` where it is known that something is due, and `only` this partition has it."""
        batch = queue.take()
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

    def answered(self, batch: Batch, answer: Answer, now: float, not_before: float) -> None:
        """What became of an attempt; see `PartitionQueue.answered`."""
        receipt = batch.receipt
        if batch.state is _DONE:  # it expired, and its topic may have been let go
            topic = self.topics.get(receipt.topic) or self._parked.get(receipt.topic)
            if topic is not None:
                topic.all_queues[receipt.partition].late.discard(batch)
            return
        queue = self.topics[receipt.topic].all_queues[receipt.partition]
        queue.answered(batch, answer, now, not_before)
        if queue.waiting or self._active:
            self._touch(queue)

    def unreachable(self, node: NodeId, error: KafkaError) -> None:
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
                    self._touch(queue)
                soonest = min(soonest, queue.next_expiry())
        return soonest

    def abort(self, error: KafkaError) -> None:
        """Settle everything."""
        for topic in self.topics.values():
            for queue in topic.all_queues.values():
                queue.abort(error)
                self._drop_active(queue)

    def forget(self, node: NodeId) -> None:
        """A broker is gone, and nothing waits to be sent to it."""
        self._drained_at.pop(node, None)

    def abort_node(self, node: NodeId, error: KafkaError) -> None:
        """Settle everything that waits to be sent to a broker which cannot be used."""
        for queue in list(self._active.get(node, ())):
            queue.abort(error)
            self._drop_active(queue)

    def abandon(self, error: TransactionAborted, *, in_flight: bool) -> None:
        """Settle what waits to be sent with `error`; what is refused from now on is not sent again.

        With `in_flight` also what is under way is settled, whatever becomes of it.
        """
        self.abandoned = error
        for topic in self.topics.values():
            for queue in topic.all_queues.values():
                queue.abandon(error, in_flight=in_flight)
                self._drop_active(queue)

    def resume_numbers(self) -> None:
        """Go on under the same epoch wherever it is sure which number a log expects."""
        for topic in self.topics.values():
            for queue in topic.all_queues.values():
                if queue.sequences is not None:
                    queue.sequences.resume()

    @property
    def late(self) -> bool:
        """Whether a log may still take a batch that has expired."""
        return any(
            queue.late for topic in self.topics.values() for queue in topic.all_queues.values()
        )

    @property
    def gap(self) -> bool:
        """Whether a partition's sequence numbers cannot go on under their epoch."""
        return any(
            queue.sequences is not None and queue.sequences.draining
            for topic in self.topics.values()
            for queue in topic.all_queues.values()
        )

    def _touch(self, queue: PartitionQueue, at: float = -NEVER) -> None:
        """A queue changed: from a time on its broker's task looks at it, if there is anything to
        send."""
        if queue.waiting:
            self._active.setdefault(queue.leader, {})[queue] = None
            self._senders.wake(queue.leader, -NEVER if self.pressing else at)
        elif self._active:
            self._drop_active(queue)

    def _drop_active(self, queue: PartitionQueue) -> None:
        queues = self._active.get(queue.leader)
        if queues is not None:
            queues.pop(queue, None)
            if not queues:
                del self._active[queue.leader]
