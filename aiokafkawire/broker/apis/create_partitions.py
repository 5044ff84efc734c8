"""CreatePartitions: let topics have more partitions."""

from __future__ import annotations

from collections import Counter

from aiokafkawire.broker.call import Call
from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

__all__ = ("failed", "handle")


async def handle(call: Call, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    if not call.takes_changes:
        return failed(request, call.version, ErrorCode.NOT_CONTROLLER)
    times = Counter(topic.name for topic in request.topics)
    results = [
        CreatePartitionsTopicResult(
            name=name,
            error_code=ErrorCode.INVALID_REQUEST,
            error_message="the topic is in the request more than once",
        )
        for name, count in times.items()
        if count > 1
    ]
    results += [
        _created(call, topic, validate_only=request.validate_only)
        for topic in request.topics
        if times[topic.name] == 1
    ]
    await call.told(request.timeout_ms)
    return CreatePartitionsResponse(throttle_time_ms=0, results=results)


def failed(request: CreatePartitionsRequest, version: int, code: int) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        throttle_time_ms=0,
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=code)
            for topic in request.topics
        ],
    )


def _created(
    call: Call, asked: CreatePartitionsTopic, *, validate_only: bool
) -> CreatePartitionsTopicResult:
    assignments = (
        None if asked.assignments is None else [each.broker_ids for each in asked.assignments]
    )
    try:
        call.cluster.add_partitions(
            call.cluster.topic(asked.name),
            asked.count,
            assignments=assignments,
            validate_only=validate_only,
        )
    except Refusal as refusal:
        return CreatePartitionsTopicResult(
            name=asked.name, error_code=refusal.code, error_message=refusal.message
        )
    return CreatePartitionsTopicResult(name=asked.name, error_code=ErrorCode.NONE)
