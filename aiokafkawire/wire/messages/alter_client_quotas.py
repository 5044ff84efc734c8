"""AlterClientQuotas: change the quotas of users and clients (KIP-546). Key 49."""

from aiokafkawire.wire.primitives import float64, int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, request, response, struct

__all__ = (
    "AlterClientQuotasEntityData",
    "AlterClientQuotasEntryData",
    "AlterClientQuotasRequest",
    "AlterClientQuotasResponse",
    "EntryResult",
    "OpData",
)


@struct
class AlterClientQuotasEntityData(Struct):
    """A null name stands for the default of its type: user, client-id or ip."""

    entity_type: str
    entity_name: str | None


@struct
class OpData(Struct):
    key: str
    value: float64
    remove: bool


@struct
class AlterClientQuotasEntryData(Struct):
    entity: list[AlterClientQuotasEntityData]
    ops: list[OpData]


@request(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest(Request["AlterClientQuotasResponse"]):
    entries: list[AlterClientQuotasEntryData]
    validate_only: bool


@struct
class EntryResult(Struct):
    error_code: int16
    error_message: str | None
    entity: list[AlterClientQuotasEntityData]


@response(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse(Response):
    throttle_time_ms: int32
    entries: list[EntryResult]
