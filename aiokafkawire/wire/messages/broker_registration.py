"""BrokerRegistration: a broker registers with the controller (KIP-631). Key 62."""

from uuid import UUID

from aiokafkawire.wire.primitives import int16, int32, int64, uint16
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "BrokerRegistrationFeature",
    "BrokerRegistrationListener",
    "BrokerRegistrationRequest",
    "BrokerRegistrationResponse",
)


@struct
class BrokerRegistrationListener(Struct):
    name: str
    host: str
    port: uint16
    security_protocol: int16


@struct
class BrokerRegistrationFeature(Struct):
    name: str
    min_supported_version: int16
    max_supported_version: int16


@request(key=62, versions="0-4", flexible="0+")
class BrokerRegistrationRequest(Request["BrokerRegistrationResponse"]):
    broker_id: int32
    cluster_id: str
    incarnation_id: UUID
    listeners: list[BrokerRegistrationListener]
    features: list[BrokerRegistrationFeature]
    rack: str | None
    is_migrating_zk_broker: bool = field(versions="1+", default=False)
    log_dirs: list[UUID] = field(versions="2+", default_factory=list, ignorable=True)
    previous_broker_epoch: int64 = field(versions="3+", default=-1, ignorable=True)


@response(key=62, versions="0-4", flexible="0+")
class BrokerRegistrationResponse(Response):
    throttle_time_ms: int32
    error_code: int16
    broker_epoch: int64 = -1
