"""Fetch: read from the log, or wait for new records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.handler import NodeEndpoints
from aiokafkawire.broker.fetch_session_cache import CachedPartition
from aiokafkawire.broker.log import PartitionLog
from aiokafkawire.broker.replication import Replica
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.broker.topics import Partition, Topic
from aiokafkawire.records.batch import iter_batches
from aiokafkawire.records.broker_records import down_convert
from aiokafkawire.records.compression import Compression
from aiokafkawire.runtime import AutoResetEvent
from aiokafkawire.wire import Buffer, ErrorCode
from aiokafkawire.wire.messages.fetch import (
    AbortedTransaction,
    DivergingEpoch,
    FetchableTopicResponse,
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
)

__all__ = ("error_response", "handle")

CONSUMER_REPLICA_ID = -1
DEBUGGING_REPLICA_ID = -2
"""Replica ids of clients. The debugging one reads from followers too."""

NO_PREFERRED_REPLICA = -1

FIRST_MAGIC_1_VERSION = 2
FIRST_WHOLE_BATCH_VERSION = 3
FIRST_MAGIC_2_VERSION = 4
FIRST_ZSTD_VERSION = 10
FIRST_RACK_VERSION = 11
FIRST_ID_VERSION = 13
FIRST_REPLICA_STATE_VERSION = 15
FIRST_LEADER_HINT_VERSION = 16

READ_COMMITTED = 1
NO_OFFSET = -1


@dataclass(slots=True)
class _PartitionState:
    """One partition of the request: found or failed, diverging or not."""

    cached: CachedPartition
    partition: Partition | None = None
    code: ErrorCode = ErrorCode.NONE
    diverging: DivergingEpoch | None = None
    preferred_replica: int = NO_PREFERRED_REPLICA

    @property
    def readable(self) -> Partition | None:
        special = (
            self.code
            or self.diverging is not None
            or self.preferred_replica != NO_PREFERRED_REPLICA
        )
        return None if special else self.partition


async def handle(context: RequestContext, request: FetchRequest) -> FetchResponse:
    sessions = context.state.fetch_sessions[context.node_id]
    clock = context.state.clock
    uses_topic_ids = context.version >= FIRST_ID_VERSION
    try:
        fetch_context = sessions.new_context(request, clock.now(), uses_topic_ids=uses_topic_ids)
        _update_follower_fetch_state(context, request, fetch_context.partitions)
        positions = await _wait_for_data(context, request, fetch_context.partitions)
        endpoints = NodeEndpoints(context)
        reader = _Reader(context.version, _max_bytes(context, request))
        data = [_partition(context, request, each, reader, endpoints) for each in positions]
        session_id, changed = sessions.build_response(fetch_context, data, clock.now())
    except ApiError as error:
        return FetchResponse(error_code=error.code, responses=[])
    topics: dict[tuple[str, UUID], FetchableTopicResponse] = {}
    for cached, partition in changed:
        key = cached.topic, cached.topic_id
        if key not in topics:
            topics[key] = FetchableTopicResponse(
                topic=cached.topic, topic_id=cached.topic_id, partitions=[]
            )
        topics[key].partitions.append(partition)
    return FetchResponse(
        session_id=session_id, responses=list(topics.values()), node_endpoints=endpoints.nodes
    )


def _max_bytes(context: RequestContext, request: FetchRequest) -> int:
    """Return the largest response: a larger one would exceed the client's quota for ever."""
    largest = min(request.max_bytes, context.state.options.max_fetch_bytes)
    quota = context.quota_manager.max_fetch_bytes(context.user, context.client_id)
    return largest if quota is None or context.is_from_broker else min(largest, quota)


