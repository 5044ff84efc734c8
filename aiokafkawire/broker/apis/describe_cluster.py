"""DescribeCluster: the nodes, optionally with fenced ones."""

from __future__ import annotations

from aiokafkawire.broker.apis.metadata import cluster_operations
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from aiokafkawire.wire.messages.metadata import AUTHORIZED_OPERATIONS_OMITTED

__all__ = ("error_response", "handle")

BROKERS, CONTROLLERS = 1, 2


async def handle(
    context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    if request.endpoint_type == CONTROLLERS:
        return error_response(request, context.version, ErrorCode.MISMATCHED_ENDPOINT_TYPE)
    if request.endpoint_type != BROKERS:
        return error_response(request, context.version, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)
    cluster = context.cluster
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        endpoint_type=BROKERS,
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=node,
                host=address.host,
                port=address.port,
                rack=cluster.racks.get(node),
                is_fenced=node not in cluster.live,
            )
            for node, address in context.addresses.items()
            if node in cluster.live or request.include_fenced_brokers
        ],
        cluster_authorized_operations=(
            cluster_operations(context)
            if request.include_cluster_authorized_operations
            else AUTHORIZED_OPERATIONS_OMITTED
        ),
    )


def error_response(
    request: DescribeClusterRequest, version: int, code: int
) -> DescribeClusterResponse:
    return DescribeClusterResponse(throttle_time_ms=0, error_code=code, cluster_id="", brokers=[])
