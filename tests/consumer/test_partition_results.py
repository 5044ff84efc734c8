from __future__ import annotations

from types import MappingProxyType
from uuid import UUID

from aiokafkawire.cluster.metadata import (
    MetadataSnapshot,
    NodeInfo,
    PartitionMetadata,
    TopicMetadata,
)
from aiokafkawire.consumer.partition_results import PartitionResults, by_leader
from aiokafkawire.errors import ProtocolError
from aiokafkawire.runtime import Address
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire.error_codes import ErrorCode

from .record_data import P0, P1

P2 = TopicPartition("orders", 2)


def test_each_partition_is_found_or_failed() -> None:
    answers: PartitionResults[int] = PartitionResults("ListOffsets", 3)
    answers.add(P0, 0, 7)
    answers.add(P1, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert answers.finish([P0, P1, P2])
    assert answers.found == {P0: 7}
    refused, left_out = answers.failed[P1], answers.failed[P2]
    assert (refused.api, refused.broker, refused.partition) == ("ListOffsets", "3", 1)
    assert refused.retriable
    assert isinstance(left_out, ProtocolError)
    assert (left_out.topic, left_out.partition) == P2


def test_only_an_error_code_means_that_metadata_may_be_stale() -> None:
    answers: PartitionResults[int] = PartitionResults("ListOffsets", 3)
    answers.add(P0, 0, 7)
    assert not answers.finish([P0, P1])


def test_partitions_are_grouped_by_their_leaders() -> None:
    partitions = {
        0: PartitionMetadata(0, 1),
        1: PartitionMetadata(1, 2),
        2: PartitionMetadata(2, 9),
    }
    metadata = MetadataSnapshot(
        nodes=MappingProxyType({n: NodeInfo(n, Address("h", n)) for n in (1, 2)}),
        topics=MappingProxyType({"orders": TopicMetadata("orders", UUID(int=1), partitions)}),
    )
    assert by_leader(metadata, [P0, P1, P2]) == {1: [P0], 2: [P1]}
