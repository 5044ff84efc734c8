"""A valid request of each API of reassignments, quotas, features, the quorum and tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from aiokafkawire.wire import ApiKey, ErrorCode, Request
from aiokafkawire.wire.messages import (
    alter_client_quotas,
    alter_partition_reassignments,
    describe_client_quotas,
    elect_leaders,
    list_partition_reassignments,
)

__all__ = ("ADMIN_REQUESTS",)


def reassignment(version: int, topic_id: UUID) -> Request[Any]:
    partition = alter_partition_reassignments.ReassignablePartition(partition_index=0, replicas=[1])
    topic = alter_partition_reassignments.ReassignableTopic(name="t", partitions=[partition])
    return alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=[topic])


def election(version: int, topic_id: UUID) -> Request[Any]:
    topic = elect_leaders.ElectLeadersTopicPartitions(topic="t", partitions=[0])
    return elect_leaders.ElectLeadersRequest(topic_partitions=[topic])


def quota(version: int, topic_id: UUID) -> Request[Any]:
    entry = alter_client_quotas.AlterClientQuotasEntryData(
        entity=[
            alter_client_quotas.AlterClientQuotasEntityData(entity_type="user", entity_name="u")
        ],
        ops=[alter_client_quotas.OpData(key="producer_byte_rate", value=1e9, remove=False)],
    )
    return alter_client_quotas.AlterClientQuotasRequest(entries=[entry], validate_only=False)


ADMIN_REQUESTS: dict[ApiKey, tuple[Callable[[int, UUID], Request[Any]], set[ErrorCode]]] = {
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (reassignment, {ErrorCode.NONE}),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (
        lambda v, i: list_partition_reassignments.ListPartitionReassignmentsRequest(),
        {ErrorCode.NONE},
    ),
    ApiKey.ELECT_LEADERS: (election, {ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED}),
    ApiKey.ALTER_CLIENT_QUOTAS: (quota, {ErrorCode.NONE}),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (
        lambda v, i: describe_client_quotas.DescribeClientQuotasRequest(
            components=[], strict=False
        ),
        {ErrorCode.NONE},
    ),
}
