"""EndTxn: commit or abort a transaction. Key 26."""

from aiokafkawire.wire.primitives import int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, field, request, response

__all__ = ("EndTxnRequest", "EndTxnResponse")


@request(key=26, versions="0-5", flexible="3+")
class EndTxnRequest(Request["EndTxnResponse"]):
    transactional_id: str
    producer_id: int64
    producer_epoch: int16
    committed: bool


@response(key=26, versions="0-5", flexible="3+")
class EndTxnResponse(Response):
    throttle_time_ms: int32
    error_code: int16
    producer_id: int64 = field(versions="5+", default=-1, ignorable=True)
    producer_epoch: int16 = field(versions="5+", default=-1, ignorable=True)
