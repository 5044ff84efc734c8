"""ListTransactions: the transactional ids that this node coordinates."""

from __future__ import annotations

import re

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.broker.transactions import events
from aiokafkawire.broker.transactions.transaction_metadata import TransactionMetadata
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.list_transactions import (
    ListedTransactionState,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

__all__ = ("error_response", "handle")

MAX_PATTERN_CHARS = 1_000

STATES = tuple(state.value for state in events.TransactionState)


async def handle(
    context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    pattern = request.transactional_id_pattern or ""
    try:
        if len(pattern) > MAX_PATTERN_CHARS:
            raise re.error("the pattern is too long")
        matching = re.compile(pattern) if pattern else None
    except re.error:
        return error_response(request, context.version, ErrorCode.INVALID_REGULAR_EXPRESSION)
    if context.state.coordinator_loader.is_loading_any(context.node_id):
        return error_response(request, context.version, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    unknown = [name for name in request.state_filters if name not in STATES]
    response = ListTransactionsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        unknown_state_filters=unknown,
        transaction_states=[],
    )
    if unknown and len(unknown) == len(request.state_filters):
        return response
    now_ms = context.state.clock.wall_ms()
    for transaction in context.state.transaction_coordinator.list_all():
        name = transaction.transactional_id
        if (
            context.cluster.coordinator(name) == context.node_id
            and _is_wanted(request, transaction, now_ms)
            and (matching is None or matching.fullmatch(name))
            and context.is_authorized(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name)
        ):
            response.transaction_states.append(
                ListedTransactionState(
                    transactional_id=name,
                    producer_id=transaction.producer.producer_id,
                    transaction_state=transaction.state.value,
                )
            )
    return response


def error_response(
    request: ListTransactionsRequest, version: int, code: int
) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        throttle_time_ms=0, error_code=code, unknown_state_filters=[], transaction_states=[]
    )


def _is_wanted(
    request: ListTransactionsRequest, transaction: TransactionMetadata, now_ms: int
) -> bool:
    ids, states, least_ms = (
        request.producer_id_filters,
        request.state_filters,
        request.duration_filter,
    )
    return (
        (not ids or transaction.producer.producer_id in ids)
        and (not states or transaction.state.value in states)
        and (least_ms < 0 or now_ms - transaction.started_ms > least_ms)
    )
