"""Fetch: read from the log, and wait for what is not there yet."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from aiokafkawire.broker.apis.base import NodeEndpoints
from aiokafkawire.broker.call import Call
from aiokafkawire.broker.log import PartitionLog
from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.broker.topics import Partition
from aiokafkawire.records.batch import iter_batches
from aiokafkawire.records.compression import Compression
from aiokafkawire.records.server import down_convert
from aiokafkawire.runtime import Signal
from aiokafkawire.wire import Buffer, ErrorCode
from aiokafkawire.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

__all__ = ("failed", "handle")

DEBUG_REPLICA = -2
"""The replica id of a reader that does not mind whether the node leads."""

FIRST_MAGIC_1_VERSION = 2
FIRST_WHOLE_BATCH_VERSION = 3
FIRST_MAGIC_2_VERSION = 4
FIRST_ZSTD_VERSION = 10
FIRST_ID_VERSION = 13
FIRST_LEADER_HINT_VERSION = 16

READ_COMMITTED = 1
FULL_FETCH_EPOCHS = (-1, 0)


@dataclass(slots=True)
class _Position:
    """One partition of the request, and how it stands: found or refused, diverging or not."""

    topic_name: str
    topic_id: UUID
    asked: FetchPartition
    partition: Partition | None = None
    code: ErrorCode = ErrorCode.NONE
    diverging: EpochEndOffset | None = None

    @property
    def readable(self) -> Partition | None:
        return None if self.code or self.diverging is not None else self.partition


async def handle(call: Call, request: FetchRequest) -> FetchResponse:
    """Every fetch is answered outside of a session: id 0 refuses one, as a full cache does."""
    if request.session_epoch not in FULL_FETCH_EPOCHS:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
    positions = await _wait(call, request)
    return _response(call, request, positions)


def failed(request: FetchRequest, version: int, code: int) -> FetchResponse:
    return FetchResponse(
        error_code=code,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[_refused(asked.partition, code) for asked in topic.partitions],
            )
            for topic in request.topics
        ],
    )


async def _wait(call: Call, request: FetchRequest) -> list[_Position]:
    """Look until `min_bytes` are there, something is wrong, or `max_wait_ms` have passed."""
    clock = call.state.clock
    deadline = clock.now() + max(request.max_wait_ms, 0) / 1000
    signal = Signal()
    watched: list[Partition] = []
    call.peer.left.add(signal.set)
    try:
        while True:
            positions = [
                _look(call, request, topic, asked)
                for topic in request.topics
                for asked in topic.partitions
            ]
            waiting = request.max_wait_ms > 0 and positions and not call.peer.gone
            if not waiting or _satisfied(request, positions):
                return positions
            if not watched:
                watched = [each.partition for each in positions if each.partition is not None]
                for partition in watched:
                    partition.changed.add(signal.set)
            if not await signal.wait(deadline):
                return positions
    finally:
        call.peer.left.remove(signal.set)
        for partition in watched:
            partition.changed.remove(signal.set)


def _look(
    call: Call, request: FetchRequest, topic_asked: FetchTopic, asked: FetchPartition
) -> _Position:
    position = _Position(topic_asked.topic, topic_asked.topic_id, asked)
    cluster = call.cluster
    try:
        topic = (
            cluster.topic_by_id(topic_asked.topic_id)
            if call.version >= FIRST_ID_VERSION
            else cluster.topic(topic_asked.topic)
        )
        position.partition = cluster.partition(topic, asked.partition)
        _check(call, request, position.partition, asked)
        position.diverging = _diverging(position.partition, asked)
    except Refusal as refusal:
        position.code = refusal.code
    return position


def _check(call: Call, request: FetchRequest, partition: Partition, asked: FetchPartition) -> None:
    replica = request.replica_id if call.version < 15 else request.replica_state.replica_id
    may_serve = replica == DEBUG_REPLICA and call.node_id in partition.replicas
    if partition.leader != call.node_id and not may_serve:
        raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    partition.check_epoch(asked.current_leader_epoch)
    log = partition.log
    if not log.start_offset <= asked.fetch_offset <= log.end_offset:
        raise Refusal(ErrorCode.OFFSET_OUT_OF_RANGE)
    if call.version < FIRST_ZSTD_VERSION:
        first = next(log.batches_from(asked.fetch_offset), None)
        if first is not None and first.codec == Compression.ZSTD:
            raise Refusal(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


def _diverging(partition: Partition, asked: FetchPartition) -> EpochEndOffset | None:
    """Where the log parts from the one that the client read last (KIP-595), if it does."""
    if asked.last_fetched_epoch < 0:
        return None
    found = partition.log.epoch_end(asked.last_fetched_epoch, partition.leader_epoch)
    if found is None:
        raise Refusal(ErrorCode.OFFSET_OUT_OF_RANGE)
    epoch, end = found
    if epoch < asked.last_fetched_epoch or end < asked.fetch_offset:
        return EpochEndOffset(epoch=epoch, end_offset=end)
    return None


def _satisfied(request: FetchRequest, positions: list[_Position]) -> bool:
    size = 0
    for position in positions:
        partition = position.readable
        if partition is None:
            return True
        asked = position.asked
        size += partition.log.available_bytes(asked.fetch_offset, asked.partition_max_bytes)
    return size >= request.min_bytes


def _response(call: Call, request: FetchRequest, positions: list[_Position]) -> FetchResponse:
    endpoints = NodeEndpoints(call)
    reader = _Reader(call.version, min(request.max_bytes, call.state.options.max_fetch_bytes))
    topics: dict[tuple[str, UUID], FetchableTopicResponse] = {}
    for position in positions:
        key = (position.topic_name, position.topic_id)
        if key not in topics:
            topics[key] = FetchableTopicResponse(
                topic=position.topic_name, topic_id=position.topic_id, partitions=[]
            )
        topics[key].partitions.append(_partition(call, request, position, reader, endpoints))
    return FetchResponse(responses=list(topics.values()), node_endpoints=endpoints.nodes)


def _partition(
    call: Call,
    request: FetchRequest,
    position: _Position,
    reader: _Reader,
    endpoints: NodeEndpoints,
) -> PartitionData:
    partition = position.partition
    if position.code or partition is None:
        data = _refused(position.asked.partition, position.code)
        hinted = position.code in {
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.FENCED_LEADER_EPOCH,
        }
        if hinted and partition is not None and call.version >= FIRST_LEADER_HINT_VERSION:
            data.current_leader = endpoints.leader(partition.leader, partition.leader_epoch)
        return data
    log = partition.log
    data = PartitionData(
        partition_index=partition.index,
        error_code=ErrorCode.NONE,
        high_watermark=log.end_offset,
        last_stable_offset=log.end_offset,
        log_start_offset=log.start_offset,
        aborted_transactions=[] if request.isolation_level == READ_COMMITTED else None,
        records=b"",
    )
    if position.diverging is not None:
        data.diverging_epoch = position.diverging
    else:
        data.records = reader.read(log, position.asked)
    return data


def _refused(index: int, code: int) -> PartitionData:
    unknown = code in {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
    return PartitionData(
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

    def read(self, log: PartitionLog, asked: FetchPartition) -> Buffer:
        """What a partition gives: cut at its limit, but the first batch of a response is whole.

        Before version 3 a batch may be cut; later one that does not fit is left out.
        """
        first = next(log.batches_from(asked.fetch_offset), None)
        if first is None:
            return b""
        limit = min(asked.partition_max_bytes, self._remaining)
        if first.size_bytes > limit and self._version >= FIRST_WHOLE_BATCH_VERSION:
            if not self._whole_first:
                return b""
            limit = first.size_bytes
        if self._version >= FIRST_MAGIC_2_VERSION:
            data = log.read(asked.fetch_offset, limit)
        else:
            data = self._converted(log, asked.fetch_offset, limit)
        if data:
            self._whole_first = False
        self._remaining -= len(data)
        return data

    def _converted(self, log: PartitionLog, offset: int, limit: int) -> bytes:
        """The same in a format that the client knows; conversion can make batches larger."""
        magic = 0 if self._version < FIRST_MAGIC_1_VERSION else 1
        size = 0
        for batch in log.batches_from(offset):
            if size >= limit or (size and batch.codec == Compression.ZSTD):
                break
            size += batch.size_bytes
        # An old client that asked for the middle of a batch must not be given its start again,
        # or it would never come further.
        messages = [
            view.buffer
            for view in iter_batches(down_convert(iter_batches(log.read(offset, size)), magic))
            if view.last_offset >= offset
        ]
        if messages and self._version >= FIRST_WHOLE_BATCH_VERSION:
            limit = max(limit, len(messages[0]))
        return b"".join(messages)[: max(limit, 0)]
