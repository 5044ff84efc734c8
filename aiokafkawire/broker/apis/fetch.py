"""Fetch: read from the log, and wait for what is not there yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from aiokafkawire.broker.apis.base import NodeEndpoints
from aiokafkawire.broker.call import Call
from aiokafkawire.broker.fetch_sessions import Wanted
from aiokafkawire.broker.log import PartitionLog
from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.broker.replication import Replica
from aiokafkawire.broker.topics import Partition
from aiokafkawire.records.batch import iter_batches
from aiokafkawire.records.compression import Compression
from aiokafkawire.records.server import down_convert
from aiokafkawire.runtime import Signal
from aiokafkawire.wire import Buffer, ErrorCode
from aiokafkawire.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

__all__ = ("failed", "handle")

CONSUMER = -1
DEBUG_REPLICA = -2
"""The replica ids of those who are none; the second does not mind whether the node leads."""

NO_REPLICA = -1

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
class _Position:
    """One partition of the request, and how it stands: found or refused, diverging or not."""

    wanted: Wanted
    partition: Partition | None = None
    code: ErrorCode = ErrorCode.NONE
    diverging: EpochEndOffset | None = None
    preferred_replica: int = NO_REPLICA

    @property
    def readable(self) -> Partition | None:
        special = self.code or self.diverging is not None or self.preferred_replica != NO_REPLICA
        return None if special else self.partition


async def handle(call: Call, request: FetchRequest) -> FetchResponse:
    sessions = call.state.fetch_sessions[call.node_id]
    clock = call.state.clock
    by_id = call.version >= FIRST_ID_VERSION
    try:
        fetching = sessions.begin(request, clock.now(), by_id=by_id)
        _note_follower(call, request, fetching.wanted)
        positions = await _wait(call, request, fetching.wanted)
        endpoints = NodeEndpoints(call)
        reader = _Reader(call.version, min(request.max_bytes, call.state.options.max_fetch_bytes))
        data = [_partition(call, request, each, reader, endpoints) for each in positions]
        session_id, told = sessions.answer(fetching, data, clock.now())
    except Refusal as refusal:
        return FetchResponse(error_code=refusal.code, responses=[])
    topics: dict[tuple[str, UUID], FetchableTopicResponse] = {}
    for wanted, partition in told:
        key = wanted.topic, wanted.topic_id
        if key not in topics:
            topics[key] = FetchableTopicResponse(
                topic=wanted.topic, topic_id=wanted.topic_id, partitions=[]
            )
        topics[key].partitions.append(partition)
    return FetchResponse(
        session_id=session_id, responses=list(topics.values()), node_endpoints=endpoints.nodes
    )


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


async def _wait(call: Call, request: FetchRequest, asked: Sequence[Wanted]) -> list[_Position]:
    """Look until `min_bytes` are there, something is wrong, or `max_wait_ms` have passed."""
    clock = call.state.clock
    deadline = clock.now() + max(request.max_wait_ms, 0) / 1000
    signal = Signal()
    watched: list[Partition] = []
    call.peer.left.add(signal.set)
    try:
        while True:
            positions = [_look(call, request, wanted) for wanted in asked]
            waiting = request.max_wait_ms > 0 and positions and not call.peer.gone
            if not waiting or _satisfied(call, request, positions):
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


def _note_follower(call: Call, request: FetchRequest, asked: Sequence[Wanted]) -> None:
    """A replica that fetches says with it how far it is."""
    replicas, follower = call.replicas, _replica_id(call, request)
    if replicas is None or follower < 0:
        return
    now = call.state.clock.now()
    for wanted in asked:
        position = _look(call, request, wanted)
        partition = position.readable
        if isinstance(partition, Replica):
            replicas.fetched(partition, follower, wanted.asked.fetch_offset, now)


def _look(call: Call, request: FetchRequest, wanted: Wanted) -> _Position:
    position = _Position(wanted)
    cluster = call.cluster
    try:
        topic = (
            cluster.topic_by_id(wanted.topic_id)
            if call.version >= FIRST_ID_VERSION
            else cluster.topic(wanted.topic)
        )
        own = _replica_id(call, request) == DEBUG_REPLICA
        position.partition = partition = call.partition(topic, wanted.asked.partition, own=own)
        partition.check_epoch(wanted.asked.current_leader_epoch)
        if _is_unassigned(call, request, partition) and not call.release.since("1.0"):
            raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR)
        if own:
            call.check_replica(partition)
        elif not _may_serve(call, request, partition):
            call.check_leader(partition)
        position.preferred_replica = _preferred_replica(call, request, partition)
        if position.preferred_replica == NO_REPLICA:
            position.diverging = _diverging(partition, wanted.asked)
            if position.diverging is None:
                _check_offset(call, partition, wanted.asked)
    except Refusal as refusal:
        position.code = refusal.code
    return position


def _replica_id(call: Call, request: FetchRequest) -> int:
    if call.version < FIRST_REPLICA_STATE_VERSION:
        return request.replica_id
    return request.replica_state.replica_id


def _is_unassigned(call: Call, request: FetchRequest, partition: Partition) -> bool:
    """Whether a node asks as a replica that it is not."""
    follower = _replica_id(call, request)
    return call.replicas is not None and follower >= 0 and follower not in partition.replicas


def _may_serve(call: Call, request: FetchRequest, partition: Partition) -> bool:
    """Followers serve consumers that know of it (KIP-392)."""
    if partition.leader == call.node_id:
        return True
    consumer = _replica_id(call, request) == CONSUMER
    return consumer and call.version >= FIRST_RACK_VERSION and call.node_id in partition.replicas


def _preferred_replica(call: Call, request: FetchRequest, partition: Partition) -> int:
    """The follower in the client's own rack, if the leader stands in another."""
    racks = call.cluster.racks
    if (
        partition.leader != call.node_id
        or not request.rack_id
        or _replica_id(call, request) != CONSUMER
        or racks.get(partition.leader) == request.rack_id
    ):
        return NO_REPLICA
    near = (node for node in partition.isr if racks.get(node) == request.rack_id)
    return next(near, NO_REPLICA)


