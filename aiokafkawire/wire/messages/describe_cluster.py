"""DescribeCluster: the cluster's id, controller and brokers (KIP-700). Key 60."""

from aiokafkawire.wire.messages.metadata import AUTHORIZED_OPERATIONS_OMITTED
from aiokafkawire.wire.primitives import int8, int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = ("DescribeClusterBroker", "DescribeClusterRequest", "DescribeClusterResponse")


@request(key=60, versions="0-2", flexible="0+")
class DescribeClusterRequest(Request["DescribeClusterResponse"]):
    """Endpoint type 1 requests the brokers, 2 the controllers."""

    include_cluster_authorized_operations: bool
    endpoint_type: int8 = field(versions="1+", default=1)
    include_fenced_brokers: bool = field(versions="2+", default=False)


@struct
class DescribeClusterBroker(Struct):
    broker_id: int32
    host: str
    port: int32
    rack: str | None = None
    is_fenced: bool = field(versions="2+", default=False)


@response(key=60, versions="0-2", flexible="0+")
class DescribeClusterResponse(Response):
    throttle_time_ms: int32
    error_code: int16
    error_message: str | None = None
    endpoint_type: int8 = field(versions="1+", default=1)
    cluster_id: str
    controller_id: int32 = -1
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: int32 = AUTHORIZED_OPERATIONS_OMITTED
