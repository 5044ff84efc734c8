"""InitProducerId: get a producer id and epoch. Key 22."""

from aiokafkawire.wire.primitives import int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, field, request, response

__all__ = ("InitProducerIdRequest", "InitProducerIdResponse")


@request(key=22, versions="0-6", flexible="2+")
class InitProducerIdRequest(Request["InitProducerIdResponse"]):
    """Version 6 (two-phase commit) is not stable yet."""

    transactional_id: str | None
    transaction_timeout_ms: int32
    producer_id: int64 = field(versions="3+", default=-1)
    producer_epoch: int16 = field(versions="3+", default=-1)
    enable_2pc: bool = field(versions="6+", default=False, name="enable2Pc")
    keep_prepared_txn: bool = field(versions="6+", default=False)


@response(key=22, versions="0-6", flexible="2+")
class InitProducerIdResponse(Response):
    throttle_time_ms: int32 = field(default=0, ignorable=True)
    error_code: int16
    producer_id: int64 = -1
    producer_epoch: int16
    ongoing_txn_producer_id: int64 = field(versions="6+", default=-1)
    ongoing_txn_producer_epoch: int16 = field(versions="6+", default=-1)
