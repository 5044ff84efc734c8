"""CreatePartitions: raise the number of partitions of topics."""

from __future__ import annotations

from collections import Counter
from functools import partial

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

__all__ = ("error_response", "handle")


async def handle(
    context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    if not context.accepts_controller_requests:
        return error_response(request, context.version, ErrorCode.NOT_CONTROLLER)
    times = Counter(topic.name for topic in request.topics)
    results = [
        CreatePartitionsTopicResult(
            name=name,
            error_code=ErrorCode.INVALID_REQUEST,
            error_message="Duplicate topic name.",
        )
        for name, count in times.items()
        if count > 1
    ]
    results += [
        _create_one(context, topic, validate_only=request.validate_only)
        for topic in request.topics
        if times[topic.name] == 1
    ]
    await context.wait_for_metadata(request.timeout_ms)
    return CreatePartitionsResponse(throttle_time_ms=0, results=results)


def error_response(
    request: CreatePartitionsRequest, version: int, code: int
) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        throttle_time_ms=0,
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=code)
            for topic in request.topics
        ],
    )


def _create_one(
    context: RequestContext, requested: CreatePartitionsTopic, *, validate_only: bool
) -> CreatePartitionsTopicResult:
    assignments = (
        None
        if requested.assignments is None
        else [each.broker_ids for each in requested.assignments]
    )
    try:
        context.authorize(AclOperation.ALTER, ResourceType.TOPIC, requested.name)
        topic = context.cluster.topic(requested.name)
        add = partial(context.cluster.add_partitions, topic, requested.count)
        if context.mutation_quota is not None:
            add(assignments=assignments, validate_only=True)
            context.mutation_quota.record(requested.count - len(topic.partitions))
        add(assignments=assignments, validate_only=validate_only)
    except ApiError as error:
        return CreatePartitionsTopicResult(
            name=requested.name, error_code=error.code, error_message=error.message
        )
    return CreatePartitionsTopicResult(name=requested.name, error_code=ErrorCode.NONE)
