"""Reassignments of the replicas of partitions to brokers (KIP-455)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from aiokafkawire.admin.items import (
    PARTITION_LOOKUPS,
    ItemRequest,
    ItemResult,
    finish_items,
    partition_context,
)
from aiokafkawire.admin.operations import Operations
from aiokafkawire.admin.types.partitions import PartitionReassignment
from aiokafkawire.errors import KafkaError
from aiokafkawire.types import (
    AnyPartition,
    NodeId,
    PartitionT,
    TopicPartition,
    parse_topic_partition,
    partitions_by_topic,
)
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from aiokafkawire.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

__all__ = ("ReassignmentOperations",)

FIRST_WITH_REPLICATION_FACTOR_CHECK = 1


class ReassignmentOperations(Operations):
    """Operations on reassignments."""

    async def alter_partition_reassignments(
        self,
        reassignments: Mapping[PartitionT, Sequence[NodeId] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Move the replicas of partitions to other brokers, or cancel that.

        Returns when the reassignments have begun; `list_partition_reassignments` shows those that
        are in progress.

        ::

            await admin.alter_partition_reassignments({("orders", 0): [2, 3, 1]})

        Args:
            reassignments: Node ids of the replicas by partition, the preferred leader first; None
                cancels a reassignment.
            allow_replication_factor_change: False fails for a partition whose number of replicas
                would change (Kafka 4.1+).
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            None for each partition whose reassignment has begun or was cancelled.

        Raises:
            PartialFailure: Some partitions failed, such as with a broker that does not exist
                (INVALID_REPLICA_ASSIGNMENT), or without a reassignment to cancel
                (NO_REASSIGNMENT_IN_PROGRESS).
            UnsupportedVersion: Brokers before 2.4 have no such requests.
            KafkaError: The controller could not be reached.
        """
        wanted = {parse_topic_partition(tp): to for tp, to in reassignments.items()}

        def build(
            partitions: Sequence[TopicPartition], _: int, timeout_ms: int
        ) -> AlterPartitionReassignmentsRequest:
            return AlterPartitionReassignmentsRequest(
                timeout_ms=timeout_ms,
                allow_replication_factor_change=allow_replication_factor_change,
                topics=_reassignable_topics(partitions, wanted),
            )

        request: ItemRequest[TopicPartition, None] = ItemRequest(
            api_key=ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            build=build,
            read=_read_altered,
            context=partition_context,
            min_version=0
            if allow_replication_factor_change
            else FIRST_WITH_REPLICATION_FACTOR_CHECK,
            max_unknown=PARTITION_LOOKUPS,
        )
        results = await self._requester(timeout_ms).request_items(request, wanted)
        return finish_items(results, "partitions", return_errors=return_errors)

    async def list_partition_reassignments(
        self,
        partitions: Iterable[AnyPartition] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, PartitionReassignment]:
        """List the reassignments that are in progress.

        Args:
            partitions: Only these partitions; defaults to all.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.

        Returns:
            The reassignments by partition; a partition without one is left out.

        Raises:
            UnsupportedVersion: Brokers before 2.4 have no such requests.
            KafkaError: The controller could not be reached.
        """
        requester = self._requester(timeout_ms)
        wanted = (
            None
            if partitions is None
            else dict.fromkeys(parse_topic_partition(tp) for tp in partitions)
        )
        response = await requester.request(
            ListPartitionReassignmentsRequest(
                timeout_ms=requester.timeout_ms,
                topics=None
                if wanted is None
                else [
                    ListPartitionReassignmentsTopics(
                        name=name, partition_indexes=[tp.partition for tp in some]
                    )
                    for name, some in partitions_by_topic(wanted).items()
                ],
            )
        )
        found = {
            TopicPartition(topic.name, part.partition_index): PartitionReassignment(
                tuple(part.replicas), tuple(part.adding_replicas), tuple(part.removing_replicas)
            )
            for topic in response.topics
            for part in topic.partitions
        }
        return {tp: found[tp] for tp in sorted(found) if wanted is None or tp in wanted}


def _reassignable_topics(
    partitions: Sequence[TopicPartition],
    wanted: Mapping[TopicPartition, Sequence[NodeId] | None],
) -> list[ReassignableTopic]:
    return [
        ReassignableTopic(
            name=name,
            partitions=[
                ReassignablePartition(
                    partition_index=tp.partition,
                    replicas=None if (to := wanted[tp]) is None else list(to),
                )
                for tp in some
            ],
        )
        for name, some in partitions_by_topic(partitions).items()
    ]


def _read_altered(response: AlterPartitionReassignmentsResponse) -> Iterable[ItemResult]:
    for topic in response.responses:
        for part in topic.partitions:
            tp = TopicPartition(topic.name, part.partition_index)
            yield ItemResult(tp, None, part.error_code, part.error_message)
