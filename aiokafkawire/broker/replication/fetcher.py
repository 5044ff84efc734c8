"""What a node asks of one other that leads partitions which it follows. A machine."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.broker.replication.manager import ReplicaManager
from aiokafkawire.broker.replication.messages import Key
from aiokafkawire.broker.replication.replica import (
    Diverged,
    EpochEnded,
    Event,
    Following,
    LogFound,
    OutOfRange,
    Outside,
    Received,
    Replica,
    State,
    Truncating,
)
from aiokafkawire.errors import CorruptRecords
from aiokafkawire.wire import ZERO_UUID, ErrorCode, Request, Response
from aiokafkawire.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
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

__all__ = ("RETRY_S", "Ask", "Fetcher", "fetch_in", "names_topics")

logger = logging.getLogger("aiokafkawire.broker")

T = TypeVar("T")

RETRY_S = 0.1
"""How long a partition is left alone after an error, and all of them after a failed request."""

PARTITION_MAX_BYTES = 2**20
"""What is asked for of one partition, unless one message may be larger."""

LATEST = -1
EARLIEST = -2

FIRST_EPOCH_VERSION = 12
FIRST_REPLICA_STATE_VERSION = 15


@dataclass(frozen=True, slots=True)
class Asked:
    """A replica as it was when something was asked for its sake."""

    replica: Replica
    leader_epoch: int
    state: State
    end_offset: int

    @property
    def stands(self) -> bool:
        """Whether an answer still means anything."""
        replica = self.replica
        return not replica.deleted and self == _asked(replica)


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, and for whom."""

    request: Request[Response]
    asked: dict[Key, Asked]


class Fetcher:
    """One request at a time: first for who has to find his place, then for records."""

    def __init__(self, manager: ReplicaManager, leader: int, options: BrokerConfig) -> None:
        self.leader = leader
        self._manager = manager
        self._options = options
        self._resume_at: dict[Key, float] = {}
        self._paused_until = -math.inf

    def next(self, now: float) -> Ask | None:
        """What to ask now."""
        if now < self._paused_until:
            return None
        self._resume_at = {key: time for key, time in self._resume_at.items() if time > now}
        ready = [
            replica
            for replica in self._manager.following(self.leader)
            if _key(replica) not in self._resume_at
        ]
        steps: tuple[tuple[type[State], Callable[[list[Replica]], Request[Response]]], ...] = (
            (Truncating, self._ask_epochs),
            (Outside, self._ask_range),
            (Following, self._fetch),
        )
        for kind, build in steps:
            chosen = [replica for replica in ready if isinstance(replica.state, kind)]
            if chosen and kind is Outside:
                chosen = [each for each in chosen if each.state == chosen[0].state]
            if chosen:
                return Ask(build(chosen), {_key(each): _asked(each) for each in chosen})
        return None

    def next_deadline(self, now: float) -> float:
        """When there may be something to ask without anything having happened."""
        waiting = [time for time in [*self._resume_at.values(), self._paused_until] if time > now]
        return min(waiting, default=math.inf)

    def failed(self, now: float) -> None:
        """A request got no answer."""
        self._paused_until = now + RETRY_S

    def answered(self, ask: Ask, response: Response, now: float) -> None:
        """Let the replicas go on that are still as they were when it was asked."""
        if isinstance(response, FetchResponse) and response.error_code != ErrorCode.NONE:
            logger.debug("node %d answers a fetch with %d", self.leader, response.error_code)
            self.failed(now)
        for key, event, code in _events(ask.request, response):
            asked = ask.asked.get(key)
            if asked is None or not asked.stands:
                continue
            if event is None:
                logger.debug("%s: node %d answers %d", asked.replica.log.name, self.leader, code)
                self._resume_at[key] = now + RETRY_S
                continue
            try:
                asked.replica.handle(event, now)
            except CorruptRecords as error:
                logger.warning("%s: from node %d: %s", asked.replica.log.name, self.leader, error)
                self._resume_at[key] = now + RETRY_S

    # --- requests ----------------------------------------------------------------------------

    def _ask_epochs(self, replicas: list[Replica]) -> Request[Response]:
        def ask(replica: Replica) -> OffsetForLeaderPartition:
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
                for topic, partitions in _by_topic(replicas, ask)
            ],
        )

    def _ask_range(self, replicas: list[Replica]) -> Request[Response]:
        state = replicas[0].state
        assert isinstance(state, Outside)
        timestamp = EARLIEST if state.end_known else LATEST

        def ask(replica: Replica) -> ListOffsetsPartition:
            return ListOffsetsPartition(
                partition_index=replica.index,
                current_leader_epoch=replica.leader_epoch,
                timestamp=timestamp,
            )

        return ListOffsetsRequest(
            replica_id=self._manager.node_id,
            topics=[
                ListOffsetsTopic(name=topic, partitions=partitions)
                for topic, partitions in _by_topic(replicas, ask)
            ],
        )

    def _fetch(self, replicas: list[Replica]) -> Request[Response]:
        def ask(replica: Replica) -> FetchPartition:
            return FetchPartition(
                partition=replica.index,
                current_leader_epoch=replica.leader_epoch,
                fetch_offset=replica.log.end_offset,
                last_fetched_epoch=replica.log.latest_epoch if replica.on_fetch else -1,
                log_start_offset=replica.log.start_offset,
                partition_max_bytes=max(PARTITION_MAX_BYTES, self._manager.max_batch(replica)),
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
                for topic, partitions in _by_topic(replicas, ask)
            ],
        )


