"""CreateTopics: on any node, under ZooKeeper only on the controller."""

from __future__ import annotations

from collections import Counter

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError, StorageError
from aiokafkawire.broker.apis.describe_configs import describe_topic
from aiokafkawire.broker.cluster_topics import MAX_PARTITIONS
from aiokafkawire.broker.configs import InvalidConfigValue
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.broker.topics import Topic
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

__all__ = ("error_response", "handle")

NOT_DEFAULT = "A manual partition assignment was specified, but {} was not set to -1."


async def handle(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    if not context.accepts_controller_requests:
        return error_response(request, context.version, ErrorCode.NOT_CONTROLLER)
    times = Counter(topic.name for topic in request.topics)
    repeats = context.release.since("2.4") and not context.release.forwards_to_controller
    results = [
        CreatableTopicResult(
            name=name,
            error_code=ErrorCode.INVALID_REQUEST,
            error_message="Duplicate topic name.",
        )
        for name, count in times.items()
        for _ in range(count if repeats else 1)
        if count > 1
    ]
    for topic in request.topics:
        if times[topic.name] == 1:
            results.append(_create_one(context, topic, validate_only=request.validate_only))
    if not request.validate_only:
        results = _store(context, results)
    await context.wait_for_metadata(request.timeout_ms)
    return CreateTopicsResponse(topics=results)


def error_response(request: CreateTopicsRequest, version: int, code: int) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=topic.name, error_code=code, error_message=None)
            for topic in request.topics
        ]
    )


def _store(
    context: RequestContext, results: list[CreatableTopicResult]
) -> list[CreatableTopicResult]:
    """Store the topics that were created; return the results after that."""
    topics = context.cluster.topics
    created = {
        result.name: topics[result.name]
        for result in results
        if result.error_code == ErrorCode.NONE and result.name in topics
    }
    if not created:
        return results
    try:
        context.cluster.store_new(list(created.values()))
    except StorageError as error:
        return [
            CreatableTopicResult(
                name=result.name, error_code=error.code, error_message=error.message
            )
            if result.name in created
            else result
            for result in results
        ]
    return results


def _create_one(
    context: RequestContext, requested: CreatableTopic, *, validate_only: bool
) -> CreatableTopicResult:
    try:
        context.authorize_topic_creation(requested.name, "Authorization failed.")
        if context.mutation_quota is not None:
            planned = _create(context, requested, validate_only=True)
            context.mutation_quota.record(len(planned.partitions))
        topic = _create(context, requested, validate_only=validate_only)
    except ApiError as error:
        code = error.code
        if isinstance(error, InvalidConfigValue) and not context.release.since("2.0"):
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        return CreatableTopicResult(
            name=requested.name, error_code=code, error_message=error.message
        )
    if not context.is_authorized(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name):
        return CreatableTopicResult(
            name=topic.name,
            topic_id=topic.topic_id,
            error_code=ErrorCode.NONE,
            error_message=None,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            configs=[],
        )
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=[
            CreatableTopicConfigs(
                name=config.name,
                value=config.value,
                read_only=config.read_only,
                config_source=config.config_source,
                is_sensitive=config.is_sensitive,
            )
            for config in describe_topic(context, topic.configs)
        ],
    )


def _create(context: RequestContext, requested: CreatableTopic, *, validate_only: bool) -> Topic:
    if requested.assignments and requested.replication_factor != -1:
        raise ApiError(ErrorCode.INVALID_REQUEST, NOT_DEFAULT.format("replication factor"))
    if requested.assignments and requested.num_partitions != -1:
        raise ApiError(ErrorCode.INVALID_REQUEST, NOT_DEFAULT.format("numPartitions"))
    if len(requested.assignments) > MAX_PARTITIONS:
        raise ApiError(ErrorCode.POLICY_VIOLATION)
    times = Counter(each.partition_index for each in requested.assignments)
    for index, count in times.items():
        if count > 1:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {index}",
            )
    return context.cluster.create_topic(
        requested.name,
        requested.num_partitions,
        requested.replication_factor,
        assignments={each.partition_index: each.broker_ids for each in requested.assignments},
        configs={config.name: config.value for config in requested.configs},
        validate_only=validate_only,
        store=False,
    )
