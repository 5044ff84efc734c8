"""AddOffsetsToTxn: a transaction will commit offsets of a group."""

from __future__ import annotations

from aiokafkawire.broker.apis.transaction_requests import code_for
from aiokafkawire.broker.call import Call
from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.broker.transactions.events import Add, Scope
from aiokafkawire.types import ProducerIdAndEpoch
from aiokafkawire.wire.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)

__all__ = ("failed", "handle")

FIRST_FENCED_VERSION = 2


async def handle(call: Call, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    try:
        call.check_coordinator(request.transactional_id)
    except Refusal as refusal:
        return failed(request, call.version, refusal.code)
    answer = call.state.transactions.handle(
        request.transactional_id,
        Add(
            producer=ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            scope=Scope(groups=(request.group_id,)),
        ),
    )
    code = code_for(call.version, answer.code, fenced_since=FIRST_FENCED_VERSION)
    return failed(request, call.version, code)


def failed(request: AddOffsetsToTxnRequest, version: int, code: int) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=code)
