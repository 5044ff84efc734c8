"""InitProducerId: an identity for an idempotent or transactional producer."""

from __future__ import annotations

from aiokafkawire.broker.call import Call
from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

__all__ = ("failed", "handle")

MAX_TRANSACTION_TIMEOUT_MS = 900_000
FIRST_FENCED_VERSION = 4


async def handle(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    transactional_id = request.transactional_id
    try:
        if transactional_id:
            if call.cluster.coordinator(transactional_id) != call.node_id:
                raise Refusal(ErrorCode.NOT_COORDINATOR)
            if not 0 < request.transaction_timeout_ms <= MAX_TRANSACTION_TIMEOUT_MS:
                raise Refusal(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        identity = call.state.identities.init(
            transactional_id, request.producer_id, request.producer_epoch
        )
    except Refusal as refusal:
        code = refusal.code
        if code is ErrorCode.PRODUCER_FENCED and call.version < FIRST_FENCED_VERSION:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        return failed(request, call.version, code)
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
    )


def failed(request: InitProducerIdRequest, version: int, code: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
