"""ShareFetch: acquire records for a member of a share group, or wait for some (KIP-932)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import takewhile

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.handler import NodeEndpoints
from aiokafkawire.broker.apis.share_requests import (
    AcknowledgeResult,
    acknowledge,
    continue_session,
    find_partition,
    open_session,
    parse_acknowledgements,
    session_key,
)
from aiokafkawire.broker.log import PartitionLog, StoredBatch
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.broker.share.acquisition import AcquirableBatches, AcquireLimits
from aiokafkawire.broker.share.in_flight import AcquiredRange
from aiokafkawire.broker.share.persister import SharePartitionKey
from aiokafkawire.broker.share.share_partition_manager import LeaderSharePartition
from aiokafkawire.broker.share.share_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    SessionPartition,
    ShareSession,
    rotated,
)
from aiokafkawire.broker.topics import Partition
from aiokafkawire.records.batch import iter_batches
from aiokafkawire.runtime import AutoResetEvent
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.common import LeaderIdAndEpoch
from aiokafkawire.wire.messages.share_fetch import (
    AcquiredRecords,
    ShareFetchableTopicResponse,
    ShareFetchPartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
)

__all__ = ("error_response", "handle")

RECORD_LIMIT = 1
"""Acquire mode in which `max_records` holds exactly (KIP-1206)."""


FIRST_LIMITS_VERSION = 1
MAX_RECORDS = 2**31 - 1


@dataclass(slots=True)
class _Position:
    """A partition of the session: found and loaded, or failed."""

    key: SessionPartition
    partition: Partition | None = None
    share: LeaderSharePartition | None = None
    code: ErrorCode = ErrorCode.NONE

    @property
    def is_waiting(self) -> bool:
        """Return True if the fetch waits although the partition has failed, as Kafka does."""
        return self.code in {ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR}


async def handle(context: RequestContext, request: ShareFetchRequest) -> ShareFetchResponse:
    try:
        return await _fetch(context, request)
    except ApiError as error:
        return error_response(request, context.version, error.code)


def error_response(request: ShareFetchRequest, version: int, code: int) -> ShareFetchResponse:
    return ShareFetchResponse(throttle_time_ms=0, error_code=code, responses=[], node_endpoints=[])


async def _fetch(context: RequestContext, request: ShareFetchRequest) -> ShareFetchResponse:
    key = session_key(context, request.group_id, request.member_id)
    _check_renew(request)
    acknowledgements = parse_acknowledgements(request.topics, allows_renew=request.is_renew_ack)
    requested = [
        SessionPartition(topic.topic_id, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]
    epoch = request.share_session_epoch
    manager = context.state.share_partitions
    if epoch == INITIAL_EPOCH:
        if acknowledgements:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        session = open_session(context, key, requested)
    else:
        session = continue_session(context, key, epoch)
    if epoch == FINAL_EPOCH:
        manager.sessions(context.node_id).close(session)
    added = frozenset(requested)
    if epoch not in {INITIAL_EPOCH, FINAL_EPOCH}:
        added -= session.partitions.keys()
        session.update(requested, _forgotten(request))
    results = acknowledge(context, key, acknowledgements)
    fetch = _Fetch(context, request, session, added, results)
    if epoch == FINAL_EPOCH:
        manager.release_session(context.node_id, session)
        return fetch.response([])
    if request.is_renew_ack:
        return fetch.response([])
    return await fetch.run()


def _check_renew(request: ShareFetchRequest) -> None:
    """Raise INVALID_REQUEST if a request renews locks and asks for records as well."""
    limits = (request.max_wait_ms, request.min_bytes, request.max_bytes, request.max_records)
    if request.is_renew_ack and any(limits):
        raise ApiError(ErrorCode.INVALID_REQUEST)


def _forgotten(request: ShareFetchRequest) -> list[SessionPartition]:
    return [
        SessionPartition(topic.topic_id, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]


class _Fetch:
    """One ShareFetch, which waits until records are available."""

    def __init__(
        self,
        context: RequestContext,
        request: ShareFetchRequest,
        session: ShareSession,
        added: Collection[SessionPartition],
        results: dict[SessionPartition, AcknowledgeResult],
    ) -> None:
        self._context = context
        self._request = request
        self._session = session
        self._epoch = session.epoch
        self._added = added
        self._results = results
        self._manager = context.state.share_partitions
        self._reads_committed = self._manager.configs.reads_committed(session.key.group_id)
        self._endpoints = NodeEndpoints(context)

    async def run(self) -> ShareFetchResponse:
        """Acquire records, at the latest when `max_wait_ms` is over."""
        positions = await self._wait_for_records()
        sessions = self._manager.sessions(self._context.node_id)
        if not sessions.is_current(self._session) or self._session.epoch != self._epoch:
            response = self.response([])
            response.error_code, response.responses = ErrorCode.INVALID_SHARE_SESSION_EPOCH, []
            return response
        if any(each.code is ErrorCode.UNKNOWN_TOPIC_ID for each in positions):
            # Kafka fails the whole request for one unknown topic.
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
        return self.response(positions)

    # --- waiting -----------------------------------------------------------------------------

    async def _wait_for_records(self) -> list[_Position]:
        clock, connection = self._context.state.clock, self._context.connection
        deadline = clock.now() + max(self._request.max_wait_ms, 0) / 1000
        signal = AutoResetEvent()
        watched: list[Callable[[], None]] = []
        connection.on_close.add(signal.set)
        try:
            while True:
                positions = self._positions()
                if connection.is_closed or self._request.max_wait_ms <= 0:
                    return positions
                if self._is_satisfied(positions):
                    return positions
                for stop in watched:
                    stop()
                watched = [stop for each in positions for stop in _watch(each, signal)]
                if not await signal.wait(deadline):
                    return self._positions()
        finally:
            connection.on_close.remove(signal.set)
            for stop in watched:
                stop()

    def _positions(self) -> list[_Position]:
        """Return the partitions of the session, in an order that rotates with the epoch.

        Share partitions are loaded one after the other. The fetch does not wait for the rest once
        one of them has records.
        """
        order = rotated(list(self._session.partitions), max(self._request.share_session_epoch, 0))
        positions: list[_Position] = []
        is_complete = False
        for key in order:
            position, was_loaded = self._locate(key)
            if is_complete and was_loaded:
                continue
            positions.append(position)
            is_complete = is_complete or (was_loaded and self._is_satisfied([position]))
        return positions

    def _locate(self, key: SessionPartition) -> tuple[_Position, bool]:
        """Return a partition, and True if its share partition was loaded now."""
        position = _Position(key)
        share_key = SharePartitionKey(self._session.key.group_id, *key)
        node_id = self._context.node_id
        was_loaded = False
        try:
            position.partition = partition = find_partition(self._context, key)
            self._context.check_leader(partition)
            position.share = self._manager.get(node_id, share_key, partition)
            if position.share is None:
                position.share = self._manager.load(node_id, share_key, partition)
                was_loaded = True
            position.share.share_partition.advance_log_start(partition.log.start_offset)
        except ApiError as error:
            position.code = error.code
        return position, was_loaded

    def _is_satisfied(self, positions: Sequence[_Position]) -> bool:
        """Return True if there are errors to report, or enough records."""
        if not all(
            each.is_waiting or each.code is ErrorCode.UNKNOWN_TOPIC_ID for each in positions
        ):
            return True
        size = 0
        for each in positions:
            if each.share is None or each.partition is None:
                continue
            share = each.share.share_partition
            if share.can_acquire:
                size += each.partition.log.available_bytes(
                    share.next_fetch_offset, self._request.max_bytes, self._limit(each.partition)
                )
        return size > 0 and size >= self._request.min_bytes

    def _limit(self, partition: Partition) -> int:
        """Return the offset at which reading ends."""
        return partition.last_stable_offset if self._reads_committed else partition.high_watermark

    # --- the response ------------------------------------------------------------------------

    def response(self, positions: Sequence[_Position]) -> ShareFetchResponse:
        """Return what is acquired of the partitions, and the results of acknowledgements."""
        data: dict[SessionPartition, ShareFetchPartitionData] = {}
        left = self._limit_of(self._request.max_records)
        for position in positions:
            acquired = self._acquire(position, left, len(positions))
            left -= sum(each.last - each.first + 1 for each in acquired)
            if acquired or position.code or position.key in self._added:
                data[position.key] = self._partition_data(position, acquired)
        for key, result in self._results.items():
            if key not in data:
                data[key] = self._partition_data(_Position(key), [])
            data[key].acknowledge_error_code = result.code
            data[key].acknowledge_error_message = result.message
        topics: dict[object, ShareFetchableTopicResponse] = {}
        for key, partition_data in data.items():
            topic = ShareFetchableTopicResponse(topic_id=key.topic_id, partitions=[])
            topics.setdefault(key.topic_id, topic).partitions.append(partition_data)
        response = ShareFetchResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.NONE,
            responses=list(topics.values()),
            node_endpoints=self._endpoints.nodes,
        )
        if self._context.version >= FIRST_LIMITS_VERSION:
            lock_ms = self._manager.configs.lock_duration_ms(self._session.key.group_id)
            response.acquisition_lock_timeout_ms = lock_ms
        return response

    def _acquire(
        self, position: _Position, max_records: int, partitions: int
    ) -> list[AcquiredRange]:
        """Acquire records of a partition for the member."""
        share, partition = position.share, position.partition
        if share is None or partition is None or max_records <= 0:
            return []
        if self._context.connection.is_closed or not share.share_partition.can_acquire:
            return []
        max_bytes = max(self._request.max_bytes // partitions, 1)
        fetched = _read(partition, share, max_bytes, self._limit(partition), self._reads_committed)
        limits = AcquireLimits(
            max_records,
            max(self._limit_of(self._request.batch_size), 1),
            self._request.share_acquire_mode == RECORD_LIMIT,
        )
        acquired = share.share_partition.acquire(
            self._session.key.member_id, fetched, limits, self._context.state.clock.now()
        )
        self._manager.schedule(self._context.node_id, share)
        return acquired

    def _limit_of(self, records: int) -> int:
        """Return a limit of the request; v0 has none."""
        return records if self._context.version >= FIRST_LIMITS_VERSION else MAX_RECORDS

    def _partition_data(
        self, position: _Position, acquired: Sequence[AcquiredRange]
    ) -> ShareFetchPartitionData:
        partition = position.partition
        leader = LeaderIdAndEpoch(leader_id=0, leader_epoch=0)
        if position.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and partition is not None:
            leader = self._endpoints.leader(partition.leader, partition.leader_epoch)
        records = b""
        if acquired and partition is not None:
            records = _records(partition.log, acquired[0].first, acquired[-1].last)
        return ShareFetchPartitionData(
            partition_index=position.key.partition,
            error_code=position.code,
            acknowledge_error_code=ErrorCode.NONE,
            current_leader=leader,
            records=records,
            acquired_records=[
                AcquiredRecords(
                    first_offset=each.first,
                    last_offset=each.last,
                    delivery_count=each.delivery_count,
                )
                for each in acquired
            ],
        )


def _watch(position: _Position, signal: AutoResetEvent) -> list[Callable[[], None]]:
    """Set a signal when a partition changes; return how to stop that."""
    watched = []
    if position.partition is not None:
        watched.append(position.partition.on_change)
    if position.share is not None:
        watched.append(position.share.on_change)
    for each in watched:
        each.add(signal.set)
    return [lambda each=each: each.remove(signal.set) for each in watched]  # type: ignore[misc]


def _read(
    partition: Partition,
    share: LeaderSharePartition,
    max_bytes: int,
    limit: int,
    reads_committed: bool,
) -> AcquirableBatches:
    """Return the batches of the log from the next fetch offset, the first one in any case."""
    log, offset = partition.log, share.share_partition.next_fetch_offset
    size = 0
    batches: list[tuple[int, int]] = []
    for batch in log.batches_from(offset, limit):
        if batches and size + batch.size_bytes > max_bytes:
            break
        size += batch.size_bytes
        batches.append((batch.base_offset, batch.last_offset))
    aborted: list[tuple[int, int]] = []
    if reads_committed and batches:
        aborted = _aborted_batches(log, log.read(offset, size, limit), batches[-1][1])
    return AcquirableBatches(offset, batches, aborted)


def _aborted_batches(log: PartitionLog, data: bytes, last: int) -> list[tuple[int, int]]:
    """Return first and last offset of the batches whose transaction was aborted."""
    views = [each for each in iter_batches(data) if each.is_transactional and not each.is_control]
    if not views:
        return []
    transactions = log.producers.aborted_transactions(views[0].base_offset, last + 1)
    return [
        (view.base_offset, view.last_offset)
        for view in views
        if any(
            each.producer_id == view.producer_id
            and each.first_offset <= view.base_offset <= each.last_offset
            for each in transactions
        )
    ]


def _records(log: PartitionLog, first: int, last: int) -> bytes:
    """Return the whole batches that hold a range of offsets."""

    def is_in_range(batch: StoredBatch) -> bool:
        return batch.base_offset <= last

    size = sum(batch.size_bytes for batch in takewhile(is_in_range, log.batches_from(first)))
    return log.read(first, size)
