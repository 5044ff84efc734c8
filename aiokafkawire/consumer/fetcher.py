"""Fetching: one request at a time for each node that leads partitions in need of data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple
from uuid import UUID

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.cluster.routing import Node
from aiokafkawire.config import ConsumerConfig
from aiokafkawire.connection import Backoff
from aiokafkawire.errors import ClientClosed, CorruptRecords, KafkaError, RecordTooLarge
from aiokafkawire.records import IsolationLevel, decode_fetch, partial_message_size
from aiokafkawire.runtime import Host, Runtime, Signal
from aiokafkawire.types import NodeId, TopicPartition
from aiokafkawire.wire import NO_ID
from aiokafkawire.wire.error_codes import ErrorCode, error_for
from aiokafkawire.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

from .assignment import Assignment
from .buffer import end_of_batches
from .partition import Damaged, OutOfRange
from .planner import FetchLimits, FetchPart, FetchPlan, FetchPlanner

__all__ = ("Fetcher", "fetch_request", "isolation_of")

RESPONSE_OVERHEAD_BYTES = 64 * 1024
"""What a response takes beside the records of a message that is fetched by itself."""


BRIEF_WAIT_MS = 100
"""How long a fetch may wait at the broker that leaves out a partition which is full."""


def isolation_of(config: ConsumerConfig) -> IsolationLevel:
    """The isolation level under the protocol's number."""
    return IsolationLevel[config.isolation_level.upper()]


class Answered(NamedTuple):
    """One partition's part of an answer."""

    part: FetchPart
    data: PartitionData


