"""RemoveRaftVoter: remove a controller from the quorum's voters (KIP-853). Key 81."""

from uuid import UUID

from aiokafkawire.wire.primitives import int16, int32
from aiokafkawire.wire.schema import Request, Response, request, response

__all__ = ("RemoveRaftVoterRequest", "RemoveRaftVoterResponse")


@request(key=81, versions="0", flexible="0+")
class RemoveRaftVoterRequest(Request["RemoveRaftVoterResponse"]):
    cluster_id: str | None
    voter_id: int32
    voter_directory_id: UUID


@response(key=81, versions="0", flexible="0+")
class RemoveRaftVoterResponse(Response):
    throttle_time_ms: int32
    error_code: int16
    error_message: str | None
