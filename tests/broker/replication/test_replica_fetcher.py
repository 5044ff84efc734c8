from __future__ import annotations

import math
from typing import Any

import pytest

from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.broker.replication.controller_commands import LeaderAndIsr, LeaderAndIsrCommand
from aiokafkawire.broker.replication.replica import Following, Replica, ResolvingOffset, Truncating
from aiokafkawire.broker.replication.replica_fetcher import (
    PARTITION_MAX_BYTES,
    RETRY_S,
    FollowerRequest,
    ReplicaFetcher,
    fetch_request_for,
    needs_topic_names,
)
from aiokafkawire.broker.replication.replica_manager import ReplicaManager, ReplicationConfig
from aiokafkawire.broker.storage import MemoryStore
from aiokafkawire.wire import ZERO_UUID, ErrorCode, decode, encode
from aiokafkawire.wire.messages import fetch, list_offsets, offset_for_leader_epoch

from .logs import NODE, assignment, records, write
from .test_replica_manager import IsrRecorder

E = ErrorCode
LEADER, OTHER = 2, 3
WAIT_MS = 77


class Follower:
    """A node that follows, and its requests to one leader."""

    def __init__(self) -> None:
        options = BrokerConfig(replica_fetch_wait_max_ms=WAIT_MS)
        self.manager = ReplicaManager(NODE, options, MemoryStore(), IsrRecorder())
        self.fetcher = ReplicaFetcher(self.manager, LEADER, options)

    def follow(self, *indexes: int, leader: int = LEADER, epoch: int = 0) -> None:
        partitions: dict[tuple[str, int], LeaderAndIsr] = {
            ("t", index): assignment(leader, epoch) for index in indexes
        }
        command = LeaderAndIsrCommand(
            controller_id=1, controller_epoch=1, partitions=partitions, leaders={}
        )
        self.manager.become_leader_or_follower(command, 0.0)

    def replica(self, index: int = 0) -> Replica:
        return self.manager.replica("t", index)

    def ask(self, kind: type, now: float = 0.0) -> FollowerRequest:
        ask = self.fetcher.next_request(now)
        assert ask is not None
        assert isinstance(ask.request, kind), ask.request
        return ask


@pytest.fixture
def follower() -> Follower:
    return Follower()


def fetched(
    code: int = E.NONE, data: bytes = b"", index: int = 0, **fields: Any
) -> fetch.FetchResponse:
    partition = fetch.FetchPartitionData(
        partition_index=index,
        error_code=code,
        records=data,
        **{"high_watermark": 0, **fields},
    )
    return fetch.FetchResponse(
        responses=[fetch.FetchableTopicResponse(topic="t", partitions=[partition])]
    )


def epoch_ended(
    epoch: int, end: int, code: int = E.NONE
) -> offset_for_leader_epoch.OffsetForLeaderEpochResponse:
    result = offset_for_leader_epoch.EpochEndOffset(
        partition=0, error_code=code, leader_epoch=epoch, end_offset=end
    )
    return offset_for_leader_epoch.OffsetForLeaderEpochResponse(
        topics=[offset_for_leader_epoch.OffsetForLeaderTopicResult(topic="t", partitions=[result])]
    )


def listed(code: int = E.NONE, **fields: Any) -> list_offsets.ListOffsetsResponse:
    result = list_offsets.ListOffsetsPartitionResponse(partition_index=0, error_code=code, **fields)
    return list_offsets.ListOffsetsResponse(
        topics=[list_offsets.ListOffsetsTopicResponse(name="t", partitions=[result])]
    )


def test_without_followed_partitions_there_is_no_fetch(follower: Follower) -> None:
    follower.follow(0, leader=OTHER)
    assert follower.fetcher.next_request(0.0) is None
    assert follower.fetcher.next_deadline(0.0) == math.inf


def test_a_fetch_has_the_replica_id_and_the_offsets(follower: Follower) -> None:
    follower.follow(0, 1, epoch=4)
    ask = follower.ask(fetch.FetchRequest)
    follower.fetcher.on_response(ask, fetched(data=records(0, 3, epoch=4)), 0.0)
    request: Any = follower.ask(fetch.FetchRequest).request
    assert (request.replica_id, request.max_wait_ms, request.min_bytes) == (NODE, WAIT_MS, 1)
    [topic] = request.topics
    first, second = topic.partitions
    assert (first.fetch_offset, second.fetch_offset) == (3, 0)
    assert first.current_leader_epoch == 4
    assert first.partition_max_bytes == PARTITION_MAX_BYTES


