"""OffsetDelete: forget what a group committed for partitions that it does not read."""

from __future__ import annotations

from collections.abc import Callable

from aiokafkawire.broker.apis.group_requests import check_coordinator
from aiokafkawire.broker.call import Call
from aiokafkawire.broker.groups.events import GroupState
from aiokafkawire.broker.groups.machine import ClassicGroup
from aiokafkawire.broker.groups.subscriptions import is_consumer_group, subscribed_topics
from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

__all__ = ("failed", "handle")


async def handle(call: Call, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    try:
        group = _group(call, request.group_id)
    except Refusal as refusal:
        return OffsetDeleteResponse(error_code=refusal.code, topics=[])
    subscribed = subscribed_topics(group)
    deleted: list[TopicPartition] = []

    def judge(topic: str, index: int) -> ErrorCode:
        try:
            call.cluster.partition(call.cluster.topic(topic), index)
        except Refusal as refusal:
            return refusal.code
        if subscribed is None or topic in subscribed:
            return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        deleted.append(TopicPartition(topic, index))
        return ErrorCode.NONE

    response = _response(request, judge)
    try:
        call.state.groups.offsets.forget(request.group_id, deleted)
        call.state.transactions.forget_offsets(request.group_id, deleted)
    except Refusal as refusal:
        return failed(request, call.version, refusal.code)
    return response


def failed(request: OffsetDeleteRequest, version: int, code: int) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=code, topics=[])


def _group(call: Call, group_id: str) -> ClassicGroup:
    check_coordinator(call, group_id)
    group = call.state.groups.get(group_id)
    if group is None or group.state is GroupState.DEAD:
        raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND)
    if group.state is not GroupState.EMPTY and not is_consumer_group(group):
        # What the members of another kind of group read cannot be told.
        raise Refusal(ErrorCode.NON_EMPTY_GROUP)
    return group


def _response(
    request: OffsetDeleteRequest, judge: Callable[[str, int], ErrorCode]
) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(
        error_code=ErrorCode.NONE,
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=asked.partition_index,
                        error_code=judge(topic.name, asked.partition_index),
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
