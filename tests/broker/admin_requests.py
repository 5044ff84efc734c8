"""A valid request of each API of reassignments, quotas, features, the quorum and tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from aiokafkawire.wire import ApiKey, ErrorCode, Request
from aiokafkawire.wire.messages import (
    alter_partition_reassignments,
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


ADMIN_REQUESTS: dict[ApiKey, tuple[Callable[[int, UUID], Request[Any]], set[ErrorCode]]] = {
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (reassignment, {ErrorCode.NONE}),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (
        lambda v, i: list_partition_reassignments.ListPartitionReassignmentsRequest(),
        {ErrorCode.NONE},
    ),
    ApiKey.ELECT_LEADERS: (election, {ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED}),
}
