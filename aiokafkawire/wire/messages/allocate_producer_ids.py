"""AllocateProducerIds: allocate a block of producer ids to a broker (KIP-730). Key 67."""

from aiokafkawire.wire.primitives import int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, request, response

__all__ = ("AllocateProducerIdsRequest", "AllocateProducerIdsResponse")


@request(key=67, versions="0", flexible="0+")
class AllocateProducerIdsRequest(Request["AllocateProducerIdsResponse"]):
    broker_id: int32
    broker_epoch: int64 = -1


@response(key=67, versions="0", flexible="0+")
class AllocateProducerIdsResponse(Response):
    throttle_time_ms: int32
    error_code: int16
    producer_id_start: int64
    producer_id_len: int32
