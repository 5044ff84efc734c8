"""OffsetCommit: keep a group's positions. Version 0 keeps them apart, where ZooKeeper was."""

from __future__ import annotations

from collections.abc import Callable

from aiokafkawire.broker.apis.group_requests import check_commit, check_coordinator
from aiokafkawire.broker.call import Call
from aiokafkawire.broker.groups.events import Commit, Result
from aiokafkawire.broker.groups.offsets import Committed, OffsetsStorage
from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.runtime import Promise
from aiokafkawire.types import ANY_LEADER_EPOCH, TopicPartition
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

__all__ = ("failed", "handle")

FIRST_NOT_FOUND_VERSION = 9
FIRST_ID_VERSION = 10

Judge = Callable[[OffsetCommitRequestTopic, OffsetCommitRequestPartition], int]


async def handle(call: Call, request: OffsetCommitRequest) -> OffsetCommitResponse:
    storage = OffsetsStorage.ZOOKEEPER if call.version == 0 else OffsetsStorage.KAFKA
    if storage is OffsetsStorage.KAFKA:
        try:
            _check_group(call, request)
        except Refusal as refusal:
            return failed(request, call.version, refusal.code)
    accepted: dict[TopicPartition, Committed] = {}

    def judge(topic: OffsetCommitRequestTopic, asked: OffsetCommitRequestPartition) -> int:
        try:
            name = _check(call, topic, asked)
        except Refusal as refusal:
            return refusal.code
        committed = Committed(
            asked.committed_offset, asked.committed_leader_epoch, asked.committed_metadata or ""
        )
        if storage is OffsetsStorage.ZOOKEEPER:
            if not call.release.has_zookeeper:
                return ErrorCode.UNSUPPORTED_VERSION
            # A node of ZooKeeper holds a number and nothing else.
            committed = Committed(asked.committed_offset, ANY_LEADER_EPOCH, "")
        accepted[TopicPartition(name, asked.partition_index)] = committed
        return ErrorCode.NONE

    response = _response(request, judge)
    try:
        call.state.groups.offsets.commit(request.group_id, accepted, storage)
    except Refusal as refusal:
        return failed(request, call.version, refusal.code)
    return response


def failed(request: OffsetCommitRequest, version: int, code: int) -> OffsetCommitResponse:
    return _response(request, lambda topic, asked: code)


def _response(request: OffsetCommitRequest, judge: Judge) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=asked.partition_index, error_code=judge(topic, asked)
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _check_group(call: Call, request: OffsetCommitRequest) -> None:
    check_coordinator(call, request.group_id, named=False)
    newer = call.version >= FIRST_NOT_FOUND_VERSION and call.release.since("4.0")
    missing = ErrorCode.GROUP_ID_NOT_FOUND if newer else ErrorCode.ILLEGAL_GENERATION
    reply: Promise[Result] = Promise()
    event = Commit(
        reply=reply,
        member_id=request.member_id,
        generation=request.generation_id_or_member_epoch,
        instance_id=request.group_instance_id,
    )
    check_commit(call, request.group_id, event, reply, missing=missing)


def _check(call: Call, topic: OffsetCommitRequestTopic, asked: OffsetCommitRequestPartition) -> str:
    """The topic's name, if the offset can be kept. Raises `Refusal`."""
    cluster, release = call.cluster, call.release
    name = topic.name
    # What was committed to Kafka was looked at less closely once.
    if call.version == 0 or release.since("0.9.0"):
        found = (
            cluster.topic_by_id(topic.topic_id)
            if call.version >= FIRST_ID_VERSION
            else cluster.topic(topic.name)
        )
        name = found.name
        if call.version == 0 or release.since("2.0"):
            cluster.partition(found, asked.partition_index)
    limit = call.state.options.offset_metadata_max_bytes
    if len((asked.committed_metadata or "").encode()) > limit:
        raise Refusal(ErrorCode.OFFSET_METADATA_TOO_LARGE)
    return name
