"""TxnOffsetCommit: offsets of a group that apply once the transaction commits."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.group_requests import check_commit
from aiokafkawire.broker.groups.consumer_group.offset_checks import CheckPartition
from aiokafkawire.broker.groups.events import Result, ValidateOffsetCommit
from aiokafkawire.broker.groups.offsets import CommittedOffset
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.broker.transactions.events import (
    AddToTransaction,
    CommitTxnOffsets,
    TransactionContents,
    VerifyInTransaction,
)
from aiokafkawire.runtime import Future
from aiokafkawire.types import ProducerIdAndEpoch, TopicPartition
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

__all__ = ("error_response", "handle")

FIRST_ABORTABLE_VERSION = 4
FIRST_ADDING_VERSION = 5
FIRST_ID_VERSION = 6

GetError = Callable[[TxnOffsetCommitRequestTopic, TxnOffsetCommitRequestPartition], int]


async def handle(
    context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    try:
        context.authorize(
            AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id
        )
        context.authorize(AclOperation.READ, ResourceType.GROUP, request.group_id)
    except ApiError as error:
        return error_response(request, context.version, error.code)
    refused = _name_topics(context, request)

    def get_topic_error(
        topic: TxnOffsetCommitRequestTopic, requested: TxnOffsetCommitRequestPartition
    ) -> int:
        return refused.get((topic.name, topic.topic_id), ErrorCode.NONE)

    if len(refused) == len(request.topics) > 0:
        return _response(request, get_topic_error)
    accepted: dict[TopicPartition, CommittedOffset] = {}

    def get_error(
        topic: TxnOffsetCommitRequestTopic, requested: TxnOffsetCommitRequestPartition
    ) -> int:
        try:
            _check(context, topic.name, requested)
        except ApiError as error:
            return get_topic_error(topic, requested) or error.code
        if code := get_topic_error(topic, requested):
            return code
        accepted[TopicPartition(topic.name, requested.partition_index)] = CommittedOffset(
            requested.committed_offset,
            requested.committed_leader_epoch,
            requested.committed_metadata or "",
        )
        return ErrorCode.NONE

    try:
        check_partition = _check_group(context, request)
        _check_owner(context, request, check_partition)
        _join_transaction(context, request)
        response = _response(request, get_error)
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        event = CommitTxnOffsets(producer=producer, group=request.group_id, offsets=accepted)
        _refuse(
            context.version,
            context.state.transaction_coordinator.handle(request.transactional_id, event).code,
        )
    except ApiError as error:
        code = error.code
        return _response(
            request,
            lambda topic, requested: get_topic_error(topic, requested) or code,
        )
    return response


def error_response(
    request: TxnOffsetCommitRequest, version: int, code: int
) -> TxnOffsetCommitResponse:
    return _response(request, lambda topic, requested: code)


def _response(request: TxnOffsetCommitRequest, get_error: GetError) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        throttle_time_ms=0,
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=requested.partition_index,
                        error_code=get_error(topic, requested),
                    )
                    for requested in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _name_topics(
    context: RequestContext, request: TxnOffsetCommitRequest
) -> dict[tuple[str, UUID], ErrorCode]:
    """Set the names of topics that the request names by id.

    Returns:
        The error of each topic that has an unknown id or is forbidden.
    """
    refused: dict[tuple[str, UUID], ErrorCode] = {}
    for topic in request.topics:
        try:
            if context.version >= FIRST_ID_VERSION:
                topic.name = context.cluster.topic_by_id(topic.topic_id).name
            context.authorize(AclOperation.READ, ResourceType.TOPIC, topic.name)
        except ApiError as error:
            refused[topic.name, topic.topic_id] = error.code
    return refused


def _check_group(context: RequestContext, request: TxnOffsetCommitRequest) -> CheckPartition:
    context.check_coordinator(request.group_id)
    reply: Future[Result] = Future()
    event = ValidateOffsetCommit(
        reply=reply,
        member_id=request.member_id,
        generation=request.generation_id_or_member_epoch,
        instance_id=request.group_instance_id,
        transactional=True,
    )
    by_id = context.version >= FIRST_ID_VERSION
    missing = ErrorCode.GROUP_ID_NOT_FOUND if by_id else ErrorCode.ILLEGAL_GENERATION
    return check_commit(context, request.group_id, event, reply, missing=missing)


def _check_owner(
    context: RequestContext, request: TxnOffsetCommitRequest, check: CheckPartition
) -> None:
    """Raise `ApiError` if the member does not own a partition in its epoch (KIP-1251)."""
    topics = context.cluster.topics
    for topic in request.topics:
        known = topics.get(topic.name)
        if known is None:
            continue
        for requested in topic.partitions:
            code = check(known.topic_id, requested.partition_index)
            if code:
                raise ApiError(code)


def _join_transaction(context: RequestContext, request: TxnOffsetCommitRequest) -> None:
    """Add the group to the transaction, or verify that it was added (KIP-890)."""
    adds = context.version >= FIRST_ADDING_VERSION
    if not adds and not context.release.verifies_transactions:
        return
    if not context.state.coordinator_loader.is_available(request.transactional_id):
        raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    event = AddToTransaction if adds else VerifyInTransaction
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    answer = context.state.transaction_coordinator.handle(
        request.transactional_id,
        event(producer=producer, scope=TransactionContents(groups=(request.group_id,))),
    )
    _refuse(context.version, answer.code)


def _refuse(version: int, code: ErrorCode) -> None:
    """Raise an error of the transaction coordinator as one of TxnOffsetCommit."""
    if code is ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    elif code is ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_ABORTABLE_VERSION:
        code = ErrorCode.INVALID_TXN_STATE
    elif code is ErrorCode.CONCURRENT_TRANSACTIONS and version < FIRST_ADDING_VERSION:
        # Older clients do not expect it here; they retry this one.
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if code:
        raise ApiError(code)


def _check(context: RequestContext, topic: str, requested: TxnOffsetCommitRequestPartition) -> None:
    context.cluster.partition(context.cluster.topic(topic), requested.partition_index)
    limit = context.state.options.offset_metadata_max_bytes
    if len((requested.committed_metadata or "").encode()) > limit:
        raise ApiError(ErrorCode.OFFSET_METADATA_TOO_LARGE)
