"""ControllerRegistration: a controller registers with the active one (KIP-919). Key 70."""

from uuid import UUID

from aiokafkawire.wire.primitives import int16, int32, uint16
from aiokafkawire.wire.schema import Request, Response, Struct, request, response, struct

__all__ = (
    "ControllerRegistrationFeature",
    "ControllerRegistrationListener",
    "ControllerRegistrationRequest",
    "ControllerRegistrationResponse",
)


@struct
class ControllerRegistrationListener(Struct):
    name: str
    host: str
    port: uint16
    security_protocol: int16


@struct
class ControllerRegistrationFeature(Struct):
    name: str
    min_supported_version: int16
    max_supported_version: int16


@request(key=70, versions="0", flexible="0+")
class ControllerRegistrationRequest(Request["ControllerRegistrationResponse"]):
    controller_id: int32
    incarnation_id: UUID
    zk_migration_ready: bool
    listeners: list[ControllerRegistrationListener]
    features: list[ControllerRegistrationFeature]


@response(key=70, versions="0", flexible="0+")
class ControllerRegistrationResponse(Response):
    throttle_time_ms: int32
    error_code: int16
    error_message: str | None
