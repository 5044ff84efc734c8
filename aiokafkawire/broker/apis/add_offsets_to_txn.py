"""AddOffsetsToTxn: add the offsets of a group to a transaction."""

from __future__ import annotations

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.transaction_requests import code_for
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.broker.transactions.events import AddToTransaction, TransactionContents
from aiokafkawire.types import ProducerIdAndEpoch
from aiokafkawire.wire.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)

__all__ = ("error_response", "handle")

FIRST_FENCED_VERSION = 2


async def handle(
    context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    try:
        context.authorize(
            AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id
        )
        context.authorize(AclOperation.READ, ResourceType.GROUP, request.group_id)
        context.check_coordinator(request.transactional_id)
    except ApiError as error:
        return error_response(request, context.version, error.code)
    result = context.state.transaction_coordinator.handle(
        request.transactional_id,
        AddToTransaction(
            producer=ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            scope=TransactionContents(groups=(request.group_id,)),
        ),
    )
    code = code_for(context.version, result.code, fenced_since=FIRST_FENCED_VERSION)
    return error_response(request, context.version, code)


def error_response(
    request: AddOffsetsToTxnRequest, version: int, code: int
) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=code)
