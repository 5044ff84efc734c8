"""DescribeClientQuotas: list the quotas of users and clients (KIP-546). Key 48."""

from aiokafkawire.wire.primitives import float64, int8, int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, request, response, struct

__all__ = (
    "ComponentData",
    "DescribeClientQuotasEntityData",
    "DescribeClientQuotasEntryData",
    "DescribeClientQuotasRequest",
    "DescribeClientQuotasResponse",
    "ValueData",
)


@struct
class ComponentData(Struct):
    """Match type 0 is a name, 1 the default, 2 any name."""

    entity_type: str
    match_type: int8
    match: str | None


@request(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest(Request["DescribeClientQuotasResponse"]):
    components: list[ComponentData]
    strict: bool


@struct
class DescribeClientQuotasEntityData(Struct):
    entity_type: str
    entity_name: str | None


@struct
class ValueData(Struct):
    key: str
    value: float64


@struct
class DescribeClientQuotasEntryData(Struct):
    entity: list[DescribeClientQuotasEntityData]
    values: list[ValueData]


@response(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse(Response):
    throttle_time_ms: int32
    error_code: int16
    error_message: str | None
    entries: list[DescribeClientQuotasEntryData] | None
