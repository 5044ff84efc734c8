"""DeleteTopics: delete topics by name or id."""

from __future__ import annotations

from collections import Counter

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire import ZERO_UUID, ErrorCode
from aiokafkawire.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

__all__ = ("error_response", "handle")

FIRST_ID_VERSION = 6
FORBIDDEN = "Topic authorization failed."
MESSAGES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.UNKNOWN_TOPIC_ID: "This server does not host this topic ID.",
}


async def handle(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    if not context.accepts_controller_requests:
        return error_response(request, context.version, ErrorCode.NOT_CONTROLLER)
    requested = _requested(request, context.version)
    times = Counter((each.name, each.topic_id) for each in requested)
    responses = []
    for (name, topic_id), count in times.items():
        if count > 1:
            responses.append(
                DeletableTopicResult(
                    name=name,
                    topic_id=topic_id,
                    error_code=ErrorCode.INVALID_REQUEST,
                    error_message=f"Duplicate topic {'id' if name is None else 'name'}.",
                )
            )
    responses += [
        _delete_one(context, each) for each in requested if times[each.name, each.topic_id] == 1
    ]
    await context.wait_for_metadata(request.timeout_ms)
    return DeleteTopicsResponse(responses=responses)


def error_response(request: DeleteTopicsRequest, version: int, code: int) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(name=requested.name, topic_id=requested.topic_id, error_code=code)
            for requested in _requested(request, version)
        ]
    )


def _requested(request: DeleteTopicsRequest, version: int) -> list[DeleteTopicState]:
    if version >= FIRST_ID_VERSION:
        return request.topics
    return [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in request.topic_names]


def _delete_one(context: RequestContext, requested: DeleteTopicState) -> DeletableTopicResult:
    cluster = context.cluster
    try:
        if requested.name is None and requested.topic_id == ZERO_UUID:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
        if requested.name is not None and requested.topic_id != ZERO_UUID:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."
            )
        if requested.name is None:
            topic = cluster.topic_by_id(requested.topic_id)
        else:
            context.authorize(AclOperation.DESCRIBE, ResourceType.TOPIC, requested.name, FORBIDDEN)
            topic = cluster.topic(requested.name)
        context.authorize(AclOperation.DELETE, ResourceType.TOPIC, topic.name, FORBIDDEN)
        if context.mutation_quota is not None:
            context.mutation_quota.record(len(topic.partitions))
        cluster.delete_topic(topic)
    except ApiError as error:
        return DeletableTopicResult(
            name=requested.name,
            topic_id=requested.topic_id,
            error_code=error.code,
            error_message=error.message or MESSAGES.get(error.code),
        )
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=ErrorCode.NONE)
