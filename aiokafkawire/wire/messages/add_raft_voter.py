"""AddRaftVoter: add a controller to the quorum's voters (KIP-853). Key 80."""

from uuid import UUID

from aiokafkawire.wire.primitives import int16, int32, uint16
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = ("AddRaftVoterListener", "AddRaftVoterRequest", "AddRaftVoterResponse")


@struct
class AddRaftVoterListener(Struct):
    name: str
    host: str
    port: uint16


@request(key=80, versions="0-1", flexible="0+")
class AddRaftVoterRequest(Request["AddRaftVoterResponse"]):
    cluster_id: str | None
    timeout_ms: int32
    voter_id: int32
    voter_directory_id: UUID
    listeners: list[AddRaftVoterListener]
    ack_when_committed: bool = field(versions="1+", default=True)


@response(key=80, versions="0-1", flexible="0+")
class AddRaftVoterResponse(Response):
    throttle_time_ms: int32
    error_code: int16
    error_message: str | None
