"""OffsetCommit: commit offsets of a group; v0 stores them apart, as in ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.group_requests import check_commit
from aiokafkawire.broker.groups.consumer_group.offset_checks import (
    CheckPartition,
    accept_partition,
)
from aiokafkawire.broker.groups.events import Result, ValidateOffsetCommit
from aiokafkawire.broker.groups.offsets import CommittedOffset, OffsetsStorage
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.broker.topics import Topic
from aiokafkawire.runtime import Future
from aiokafkawire.types import NO_LEADER_EPOCH, TopicPartition
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

__all__ = ("error_response", "handle")

FIRST_NOT_FOUND_VERSION = 9
FIRST_ID_VERSION = 10

GetError = Callable[[OffsetCommitRequestTopic, OffsetCommitRequestPartition], int]


async def handle(context: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    storage = OffsetsStorage.ZOOKEEPER if context.version == 0 else OffsetsStorage.KAFKA
    try:
        context.authorize(AclOperation.READ, ResourceType.GROUP, request.group_id)
    except ApiError as error:
        return error_response(request, context.version, error.code)
    check_partition: CheckPartition = accept_partition
    if storage is OffsetsStorage.KAFKA:
        try:
            check_partition = _check_group(context, request)
        except ApiError as error:
            return _group_error_response(context, request, error.code)
    accepted: dict[TopicPartition, CommittedOffset] = {}

    def get_error(topic: OffsetCommitRequestTopic, requested: OffsetCommitRequestPartition) -> int:
        try:
            known_topic = _check(context, topic, requested)
        except ApiError as error:
            return error.code
        name = topic.name if known_topic is None else known_topic.name
        if known_topic is not None:
            code = check_partition(known_topic.topic_id, requested.partition_index)
            if code:
                return code
        committed = CommittedOffset(
            requested.committed_offset,
            requested.committed_leader_epoch,
            requested.committed_metadata or "",
        )
        if storage is OffsetsStorage.ZOOKEEPER:
            if not context.release.has_zookeeper:
                return ErrorCode.UNSUPPORTED_VERSION
            # ZooKeeper nodes hold only the offset.
            committed = CommittedOffset(requested.committed_offset, NO_LEADER_EPOCH, "")
        accepted[TopicPartition(name, requested.partition_index)] = committed
        return ErrorCode.NONE

    response = _response(request, get_error)
    try:
        context.state.group_coordinator.offsets.commit(request.group_id, accepted, storage)
    except ApiError as error:
        return error_response(request, context.version, error.code)
    return response


def error_response(request: OffsetCommitRequest, version: int, code: int) -> OffsetCommitResponse:
    return _response(request, lambda topic, requested: code)


def _group_error_response(
    context: RequestContext, request: OffsetCommitRequest, code: int
) -> OffsetCommitResponse:
    """Return the response of a group that refuses the commit, except for forbidden topics."""
    if context.state.authorizer is None:
        return error_response(request, context.version, code)

    def get_error(topic: OffsetCommitRequestTopic, requested: OffsetCommitRequestPartition) -> int:
        try:
            _authorized_topic(context, topic)
        except ApiError as error:
            return error.code
        return code

    return _response(request, get_error)


def _response(request: OffsetCommitRequest, get_error: GetError) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=requested.partition_index,
                        error_code=get_error(topic, requested),
                    )
                    for requested in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _check_group(context: RequestContext, request: OffsetCommitRequest) -> CheckPartition:
    context.check_coordinator(request.group_id)
    newer = context.version >= FIRST_NOT_FOUND_VERSION and context.release.since("4.0")
    missing = ErrorCode.GROUP_ID_NOT_FOUND if newer else ErrorCode.ILLEGAL_GENERATION
    reply: Future[Result] = Future()
    event = ValidateOffsetCommit(
        reply=reply,
        member_id=request.member_id,
        generation=request.generation_id_or_member_epoch,
        instance_id=request.group_instance_id,
    )
    return check_commit(context, request.group_id, event, reply, missing=missing)


def _authorized_topic(context: RequestContext, topic: OffsetCommitRequestTopic) -> Topic:
    by_id = context.version >= FIRST_ID_VERSION
    return context.authorized_topic(topic.name, topic.topic_id, AclOperation.READ, by_id=by_id)


def _check(
    context: RequestContext,
    topic: OffsetCommitRequestTopic,
    requested: OffsetCommitRequestPartition,
) -> Topic | None:
    """Return the topic if the offset can be committed, None if any topic is accepted.

    Raises:
        ApiError: The offset cannot be committed.
    """
    cluster, release = context.cluster, context.release
    known_topic: Topic | None = None
    # Earlier releases did not check the topic of commits to Kafka.
    if context.version == 0 or release.since("0.9.0"):
        known_topic = _authorized_topic(context, topic)
        if context.version == 0 or release.since("2.0"):
            cluster.partition(known_topic, requested.partition_index)
    else:
        context.authorize(AclOperation.READ, ResourceType.TOPIC, topic.name)
    limit = context.state.options.offset_metadata_max_bytes
    if len((requested.committed_metadata or "").encode()) > limit:
        raise ApiError(ErrorCode.OFFSET_METADATA_TOO_LARGE)
    return known_topic
