"""DescribeTransactions: state of transactional ids, at their coordinators."""

from __future__ import annotations

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.broker.transactions.transaction_metadata import TransactionMetadata
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.describe_transactions import (
    DescribedTransactionState,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsTopicData,
)

__all__ = ("error_response", "handle")

OFFSETS_TOPIC = "__consumer_offsets"
"""Kafka lists committed offsets of a transaction as partitions of this topic."""


async def handle(
    context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        throttle_time_ms=0,
        transaction_states=[_described(context, name) for name in request.transactional_ids],
    )


def error_response(
    request: DescribeTransactionsRequest, version: int, code: int
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        throttle_time_ms=0,
        transaction_states=[_refused(name, code) for name in request.transactional_ids],
    )


def _described(context: RequestContext, transactional_id: str) -> DescribedTransactionState:
    try:
        context.authorize(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        context.check_coordinator(transactional_id)
        transaction = context.state.transaction_coordinator.get(transactional_id)
        if transaction is None:
            raise ApiError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    except ApiError as error:
        return _refused(transactional_id, error.code)
    return DescribedTransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=transaction.state.value,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_ms,
        producer_id=transaction.producer.producer_id,
        producer_epoch=transaction.producer.epoch,
        topics=_topics(context, transaction),
    )


def _topics(
    context: RequestContext, transaction: TransactionMetadata
) -> list[DescribeTransactionsTopicData]:
    topics: dict[str, dict[int, None]] = {}
    for tp in transaction.partitions:
        topics.setdefault(tp.topic, {})[tp.partition] = None
    for group in transaction.groups:
        topics.setdefault(OFFSETS_TOPIC, {})[context.cluster.coordinator_partition(group)] = None
    return [
        DescribeTransactionsTopicData(topic=name, partitions=list(indexes))
        for name, indexes in topics.items()
        if context.is_authorized(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
    ]


def _refused(transactional_id: str, code: int) -> DescribedTransactionState:
    return DescribedTransactionState(
        error_code=code,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )
