"""UpdateRaftVoter: a controller updates its endpoints and versions (KIP-853). Key 82."""

from uuid import UUID

from aiokafkawire.wire.primitives import int16, int32, uint16
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "CurrentLeader",
    "KRaftVersionFeature",
    "UpdateRaftVoterListener",
    "UpdateRaftVoterRequest",
    "UpdateRaftVoterResponse",
)


@struct
class UpdateRaftVoterListener(Struct):
    name: str
    host: str
    port: uint16


@struct
class KRaftVersionFeature(Struct):
    min_supported_version: int16
    max_supported_version: int16


@request(key=82, versions="0", flexible="0+")
class UpdateRaftVoterRequest(Request["UpdateRaftVoterResponse"]):
    cluster_id: str | None
    current_leader_epoch: int32
    voter_id: int32
    voter_directory_id: UUID
    listeners: list[UpdateRaftVoterListener]
    kraft_version_feature: KRaftVersionFeature = field(name="kRaftVersionFeature")


@struct
class CurrentLeader(Struct):
    leader_id: int32 = -1
    leader_epoch: int32 = -1
    host: str = ""
    port: int32 = 0


@response(key=82, versions="0", flexible="0+")
class UpdateRaftVoterResponse(Response):
    throttle_time_ms: int32
    error_code: int16
    current_leader: CurrentLeader = field(default_factory=CurrentLeader, tag=0)
