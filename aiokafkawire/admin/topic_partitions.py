"""Operations on partitions: their number, records and leaders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Literal, overload

from aiokafkawire.admin.items import (
    PARTITION_LOOKUPS,
    ItemRequest,
    ItemResult,
    finish_items,
    partition_context,
    response_error,
    topic_context,
)
from aiokafkawire.admin.operations import Operations
from aiokafkawire.admin.types.partitions import ElectionType, NewPartitions
from aiokafkawire.connection import VersionedRequest
from aiokafkawire.errors import KafkaError
from aiokafkawire.types import (
    AnyPartition,
    PartitionT,
    TopicPartition,
    parse_topic_partition,
    partitions_by_topic,
)
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from aiokafkawire.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from aiokafkawire.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopicPartitions,
)

__all__ = ("PartitionOperations",)

FIRST_WITH_ELECTION_TYPE = 1


class PartitionOperations(Operations):
    """Operations on partitions."""

    async def create_partitions(
        self,
        new_partitions: Mapping[str, NewPartitions | int],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> dict[str, KafkaError | None]:
        """Increase the number of partitions of topics.

        Records stay in their partitions, but later records of a key may go to another one.

        ::

            await admin.create_partitions({"orders": 12})

        Args:
            new_partitions: New total of partitions by topic, or `NewPartitions`.
            validate_only: Only check the request.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            None for each topic that has the partitions now.

        Raises:
            PartialFailure: Some topics were not changed, such as those with as many partitions
                already (INVALID_PARTITIONS).
            UnsupportedVersion: Brokers before 1.0 cannot add partitions.
            KafkaError: The controller could not be reached.
        """
        wanted = {
            name: NewPartitions(new) if isinstance(new, int) else new
            for name, new in new_partitions.items()
        }

        def build(names: Sequence[str], _: int, timeout_ms: int) -> CreatePartitionsRequest:
            return CreatePartitionsRequest(
                topics=[_new_partitions(name, wanted[name]) for name in names],
                timeout_ms=timeout_ms,
                validate_only=validate_only,
            )

        def read(response: CreatePartitionsResponse) -> Iterable[ItemResult]:
            for topic in response.results:
                yield ItemResult(topic.name, None, topic.error_code, topic.error_message)

        request: ItemRequest[str, None] = ItemRequest(
            api_key=ApiKey.CREATE_PARTITIONS,
            build=build,
            read=read,
            context=topic_context,
            max_unknown=PARTITION_LOOKUPS,
        )
        results = await self._requester(timeout_ms).request_items(request, wanted)
        return finish_items(results, "topics", return_errors=return_errors)

    @overload
    async def delete_records(
        self,
        before_offsets: Mapping[PartitionT, int],
        *,
        timeout_ms: int | None = None,
        return_errors: Literal[False] = False,
    ) -> dict[TopicPartition, int]: ...

    @overload
    async def delete_records(
        self,
        before_offsets: Mapping[PartitionT, int],
        *,
        timeout_ms: int | None = None,
        return_errors: bool,
    ) -> dict[TopicPartition, int | KafkaError]: ...

    async def delete_records(
        self,
        before_offsets: Mapping[PartitionT, int],
        *,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> Mapping[TopicPartition, int | KafkaError]:
        """Delete the records before an offset in each partition. This cannot be undone.

        Args:
            before_offsets: Offset of the first record to keep, by partition; `HIGH_WATERMARK`
                deletes all records.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            The lowest offset that is left on any replica, by partition.

        Raises:
            PartialFailure: Records of some partitions were not deleted, such as of topics that are
                compacted only (POLICY_VIOLATION), or with an offset beyond the end
                (OFFSET_OUT_OF_RANGE).
            UnsupportedVersion: Brokers before 0.11 cannot delete records.
            KafkaError: No broker could answer.
        """
        offsets = {parse_topic_partition(tp): offset for tp, offset in before_offsets.items()}

        def build(
            partitions: Sequence[TopicPartition], _: int, timeout_ms: int
        ) -> DeleteRecordsRequest:
            return DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(
                        name=name,
                        partitions=[
                            DeleteRecordsPartition(partition_index=tp.partition, offset=offsets[tp])
                            for tp in some
                        ],
                    )
                    for name, some in partitions_by_topic(partitions).items()
                ],
                timeout_ms=timeout_ms,
            )

        def read(response: DeleteRecordsResponse) -> Iterable[ItemResult]:
            for topic in response.topics:
                for part in topic.partitions:
                    tp = TopicPartition(topic.name, part.partition_index)
                    yield ItemResult(tp, part.low_watermark, part.error_code)

        request: ItemRequest[TopicPartition, int] = ItemRequest(
            api_key=ApiKey.DELETE_RECORDS, build=build, read=read, max_unknown=PARTITION_LOOKUPS
        )
        results = await self._requester(timeout_ms).request_items(request, offsets)
        return finish_items(results, "partitions", return_errors=return_errors)

    async def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: Iterable[AnyPartition] | None = None,
        *,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elect the leaders of partitions.

        Args:
            election_type: Preferred, or unclean (Kafka 2.4+).
            partitions: The partitions. Defaults to all that need the election.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            None for each partition whose leader was elected.

        Raises:
            PartialFailure: Some leaders were not elected, such as of partitions that are led by
                their preferred leader (ELECTION_NOT_NEEDED).
            UnsupportedVersion: Brokers before 2.2 have no elections by request.
            KafkaError: The controller could not be reached.
        """
        requester = self._requester(timeout_ms)
        build = partial(_election, election_type)
        min_version = FIRST_WITH_ELECTION_TYPE if election_type is ElectionType.UNCLEAN else 0

        if partitions is not None:
            request: ItemRequest[TopicPartition, None] = ItemRequest(
                api_key=ApiKey.ELECT_LEADERS,
                build=build,
                read=_read_elections,
                context=partition_context,
                min_version=min_version,
                max_unknown=PARTITION_LOOKUPS,
            )
            wanted = [parse_topic_partition(tp) for tp in partitions]
            results = await requester.request_items(request, wanted)
            return finish_items(results, "partitions", return_errors=return_errors)
        message: VersionedRequest[ElectLeadersResponse] = VersionedRequest(
            ApiKey.ELECT_LEADERS, lambda version: build(None, version, requester.timeout_ms)
        )
        response = await requester.request(message, min_version=min_version)
        found: dict[TopicPartition, KafkaError | None] = {
            result.key: response_error(
                result.code, result.message, api="ElectLeaders", **partition_context(result.key)
            )
            for result in _read_elections(response)
            if result.code != ErrorCode.ELECTION_NOT_NEEDED
        }
        return finish_items(found, "partitions", return_errors=return_errors)


def _new_partitions(name: str, new: NewPartitions) -> CreatePartitionsTopic:
    assignments = new.new_assignments
    return CreatePartitionsTopic(
        name=name,
        count=new.total_count,
        assignments=None
        if assignments is None
        else [CreatePartitionsAssignment(broker_ids=list(replicas)) for replicas in assignments],
    )


def _election(
    election_type: ElectionType,
    partitions: Sequence[TopicPartition] | None,
    _: int,
    timeout_ms: int,
) -> ElectLeadersRequest:
    return ElectLeadersRequest(
        election_type=election_type,
        topic_partitions=None
        if partitions is None
        else [
            ElectLeadersTopicPartitions(topic=name, partitions=[tp.partition for tp in some])
            for name, some in partitions_by_topic(partitions).items()
        ],
        timeout_ms=timeout_ms,
    )


def _read_elections(response: ElectLeadersResponse) -> Iterable[ItemResult]:
    for topic in response.replica_election_results:
        for part in topic.partition_result:
            tp = TopicPartition(topic.topic, part.partition_id)
            yield ItemResult(tp, None, part.error_code, part.error_message)
