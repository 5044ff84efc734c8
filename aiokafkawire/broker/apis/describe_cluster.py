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
        return _refused(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type"
            " CONTROLLER",
        )
    if request.endpoint_type != BROKERS:
        return _refused(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            f"Unsupported endpoint type {request.endpoint_type}",
        )
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
            if node in cluster.live
            or (request.include_fenced_brokers and node not in cluster.metadata.unregistered)
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
    return _refused(code, None)


def _refused(code: int, message: str | None) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        throttle_time_ms=0, error_code=code, error_message=message, cluster_id="", brokers=[]
    )