class Fetcher:
    """Keeps the buffers of an assignment filled.

    `on_data` is called when there is something to give or to raise, `on_change` when a position is
    lost, `heard` after each answer (None) or failure of a node, `raise_once` with an error that
    time alone does not mend.
    """

    def __init__(
        self,
        cluster: Cluster,
        runtime: Runtime,
        host: Host,
        config: ConsumerConfig,
        *,
        assignment: Assignment,
        on_data: Callable[[], None],
        on_change: Callable[[], None],
        heard: Callable[[KafkaError | None], None],
        raise_once: Callable[[Exception], None],
    ) -> None:
        self._cluster = cluster
        self._runtime = runtime
        self._host = host
        self._config = config
        self._assignment = assignment
        self._on_data = on_data
        self._on_change = on_change
        self._heard = heard
        self._raise_once = raise_once
        self._planner = FetchPlanner(
            FetchLimits(config.fetch_max_bytes, config.max_partition_fetch_bytes)
        )
        self._backoff = Backoff.from_ms(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._failures: dict[NodeId, int] = {}
        self._wake = Signal()

    def wake(self) -> None:
        """Something changed that may call for a fetch: room, positions, leaders."""
        self._wake.set()

    async def run(self) -> None:
        """Plan and begin fetches, until the host stops."""
        while self._host.running:
            now = self._runtime.clock.now()
            owned = self._assignment.values()
            for plan in self._planner.plan(owned, self._cluster.metadata.leader, now):
                self._host.spawn(self._fetch, plan, name=f"fetch-{plan.node}")
            if self._planner.leaderless:
                self._cluster.request_update()
            await self._wake.wait(self._planner.next_deadline(owned, now))

    async def _fetch(self, plan: FetchPlan) -> None:
        timeout_s = (self._config.request_timeout_ms + self._config.fetch_max_wait_ms) / 1000
        ids = {
            part.partition.tp.topic: self._cluster.metadata.topic_id(part.partition.tp.topic)
            for part in plan.parts
        }
        rest_until: float | None = None
        try:
            response = await self._cluster.request(
                fetch_request(plan, ids, self._config),
                to=Node(plan.node),
                deadline=self._runtime.clock.now() + timeout_s,
                retry=False,
            )
            self._failures.pop(plan.node, None)
            self._heard(None)
            self._take(plan, response, ids)
        except ClientClosed:
            # The consumer is being closed: there is nobody to tell.
            return
        except KafkaError as error:
            self._heard(error)
            rest_until = self._failed(plan, error)
        finally:
            self._planner.finished(plan, rest_until)
            self._wake.set()

    def _failed(self, plan: FetchPlan, error: KafkaError) -> float:
        """Leave a node that failed alone for a while, and tell what time does not mend."""
        failures = self._failures[plan.node] = self._failures.get(plan.node, 0) + 1
        self._cluster.request_update()
        if not error.retriable:
            self._raise_once(error)
        return self._runtime.clock.now() + self._backoff.delay(failures, self._runtime.rng)

    def _take(self, plan: FetchPlan, response: FetchResponse, ids: dict[str, UUID]) -> None:
        if response.error_code != ErrorCode.NONE:
            raise error_for(response.error_code, api="Fetch", broker=str(plan.node))
        for part, data in answered(plan, response, ids):
            if not part.awaited:
                continue
            if data.error_code == ErrorCode.NONE:
                self._store(part, data)
            else:
                self._refused(plan.node, part, data)

    def _store(self, part: FetchPart, data: PartitionData) -> None:
        partition = part.partition
        committed_only = isolation_of(self._config) is IsolationLevel.READ_COMMITTED
        known_end = data.last_stable_offset if committed_only else data.high_watermark
        partition.high_watermark = known_end if known_end >= 0 else None
        records = data.records
        if records is None or not len(records):
            return
        end = end_of_batches(records, part.offset)
        if end <= part.offset and self._cut_off(part, partial_message_size(records)):
            return
        partition.max_bytes = None
        batches = decode_fetch(
            *partition.tp,
            records,
            part.offset,
            check_crcs=self._config.check_crcs,
            isolation=isolation_of(self._config),
            aborted=[
                (aborted.producer_id, aborted.first_offset)
                for aborted in data.aborted_transactions or ()
            ],
            max_decompressed_bytes=self._config.max_decompressed_bytes,
        )
        if end <= part.offset:
            self._must_advance(part, end)
            return
        part.buffer.add(batches, len(records), end)
        self._planner.got_data(partition.tp)
        self._on_data()

    def _must_advance(self, part: FetchPart, end: int) -> None:
        topic, number = part.partition.tp
        error = CorruptRecords(
            "what the broker sent has no record at or after the offset that was asked for",
            topic=topic,
            partition=number,
            offset=part.offset,
        )
        part.partition.handle(Damaged(part.state, error))
        self._on_data()

    def _cut_off(self, part: FetchPart, size_bytes: int | None) -> bool:
        """A first message larger than the limit (before Fetch version 3): ask with a larger one."""
        if size_bytes is None or size_bytes <= part.max_bytes:
            return False
        limit = self._config.max_response_bytes - RESPONSE_OVERHEAD_BYTES
        if size_bytes <= limit:
            part.partition.max_bytes = size_bytes
            return True
        topic, number = part.partition.tp
        error = RecordTooLarge(
            f"a message of {size_bytes} bytes does not fit into max_response_bytes"
            f" ({self._config.max_response_bytes})",
            size_bytes=size_bytes,
            topic=topic,
            partition=number,
            offset=part.offset,
        )
        part.partition.handle(Damaged(part.state, error))
        self._on_data()
        return True

    def _refused(self, node: NodeId, part: FetchPart, data: PartitionData) -> None:
        partition = part.partition
        error = error_for(
            data.error_code,
            api="Fetch",
            broker=str(node),
            topic=partition.tp.topic,
            partition=partition.tp.partition,
            offset=part.offset,
        )
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            partition.handle(OutOfRange(part.state, error))
            self._rest(partition.tp)
            self._on_change()
            return
        if data.error_code == ErrorCode.CORRUPT_MESSAGE or not error.retriable:
            partition.handle(Damaged(part.state, error))
            self._on_data()
            return
        if data.current_leader.leader_id >= 0:
            self._cluster.leader_hint(
                partition.tp, data.current_leader.leader_id, data.current_leader.leader_epoch
            )
        self._cluster.request_update()
        self._rest(partition.tp)

    def _rest(self, tp: TopicPartition) -> None:
        partition = self._assignment.get(tp)
        if partition is not None:
            delay_s = self._backoff.delay(1, self._runtime.rng)
            partition.not_before = self._runtime.clock.now() + delay_s


# --- messages ---------------------------------------------------------------------------------


def fetch_request(plan: FetchPlan, ids: dict[str, UUID], config: ConsumerConfig) -> FetchRequest:
    """One Fetch outside of any session; topics bear names and, where known, ids."""
    topics: dict[str, FetchTopic] = {}
    for part in plan.parts:
        topic, number = part.partition.tp
        entry = topics.get(topic)
        if entry is None:
            entry = FetchTopic(topic=topic, topic_id=ids.get(topic, NO_ID), partitions=[])
            topics[topic] = entry
        entry.partitions.append(
            FetchPartition(
                partition=number,
                current_leader_epoch=part.leader_epoch,
                fetch_offset=part.offset,
                partition_max_bytes=part.max_bytes,
            )
        )
    wait_ms = config.fetch_max_wait_ms
    return FetchRequest(
        max_wait_ms=min(wait_ms, BRIEF_WAIT_MS) if plan.brief else wait_ms,
        min_bytes=config.fetch_min_bytes,
        max_bytes=config.fetch_max_bytes,
        isolation_level=isolation_of(config),
        topics=list(topics.values()),
    )


def answered(plan: FetchPlan, response: FetchResponse, ids: dict[str, UUID]) -> Iterator[Answered]:
    """The parts of an answer that were asked for, each once."""
    names = {topic_id: name for name, topic_id in ids.items() if topic_id != NO_ID}
    parts = {part.partition.tp: part for part in plan.parts}
    for topic in response.responses:
        name = topic.topic or names.get(topic.topic_id, "")
        for data in topic.partitions:
            part = parts.pop(TopicPartition(name, data.partition_index), None)
            if part is not None:
                yield Answered(part, data)
