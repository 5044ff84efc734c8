"""EndTxn: commit or abort. From version 5 on the answer brings the producer's next epoch."""

from __future__ import annotations

from aiokafkawire.broker.apis.transaction_requests import code_for
from aiokafkawire.broker.call import Call
from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.broker.transactions.events import End
from aiokafkawire.types import ProducerIdAndEpoch
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

__all__ = ("failed", "handle")

FIRST_FENCED_VERSION = 2
FIRST_BUMPING_VERSION = 5


async def handle(call: Call, request: EndTxnRequest) -> EndTxnResponse:
    try:
        call.check_coordinator(request.transactional_id)
    except Refusal as refusal:
        return failed(request, call.version, refusal.code)
    answer = call.state.transactions.handle(
        request.transactional_id,
        End(
            producer=ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            commit=request.committed,
            bumps_epoch=call.version >= FIRST_BUMPING_VERSION,
        ),
    )
    if answer.code:
        code = code_for(call.version, answer.code, fenced_since=FIRST_FENCED_VERSION)
        return failed(request, call.version, code)
    return EndTxnResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        producer_id=answer.producer.producer_id,
        producer_epoch=answer.producer.epoch,
    )


def failed(request: EndTxnRequest, version: int, code: int) -> EndTxnResponse:
    return EndTxnResponse(throttle_time_ms=0, error_code=code)
