"""IncrementalAlterConfigs: change configs of topics, brokers and groups (KIP-339). Key 44."""

from aiokafkawire.wire.primitives import int8, int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, request, response, struct

__all__ = (
    "IncrementalAlterConfigsRequest",
    "IncrementalAlterConfigsResource",
    "IncrementalAlterConfigsResourceResponse",
    "IncrementalAlterConfigsResponse",
    "IncrementalAlterableConfig",
)


@struct
class IncrementalAlterableConfig(Struct):
    """Operation 0: set, 1: delete (reset to the default), 2: append to a list, 3: subtract."""

    name: str
    config_operation: int8
    value: str | None


@struct
class IncrementalAlterConfigsResource(Struct):
    resource_type: int8
    resource_name: str
    configs: list[IncrementalAlterableConfig]


@request(key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest(Request["IncrementalAlterConfigsResponse"]):
    resources: list[IncrementalAlterConfigsResource]
    validate_only: bool


@struct
class IncrementalAlterConfigsResourceResponse(Struct):
    error_code: int16
    error_message: str | None
    resource_type: int8
    resource_name: str


@response(key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse(Response):
    throttle_time_ms: int32
    responses: list[IncrementalAlterConfigsResourceResponse]
