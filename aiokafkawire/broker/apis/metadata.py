"""Metadata: live nodes, topics and partition leaders."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Protocol

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError, StorageError
from aiokafkawire.broker.replication.controller_commands import LeaderAndIsr, LiveNode
from aiokafkawire.broker.replication.metadata_cache import MetadataCache
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.broker.topics import (
    NO_LEADER,
    Partition,
    check_topic_name,
    is_internal_topic,
)
from aiokafkawire.wire import ZERO_UUID, ErrorCode
from aiokafkawire.wire.messages.metadata import (
    AUTHORIZED_OPERATIONS_OMITTED,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

__all__ = (
    "MetadataSource",
    "cluster_operations",
    "error_response",
    "handle",
    "metadata_source",
)

FIRST_ID_FIELD_VERSION = 10
FIRST_ID_VERSION = 12


async def handle(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    cluster = context.cluster
    requested = request.topics
    if not context.release.since("0.9.0"):
        try:
            for each in requested or []:
                check_topic_name(each.name or "")
        except ApiError as error:
            # In these releases one invalid name fails the whole request.
            return error_response(request, context.version, error.code)
    if FIRST_ID_FIELD_VERSION <= context.version < FIRST_ID_VERSION and any(
        each.name is None or each.topic_id != ZERO_UUID for each in requested or []
    ):
        # v10 and v11 have the field, but brokers do not look topics up by it.
        return error_response(request, context.version, ErrorCode.INVALID_REQUEST)
    source = metadata_source(context)
    if requested is None or (context.version == 0 and not requested):
        topics = [
            _describe_topic(context, source, name, request)
            for name in source.names()
            if context.is_authorized(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
        ]
    else:
        distinct = {(each.name, each.topic_id): each for each in requested}
        topics = [_describe_requested(context, source, each, request) for each in distinct.values()]
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=node, host=live.address.host, port=live.address.port, rack=live.rack
            )
            for node, live in source.live.items()
        ],
        cluster_id=cluster.cluster_id,
        controller_id=source.controller_id,
        topics=topics,
        cluster_authorized_operations=(
            cluster_operations(context)
            if request.include_cluster_authorized_operations
            else AUTHORIZED_OPERATIONS_OMITTED
        ),
    )


def cluster_operations(context: RequestContext) -> int:
    """Return the operations on the cluster that the principal may perform, if it may see them."""
    if not context.is_authorized(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return 0
    return context.authorized_operations(ResourceType.CLUSTER)


def error_response(request: MetadataRequest, version: int, code: int) -> MetadataResponse:
    return MetadataResponse(
        brokers=[],
        topics=[_error_topic(topic, version, code) for topic in request.topics or []],
        error_code=code,
    )


def _describe_requested(
    context: RequestContext,
    source: MetadataSource,
    requested: MetadataRequestTopic,
    request: MetadataRequest,
) -> MetadataResponseTopic:
    cluster = context.cluster
    try:
        if requested.name is None:
            topic = context.authorized_topic(
                "", requested.topic_id, AclOperation.DESCRIBE, by_id=True
            )
            return _describe_topic(context, source, topic.name, request)
        context.authorize(AclOperation.DESCRIBE, ResourceType.TOPIC, requested.name)
        create = context.state.options.auto_create_topics and request.allow_auto_topic_creation
        if create and requested.name not in cluster.all_topics():
            context.authorize_topic_creation(requested.name)
            try:
                cluster.create_topic(requested.name)
            except StorageError as error:
                # As for a topic whose creation takes longer, so that clients retry.
                raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE) from error
        check_topic_name(requested.name)
        if requested.name not in source.names():
            # The node may not know the new topic yet; LEADER_NOT_AVAILABLE makes clients retry.
            raise ApiError(
                ErrorCode.LEADER_NOT_AVAILABLE if create else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        return _describe_topic(context, source, requested.name, request)
    except ApiError as error:
        return _error_topic(requested, context.version, error.code)


def _error_topic(requested: MetadataRequestTopic, version: int, code: int) -> MetadataResponseTopic:
    # Before v12 a name cannot be null, not even for a topic that is requested by id.
    name = requested.name if requested.name is not None or version >= FIRST_ID_VERSION else ""
    topic_id = requested.topic_id if requested.name is None else ZERO_UUID
    return MetadataResponseTopic(
        error_code=code,
        name=name,
        is_internal=name is not None and is_internal_topic(name),
        topic_id=topic_id,
        partitions=[],
    )


def _describe_topic(
    context: RequestContext, source: MetadataSource, name: str, request: MetadataRequest
) -> MetadataResponseTopic:
    topic = context.cluster.all_topics().get(name)
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=name,
        is_internal=is_internal_topic(name),
        topic_id=ZERO_UUID if topic is None else topic.topic_id,
        partitions=[
            _partition(context.version, source, index, state)
            for index, state in source.partitions(name)
        ],
        topic_authorized_operations=(
            context.authorized_operations(ResourceType.TOPIC, name)
            if request.include_topic_authorized_operations
            else AUTHORIZED_OPERATIONS_OMITTED
        ),
    )


def _partition(
    version: int, source: MetadataSource, index: int, state: Partition | LeaderAndIsr
) -> MetadataResponsePartition:
    offline = [node for node in state.replicas if node not in source.live]
    code = ErrorCode.NONE
    leader, replicas = state.leader, list(state.replicas)
    if leader not in source.live:
        code, leader = ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER
    elif version == 0 and offline:
        # v0 has no field for offline replicas.
        code = ErrorCode.REPLICA_NOT_AVAILABLE
        replicas = [node for node in replicas if node not in offline]
    return MetadataResponsePartition(
        error_code=code,
        partition_index=index,
        leader_id=leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=list(state.isr),
        offline_replicas=offline,
    )


# --- what a node knows ---------------------------------------------------------------------------


class MetadataSource(Protocol):
    """Metadata that a node returns."""

    @property
    def live(self) -> Mapping[int, LiveNode]: ...

    @property
    def controller_id(self) -> int: ...

    def names(self) -> Collection[str]:
        """Return the names of the topics."""
        ...

    def partitions(self, name: str) -> Iterable[tuple[int, Partition | LeaderAndIsr]]:
        """Return the partitions of a topic."""
        ...


def metadata_source(context: RequestContext) -> MetadataSource:
    """Return the metadata that the node knows."""
    if context.replica_manager is None:
        return _ClusterMetadata(context)
    return _CachedMetadata(context, context.replica_manager.metadata)


class _ClusterMetadata:
    """Metadata of the shared cluster state, current on every node."""

    def __init__(self, context: RequestContext) -> None:
        cluster, addresses = context.cluster, context.addresses
        self._topics = cluster.all_topics()
        self.controller_id = cluster.controller_id
        self.live = {
            node: LiveNode(addresses[node], cluster.racks.get(node))
            for node in cluster.live
            if node in addresses
        }

    def names(self) -> Collection[str]:
        return self._topics.keys()

    def partitions(self, name: str) -> Iterable[tuple[int, Partition]]:
        return ((partition.index, partition) for partition in self._topics[name].partitions)


class _CachedMetadata:
    """Metadata that the controller last sent to the node."""

    def __init__(self, context: RequestContext, cache: MetadataCache) -> None:
        self._topics = cache.topics
        self._internal = context.cluster.internal_topics.topics
        self.controller_id = cache.controller_id
        addresses = context.addresses
        self.live = {
            node: LiveNode(addresses.get(node, live.address), live.rack)
            for node, live in cache.live.items()
        }

    def names(self) -> Collection[str]:
        return ChainMap[str, Any](self._topics, self._internal).keys()

    def partitions(self, name: str) -> Iterable[tuple[int, Partition | LeaderAndIsr]]:
        if name in self._internal:
            return enumerate(self._internal[name].partitions)
        return sorted(self._topics[name].items(), key=lambda entry: entry[0])
