"""InitProducerId: an identity for an idempotent or transactional producer."""

from __future__ import annotations

from aiokafkawire.broker.apis.transaction_requests import code_for
from aiokafkawire.broker.call import Call
from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.types import ProducerIdAndEpoch
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

__all__ = ("failed", "handle")

NONE = -1
FIRST_FENCED_VERSION = 4


async def handle(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    try:
        producer = _init(call, request)
    except Refusal as refusal:
        code = code_for(call.version, refusal.code, fenced_since=FIRST_FENCED_VERSION)
        return failed(request, call.version, code)
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
    )


def failed(request: InitProducerIdRequest, version: int, code: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NONE, producer_epoch=NONE)


def _init(call: Call, request: InitProducerIdRequest) -> ProducerIdAndEpoch:
    """Who asks is from now on. Raises `Refusal`."""
    transactional_id = request.transactional_id
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        raise Refusal(ErrorCode.INVALID_REQUEST)
    if transactional_id is None:
        # Such a producer bumps its epoch by itself, so this is always somebody new.
        return ProducerIdAndEpoch(call.cluster.new_producer_id(), 0)
    if not transactional_id:
        raise Refusal(ErrorCode.INVALID_REQUEST)
    call.check_coordinator(transactional_id)
    expected = None
    if request.producer_id != NONE:
        expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    answer = call.state.transactions.init(
        transactional_id, request.transaction_timeout_ms, expected
    )
    if answer.code:
        raise Refusal(answer.code)
    return answer.producer