def _key(replica: Replica) -> Key:
    return replica.topic, replica.index


def _asked(replica: Replica) -> Asked:
    return Asked(replica, replica.leader_epoch, replica.state, replica.log.end_offset)


def _by_topic(
    replicas: Iterable[Replica], ask: Callable[[Replica], T]
) -> Iterable[tuple[str, list[T]]]:
    topics: dict[str, list[T]] = {}
    for replica in replicas:
        topics.setdefault(replica.topic, []).append(ask(replica))
    return topics.items()


def fetch_in(request: FetchRequest, version: int) -> FetchRequest:
    """A fetch as a version lays it out."""
    if version >= FIRST_REPLICA_STATE_VERSION:
        state = ReplicaState(replica_id=request.replica_id)
        return replace(request, replica_id=-1, replica_state=state)
    if version < FIRST_EPOCH_VERSION:
        for topic in request.topics:
            for partition in topic.partitions:
                partition.last_fetched_epoch = -1
    return request


def names_topics(request: FetchRequest) -> bool:
    """Whether a fetch has to name its topics, as the id of one is not known."""
    return any(topic.topic_id == ZERO_UUID for topic in request.topics)


# --- answers -------------------------------------------------------------------------------------


def _events(
    request: Request[Response], response: Response
) -> Iterator[tuple[Key, Event | None, int]]:
    """What an answer means to each partition; None for an error, which is named."""
    match response:
        case OffsetForLeaderEpochResponse():
            for result in response.topics:
                for end in result.partitions:
                    yield (result.topic, end.partition), _epoch_end(end), end.error_code
        case ListOffsetsResponse():
            for listed in response.topics:
                for found in listed.partitions:
                    key = listed.name, found.partition_index
                    yield key, _log_found(found), found.error_code
        case FetchResponse():
            assert isinstance(request, FetchRequest)
            names = {topic.topic_id: topic.topic for topic in request.topics}
            for fetched in response.responses:
                name = fetched.topic or names.get(fetched.topic_id, "")
                for data in fetched.partitions:
                    yield (name, data.partition_index), _received(data), data.error_code


def _epoch_end(end: EpochEndOffset) -> Event | None:
    if end.error_code != ErrorCode.NONE:
        return None
    return EpochEnded(end.leader_epoch, end.end_offset)


def _log_found(found: ListOffsetsPartitionResponse) -> Event | None:
    if found.error_code != ErrorCode.NONE:
        return None
    return LogFound(found.old_style_offsets[0] if found.old_style_offsets else found.offset)


def _received(data: PartitionData) -> Event | None:
    if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return OutOfRange()
    if data.error_code != ErrorCode.NONE:
        return None
    if data.diverging_epoch.end_offset >= 0:
        return Diverged(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
    return Received(data.records or b"", data.high_watermark, data.log_start_offset)
