"""AlterConfigs: replace the configs of topics and brokers. Key 33."""

from aiokafkawire.wire.primitives import int8, int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, request, response, struct

__all__ = (
    "AlterConfigsRequest",
    "AlterConfigsResource",
    "AlterConfigsResourceResponse",
    "AlterConfigsResponse",
    "AlterableConfig",
)


@struct
class AlterableConfig(Struct):
    name: str
    value: str | None


@struct
class AlterConfigsResource(Struct):
    resource_type: int8
    resource_name: str
    configs: list[AlterableConfig]


@request(key=33, versions="0-2", flexible="2+")
class AlterConfigsRequest(Request["AlterConfigsResponse"]):
    """Configs that are not named are reset to their default, unlike in IncrementalAlterConfigs."""

    resources: list[AlterConfigsResource]
    validate_only: bool


@struct
class AlterConfigsResourceResponse(Struct):
    error_code: int16
    error_message: str | None
    resource_type: int8
    resource_name: str


@response(key=33, versions="0-2", flexible="2+")
class AlterConfigsResponse(Response):
    throttle_time_ms: int32
    responses: list[AlterConfigsResourceResponse]
