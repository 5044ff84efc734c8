"""EndTxn: commit or abort a transaction; v5+ returns the producer's next epoch."""

from __future__ import annotations

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.transaction_requests import code_for
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.broker.transactions.events import EndTransaction
from aiokafkawire.types import ProducerIdAndEpoch
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

__all__ = ("error_response", "handle")

FIRST_FENCED_VERSION = 2
FIRST_BUMPING_VERSION = 5


async def handle(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    try:
        context.authorize(
            AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id
        )
        context.check_coordinator(request.transactional_id)
    except ApiError as error:
        return error_response(request, context.version, error.code)
    result = context.state.transaction_coordinator.handle(
        request.transactional_id,
        EndTransaction(
            producer=ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            commit=request.committed,
            bumps_epoch=context.version >= FIRST_BUMPING_VERSION,
        ),
    )
    if result.code:
        code = code_for(context.version, result.code, fenced_since=FIRST_FENCED_VERSION)
        return error_response(request, context.version, code)
    return EndTxnResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        producer_id=result.producer.producer_id,
        producer_epoch=result.producer.epoch,
    )


def error_response(request: EndTxnRequest, version: int, code: int) -> EndTxnResponse:
    return EndTxnResponse(throttle_time_ms=0, error_code=code)
