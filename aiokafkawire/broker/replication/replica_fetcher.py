"""Requests of a follower to one leader."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.broker.replication.controller_commands import Key
from aiokafkawire.broker.replication.replica import (
    Diverged,
    EpochEndReceived,
    Event,
    FetchOutOfRange,
    Following,
    LeaderOffsetFound,
    RecordsFetched,
    Replica,
    ResolvingOffset,
    State,
    Truncating,
)
from aiokafkawire.broker.replication.replica_manager import ReplicaManager
from aiokafkawire.errors import CorruptRecord
from aiokafkawire.wire import ZERO_UUID, ErrorCode, Request, Response
from aiokafkawire.wire.messages.fetch import (
    FetchPartition,
    FetchPartitionData,
    FetchReplicaState,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from aiokafkawire.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from aiokafkawire.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

__all__ = ("RETRY_S", "FollowerRequest", "ReplicaFetcher", "fetch_request_for", "needs_topic_names")

logger = logging.getLogger("aiokafkawire.broker")

T = TypeVar("T")

RETRY_S = 0.1
"""Pause of a partition after an error, and of all partitions after a failed request."""

PARTITION_MAX_BYTES = 2**20
"""Fetch limit per partition, unless the topic allows larger batches."""

LATEST = -1
EARLIEST = -2

FIRST_EPOCH_VERSION = 12
FIRST_REPLICA_STATE_VERSION = 15


@dataclass(frozen=True, slots=True)
class PartitionFetchState:
    """State of a replica when its request was sent."""

    replica: Replica
    leader_epoch: int
    state: State
    end_offset: int

    @property
    def is_current(self) -> bool:
        """Return True if the response still applies."""
        replica = self.replica
        return not replica.deleted and self == _fetch_state(replica)


@dataclass(frozen=True, slots=True)
class FollowerRequest:
    """A request, and the replicas that it is for."""

    request: Request[Response]
    partitions: dict[Key, PartitionFetchState]


class ReplicaFetcher:
    """Builds one request at a time: first for truncation, then for records."""

    def __init__(self, manager: ReplicaManager, leader: int, options: BrokerConfig) -> None:
        self.leader = leader
        self._manager = manager
        self._options = options
        self._resume_at: dict[Key, float] = {}
        self._paused_until = -math.inf

    def next_request(self, now: float) -> FollowerRequest | None:
        """Return the next request, None if there is nothing to send."""
        if now < self._paused_until:
            return None
        self._resume_at = {key: time for key, time in self._resume_at.items() if time > now}
        ready = [
            replica
            for replica in self._manager.followers_of(self.leader)
            if _key(replica) not in self._resume_at
        ]
        steps: tuple[tuple[type[State], Callable[[list[Replica]], Request[Response]]], ...] = (
            (Truncating, self._epoch_request),
            (ResolvingOffset, self._list_offsets_request),
            (Following, self._fetch_request),
        )
        for kind, build in steps:
            chosen = [replica for replica in ready if isinstance(replica.state, kind)]
            if chosen and kind is ResolvingOffset:
                chosen = [each for each in chosen if each.state == chosen[0].state]
            if chosen:
                return FollowerRequest(
                    build(chosen), {_key(each): _fetch_state(each) for each in chosen}
                )
        return None

    def next_deadline(self, now: float) -> float:
        """Return the time at which a pause ends."""
        waiting = [time for time in [*self._resume_at.values(), self._paused_until] if time > now]
        return min(waiting, default=math.inf)

    def on_failure(self, now: float) -> None:
        """Pause after a request without a response."""
        self._paused_until = now + RETRY_S

    def on_response(self, build: FollowerRequest, response: Response, now: float) -> None:
        """Apply the response to replicas that have not changed since the request."""
        if isinstance(response, FetchResponse) and response.error_code != ErrorCode.NONE:
            logger.debug(
                "node %d: Fetch failed with error code %d", self.leader, response.error_code
            )
            self.on_failure(now)
        for key, event, code in _events(build.request, response):
            partitions = build.partitions.get(key)
            if partitions is None or not partitions.is_current:
                continue
            if event is None:
                logger.debug(
                    "%s: node %d returned error code %d",
                    partitions.replica.log.name,
                    self.leader,
                    code,
                )
                self._resume_at[key] = now + RETRY_S
                continue
            try:
                partitions.replica.handle(event, now)
            except CorruptRecord as error:
                logger.warning(
                    "%s: corrupt records from node %d: %s",
                    partitions.replica.log.name,
                    self.leader,
                    error,
                )
                self._resume_at[key] = now + RETRY_S

    # --- requests ----------------------------------------------------------------------------

    def _epoch_request(self, replicas: list[Replica]) -> Request[Response]:
        def build(replica: Replica) -> OffsetForLeaderPartition:
            assert isinstance(replica.state, Truncating)
            return OffsetForLeaderPartition(
                partition=replica.index,
                current_leader_epoch=replica.leader_epoch,
                leader_epoch=replica.state.epoch,
            )

        return OffsetForLeaderEpochRequest(
            replica_id=self._manager.node_id,
            topics=[
                OffsetForLeaderTopic(topic=topic, partitions=partitions)
                for topic, partitions in _by_topic(replicas, build)
            ],
        )

    def _list_offsets_request(self, replicas: list[Replica]) -> Request[Response]:
        """Ask the leader for the latest offsets or, once those are known, the earliest."""
        state = replicas[0].state
        assert isinstance(state, ResolvingOffset)
        timestamp = EARLIEST if state.end_known else LATEST

        def build(replica: Replica) -> ListOffsetsPartition:
            return ListOffsetsPartition(
                partition_index=replica.index,
                current_leader_epoch=replica.leader_epoch,
                timestamp=timestamp,
            )

        return ListOffsetsRequest(
            replica_id=self._manager.node_id,
            topics=[
                ListOffsetsTopic(name=topic, partitions=partitions)
                for topic, partitions in _by_topic(replicas, build)
            ],
        )

    def _fetch_request(self, replicas: list[Replica]) -> Request[Response]:
        def build(replica: Replica) -> FetchPartition:
            return FetchPartition(
                partition=replica.index,
                current_leader_epoch=replica.leader_epoch,
                fetch_offset=replica.log.end_offset,
                last_fetched_epoch=replica.log.latest_epoch if replica.truncates_on_fetch else -1,
                log_start_offset=replica.log.start_offset,
                partition_max_bytes=max(
                    PARTITION_MAX_BYTES, self._manager.max_batch_bytes(replica)
                ),
            )

        return FetchRequest(
            replica_id=self._manager.node_id,
            max_wait_ms=self._options.replica_fetch_wait_max_ms,
            min_bytes=1,
            topics=[
                FetchTopic(
                    topic=topic,
                    topic_id=self._manager.topic_id(topic, partitions[0].partition),
                    partitions=partitions,
                )
                for topic, partitions in _by_topic(replicas, build)
            ],
        )


def _key(replica: Replica) -> Key:
    return replica.topic, replica.index


def _fetch_state(replica: Replica) -> PartitionFetchState:
    return PartitionFetchState(replica, replica.leader_epoch, replica.state, replica.log.end_offset)


def _by_topic(
    replicas: Iterable[Replica], build: Callable[[Replica], T]
) -> Iterable[tuple[str, list[T]]]:
    topics: dict[str, list[T]] = {}
    for replica in replicas:
        topics.setdefault(replica.topic, []).append(build(replica))
    return topics.items()


def fetch_request_for(request: FetchRequest, version: int) -> FetchRequest:
    """Adapt a fetch to a version."""
    if version >= FIRST_REPLICA_STATE_VERSION:
        state = FetchReplicaState(replica_id=request.replica_id)
        return replace(request, replica_id=-1, replica_state=state)
    if version < FIRST_EPOCH_VERSION:
        for topic in request.topics:
            for partition in topic.partitions:
                partition.last_fetched_epoch = -1
    return request


def needs_topic_names(request: FetchRequest) -> bool:
    """Return True if a topic id is unknown, so that the fetch needs topic names."""
    return any(topic.topic_id == ZERO_UUID for topic in request.topics)


# --- responses -----------------------------------------------------------------------------------


def _events(
    request: Request[Response], response: Response
) -> Iterator[tuple[Key, Event | None, int]]:
    """Yield the event of each partition; None stands for an error code."""
    match response:
        case OffsetForLeaderEpochResponse():
            for result in response.topics:
                for end in result.partitions:
                    yield (result.topic, end.partition), _epoch_event(end), end.error_code
        case ListOffsetsResponse():
            for listed in response.topics:
                for listed_partition in listed.partitions:
                    key = listed.name, listed_partition.partition_index
                    yield key, _offset_event(listed_partition), listed_partition.error_code
        case FetchResponse():
            assert isinstance(request, FetchRequest)
            names = {topic.topic_id: topic.topic for topic in request.topics}
            for fetched in response.responses:
                name = fetched.topic or names.get(fetched.topic_id, "")
                for data in fetched.partitions:
                    yield (name, data.partition_index), _fetched_event(data), data.error_code


def _epoch_event(end: EpochEndOffset) -> Event | None:
    if end.error_code != ErrorCode.NONE:
        return None
    return EpochEndReceived(end.leader_epoch, end.end_offset)


def _offset_event(listed_partition: ListOffsetsPartitionResponse) -> Event | None:
    if listed_partition.error_code != ErrorCode.NONE:
        return None
    return LeaderOffsetFound(
        listed_partition.old_style_offsets[0]
        if listed_partition.old_style_offsets
        else listed_partition.offset
    )


def _fetched_event(data: FetchPartitionData) -> Event | None:
    if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return FetchOutOfRange()
    if data.error_code != ErrorCode.NONE:
        return None
    if data.diverging_epoch.end_offset >= 0:
        return Diverged(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
    return RecordsFetched(data.records or b"", data.high_watermark, data.log_start_offset)
