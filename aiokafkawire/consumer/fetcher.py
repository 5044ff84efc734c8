"""Fetching: at most one Fetch request in flight per broker."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from uuid import UUID

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.cluster.metadata import MetadataSnapshot
from aiokafkawire.config import ConsumerConfig
from aiokafkawire.connection import VersionedRequest
from aiokafkawire.errors import (
    ClientClosed,
    CorruptRecord,
    KafkaError,
    RecordTooLarge,
    UnknownServerError,
)
from aiokafkawire.hooks import BatchFetched
from aiokafkawire.logs import log_fields
from aiokafkawire.records import (
    FetchedBatches,
    FetchedRange,
    IsolationLevel,
    decode_fetch,
    iter_fetched_range,
    partial_message_size,
)
from aiokafkawire.runtime import Runtime, Supervisor, checkpoint, in_slices
from aiokafkawire.types import NO_LEADER_EPOCH, NodeId
from aiokafkawire.wire import ZERO_UUID, ApiKey
from aiokafkawire.wire.error_codes import ErrorCode, error_for
from aiokafkawire.wire.messages.fetch import (
    FetchPartitionData,
    FetchResponse,
)

from .assignment import ConsumerAssignment
from .fetch_messages import decode_options, fetch_request, match_response
from .fetch_planner import FetchLimits, FetchPlan, FetchPlanner, PartitionFetch
from .fetch_sender import FetchSender
from .fetch_session import Accepted, FetchSession, Rejected, ResponseLost
from .notifier import Notifier
from .partition import AssignedPartition, PreferredReadReplica, Watermarks
from .partition_states import (
    CorruptionFound,
    EpochEndFetched,
    Fetching,
    PartitionFailed,
    PositionOutOfRange,
)

__all__ = ("Fetcher",)

logger = logging.getLogger("aiokafkawire.consumer")

RESPONSE_OVERHEAD_BYTES = 64 * 1024
"""Bytes of a response in addition to the records of a single fetched message."""

INLINE_BYTES = 256 * 1024
"""Largest batch, compressed or decompressed, that is decoded on the event loop: about a
millisecond of its time. Larger ones go to a worker thread."""

YIELD_AFTER_S = 0.002
"""Time spent on a response before other tasks may run."""

FOLLOWER_CHECK_INTERVAL_S = 1.0
"""Interval at which expired preferred read replicas are looked for."""


class Fetcher:
    """Fetches records into the buffers of the assigned partitions.

    Args:
        cluster: Sends the requests.
        runtime: Clock and random numbers.
        supervisor: Runs a task per request.
        config: Options of the consumer.
        assignment: The assigned partitions.
        notifier: Says which partitions to check, and is notified of data and errors.
    """

    def __init__(
        self,
        cluster: Cluster,
        runtime: Runtime,
        supervisor: Supervisor,
        config: ConsumerConfig,
        *,
        assignment: ConsumerAssignment,
        notifier: Notifier,
    ) -> None:
        self._cluster = cluster
        self._runtime = runtime
        self._supervisor = supervisor
        self._config = config
        self._decode_options = decode_options(config, INLINE_BYTES)
        self._assignment = assignment
        self._notifier = notifier
        self._changes = notifier.to_fetch
        self._planner = FetchPlanner(
            FetchLimits(config.fetch_max_bytes, config.max_partition_fetch_bytes)
        )
        self._sender = FetchSender(
            cluster, runtime, supervisor, config, notifier=notifier, counters=assignment.counters
        )
        self._sessions: dict[NodeId, FetchSession] = {}
        self._next_follower_check = 0.0

    async def run(self) -> None:
        """Plan and start fetches until the supervisor stops."""
        seen_metadata: MetadataSnapshot | None = None
        while self._supervisor.is_running:
            metadata = self._cluster.metadata
            is_new = metadata is not seen_metadata
            if is_new:
                seen_metadata = metadata
                self._sessions = {
                    node: session
                    for node, session in self._sessions.items()
                    if node in metadata.nodes
                }
                self._sender.forget_all_but(metadata.nodes)
                self._changes.check_all = True
            await self._update_planner(metadata, follow=is_new)
            now = self._runtime.clock.now()
            with_data = self._assignment.with_data
            for plan in self._planner.start_fetches(with_data, metadata.leader, now):
                self._supervisor.spawn(self._fetch, plan, name=f"fetch-{plan.node}")
            self._changes.waits_for_room = self._planner.buffers_full
            await self._changes.changed.wait(self._planner.next_deadline(now))

    async def _update_planner(self, metadata: MetadataSnapshot, *, follow: bool) -> None:
        """Pass changed partitions to the planner, a slice at a time.

        Partitions whose backoff, fetch or follower has expired count as changed.

        With `follow` they get their leaders first, so that a partition whose leader has changed
        does not wait for the response of the old one.
        """
        planner, owned = self._planner, self._assignment
        if self._changes.check_all:
            self._changes.check_all = False
            self._changes.partitions.update(
                dict.fromkeys((*planner.planned_partitions(), *owned.values()))
            )
        now = self._runtime.clock.now()
        due = [partition for partition in planner.backing_off if partition.not_before <= now]
        due += planner.deferred
        if now >= self._next_follower_check:
            self._next_follower_check = now + FOLLOWER_CHECK_INTERVAL_S
            due += [
                partition
                for partition in planner.followers
                if not partition.preferred_replica or partition.preferred_replica.until <= now
            ]
        self._changes.partitions.update(dict.fromkeys(due))
        async for partitions in in_slices(self._changes.take()):
            now = self._runtime.clock.now()
            for partition in partitions:
                if owned.get(partition.tp) is not partition:
                    planner.forget(partition)
                    continue
                if follow:
                    partition.update_leader(metadata.leader(partition.tp))
                planner.update(partition, metadata.leader, now, metadata.nodes)

    async def _fetch(self, plan: FetchPlan) -> None:
        clock = self._runtime.clock
        topics = {part.partition.tp.topic: None for part in plan.parts}
        ids = {topic: self._cluster.metadata.topic_id(topic) for topic in topics}
        session = self._sessions.get(plan.node)
        if session is None:
            session = self._sessions[plan.node] = FetchSession()
        session_request = session.request(plan.parts, ids)
        outcome: Accepted | Rejected | ResponseLost = ResponseLost()
        backoff_until: float | None = None
        try:
            response = await self._sender.send(
                plan.node,
                VersionedRequest(
                    ApiKey.FETCH,
                    partial(
                        fetch_request,
                        session_request,
                        self._config,
                        self._decode_options.isolation,
                        short_wait=plan.short_wait,
                    ),
                ),
                max_version=session_request.max_version,
            )
            if response.error_code == ErrorCode.NONE:
                outcome = Accepted(session_request, response.session_id)
            else:
                outcome = Rejected(response.error_code)
            pause_at = clock.now() + YIELD_AFTER_S
            for _ in self._handle_response(plan, response, ids):
                if clock.now() > pause_at:
                    await checkpoint()
                    pause_at = clock.now() + YIELD_AFTER_S
        except ClientClosed:
            # The consumer is closing.
            return
        except KafkaError as error:
            backoff_until = self._sender.back_off(plan.node, error)
            for part in plan.parts:
                if part.from_follower:
                    part.partition.preferred_replica = None
                    self._changes.partitions[part.partition] = None
        finally:
            if not isinstance(outcome, Accepted):
                self._log_session(plan.node, outcome)
            session.handle(outcome)
            self._planner.finished(plan, backoff_until)
            self._changes.changed.set()

    def _handle_response(
        self, plan: FetchPlan, response: FetchResponse, ids: dict[str, UUID]
    ) -> Iterator[None]:
        """Handle a response, yielding after each piece, because many small batches take long."""
        if response.error_code != ErrorCode.NONE:
            raise error_for(response.error_code, api="Fetch", broker=str(plan.node))
        for part, data in match_response(plan, response, ids):
            fetched_range = FetchedRange(part.offset, NO_LEADER_EPOCH)
            if part.is_current and data.error_code == ErrorCode.NONE and data.records:
                high = data.high_watermark if data.high_watermark >= 0 else None
                for decoded_range in iter_fetched_range(data.records, part.offset, high):
                    if decoded_range is None:
                        yield
                    else:
                        fetched_range = decoded_range
            if not part.is_current:
                continue
            self._changes.partitions[part.partition] = None
            if data.error_code != ErrorCode.NONE:
                self._on_partition_error(plan.node, part, data)
            elif data.diverging_epoch.epoch >= 0:
                # The leader's log differs from the records read before (KIP-595).
                self._back_off(part.partition)
                end = data.diverging_epoch
                self._report_unless_recreated(
                    part, EpochEndFetched(part.state, end.epoch, end.end_offset)
                )
            else:
                self._store(plan.node, part, data, fetched_range)
            yield

    def _store(
        self,
        node: NodeId,
        part: PartitionFetch,
        data: FetchPartitionData,
        fetched_range: FetchedRange,
    ) -> None:
        partition = part.partition
        high = data.high_watermark if data.high_watermark >= 0 else None
        stable = data.last_stable_offset if data.last_stable_offset >= 0 else None
        committed_only = self._decode_options.isolation is IsolationLevel.READ_COMMITTED
        end = stable if committed_only and stable is not None else high
        partition.watermarks = Watermarks(high, stable, end)
        follower = data.preferred_read_replica
        if follower >= 0 and follower != node:
            until = self._runtime.clock.now() + self._config.metadata_max_age_ms / 1000
            partition.preferred_replica = PreferredReadReplica(follower, until)
        else:
            partition.failures = 0
        records = data.records
        if records is None or not len(records):
            return
        if fetched_range.end <= part.offset and self._handle_truncated_message(
            part, partial_message_size(records)
        ):
            return
        partition.max_bytes = None
        batches = decode_fetch(
            *partition.tp,
            records,
            part.offset,
            self._decode_options,
            aborted=[
                (aborted.producer_id, aborted.first_offset)
                for aborted in data.aborted_transactions or ()
            ],
            high_watermark=high,
        )
        if fetched_range.end <= part.offset:
            self._fail_without_progress(part, batches)
            return
        part.buffer.add(batches, len(records), fetched_range)
        self._assignment.on_records_fetched(partition)
        self._assignment.counters.bytes_fetched += len(records)
        if (on_batch_fetched := self._supervisor.hooks.on_batch_fetched) is not None:
            on_batch_fetched(
                BatchFetched(*partition.tp, part.offset, fetched_range.end, len(records), node)
            )
        self._notifier.notify_all()

    def _fail_without_progress(self, part: PartitionFetch, batches: FetchedBatches) -> None:
        """Fail a partition whose response has no record to advance to; else it would loop."""
        topic, number = part.partition.tp
        error = CorruptRecord(
            "the broker's response has no record at or after the requested offset",
            topic=topic,
            partition=number,
            offset=part.offset,
        )
        try:
            batches.take(1)
        except CorruptRecord as damage:
            error = damage
        self._fail(part, error)

    def _fail(self, part: PartitionFetch, error: KafkaError) -> None:
        """Stop reading the partition with an error, after its buffered records."""
        if part.buffer.is_empty:
            part.partition.handle(CorruptionFound(part.state, error))
        else:
            part.buffer.end_with_error(error, self._config.max_partition_fetch_bytes)
            self._assignment.on_records_fetched(part.partition)
        self._notifier.notify_all()

    def _handle_truncated_message(self, part: PartitionFetch, size_bytes: int | None) -> bool:
        """Fetch the first message with a larger limit, or fail, if the broker truncated it.

        Before Fetch version 3 brokers truncate a message larger than the limit.

        Returns:
            False if the message was not truncated.
        """
        if size_bytes is None or size_bytes <= part.max_bytes:
            return False
        limit = self._config.max_response_bytes - RESPONSE_OVERHEAD_BYTES
        if size_bytes <= limit:
            part.partition.max_bytes = size_bytes
            return True
        topic, number = part.partition.tp
        error = RecordTooLarge(
            f"a message of {size_bytes} bytes is larger than max_response_bytes"
            f" ({self._config.max_response_bytes})",
            size_bytes=size_bytes,
            topic=topic,
            partition=number,
            offset=part.offset,
        )
        self._fail(part, error)
        return True

    def _report_unless_recreated(
        self, part: PartitionFetch, event: EpochEndFetched | PositionOutOfRange
    ) -> None:
        """Handle an event unless the topic turns out to be recreated.

        Fetch versions with topic names return the same errors for a recreated topic. Its new id is
        in newer metadata, which this waits for.
        """
        partition, state = part.partition, part.state
        if self._cluster.metadata.topic_id(partition.tp.topic) == ZERO_UUID:
            partition.handle(event)
            self._notifier.state_changed()
        elif self._supervisor.is_running:  # else the consumer is closing
            self._planner.suspend(state)
            self._supervisor.spawn(
                self._report_after_metadata_update, partition, state, event, name="check-topic-id"
            )

    async def _report_after_metadata_update(
        self,
        partition: AssignedPartition,
        state: Fetching,
        event: EpochEndFetched | PositionOutOfRange,
    ) -> None:
        deadline = self._runtime.clock.now() + self._config.request_timeout_ms / 1000
        try:
            self._cluster.request_update()
            await self._cluster.wait_update(self._cluster.metadata.version, deadline)
        finally:
            self._planner.resume(state)
        partition.handle(event)
        self._notifier.state_changed()

    def _on_partition_error(
        self, node: NodeId, part: PartitionFetch, data: FetchPartitionData
    ) -> None:
        partition = part.partition
        code = data.error_code
        error = error_for(
            code,
            api="Fetch",
            broker=str(node),
            topic=partition.tp.topic,
            partition=partition.tp.partition,
            offset=part.offset,
        )
        self._back_off(partition)
        # mutation: missing-offset-on-follower-resets-position
        if part.from_follower and code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            # The leader decides whether the follower's error is real.
            partition.preferred_replica = None
            self._cluster.request_update()
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._report_unless_recreated(part, PositionOutOfRange(part.state, error))
        elif code == ErrorCode.CORRUPT_MESSAGE:
            self._fail(part, error)
        elif isinstance(error, UnknownServerError):
            self._sender.log_server_error(partition.tp, error)
        elif not error.retriable:
            partition.handle(PartitionFailed(part.state, error))
            self._notifier.notify_all()
        else:
            if data.current_leader.leader_id >= 0:
                self._cluster.update_leader(
                    partition.tp, data.current_leader.leader_id, data.current_leader.leader_epoch
                )
            self._cluster.request_update()

    def _log_session(self, node: NodeId, event: Rejected | ResponseLost) -> None:
        """Log a fetch session that the consumer did not close itself."""
        if not logger.isEnabledFor(logging.DEBUG):
            return
        reason = f"error code {event.error_code}" if isinstance(event, Rejected) else "no response"
        logger.debug(
            "%s: new fetch session with broker %d: %s",
            self._supervisor.name,
            node,
            reason,
            extra=log_fields(
                self._supervisor.fields,
                broker=str(node),
                error_code=event.error_code if isinstance(event, Rejected) else None,
            ),
        )

    def _back_off(self, partition: AssignedPartition) -> None:
        """Back off fetching this partition; the delay grows with consecutive failures."""
        partition.failures += 1
        delay_s = self._sender.backoff_delay(partition.failures)
        partition.not_before = self._runtime.clock.now() + delay_s
