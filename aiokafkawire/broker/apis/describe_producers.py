"""DescribeProducers: active producers and open transactions, from any replica."""

from __future__ import annotations

from collections.abc import Callable

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.describe_producers import (
    DescribeProducersPartitionResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicResponse,
)

__all__ = ("error_response", "handle")


async def handle(
    context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    return _response(request, lambda topic, index: _partition(context, topic, index))


def error_response(
    request: DescribeProducersRequest, version: int, code: int
) -> DescribeProducersResponse:
    return _response(request, lambda topic, index: _refused(index, code))


def _response(
    request: DescribeProducersRequest,
    partition: Callable[[str, int], DescribeProducersPartitionResponse],
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


def _partition(
    context: RequestContext, topic: str, index: int
) -> DescribeProducersPartitionResponse:
    try:
        context.authorize(AclOperation.READ, ResourceType.TOPIC, topic)
        partition = context.partition(context.cluster.topic(topic), index)
        if context.node_id not in partition.replicas:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    except ApiError as error:
        return _refused(index, error.code)
    return DescribeProducersPartitionResponse(
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
            for each in partition.log.producers.active_producers()
        ],
    )


def _refused(index: int, code: int) -> DescribeProducersPartitionResponse:
    return DescribeProducersPartitionResponse(
        partition_index=index, error_code=code, active_producers=[]
    )
