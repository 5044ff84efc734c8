"""Common parts of the APIs of share sessions."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.features import SHARE_VERSION
from aiokafkawire.broker.request_context import Disconnect, RequestContext
from aiokafkawire.broker.share.in_flight import AcknowledgeType
from aiokafkawire.broker.share.persister import SharePartitionKey
from aiokafkawire.broker.share.share_partition import AcknowledgedRange
from aiokafkawire.broker.share.share_sessions import (
    FINAL_EPOCH,
    SessionPartition,
    ShareSession,
    ShareSessionKey,
)
from aiokafkawire.broker.topics import Partition
from aiokafkawire.wire import ErrorCode

__all__ = (
    "AcknowledgeResult",
    "acknowledge",
    "check_share_groups",
    "continue_session",
    "find_partition",
    "open_session",
    "parse_acknowledgements",
)

NOT_HERE = "This server does not host this topic-partition."


class AcknowledgementBatch(Protocol):
    """A range of offsets in ShareFetch or ShareAcknowledge."""

    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


class AcknowledgedPartition(Protocol):
    """A partition in ShareFetch or ShareAcknowledge."""

    partition_index: int

    @property
    def acknowledgement_batches(self) -> Sequence[AcknowledgementBatch]: ...


class AcknowledgedTopic(Protocol):
    """A topic in ShareFetch or ShareAcknowledge."""

    topic_id: UUID

    @property
    def partitions(self) -> Sequence[AcknowledgedPartition]: ...


@dataclass(frozen=True, slots=True)
class AcknowledgeResult:
    """Error of the acknowledgements of one partition."""

    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


Acknowledgements = Mapping[SessionPartition, Sequence[AcknowledgedRange] | None]
"""Acknowledged ranges by partition; None if they are malformed."""


def check_share_groups(context: RequestContext) -> None:
    """Raise `ApiError` unless the feature share.version enables share groups."""
    if not context.state.finalized_features.get(SHARE_VERSION):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)


def session_key(
    context: RequestContext, group_id: str | None, member_id: str | None
) -> ShareSessionKey:
    """Return the key of the session of a request.

    Raises:
        ApiError: Share groups are disabled or forbidden, or the member id is empty.
    """
    check_share_groups(context)
    context.authorize(AclOperation.READ, ResourceType.GROUP, group_id or "")
    if not member_id:
        raise ApiError(ErrorCode.INVALID_REQUEST)
    return ShareSessionKey(group_id or "", member_id)


def open_session(
    context: RequestContext, key: ShareSessionKey, partitions: Iterable[SessionPartition]
) -> ShareSession:
    """Open a session, which ends with its connection. Raises `ApiError`."""
    if context.connection.is_closed:
        raise Disconnect("the client disconnected before it opened a share session")
    manager, connection = context.state.share_partitions, context.connection
    sessions = manager.sessions(context.node_id)
    if not sessions.knows(connection):
        connection.on_close.add(functools.partial(manager.disconnect, context.node_id, connection))
    return sessions.open(key, partitions, connection)


def continue_session(context: RequestContext, key: ShareSessionKey, epoch: int) -> ShareSession:
    """Return the session of a request with an epoch other than 0. Raises `ApiError`."""
    sessions = context.state.share_partitions.sessions(context.node_id)
    return sessions.get(key, None if epoch == FINAL_EPOCH else epoch)


def parse_acknowledgements(
    topics: Iterable[AcknowledgedTopic], *, allows_renew: bool
) -> Acknowledgements:
    """Return the acknowledgements of a request."""
    found: dict[SessionPartition, Sequence[AcknowledgedRange] | None] = {}
    for topic in topics:
        for partition in topic.partitions:
            if partition.acknowledgement_batches:
                key = SessionPartition(topic.topic_id, partition.partition_index)
                found[key] = _parse(partition.acknowledgement_batches, allows_renew=allows_renew)
    return found


def _parse(
    batches: Sequence[AcknowledgementBatch], *, allows_renew: bool
) -> list[AcknowledgedRange] | None:
    """Return the ranges of a partition, None if Kafka refuses them."""
    highest = AcknowledgeType.RENEW if allows_renew else AcknowledgeType.REJECT
    ranges: list[AcknowledgedRange] = []
    previous = -1
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        is_valid = (
            previous <= first <= last
            and len(types) in {1, last - first + 1}
            and all(0 <= each <= highest for each in types)
        )
        if not is_valid:
            return None
        previous = last
        ranges.append(AcknowledgedRange(first, last, tuple(map(AcknowledgeType, types))))
    return ranges


def find_partition(context: RequestContext, key: SessionPartition) -> Partition:
    """Return a partition of a request.

    Raises:
        ApiError: The partition does not exist, or the principal may not read it.
    """
    topic = context.cluster.topic_by_id(key.topic_id)
    context.authorize(AclOperation.READ, ResourceType.TOPIC, topic.name)
    return context.partition(topic, key.partition)


def acknowledge(
    context: RequestContext, key: ShareSessionKey, acknowledgements: Acknowledgements
) -> dict[SessionPartition, AcknowledgeResult]:
    """Acknowledge records of a member; return the result of each partition."""
    results = {}
    for each, ranges in acknowledgements.items():
        try:
            _acknowledge(context, key, each, ranges)
        except ApiError as error:
            results[each] = AcknowledgeResult(error.code, error.message)
        else:
            results[each] = AcknowledgeResult()
    return results


def _acknowledge(
    context: RequestContext,
    key: ShareSessionKey,
    topic_partition: SessionPartition,
    ranges: Sequence[AcknowledgedRange] | None,
) -> None:
    partition = find_partition(context, topic_partition)
    if ranges is None:
        raise ApiError(ErrorCode.INVALID_REQUEST)
    manager = context.state.share_partitions
    share_key = SharePartitionKey(key.group_id, *topic_partition)
    found = None
    if partition.leader == context.node_id:
        found = manager.get(context.node_id, share_key, partition)
    if found is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HERE)
    found.share_partition.acknowledge(key.member_id, ranges, context.state.clock.now())
    manager.changed(context.node_id, found)
