"""ListConfigResources: list the resources that have configs (KIP-1142). Key 74."""

from aiokafkawire.wire.primitives import int8, int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "ClientMetricsResource",
    "ConfigResource",
    "ListClientMetricsResourcesRequest",
    "ListClientMetricsResourcesResponse",
    "ListConfigResourcesRequest",
    "ListConfigResourcesResponse",
)


@request(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest(Request["ListConfigResourcesResponse"]):
    resource_types: list[int8] = field(versions="1+", default_factory=list)


@struct
class ConfigResource(Struct):
    resource_name: str
    resource_type: int8 = field(versions="1+", default=16, ignorable=True)


@response(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse(Response):
    throttle_time_ms: int32
    error_code: int16
    config_resources: list[ConfigResource]


@request(key=74, versions="0", flexible="0+")
class ListClientMetricsResourcesRequest(Request["ListClientMetricsResourcesResponse"]):
    """The name of version 0 before Kafka 4.1."""


@struct
class ClientMetricsResource(Struct):
    name: str


@response(key=74, versions="0", flexible="0+")
class ListClientMetricsResourcesResponse(Response):
    throttle_time_ms: int32
    error_code: int16
    client_metrics_resources: list[ClientMetricsResource]
