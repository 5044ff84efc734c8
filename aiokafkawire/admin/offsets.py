"""Offsets of logs: their ends, by timestamp, and in tiered storage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Literal, TypeVar, overload

from aiokafkawire.admin.items import PARTITION_LOOKUPS, ItemRequest, finish_items
from aiokafkawire.admin.operations import Operations
from aiokafkawire.admin.requester import Requester
from aiokafkawire.admin.response_values import unless_negative
from aiokafkawire.admin.types.partitions import ListedOffset, OffsetSpec
from aiokafkawire.errors import KafkaError
from aiokafkawire.types import (
    PartitionT,
    TopicPartition,
    parse_topic_partition,
    partitions_by_topic,
)
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

__all__ = ("OffsetOperations", "list_offsets", "listed_offset", "offset_number")

V = TypeVar("V")

CONSUMER_REPLICA_ID = -1
"""Replica id of a request that is not from a broker."""

FIRST_WITH_ISOLATION = 2
FIRST_WITH_TIMESTAMPS = 1
FIRST_VERSIONS: Mapping[int, int] = {
    OffsetSpec.LATEST: 0,
    OffsetSpec.EARLIEST: 0,
    OffsetSpec.MAX_TIMESTAMP: 7,
    OffsetSpec.EARLIEST_LOCAL: 8,
    OffsetSpec.LATEST_TIERED: 9,
    OffsetSpec.EARLIEST_PENDING_UPLOAD: 11,
}
"""Version of ListOffsets that introduced each special timestamp."""

_ISOLATION_LEVELS = {"read_uncommitted": 0, "read_committed": 1}

IsolationLevel = Literal["read_uncommitted", "read_committed"]


class OffsetOperations(Operations):
    """Operations on the offsets of logs."""

    @overload
    async def list_offsets(
        self,
        partitions: Mapping[PartitionT, OffsetSpec | int],
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        timeout_ms: int | None = None,
        return_errors: Literal[False] = False,
    ) -> dict[TopicPartition, ListedOffset]: ...

    @overload
    async def list_offsets(
        self,
        partitions: Mapping[PartitionT, OffsetSpec | int],
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        timeout_ms: int | None = None,
        return_errors: bool,
    ) -> dict[TopicPartition, ListedOffset | KafkaError]: ...

    async def list_offsets(
        self,
        partitions: Mapping[PartitionT, OffsetSpec | int],
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> Mapping[TopicPartition, ListedOffset | KafkaError]:
        """Look up offsets of partitions.

        ::

            await admin.list_offsets({("orders", 0): OffsetSpec.LATEST})

        Args:
            partitions: Special offset, or timestamp in milliseconds since 1970, by partition. For
                a timestamp, the result is the first record that is at least as young.
            isolation_level: With `read_committed`, `OffsetSpec.LATEST` is the last stable offset.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            The offsets by partition.

        Raises:
            PartialFailure: Some offsets were not found, such as of topics that do not exist.
            UnsupportedVersion: The brokers do not support a special offset, timestamps (before
                Kafka 0.10.1) or `read_committed` (before 0.11).
            ValueError: `isolation_level` or a timestamp is invalid.
            KafkaError: No broker could answer.
        """
        level = _ISOLATION_LEVELS.get(isolation_level)
        if level is None:
            raise ValueError(
                f"isolation_level must be 'read_uncommitted' or 'read_committed', not"
                f" {isolation_level!r:.80}"
            )
        timestamps = {
            parse_topic_partition(tp): _checked(timestamp) for tp, timestamp in partitions.items()
        }
        results = await list_offsets(self._requester(timeout_ms), timestamps, listed_offset, level)
        return finish_items(results, "partitions", return_errors=return_errors)


def listed_offset(part: ListOffsetsPartitionResponse) -> ListedOffset:
    """Return the offset of a partition with its timestamp and leader epoch."""
    return ListedOffset(
        offset_number(part), unless_negative(part.timestamp), unless_negative(part.leader_epoch)
    )


def offset_number(part: ListOffsetsPartitionResponse) -> int | None:
    """Return the offset of a partition alone; None if there is none."""
    if part.old_style_offsets:
        return part.old_style_offsets[0]
    return part.offset if part.offset >= 0 else None


async def list_offsets(
    requester: Requester,
    timestamps: Mapping[TopicPartition, int],
    value: Callable[[ListOffsetsPartitionResponse], V],
    isolation_level: int = 0,
) -> dict[TopicPartition, V | KafkaError]:
    """Return the offset of each partition, or its error.

    Args:
        requester: Sends the requests.
        timestamps: Timestamp or `OffsetSpec` by partition.
        value: Form of the results: `listed_offset` or `offset_number`.
        isolation_level: 1 for `read_committed`.
    """
    versions = {
        timestamp: max(
            FIRST_VERSIONS.get(timestamp, FIRST_WITH_TIMESTAMPS),
            FIRST_WITH_ISOLATION * isolation_level,
        )
        for timestamp in dict.fromkeys(timestamps.values())
    }
    requests = {
        version: _request(timestamps, value, isolation_level, version)
        for version in versions.values()
    }
    if len(requests) == 1:
        (request,) = requests.values()
        return await requester.request_items(request, timestamps)
    found: dict[TopicPartition, V | KafkaError] = {}

    async def send(version: int) -> None:
        some = [tp for tp, timestamp in timestamps.items() if versions[timestamp] == version]
        found.update(await requester.request_items(requests[version], some))

    await requester.run_parallel(send, [(version,) for version in requests])
    return found


def _checked(timestamp: OffsetSpec | int) -> int:
    if not isinstance(timestamp, int):
        raise TypeError(f"give a time in milliseconds or an OffsetSpec, not {timestamp!r:.80}")
    if timestamp < 0 and timestamp not in FIRST_VERSIONS:
        raise ValueError(f"a timestamp must be at least 0, or an OffsetSpec, not {timestamp}")
    return int(timestamp)


def _request(
    timestamps: Mapping[TopicPartition, int],
    value: Callable[[ListOffsetsPartitionResponse], V],
    level: int,
    min_version: int,
) -> ItemRequest[TopicPartition, V]:
    # Equal partitions of several topics are one object.
    wanted = cache(ListOffsetsPartition)

    def build(partitions: Sequence[TopicPartition], _: int, timeout_ms: int) -> ListOffsetsRequest:
        return ListOffsetsRequest(
            replica_id=CONSUMER_REPLICA_ID,
            isolation_level=level,
            topics=[
                ListOffsetsTopic(
                    name=name,
                    partitions=[
                        wanted(partition_index=tp.partition, timestamp=timestamps[tp])
                        for tp in some
                    ],
                )
                for name, some in partitions_by_topic(partitions).items()
            ],
            timeout_ms=timeout_ms,
        )

    def read(
        response: ListOffsetsResponse,
    ) -> Iterable[tuple[tuple[str, int], V, int, str | None]]:
        for topic in response.topics:
            name = topic.name
            for part in topic.partitions:
                yield (name, part.partition_index), value(part), part.error_code, None

    return ItemRequest(
        api_key=ApiKey.LIST_OFFSETS,
        build=build,
        read=read,
        min_version=min_version,
        max_unknown=PARTITION_LOOKUPS,
    )
