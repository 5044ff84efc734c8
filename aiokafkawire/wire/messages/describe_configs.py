"""DescribeConfigs: list the configs of topics, brokers and groups. Key 32."""

from aiokafkawire.wire.primitives import int8, int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "DescribeConfigsRequest",
    "DescribeConfigsResource",
    "DescribeConfigsResourceResult",
    "DescribeConfigsResponse",
    "DescribeConfigsResult",
    "DescribeConfigsSynonym",
)


@struct
class DescribeConfigsResource(Struct):
    """Resource type 2: a topic, 4: a broker (its node id). Null keys request all configs."""

    resource_type: int8
    resource_name: str
    configuration_keys: list[str] | None


@request(key=32, versions="0-4", flexible="4+")
class DescribeConfigsRequest(Request["DescribeConfigsResponse"]):
    resources: list[DescribeConfigsResource]
    include_synonyms: bool = field(versions="1+", default=False)
    include_documentation: bool = field(versions="3+", default=False)


@struct
class DescribeConfigsSynonym(Struct):
    name: str
    value: str | None
    source: int8


@struct
class DescribeConfigsResourceResult(Struct):
    """Version 0 only has `is_default`; later versions have the source of a config."""

    name: str
    value: str | None
    read_only: bool
    is_default: bool = field(versions="0", default=False)
    config_source: int8 = field(versions="1+", default=-1, ignorable=True)
    is_sensitive: bool
    synonyms: list[DescribeConfigsSynonym] = field(
        versions="1+", default_factory=list, ignorable=True
    )
    config_type: int8 = field(versions="3+", default=0, ignorable=True)
    documentation: str | None = field(versions="3+", default="", ignorable=True)


@struct
class DescribeConfigsResult(Struct):
    error_code: int16
    error_message: str | None
    resource_type: int8
    resource_name: str
    configs: list[DescribeConfigsResourceResult]


@response(key=32, versions="0-4", flexible="4+")
class DescribeConfigsResponse(Response):
    throttle_time_ms: int32
    results: list[DescribeConfigsResult]
