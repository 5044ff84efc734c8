"""AddOffsetsToTxn: add the offsets of a consumer group to a transaction. Key 25."""

from aiokafkawire.wire.primitives import int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, request, response

__all__ = ("AddOffsetsToTxnRequest", "AddOffsetsToTxnResponse")


@request(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest(Request["AddOffsetsToTxnResponse"]):
    transactional_id: str
    producer_id: int64
    producer_epoch: int16
    group_id: str


@response(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse(Response):
    throttle_time_ms: int32
    error_code: int16