def test_fetched_records_are_appended(follower: Follower) -> None:
    follower.follow(0)
    ask = follower.ask(fetch.FetchRequest)
    follower.fetcher.on_response(ask, fetched(data=records(0, 2), high_watermark=1), 0.0)
    assert (follower.replica().log.end_offset, follower.replica().high_watermark) == (2, 1)


def test_an_error_backs_off_the_partition(follower: Follower) -> None:
    follower.follow(0, 1)
    ask = follower.ask(fetch.FetchRequest)
    follower.fetcher.on_response(ask, fetched(E.NOT_LEADER_OR_FOLLOWER), 5.0)
    request: Any = follower.ask(fetch.FetchRequest, 5.0).request
    assert [each.partition for each in request.topics[0].partitions] == [1]
    assert follower.fetcher.next_deadline(5.0) == 5.0 + RETRY_S
    request = follower.ask(fetch.FetchRequest, 5.0 + RETRY_S).request
    assert [each.partition for each in request.topics[0].partitions] == [0, 1]


def test_a_failed_request_backs_off_all_partitions(follower: Follower) -> None:
    follower.follow(0)
    follower.fetcher.on_failure(5.0)
    assert follower.fetcher.next_request(5.0) is None
    assert follower.fetcher.next_deadline(5.0) == 5.0 + RETRY_S
    follower.ask(fetch.FetchRequest, 5.0 + RETRY_S)


def test_a_top_level_error_backs_off_all_partitions(follower: Follower) -> None:
    follower.follow(0)
    failed = fetch.FetchResponse(error_code=E.UNKNOWN_SERVER_ERROR, responses=[])
    follower.fetcher.on_response(follower.ask(fetch.FetchRequest), failed, 5.0)
    assert follower.fetcher.next_request(5.0) is None
    follower.ask(fetch.FetchRequest, 5.0 + RETRY_S)


def test_an_answer_may_name_topics_by_their_ids(follower: Follower) -> None:
    follower.follow(0)
    ask = follower.ask(fetch.FetchRequest)
    assert isinstance(ask.request, fetch.FetchRequest)
    answer = fetched(data=records(0, 2))
    answer.responses[0].topic, answer.responses[0].topic_id = "", ask.request.topics[0].topic_id
    follower.fetcher.on_response(ask, answer, 0.0)
    assert follower.replica().log.end_offset == 2


def test_with_diverging_epochs_the_follower_sends_its_last_fetched_epoch(
    follower: Follower,
) -> None:
    follower.manager.habits = ReplicationConfig(truncates_on_fetch=True)
    follower.follow(0, epoch=4)
    write(follower.replica().log, 3, epoch=4)
    request: Any = follower.ask(fetch.FetchRequest).request
    assert request.topics[0].partitions[0].last_fetched_epoch == 4
    diverging = fetch.DivergingEpoch(epoch=4, end_offset=1)
    ask = follower.ask(fetch.FetchRequest)
    follower.fetcher.on_response(ask, fetched(diverging_epoch=diverging), 0.0)
    assert follower.replica().log.end_offset == 1


def test_fetch_is_equal_in_every_version(follower: Follower) -> None:
    follower.manager.habits = ReplicationConfig(truncates_on_fetch=True)
    follower.follow(0, epoch=4)
    write(follower.replica().log, 3, epoch=4)
    for version in range(19):
        request: Any = follower.ask(fetch.FetchRequest).request
        assert not needs_topic_names(request)
        body = encode(fetch_request_for(request, version), version)
        found = decode(fetch.FetchRequest, version, body)
        by_state = found.replica_state.replica_id
        assert (by_state if version >= 15 else found.replica_id) == NODE
        assert (found.topics[0].topic_id != ZERO_UUID) is (version >= 13)
        last = found.topics[0].partitions[0].last_fetched_epoch
        assert last == (4 if version >= 12 else -1)


def test_a_topic_whose_id_is_not_known_is_named(follower: Follower) -> None:
    follower.follow(0)
    request: Any = follower.ask(fetch.FetchRequest).request
    request.topics[0].topic_id = ZERO_UUID
    assert needs_topic_names(request)


def test_damaged_records_are_fetched_again(follower: Follower) -> None:
    follower.follow(0)
    bad = bytearray(records(0))
    bad[-1] ^= 0xFF
    follower.fetcher.on_response(follower.ask(fetch.FetchRequest), fetched(data=bytes(bad)), 0.0)
    assert follower.replica().log.end_offset == 0
    assert follower.fetcher.next_request(0.0) is None
    follower.ask(fetch.FetchRequest, RETRY_S)


