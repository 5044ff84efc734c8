"""CreateTopics: any node takes it, or where there is ZooKeeper the controller alone."""

from __future__ import annotations

from collections import Counter

from aiokafkawire.broker.call import Call
from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.broker.settings import InvalidValue
from aiokafkawire.broker.topics import MAX_PARTITIONS, Topic
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

__all__ = ("failed", "handle")

TOPIC_CONFIG_SOURCE = 1


async def handle(call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse:
    if not call.takes_changes:
        return failed(request, call.version, ErrorCode.NOT_CONTROLLER)
    times = Counter(topic.name for topic in request.topics)
    repeats = call.release.since("2.4") and not call.release.passes_to_controller
    results = [
        CreatableTopicResult(
            name=name,
            error_code=ErrorCode.INVALID_REQUEST,
            error_message="the topic is in the request more than once",
        )
        for name, count in times.items()
        for _ in range(count if repeats else 1)
        if count > 1
    ]
    for topic in request.topics:
        if times[topic.name] == 1:
            results.append(_created(call, topic, validate_only=request.validate_only))
    await call.told(request.timeout_ms)
    return CreateTopicsResponse(topics=results)


def failed(request: CreateTopicsRequest, version: int, code: int) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=topic.name, error_code=code, error_message=None)
            for topic in request.topics
        ]
    )


def _created(call: Call, asked: CreatableTopic, *, validate_only: bool) -> CreatableTopicResult:
    try:
        topic = _create(call, asked, validate_only=validate_only)
    except Refusal as refusal:
        code = refusal.code
        if isinstance(refusal, InvalidValue) and not call.release.since("2.0"):
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        return CreatableTopicResult(name=asked.name, error_code=code, error_message=refusal.message)
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=[
            CreatableTopicConfigs(
                name=name,
                value=value,
                read_only=False,
                config_source=TOPIC_CONFIG_SOURCE,
                is_sensitive=False,
            )
            for name, value in topic.configs.items()
        ],
    )


def _create(call: Call, asked: CreatableTopic, *, validate_only: bool) -> Topic:
    if asked.assignments and (asked.num_partitions, asked.replication_factor) != (-1, -1):
        raise Refusal(
            ErrorCode.INVALID_REQUEST, "with assignments both counts must be -1, as they follow"
        )
    if len(asked.assignments) > MAX_PARTITIONS:
        raise Refusal(ErrorCode.POLICY_VIOLATION)
    indexes = [each.partition_index for each in asked.assignments]
    if len(indexes) != len(dict.fromkeys(indexes)):
        raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition is assigned twice")
    return call.cluster.create_topic(
        asked.name,
        asked.num_partitions,
        asked.replication_factor,
        assignments={each.partition_index: each.broker_ids for each in asked.assignments},
        configs={config.name: config.value for config in asked.configs},
        validate_only=validate_only,
    )
