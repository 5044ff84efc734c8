"""DescribeProducers: any replica tells who writes, and which transactions are open."""

from __future__ import annotations

from collections.abc import Callable

from aiokafkawire.broker.call import Call
from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

__all__ = ("failed", "handle")


async def handle(call: Call, request: DescribeProducersRequest) -> DescribeProducersResponse:
    return _response(request, lambda topic, index: _partition(call, topic, index))


def failed(request: DescribeProducersRequest, version: int, code: int) -> DescribeProducersResponse:
    return _response(request, lambda topic, index: _refused(index, code))


def _response(
    request: DescribeProducersRequest, partition: Callable[[str, int], PartitionResponse]
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        throttle_time_ms=0,
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[partition(topic.name, index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ],
    )


def _partition(call: Call, topic: str, index: int) -> PartitionResponse:
    try:
        partition = call.partition(call.cluster.topic(topic), index)
        if call.node_id not in partition.replicas:
            raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    except Refusal as refusal:
        return _refused(index, refusal.code)
    return PartitionResponse(
        partition_index=index,
        error_code=ErrorCode.NONE,
        active_producers=[
            ProducerState(
                producer_id=each.producer_id,
                producer_epoch=each.epoch,
                last_sequence=each.last_sequence,
                last_timestamp=each.timestamp_ms,
                coordinator_epoch=each.coordinator_epoch,
                current_txn_start_offset=each.transaction_start,
            )
            for each in partition.log.producers.active()
        ],
    )


def _refused(index: int, code: int) -> PartitionResponse:
    return PartitionResponse(partition_index=index, error_code=code, active_producers=[])
