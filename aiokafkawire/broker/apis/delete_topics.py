"""DeleteTopics: by name, or by id."""

from __future__ import annotations

from collections import Counter

from aiokafkawire.broker.call import Call
from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.wire import NO_ID, ErrorCode
from aiokafkawire.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

__all__ = ("failed", "handle")

FIRST_ID_VERSION = 6


async def handle(call: Call, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    if not call.takes_changes:
        return failed(request, call.version, ErrorCode.NOT_CONTROLLER)
    asked = _asked(request, call.version)
    times = Counter((each.name, each.topic_id) for each in asked)
    responses = []
    for (name, topic_id), count in times.items():
        if count > 1:
            responses.append(
                DeletableTopicResult(
                    name=name,
                    topic_id=topic_id,
                    error_code=ErrorCode.INVALID_REQUEST,
                    error_message="the topic is in the request more than once",
                )
            )
    responses += [_deleted(call, each) for each in asked if times[each.name, each.topic_id] == 1]
    await call.told(request.timeout_ms)
    return DeleteTopicsResponse(responses=responses)


def failed(request: DeleteTopicsRequest, version: int, code: int) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(name=asked.name, topic_id=asked.topic_id, error_code=code)
            for asked in _asked(request, version)
        ]
    )


def _asked(request: DeleteTopicsRequest, version: int) -> list[DeleteTopicState]:
    if version >= FIRST_ID_VERSION:
        return request.topics
    return [DeleteTopicState(name=name, topic_id=NO_ID) for name in request.topic_names]


def _deleted(call: Call, asked: DeleteTopicState) -> DeletableTopicResult:
    cluster = call.cluster
    try:
        if (asked.name is None) == (asked.topic_id == NO_ID):
            raise Refusal(ErrorCode.INVALID_REQUEST, "a topic is named by name or by id, not both")
        topic = (
            cluster.topic_by_id(asked.topic_id) if asked.name is None else cluster.topic(asked.name)
        )
        cluster.delete_topic(topic)
    except Refusal as refusal:
        return DeletableTopicResult(
            name=asked.name,
            topic_id=asked.topic_id,
            error_code=refusal.code,
            error_message=refusal.message,
        )
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=ErrorCode.NONE)
