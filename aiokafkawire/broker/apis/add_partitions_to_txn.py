"""AddPartitionsToTxn: which partitions a transaction writes to.

Versions 0 to 3 are of producers. Later ones carry several transactions, and may ask only whether
the partitions were added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aiokafkawire.broker.apis.transaction_requests import code_for
from aiokafkawire.broker.call import Call
from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.broker.transactions.events import Add, Scope, Verify
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

__all__ = ("failed", "handle")

FIRST_FENCED_VERSION = 2
FIRST_BATCHED_VERSION = 4
FIRST_ABORTABLE_VERSION = 5

Judge = Callable[[str, int], int]


async def handle(call: Call, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    return _response(
        request, call.version, lambda transaction: _judge(call, transaction, call.version)
    )


def failed(
    request: AddPartitionsToTxnRequest, version: int, code: int
) -> AddPartitionsToTxnResponse:
    return _response(request, version, lambda transaction: lambda topic, index: code)


def _response(
    request: AddPartitionsToTxnRequest,
    version: int,
    judge: Callable[[AddPartitionsToTxnTransaction], Judge],
) -> AddPartitionsToTxnResponse:
    if version >= FIRST_BATCHED_VERSION:
        results = [
            AddPartitionsToTxnResult(
                transactional_id=each.transactional_id,
                topic_results=_results(each.topics, judge(each)),
            )
            for each in request.transactions
        ]
        return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_transaction=results)
    only = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return AddPartitionsToTxnResponse(
        throttle_time_ms=0, results_by_topic_v3_and_below=_results(only.topics, judge(only))
    )


def _results(
    topics: Sequence[AddPartitionsToTxnTopic], judge: Judge
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=judge(topic.name, index)
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def _judge(call: Call, asked: AddPartitionsToTxnTransaction, version: int) -> Judge:
    """Carry it out, and give what becomes of each partition."""
    partitions = [TopicPartition(t.name, index) for t in asked.topics for index in t.partitions]
    unknown = {tp for tp in partitions if not _exists(call, tp)}
    if unknown:
        # All or nothing.
        return lambda topic, index: (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if TopicPartition(topic, index) in unknown
            else ErrorCode.OPERATION_NOT_ATTEMPTED
        )
    event = Verify if asked.verify_only else Add
    try:
        call.check_coordinator(asked.transactional_id)
        answer = call.state.transactions.handle(
            asked.transactional_id,
            event(
                producer=ProducerIdAndEpoch(asked.producer_id, asked.producer_epoch),
                scope=Scope(partitions=tuple(partitions)),
            ),
        )
        code = code_for(version, answer.code, fenced_since=FIRST_FENCED_VERSION)
    except Refusal as refusal:
        code = refusal.code
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_ABORTABLE_VERSION:
        code = ErrorCode.INVALID_TXN_STATE
    return lambda topic, index: code


def _exists(call: Call, tp: TopicPartition) -> bool:
    topic = call.cluster.topics.get(tp.topic)
    return topic is not None and 0 <= tp.partition < len(topic.partitions)
