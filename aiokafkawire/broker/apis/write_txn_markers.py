"""WriteTxnMarkers: end the transactions of producers, such as a hanging one (KIP-664)."""

from __future__ import annotations

from collections.abc import Callable

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.acks import ACKS_ALL, ProducePartitionStatus, wait_for_acks
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.broker.topics import Partition
from aiokafkawire.records.batch import iter_batches
from aiokafkawire.records.broker_records import control_batch
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.produce import PartitionProduceResponse
from aiokafkawire.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

__all__ = ("error_response", "handle")

REPLICATION_TIMEOUT_MS = 30_000
"""Time limit for the replicas to have the markers, Kafka's default of `request.timeout.ms`."""


async def handle(
    context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    if not any(
        context.is_authorized(operation, ResourceType.CLUSTER)
        for operation in (AclOperation.ALTER, AclOperation.CLUSTER_ACTION)
    ):
        return error_response(request, context.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    statuses: list[ProducePartitionStatus] = []

    def write(marker: WritableTxnMarker, topic: str, index: int) -> PartitionProduceResponse:
        response = PartitionProduceResponse(index=index, error_code=ErrorCode.NONE, base_offset=-1)
        try:
            partition = _write(context, marker, topic, index)
        except ApiError as error:
            response.error_code = error.code
        else:
            end_offset = partition.log.end_offset
            statuses.append(ProducePartitionStatus(partition, end_offset, 0, response))
        return response

    written = [
        [
            [write(marker, topic.name, index) for index in topic.partition_indexes]
            for topic in marker.topics
        ]
        for marker in request.markers
    ]
    await wait_for_acks(context, ACKS_ALL, REPLICATION_TIMEOUT_MS, statuses)
    return _response(
        request, lambda marker, topic, partition: written[marker][topic][partition].error_code
    )


def error_response(
    request: WriteTxnMarkersRequest, version: int, code: int
) -> WriteTxnMarkersResponse:
    return _response(request, lambda marker, topic, partition: code)


def _write(context: RequestContext, marker: WritableTxnMarker, topic: str, index: int) -> Partition:
    """Append a marker to the log of a partition. Raises `ApiError`."""
    if marker.producer_id < 0:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
    known = context.cluster.topic(topic)
    if context.node_id not in context.cluster.partition(known, index).replicas:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition = context.partition(known, index)
    context.check_leader(partition)
    partition.log.producers.check_marker(
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        bumps_epoch=marker.transaction_version >= FIRST_BUMPING_VERSION,
    )
    data = control_batch(
        marker.producer_id,
        marker.producer_epoch,
        commit=marker.transaction_result,
        coordinator_epoch=marker.coordinator_epoch,
        timestamp_ms=context.state.clock.wall_ms(),
        base_offset=partition.log.end_offset,
        leader_epoch=partition.leader_epoch,
    )
    (view,) = iter_batches(data)
    partition.log.append(data, view)
    partition.on_append()
    return partition


FIRST_BUMPING_VERSION = 2
"""First transaction.version whose markers have a higher epoch than the transaction (KIP-890)."""


def _response(
    request: WriteTxnMarkersRequest, code_of: Callable[[int, int, int], int]
) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=index,
                                error_code=code_of(marker_number, topic_number, number),
                            )
                            for number, index in enumerate(topic.partition_indexes)
                        ],
                    )
                    for topic_number, topic in enumerate(marker.topics)
                ],
            )
            for marker_number, marker in enumerate(request.markers)
        ]
    )
