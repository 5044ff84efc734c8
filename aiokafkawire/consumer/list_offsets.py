"""ListOffsets: offsets by timestamp, and the first and last offsets of a log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.cluster.metadata_waits import MAX_UNKNOWN_TOPIC_RESPONSES
from aiokafkawire.cluster.routing import ToNode
from aiokafkawire.connection import Backoff, VersionedRequest
from aiokafkawire.errors import KafkaError, RequestTimedOut, UnknownServerError, UnknownTopic
from aiokafkawire.runtime import Runtime
from aiokafkawire.types import (
    NodeId,
    OffsetAndTimestamp,
    TopicPartition,
    no_partition_text,
    partitions_by_topic,
)
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

from .partition_results import CONSUMER_REPLICA_ID, PartitionResults, by_leader

__all__ = ("ListedOffsets", "OffsetLister")

FIRST_WITH_ISOLATION = 2
FIRST_WITH_TIMESTAMPS = 1
"""Version 0 returns segment starts only, by the modification time of the files."""


ListedOffsets = PartitionResults[OffsetAndTimestamp | None]
"""Results of one broker: an offset (None: no record is that young) or an error per partition."""


class OffsetLister:
    """Sends ListOffsets requests to leaders. `isolation` is the protocol's isolation level."""

    def __init__(self, cluster: Cluster, runtime: Runtime, isolation: int) -> None:
        config = cluster.config
        self._cluster = cluster
        self._runtime = runtime
        self._isolation = isolation
        self._backoff = Backoff.from_ms(config.retry_backoff_ms, config.retry_backoff_max_ms)

    async def list_from_node(
        self, node: NodeId, timestamps: Mapping[TopicPartition, int], deadline: float
    ) -> ListedOffsets:
        """Send one request to one broker. Errors are in the result, not raised.

        Args:
            node: The broker.
            timestamps: A timestamp in milliseconds, or an `PositionTarget`, by partition.
            deadline: Time of the clock at which to give up.
        """
        listed = ListedOffsets("ListOffsets", node)
        try:
            response = await self._cluster.request(
                self._request(timestamps),
                to=ToNode(node),
                deadline=deadline,
                retry=False,
                min_version=FIRST_WITH_TIMESTAMPS if max(timestamps.values()) >= 0 else 0,
            )
        except KafkaError as error:
            self._cluster.request_update()
            listed.failed = dict.fromkeys(timestamps, error)
            return listed
        for topic in response.topics:
            for entry in topic.partitions:
                tp = TopicPartition(topic.name, entry.partition_index)
                if tp in timestamps:
                    listed.add(tp, *_partition_result(entry))
        for failure in listed.failed.values():
            # UNKNOWN_SERVER_ERROR may pass, and repeating the request does no harm.
            failure.retriable |= isinstance(failure, UnknownServerError)
        if listed.finish(timestamps):
            self._cluster.request_update()
        return listed

    async def list_all(
        self, timestamps: Mapping[TopicPartition, int], deadline: float
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Ask all leaders, and retry until each partition has an offset.

        Args:
            timestamps: A timestamp in milliseconds, or an `PositionTarget`, by partition.
            deadline: Time of the clock at which to give up.

        Returns:
            Offset and timestamp by partition, or None where no record is that young.

        Raises:
            UnknownTopic: A topic or partition does not exist; raised before the deadline if
                topics are not created automatically.
            BrokerError: A broker returned an error that is not retriable.
            RequestTimedOut: A partition has no offset at the deadline.
        """
        offsets: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        remaining = dict(timestamps)
        errors: dict[TopicPartition, KafkaError] = {}
        attempt, missing_rounds, seen_version = 0, 0, self._cluster.metadata.version
        while remaining:
            attempt += 1
            try:
                for topic in dict.fromkeys(tp.topic for tp in remaining):
                    await self._cluster.topic_metadata(topic, deadline)
            except RequestTimedOut:
                # The backoff may end after the deadline: an earlier error says more.
                if errors:
                    _raise_timeout(attempt, next(iter(errors)), errors)
                raise
            errors = {
                tp: error for tp, error in errors.items() if not isinstance(error, UnknownTopic)
            }
            missing = self._missing_partitions(remaining)
            errors |= missing
            version = self._cluster.metadata.version
            if not missing:
                missing_rounds = 0
            elif version != seen_version:
                missing_rounds, seen_version = missing_rounds + 1, version
            if (
                missing_rounds >= MAX_UNKNOWN_TOPIC_RESPONSES
                and not self._cluster.config.allow_auto_create_topics
            ):
                raise next(iter(missing.values()))
            found, failed = await self._ask_leaders(remaining, deadline)
            offsets |= found
            for tp, error in failed.items():
                if not error.retriable:
                    raise error
                # The last attempt may have had no time left: an earlier error says more.
                if tp not in errors or not isinstance(error, RequestTimedOut):
                    errors[tp] = error
            remaining = {tp: timestamp for tp, timestamp in remaining.items() if tp not in offsets}
            if remaining:
                await self._pause(attempt, next(iter(remaining)), errors, deadline)
        return {tp: offsets[tp] for tp in timestamps}

    async def _ask_leaders(
        self, timestamps: Mapping[TopicPartition, int], deadline: float
    ) -> tuple[dict[TopicPartition, OffsetAndTimestamp | None], dict[TopicPartition, KafkaError]]:
        """Send a request to each leader. Return the offsets found, and the errors."""
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        failed: dict[TopicPartition, KafkaError] = {}
        for node, tps in by_leader(self._cluster.metadata, timestamps).items():
            listed = await self.list_from_node(node, {tp: timestamps[tp] for tp in tps}, deadline)
            found |= listed.found
            failed |= listed.failed
        return found, failed

    async def _pause(
        self,
        attempt: int,
        tp: TopicPartition,
        errors: Mapping[TopicPartition, KafkaError],
        deadline: float,
    ) -> None:
        self._cluster.request_update()
        retry_at = self._runtime.clock.now() + self._backoff.delay(attempt, self._runtime.rng)
        if retry_at < deadline:
            await self._runtime.clock.sleep_until(retry_at)
            return
        _raise_timeout(attempt, tp, errors)

    def _missing_partitions(
        self, tps: Iterable[TopicPartition]
    ) -> dict[TopicPartition, KafkaError]:
        """Return the errors for partitions that do not exist, to raise if they do not appear."""
        topics = self._cluster.metadata.topics
        return {
            tp: UnknownTopic(
                no_partition_text(tp.topic, tp.partition, topics[tp.topic].partitions),
                topic=tp.topic,
                partition=tp.partition,
            )
            for tp in tps
            if tp.topic in topics and tp.partition not in topics[tp.topic].partitions
        }

    def _request(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> VersionedRequest[ListOffsetsResponse]:
        def partition(tp: TopicPartition) -> ListOffsetsPartition:
            leader = self._cluster.metadata.leader(tp)
            return ListOffsetsPartition(
                partition_index=tp.partition,
                current_leader_epoch=-1 if leader is None else leader.epoch,
                timestamp=timestamps[tp],
            )

        def build(version: int) -> ListOffsetsRequest:
            return ListOffsetsRequest(
                replica_id=CONSUMER_REPLICA_ID,
                isolation_level=self._isolation if version >= FIRST_WITH_ISOLATION else 0,
                topics=[
                    ListOffsetsTopic(name=topic, partitions=[*map(partition, tps)])
                    for topic, tps in partitions_by_topic(timestamps).items()
                ],
                timeout_ms=self._cluster.config.request_timeout_ms,
            )

        return VersionedRequest(ApiKey.LIST_OFFSETS, build)


def _partition_result(entry: ListOffsetsPartitionResponse) -> tuple[int, OffsetAndTimestamp | None]:
    """Return the error code, and the offset if there is no error.

    A log in a message format without timestamps has no record for any timestamp.
    """
    if entry.error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
        return ErrorCode.NONE, None
    return entry.error_code, _offset(entry)


def _offset(entry: ListOffsetsPartitionResponse) -> OffsetAndTimestamp | None:
    old: Sequence[int] = entry.old_style_offsets
    offset = old[0] if old else entry.offset
    if offset < 0:
        return None
    return OffsetAndTimestamp(offset, entry.timestamp, entry.leader_epoch)


def _raise_timeout(
    attempt: int, tp: TopicPartition, errors: Mapping[TopicPartition, KafkaError]
) -> NoReturn:
    cause = errors.get(tp)
    if isinstance(cause, UnknownTopic):
        raise cause
    reason = "" if cause is None else f"; the last error: {cause}"
    raise RequestTimedOut(
        f"no leader returned the offset before the deadline{reason}",
        api="ListOffsets",
        topic=tp.topic,
        partition=tp.partition,
        attempt=attempt,
    ) from cause
