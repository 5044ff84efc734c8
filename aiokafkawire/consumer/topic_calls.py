"""Calls of a consumer about topics, the ends of their logs, brokers and metrics."""

from __future__ import annotations

from collections.abc import Mapping

from aiokafkawire.cluster.routing import ToAnyNode
from aiokafkawire.connection import VersionedRequest
from aiokafkawire.types import (
    AnyPartition,
    NodeId,
    OffsetAndTimestamp,
    PartitionArgument,
    PartitionT,
    PingResult,
    TopicPartition,
    parse_topic_partitions,
)
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.messages.metadata import MetadataRequest, MetadataResponse

from .consumer_base import ConsumerBase
from .partition_states import PositionTarget
from .validation import validate_timestamps

__all__ = ("TopicCalls",)


class TopicCalls(ConsumerBase):
    """Topics, the ends of their logs, brokers and metrics."""

    async def beginning_offsets(self, *partitions: PartitionArgument) -> dict[TopicPartition, int]:
        """Return the first offset of each partition's log (ListOffsets).

        Args:
            *partitions: Defaults to all assigned partitions.

        Raises:
            UnknownTopic: A topic or partition does not exist.
            BrokerError: A broker refused the request.
            RequestTimedOut: No response within `default_api_timeout_ms`.
        """
        return await self._list_offsets(partitions, PositionTarget.EARLIEST)

    async def end_offsets(self, *partitions: PartitionArgument) -> dict[TopicPartition, int]:
        """Return the offset after the last readable record of each partition (ListOffsets).

        This is the high watermark; with `read_committed` the last stable offset. Arguments and
        errors are those of `beginning_offsets`.
        """
        return await self._list_offsets(partitions, PositionTarget.LATEST)

    async def _list_offsets(
        self, partitions: tuple[PartitionArgument, ...], spec: PositionTarget
    ) -> dict[TopicPartition, int]:
        session = self._running
        requested = parse_topic_partitions(partitions) or session.assignment.topic_partitions
        offsets = await session.lister.list_all(
            dict.fromkeys(requested, int(spec)), self._deadline(session)
        )
        return {tp: 0 if offset is None else offset.offset for tp, offset in offsets.items()}

    async def offsets_for_times(
        self, timestamps_ms: Mapping[PartitionT, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after a timestamp, per partition (ListOffsets, KIP-79).

        Args:
            timestamps_ms: Milliseconds since 1970, by partition.

        Returns:
            Offset and timestamp by partition, or None where no record is that young.

        Raises:
            UnsupportedVersion: A broker is older than 0.10.1.
            UnknownTopic: A topic or partition does not exist.
            RequestTimedOut: No response within `default_api_timeout_ms`.
            TypeError: A timestamp is not an integer.
            ValueError: A timestamp is negative.
        """
        session = self._running
        return await session.lister.list_all(
            validate_timestamps(timestamps_ms), self._deadline(session)
        )

    def _fetch_node(self, tp: TopicPartition) -> NodeId:
        """Return the broker to fetch from: preferred read replica or leader; -1 if unknown."""
        session = self._running
        owned = session.assignment.get(tp)
        if owned is not None and owned.preferred_replica is not None:
            return owned.preferred_replica.node
        leader = session.cluster.metadata.leader(tp)
        return -1 if leader is None else leader.node

    def lag(self, partition: AnyPartition) -> int | None:
        """Return the distance of the position from the end, as of the last fetch.

        None before the first fetch. With `read_committed` the end is the last stable offset.
        """
        return self._owned_partition(self._running, partition).lag

    def highwater(self, partition: AnyPartition) -> int | None:
        """Return the high watermark as of the last fetch: the offset after the last replicated
        record. None before the first fetch.
        """
        return self._owned_partition(self._running, partition).watermarks.high

    def last_stable_offset(self, partition: AnyPartition) -> int | None:
        """Return the last stable offset as of the last fetch: all transactions before it are over.

        None before the first fetch, and from brokers before 0.11.
        """
        return self._owned_partition(self._running, partition).watermarks.last_stable

    async def ping(
        self, timeout_ms: float = 2_000, *, topic: str | None = None, group: str | None = None
    ) -> PingResult:
        """Check that a broker responds now, for readiness probes.

        Sends a request and waits for its response. Nothing is taken from a cache, and no backoff
        after failed connections delays it. Brokers are tried one after the other, with a short wait
        for each, until one responds. The call does not reset the poll timer.

        Args:
            timeout_ms: The longest that the call takes, in milliseconds.
            topic: Check the leader of each partition of this topic; all must respond.
            group: Check the coordinator of this group, which must be ready to serve it.

        Returns:
            The brokers that responded, and the time that the slowest of them took.

        Raises:
            NoBrokerAvailable: No broker responded; the text has the reason of each.
            RequestTimedOut: A leader, or the coordinator, did not respond. As `ConnectionFailed`
                and `ConnectionLost`, it names the broker.
            UnknownTopic: The topic does not exist.
            BrokerError: A partition has no leader, or no broker coordinates the group.
            ClientClosed: The consumer is not running.
            TypeError: `timeout_ms` is not a number.
            ValueError: `timeout_ms` is negative or NaN.
        """
        return await self._running.cluster.pinger.ping(timeout_ms, topic=topic, group=group)

    def metrics(self) -> dict[str, int | float]:
        """Return the metrics that the documentation of the consumer lists.

        A name ends in its unit; `_total` counts since `async with`. `records_lag{topic="t",
        partition="0"}` is the lag of one partition, present after its first fetch.
        """
        return self._running.metrics()

    async def partitions_for(self, topic: str) -> tuple[int, ...]:
        """Return the partition numbers of a topic.

        Raises:
            UnknownTopic: The topic does not exist.
            RequestTimedOut: No response within `default_api_timeout_ms`.
        """
        session = self._running
        return tuple(
            (await session.cluster.topic_metadata(topic, self._deadline(session))).partitions
        )

    async def topics(self) -> tuple[str, ...]:
        """Return the names of all topics that this client may see, sorted.

        Raises:
            RequestTimedOut: No response within `default_api_timeout_ms`.
        """
        session = self._running

        def build(version: int) -> MetadataRequest:
            return MetadataRequest(topics=None if version else [])

        request: VersionedRequest[MetadataResponse] = VersionedRequest(ApiKey.METADATA, build)
        response = await session.cluster.request(
            request, to=ToAnyNode(), deadline=self._deadline(session)
        )
        return tuple(sorted(topic.name for topic in response.topics if topic.name))
