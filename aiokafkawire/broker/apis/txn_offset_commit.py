"""TxnOffsetCommit: positions of a group that count once a transaction is committed."""

from __future__ import annotations

from collections.abc import Callable

from aiokafkawire.broker.apis.group_requests import check_commit, check_coordinator
from aiokafkawire.broker.call import Call
from aiokafkawire.broker.groups.events import Commit, Result
from aiokafkawire.broker.groups.offsets import Committed
from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.broker.transactions.events import Add, CommitOffsets, Scope, Verify
from aiokafkawire.runtime import Promise
from aiokafkawire.types import ProducerIdAndEpoch, TopicPartition
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

__all__ = ("failed", "handle")

FIRST_ABORTABLE_VERSION = 4
FIRST_ADDING_VERSION = 5

Judge = Callable[[str, TxnOffsetCommitRequestPartition], int]


async def handle(call: Call, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    accepted: dict[TopicPartition, Committed] = {}

    def judge(topic: str, asked: TxnOffsetCommitRequestPartition) -> int:
        try:
            _check(call, topic, asked)
        except Refusal as refusal:
            return refusal.code
        accepted[TopicPartition(topic, asked.partition_index)] = Committed(
            asked.committed_offset, asked.committed_leader_epoch, asked.committed_metadata or ""
        )
        return ErrorCode.NONE

    try:
        _check_group(call, request)
        _join_transaction(call, request)
        response = _response(request, judge)
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        event = CommitOffsets(producer=producer, group=request.group_id, offsets=accepted)
        _refuse(call.version, call.state.transactions.handle(request.transactional_id, event).code)
    except Refusal as refusal:
        return failed(request, call.version, refusal.code)
    return response


def failed(request: TxnOffsetCommitRequest, version: int, code: int) -> TxnOffsetCommitResponse:
    return _response(request, lambda topic, asked: code)


def _response(request: TxnOffsetCommitRequest, judge: Judge) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        throttle_time_ms=0,
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=asked.partition_index,
                        error_code=judge(topic.name, asked),
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _check_group(call: Call, request: TxnOffsetCommitRequest) -> None:
    check_coordinator(call, request.group_id, named=False)
    reply: Promise[Result] = Promise()
    event = Commit(
        reply=reply,
        member_id=request.member_id,
        generation=request.generation_id,
        instance_id=request.group_instance_id,
        transactional=True,
    )
    check_commit(call, request.group_id, event, reply)


def _join_transaction(call: Call, request: TxnOffsetCommitRequest) -> None:
    """See that the group belongs to the transaction, as far as the release minds."""
    adds = call.version >= FIRST_ADDING_VERSION
    if not adds and not call.release.verifies_transactions:
        return
    if not call.state.coordination.can_be_asked(request.transactional_id):
        raise Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    event = Add if adds else Verify
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    answer = call.state.transactions.handle(
        request.transactional_id,
        event(producer=producer, scope=Scope(groups=(request.group_id,))),
    )
    _refuse(call.version, answer.code)


def _refuse(version: int, code: ErrorCode) -> None:
    """Raise what the coordinator of the transaction said as the group's coordinator says it."""
    if code is ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    elif code is ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_ABORTABLE_VERSION:
        code = ErrorCode.INVALID_TXN_STATE
    elif code is ErrorCode.CONCURRENT_TRANSACTIONS and version < FIRST_ADDING_VERSION:
        # Older clients do not expect it here; this one they try again.
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if code:
        raise Refusal(code)


def _check(call: Call, topic: str, asked: TxnOffsetCommitRequestPartition) -> None:
    call.cluster.partition(call.cluster.topic(topic), asked.partition_index)
    limit = call.state.options.offset_metadata_max_bytes
    if len((asked.committed_metadata or "").encode()) > limit:
        raise Refusal(ErrorCode.OFFSET_METADATA_TOO_LARGE)
