"""AddPartitionsToTxn: add partitions to transactions.

Producers use versions 0 to 3. Later versions carry several transactions, and can also only verify
that partitions were added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.transaction_requests import code_for
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.broker.transactions.events import (
    AddToTransaction,
    TransactionContents,
    VerifyInTransaction,
)
from aiokafkawire.types import ProducerIdAndEpoch, TopicPartition
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

__all__ = ("error_response", "handle")

FIRST_FENCED_VERSION = 2
FIRST_BATCHED_VERSION = 4
FIRST_ABORTABLE_VERSION = 5

GetError = Callable[[str, int], int]


async def handle(
    context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    if context.version >= FIRST_BATCHED_VERSION and not context.is_authorized(
        AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER
    ):
        # Only brokers use these versions.
        return AddPartitionsToTxnResponse(
            throttle_time_ms=0, error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        )
    return _response(
        request,
        context.version,
        lambda transaction: _error_getter(context, transaction, context.version),
    )


def error_response(
    request: AddPartitionsToTxnRequest, version: int, code: int
) -> AddPartitionsToTxnResponse:
    return _response(request, version, lambda transaction: lambda topic, index: code)


def _response(
    request: AddPartitionsToTxnRequest,
    version: int,
    error_getter: Callable[[AddPartitionsToTxnTransaction], GetError],
) -> AddPartitionsToTxnResponse:
    if version >= FIRST_BATCHED_VERSION:
        results = [
            AddPartitionsToTxnResult(
                transactional_id=each.transactional_id,
                topic_results=_results(each.topics, error_getter(each)),
            )
            for each in request.transactions
        ]
        return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_transaction=results)
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return AddPartitionsToTxnResponse(
        throttle_time_ms=0,
        results_by_topic_v3_and_below=_results(transaction.topics, error_getter(transaction)),
    )


def _results(
    topics: Sequence[AddPartitionsToTxnTopic], get_error: GetError
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=get_error(topic.name, index)
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def _error_getter(
    context: RequestContext, requested: AddPartitionsToTxnTransaction, version: int
) -> GetError:
    """Handle one transaction; return a function with the error of each partition."""
    if version < FIRST_BATCHED_VERSION:
        try:
            context.authorize(
                AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, requested.transactional_id
            )
        except ApiError as error:
            code = error.code
            return lambda topic, index: code
    partitions = [
        TopicPartition(topic.name, index)
        for topic in requested.topics
        for index in topic.partitions
    ]
    refused: dict[TopicPartition, ErrorCode] = {}
    for tp in partitions:
        if version < FIRST_BATCHED_VERSION and not context.is_authorized(
            AclOperation.WRITE, ResourceType.TOPIC, tp.topic
        ):
            refused[tp] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif not _exists(context, tp):
            refused[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if refused:
        # Either all partitions are added or none.
        return lambda topic, index: refused.get(
            TopicPartition(topic, index), ErrorCode.OPERATION_NOT_ATTEMPTED
        )
    event = VerifyInTransaction if requested.verify_only else AddToTransaction
    try:
        context.check_coordinator(requested.transactional_id)
        result = context.state.transaction_coordinator.handle(
            requested.transactional_id,
            event(
                producer=ProducerIdAndEpoch(requested.producer_id, requested.producer_epoch),
                scope=TransactionContents(partitions=tuple(partitions)),
            ),
        )
        code = code_for(version, result.code, fenced_since=FIRST_FENCED_VERSION)
    except ApiError as error:
        code = error.code
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_ABORTABLE_VERSION:
        code = ErrorCode.INVALID_TXN_STATE
    return lambda topic, index: code


def _exists(context: RequestContext, tp: TopicPartition) -> bool:
    topic = context.cluster.topics.get(tp.topic)
    return topic is not None and 0 <= tp.partition < len(topic.partitions)