def test_a_response_for_another_epoch_is_ignored(follower: Follower) -> None:
    follower.follow(0)
    ask = follower.ask(fetch.FetchRequest)
    follower.follow(0, leader=OTHER, epoch=1)
    follower.fetcher.on_response(ask, fetched(data=records(0)), 0.0)
    assert follower.replica().log.end_offset == 0


def test_a_response_from_before_a_truncation_is_ignored(follower: Follower) -> None:
    follower.follow(0)
    write(follower.replica().log, 3)
    follower.replica().state = Following()
    ask = follower.ask(fetch.FetchRequest)
    follower.replica().truncate_to(1)
    follower.fetcher.on_response(ask, fetched(data=records(3)), 0.0)
    assert follower.replica().log.end_offset == 1
    request: Any = follower.ask(fetch.FetchRequest).request
    assert request.topics[0].partitions[0].fetch_offset == 1


def test_a_response_for_a_deleted_partition_is_ignored(follower: Follower) -> None:
    follower.follow(0)
    ask = follower.ask(fetch.FetchRequest)
    replica = follower.replica()
    replica.deleted = True
    follower.fetcher.on_response(ask, fetched(data=records(0)), 0.0)
    assert replica.log.end_offset == 0


def test_a_response_for_an_unrequested_partition_is_ignored(follower: Follower) -> None:
    follower.follow(0)
    follower.fetcher.on_response(
        follower.ask(fetch.FetchRequest), fetched(data=records(0), index=9), 0.0
    )
    assert follower.replica().log.end_offset == 0


def test_the_first_request_is_offset_for_leader_epoch(follower: Follower) -> None:
    follower.follow(0, 1)
    write(follower.replica().log, 3, epoch=0)
    follower.follow(0, 1, epoch=2)
    assert follower.replica().state == Truncating(0)
    ask = follower.ask(offset_for_leader_epoch.OffsetForLeaderEpochRequest)
    request: Any = ask.request
    [partition] = request.topics[0].partitions
    assert (request.replica_id, partition.leader_epoch, partition.current_leader_epoch) == (
        NODE,
        0,
        2,
    )
    follower.fetcher.on_response(ask, epoch_ended(0, 1), 0.0)
    assert follower.replica().log.end_offset == 1
    follower.ask(fetch.FetchRequest)


def test_an_unanswered_epoch_is_requested_again(follower: Follower) -> None:
    follower.follow(0)
    write(follower.replica().log)
    follower.follow(0, epoch=1)
    ask = follower.ask(offset_for_leader_epoch.OffsetForLeaderEpochRequest)
    follower.fetcher.on_response(ask, epoch_ended(-1, -1, E.NOT_LEADER_OR_FOLLOWER), 0.0)
    assert follower.replica().state == Truncating(0)
    assert follower.fetcher.next_request(0.0) is None
    follower.ask(offset_for_leader_epoch.OffsetForLeaderEpochRequest, RETRY_S)


def test_out_of_range_requests_the_end_and_then_the_start(follower: Follower) -> None:
    follower.follow(0, 1)
    ask = follower.ask(fetch.FetchRequest)
    follower.fetcher.on_response(ask, fetched(E.OFFSET_OUT_OF_RANGE), 0.0)
    follower.fetcher.on_response(ask, fetched(E.OFFSET_OUT_OF_RANGE, index=1), 0.0)
    # One of them is a step further: they are fetched separately.
    follower.replica(1).state = ResolvingOffset(end_known=True)
    ask = follower.ask(list_offsets.ListOffsetsRequest)
    request: Any = ask.request
    [partition] = request.topics[0].partitions
    assert (request.replica_id, partition.partition_index, partition.timestamp) == (NODE, 0, -1)
    follower.fetcher.on_response(ask, listed(offset=9), 0.0)
    ask = follower.ask(list_offsets.ListOffsetsRequest)
    request = ask.request
    assert [each.timestamp for each in request.topics[0].partitions] == [-2, -2]
    # The oldest version returns a list.
    follower.fetcher.on_response(ask, listed(old_style_offsets=[7]), 0.0)
    assert follower.replica().state == Following()
    assert follower.replica().log.end_offset == 7


def test_an_unanswered_range_is_requested_again(follower: Follower) -> None:
    follower.follow(0)
    follower.fetcher.on_response(
        follower.ask(fetch.FetchRequest), fetched(E.OFFSET_OUT_OF_RANGE), 0.0
    )
    ask = follower.ask(list_offsets.ListOffsetsRequest)
    follower.fetcher.on_response(ask, listed(E.NOT_LEADER_OR_FOLLOWER), 0.0)
    assert follower.replica().state == ResolvingOffset()
    assert follower.fetcher.next_request(0.0) is None