def error_response(request: FetchRequest, version: int, code: int) -> FetchResponse:
    return FetchResponse(
        error_code=code,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    _error_partition(requested.partition, code) for requested in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


async def _wait_for_data(
    context: RequestContext, request: FetchRequest, requested: Sequence[CachedPartition]
) -> list[_PartitionState]:
    """Wait for `min_bytes`, an error, or the end of `max_wait_ms`."""
    clock = context.state.clock
    deadline = clock.now() + max(request.max_wait_ms, 0) / 1000
    signal = AutoResetEvent()
    watched: list[Partition] = []
    context.connection.on_close.add(signal.set)
    try:
        while True:
            positions = [_locate(context, request, cached) for cached in requested]
            waiting = request.max_wait_ms > 0 and positions and not context.connection.is_closed
            if not waiting or _has_min_bytes(context, request, positions):
                return positions
            if not watched:
                watched = [each.partition for each in positions if each.partition is not None]
                for partition in watched:
                    partition.on_change.add(signal.set)
            if not await signal.wait(deadline):
                return positions
    finally:
        context.connection.on_close.remove(signal.set)
        for partition in watched:
            partition.on_change.remove(signal.set)


def _update_follower_fetch_state(
    context: RequestContext, request: FetchRequest, requested: Sequence[CachedPartition]
) -> None:
    """Report the fetch offsets of a follower to the replica manager."""
    replica_manager, follower = context.replica_manager, _replica_id(context, request)
    if replica_manager is None or follower < 0:
        return
    now = context.state.clock.now()
    for cached in requested:
        position = _locate(context, request, cached)
        partition = position.readable
        if isinstance(partition, Replica):
            replica_manager.update_follower_fetch_state(
                partition, follower, cached.requested.fetch_offset, now
            )


def _locate(
    context: RequestContext, request: FetchRequest, cached: CachedPartition
) -> _PartitionState:
    position = _PartitionState(cached)
    replica_id = _replica_id(context, request)
    try:
        topic = _authorized_topic(context, replica_id, cached)
        on_this_node = replica_id == DEBUGGING_REPLICA_ID
        position.partition = partition = context.partition(
            topic, cached.requested.partition, on_this_node=on_this_node
        )
        partition.check_leader_epoch(cached.requested.current_leader_epoch)
        if _is_not_assigned_follower(context, request, partition) and not context.release.since(
            "1.0"
        ):
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
        if on_this_node:
            context.check_replica(partition)
        elif not _can_read_here(context, request, partition):
            context.check_leader(partition)
        position.preferred_replica = _preferred_replica(context, request, partition)
        if position.preferred_replica == NO_PREFERRED_REPLICA:
            position.diverging = _diverging_epoch(partition, cached.requested)
            if position.diverging is None:
                _check_offset(context, partition, cached.requested)
    except ApiError as error:
        position.code = error.code
    return position


def _authorized_topic(context: RequestContext, replica_id: int, cached: CachedPartition) -> Topic:
    by_id = context.version >= FIRST_ID_VERSION
    if replica_id < 0:
        return context.authorized_topic(
            cached.topic, cached.topic_id, AclOperation.READ, by_id=by_id
        )
    if not context.is_authorized(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    cluster = context.cluster
    return cluster.topic_by_id(cached.topic_id) if by_id else cluster.topic(cached.topic)


def _replica_id(context: RequestContext, request: FetchRequest) -> int:
    if context.version < FIRST_REPLICA_STATE_VERSION:
        return request.replica_id
    return request.replica_state.replica_id


def _is_not_assigned_follower(
    context: RequestContext, request: FetchRequest, partition: Partition
) -> bool:
    """Return True if a node fetches as follower of a partition that is not assigned to it."""
    follower = _replica_id(context, request)
    return (
        context.replica_manager is not None and follower >= 0 and follower not in partition.replicas
    )


def _can_read_here(context: RequestContext, request: FetchRequest, partition: Partition) -> bool:
    """Return True on the leader, and on followers for consumers that support it (KIP-392)."""
    if partition.leader == context.node_id:
        return True
    consumer = _replica_id(context, request) == CONSUMER_REPLICA_ID
    return (
        consumer and context.version >= FIRST_RACK_VERSION and context.node_id in partition.replicas
    )


def _preferred_replica(context: RequestContext, request: FetchRequest, partition: Partition) -> int:
    """Return a follower in the client's rack, if the leader is in another rack."""
    racks = context.cluster.racks
    if (
        partition.leader != context.node_id
        or not request.rack_id
        or _replica_id(context, request) != CONSUMER_REPLICA_ID
        or racks.get(partition.leader) == request.rack_id
    ):
        return NO_PREFERRED_REPLICA
    near = (node for node in partition.isr if racks.get(node) == request.rack_id)
    return next(near, NO_PREFERRED_REPLICA)


def _check_offset(context: RequestContext, partition: Partition, requested: FetchPartition) -> None:
    log = partition.log
    if not log.start_offset <= requested.fetch_offset <= log.end_offset:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if context.version < FIRST_ZSTD_VERSION:
        first = next(log.batches_from(requested.fetch_offset), None)
        if first is not None and first.codec == Compression.ZSTD:
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


def _diverging_epoch(partition: Partition, requested: FetchPartition) -> DivergingEpoch | None:
    """Return the point where the client's log diverges from this one (KIP-595), if it does."""
    if requested.last_fetched_epoch < 0:
        return None
    epoch_and_end = partition.log.end_offset_for_epoch(
        requested.last_fetched_epoch, partition.leader_epoch
    )
    if epoch_and_end is None or requested.fetch_offset < partition.log.start_offset:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
    epoch, end = epoch_and_end
    if epoch < requested.last_fetched_epoch or end < requested.fetch_offset:
        return DivergingEpoch(epoch=epoch, end_offset=end)
    return None


def _has_min_bytes(
    context: RequestContext, request: FetchRequest, positions: list[_PartitionState]
) -> bool:
    size = 0
    for position in positions:
        partition = position.readable
        if partition is None:
            return True
        requested = position.cached.requested
        size += partition.log.available_bytes(
            requested.fetch_offset,
            requested.partition_max_bytes,
            _read_limit(context, request, partition),
        )
    return size >= request.min_bytes


def _partition(
    context: RequestContext,
    request: FetchRequest,
    position: _PartitionState,
    reader: _Reader,
    endpoints: NodeEndpoints,
) -> FetchPartitionData:
    partition = position.partition
    if position.code or partition is None:
        data = _error_partition(position.cached.requested.partition, position.code)
        if not context.release.since("3.0"):
            data.aborted_transactions = None
        hinted = position.code in {
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.FENCED_LEADER_EPOCH,
        }
        if hinted and partition is not None and context.version >= FIRST_LEADER_HINT_VERSION:
            data.current_leader = endpoints.leader(partition.leader, partition.leader_epoch)
        return data
    log = partition.log
    committed = request.isolation_level == READ_COMMITTED
    returns_lso = committed or context.release.returns_last_stable_offset
    data = FetchPartitionData(
        partition_index=partition.index,
        error_code=ErrorCode.NONE,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset if returns_lso else NO_OFFSET,
        log_start_offset=log.start_offset,
        aborted_transactions=[] if committed else None,
        records=b"",
    )
    if position.diverging is not None:
        data.diverging_epoch = position.diverging
    elif position.preferred_replica != NO_PREFERRED_REPLICA:
        data.preferred_read_replica = position.preferred_replica
    else:
        limit = _read_limit(context, request, partition)
        data.records = reader.read(log, position.cached.requested, limit)
        if committed and context.version >= FIRST_MAGIC_2_VERSION:
            start = position.cached.requested.fetch_offset
            data.aborted_transactions = _aborted(log, start, data.records, limit)
    return data


def _read_limit(context: RequestContext, request: FetchRequest, partition: Partition) -> int:
    """Return the offset at which reading ends; followers read to the end of the log."""
    if _is_not_assigned_follower(context, request, partition):
        return partition.log.start_offset
    if context.replica_manager is not None and _replica_id(context, request) >= 0:
        return partition.log.end_offset
    if request.isolation_level == READ_COMMITTED:
        return partition.last_stable_offset
    return partition.high_watermark


def _aborted(
    log: PartitionLog, start: int, records: Buffer, limit: int
) -> list[AbortedTransaction]:
    """Return the aborted transactions that overlap the returned records."""
    end = start
    for view in iter_batches(records):
        end = view.next_offset
    if end == start:
        return []
    return [
        AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset)
        for entry in log.producers.aborted_transactions(start, min(end, limit))
    ]


def _error_partition(index: int, code: int) -> FetchPartitionData:
    unknown = code in {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
    return FetchPartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        aborted_transactions=[] if unknown else None,
        records=b"",
    )


class _Reader:
    """Reads the partitions of one response within its limits."""

    def __init__(self, version: int, max_bytes: int) -> None:
        self._version = version
        self._remaining = max_bytes
        self._whole_first = version >= FIRST_WHOLE_BATCH_VERSION

    def read(self, log: PartitionLog, requested: FetchPartition, before: int) -> Buffer:
        """Read a partition up to its limit; the first batch of a response is complete.

        Batches at `before` or later are left out. Up to v2 a batch can be cut off; later versions
        leave out a batch that does not fit.
        """
        first = next(log.batches_from(requested.fetch_offset, before), None)
        if first is None:
            return b""
        limit = min(requested.partition_max_bytes, self._remaining)
        if first.size_bytes > limit and self._version >= FIRST_WHOLE_BATCH_VERSION:
            if not self._whole_first:
                return b""
            limit = first.size_bytes
        if self._version >= FIRST_MAGIC_2_VERSION:
            data = log.read(requested.fetch_offset, limit, before)
        else:
            data = self._read_down_converted(log, requested.fetch_offset, limit, before)
        if data:
            self._whole_first = False
        self._remaining -= len(data)
        return data

    def _read_down_converted(
        self, log: PartitionLog, offset: int, limit: int, before: int
    ) -> bytes:
        """Read and convert to a format that the client knows; conversion can enlarge batches."""
        magic = 0 if self._version < FIRST_MAGIC_1_VERSION else 1
        size = 0
        for batch in log.batches_from(offset, before):
            if size >= limit or (size and batch.codec == Compression.ZSTD):
                break
            size += batch.size_bytes
        # An old client that fetches from the middle of a batch must not get its start again, or it
        # would never advance.
        messages = [
            view.buffer
            for view in iter_batches(
                down_convert(iter_batches(log.read(offset, size, before)), magic)
            )
            if view.last_offset >= offset
        ]
        if messages and self._version >= FIRST_WHOLE_BATCH_VERSION:
            limit = max(limit, len(messages[0]))
        return b"".join(messages)[: max(limit, 0)]