def _check_offset(call: Call, partition: Partition, asked: FetchPartition) -> None:
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
    if found is None or asked.fetch_offset < partition.log.start_offset:
        raise Refusal(ErrorCode.OFFSET_OUT_OF_RANGE)
    epoch, end = found
    if epoch < asked.last_fetched_epoch or end < asked.fetch_offset:
        return EpochEndOffset(epoch=epoch, end_offset=end)
    return None


def _satisfied(call: Call, request: FetchRequest, positions: list[_Position]) -> bool:
    size = 0
    for position in positions:
        partition = position.readable
        if partition is None:
            return True
        asked = position.wanted.asked
        size += partition.log.available_bytes(
            asked.fetch_offset, asked.partition_max_bytes, _limit(call, request, partition)
        )
    return size >= request.min_bytes


def _partition(
    call: Call,
    request: FetchRequest,
    position: _Position,
    reader: _Reader,
    endpoints: NodeEndpoints,
) -> PartitionData:
    partition = position.partition
    if position.code or partition is None:
        data = _refused(position.wanted.asked.partition, position.code)
        if not call.release.since("3.0"):
            data.aborted_transactions = None
        hinted = position.code in {
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.FENCED_LEADER_EPOCH,
        }
        if hinted and partition is not None and call.version >= FIRST_LEADER_HINT_VERSION:
            data.current_leader = endpoints.leader(partition.leader, partition.leader_epoch)
        return data
    log = partition.log
    committed = request.isolation_level == READ_COMMITTED
    tells_end = committed or call.release.tells_stable_offset
    data = PartitionData(
        partition_index=partition.index,
        error_code=ErrorCode.NONE,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset if tells_end else NO_OFFSET,
        log_start_offset=log.start_offset,
        aborted_transactions=[] if committed else None,
        records=b"",
    )
    if position.diverging is not None:
        data.diverging_epoch = position.diverging
    elif position.preferred_replica != NO_REPLICA:
        data.preferred_read_replica = position.preferred_replica
    else:
        limit = _limit(call, request, partition)
        data.records = reader.read(log, position.wanted.asked, limit)
        if committed and call.version >= FIRST_MAGIC_2_VERSION:
            start = position.wanted.asked.fetch_offset
            data.aborted_transactions = _aborted(log, start, data.records, limit)
    return data


def _limit(call: Call, request: FetchRequest, partition: Partition) -> int:
    """Where reading ends for who asks: replicas are given all that there is."""
    if _is_unassigned(call, request, partition):
        return partition.log.start_offset
    if call.replicas is not None and _replica_id(call, request) >= 0:
        return partition.log.end_offset
    if request.isolation_level == READ_COMMITTED:
        return partition.last_stable_offset
    return partition.high_watermark


def _aborted(
    log: PartitionLog, start: int, records: Buffer, limit: int
) -> list[AbortedTransaction]:
    """The aborted transactions that reach into what is given."""
    end = start
    for view in iter_batches(records):
        end = view.next_offset
    if end == start:
        return []
    return [
        AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset)
        for entry in log.producers.aborted(start, min(end, limit))
    ]


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

    def read(self, log: PartitionLog, asked: FetchPartition, before: int) -> Buffer:
        """What a partition gives: cut at its limit, but the first batch of a response is whole.

        Nothing from the offset `before` on. Before version 3 a batch may be cut; later one that
        does not fit is left out.
        """
        first = next(log.batches_from(asked.fetch_offset, before), None)
        if first is None:
            return b""
        limit = min(asked.partition_max_bytes, self._remaining)
        if first.size_bytes > limit and self._version >= FIRST_WHOLE_BATCH_VERSION:
            if not self._whole_first:
                return b""
            limit = first.size_bytes
        if self._version >= FIRST_MAGIC_2_VERSION:
            data = log.read(asked.fetch_offset, limit, before)
        else:
            data = self._converted(log, asked.fetch_offset, limit, before)
        if data:
            self._whole_first = False
        self._remaining -= len(data)
        return data

    def _converted(self, log: PartitionLog, offset: int, limit: int, before: int) -> bytes:
        """The same in a format that the client knows; conversion can make batches larger."""
        magic = 0 if self._version < FIRST_MAGIC_1_VERSION else 1
        size = 0
        for batch in log.batches_from(offset, before):
            if size >= limit or (size and batch.codec == Compression.ZSTD):
                break
            size += batch.size_bytes
        # An old client that asked for the middle of a batch must not be given its start again,
        # or it would never come further.
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
