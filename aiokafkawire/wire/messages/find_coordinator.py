"""FindCoordinator: find the coordinator of a group or a transactional id. Key 10."""

from typing import Self

from aiokafkawire.wire.primitives import int8, int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = ("Coordinator", "FindCoordinatorRequest", "FindCoordinatorResponse")

ERROR_CODE_BYTES = 2


@request(key=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest(Request["FindCoordinatorResponse"]):
    """One `key` in versions 0 to 3, several `coordinator_keys` later.

    Key type 0 is a group, 1 a transactional id, 2 a share group's state.
    """

    key: str = field(versions="0-3", default="")
    key_type: int8 = field(versions="1+", default=0)
    coordinator_keys: list[str] = field(versions="4+", default_factory=list)


@struct
class Coordinator(Struct):
    key: str
    node_id: int32
    host: str
    port: int32
    error_code: int16
    error_message: str | None = field(default="", ignorable=True)


@response(key=10, versions="0-6", flexible="3+")
class FindCoordinatorResponse(Response):
    @classmethod
    def decode_fallback(cls, version: int, body: memoryview) -> Self | None:
        # The guide of 0.8 lets an error stand alone.
        error_code = int.from_bytes(body, signed=True)
        if version != 0 or len(body) != ERROR_CODE_BYTES or error_code == 0:
            return None
        return cls(error_code=error_code, node_id=-1, port=-1)

    throttle_time_ms: int32 = field(versions="1+", default=0, ignorable=True)
    error_code: int16 = field(versions="0-3", default=0)
    error_message: str | None = field(versions="1-3", default="", ignorable=True)
    node_id: int32 = field(versions="0-3", default=0)
    host: str = field(versions="0-3", default="")
    port: int32 = field(versions="0-3", default=0)
    coordinators: list[Coordinator] = field(versions="4+", default_factory=list)
