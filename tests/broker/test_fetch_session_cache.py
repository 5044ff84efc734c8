"""Fetch sessions: cached state, returned changes, and errors."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest

from aiokafkawire.broker import Broker, fetch_session_cache
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.fetch_session_cache import EVICTION_AGE_S, FetchSessionCache
from aiokafkawire.wire import ZERO_UUID, ErrorCode
from aiokafkawire.wire.messages.fetch import (
    DivergingEpoch,
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)

from .raw_client import (
    RawClient,
    batch,
    build_update_metadata_request,
    connected,
    only,
    produce_request,
)

E = ErrorCode
BEGIN, NEVER = 0, -1


def request(
    epoch: int,
    session: int = 0,
    wanted: dict[int, int] | None = None,
    *,
    forgotten: tuple[int, ...] = (),
    topic_id: UUID = ZERO_UUID,
    max_wait_ms: int = 0,
) -> FetchRequest:
    """`wanted`: the fetch offset by partition of the topic t."""
    name = "" if topic_id != ZERO_UUID else "t"
    partitions = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1_000_000)
        for index, offset in (wanted or {}).items()
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        session_id=session,
        session_epoch=epoch,
        topics=[FetchTopic(topic=name, topic_id=topic_id, partitions=partitions)]
        if partitions
        else [],
        forgotten_topics_data=[
            ForgottenTopic(topic=name, topic_id=topic_id, partitions=list(forgotten))
        ]
        if forgotten
        else [],
    )


def partition_data(
    index: int, *, high_watermark: int = 0, records: bytes = b"", code: int = 0, **fields: Any
) -> FetchPartitionData:
    return FetchPartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=high_watermark,
        records=records,
        **fields,
    )


class Driver:
    """Sessions, a clock, and the current data of the partitions."""

    def __init__(self, max_sessions: int = 10) -> None:
        self.sessions = FetchSessionCache(random.Random(1), max_sessions)
        self.now = 100.0
        self.data: dict[int, FetchPartitionData] = {}

    def fetch(
        self, *args: Any, uses_topic_ids: bool = False, **fields: Any
    ) -> tuple[int, list[int]]:
        fetching = self.sessions.new_context(
            request(*args, **fields), self.now, uses_topic_ids=uses_topic_ids
        )
        data = [
            self.data.get(w.requested.partition, partition_data(w.requested.partition))
            for w in fetching.partitions
        ]
        session, news = self.sessions.build_response(fetching, data, self.now)
        return session, [each.partition_index for _, each in news]


@pytest.fixture
def driver() -> Driver:
    return Driver()


def test_a_client_without_a_session_gets_none(driver: Driver) -> None:
    assert driver.fetch(NEVER, wanted={0: 0, 1: 0}) == (0, [0, 1])
    assert len(driver.sessions) == 0


def test_only_changed_partitions_are_returned(driver: Driver) -> None:
    session, everything = driver.fetch(BEGIN, wanted={0: 0, 1: 0})
    assert session > 0
    assert everything == [0, 1]
    assert driver.fetch(1, session) == (session, [])
    driver.data[1] = partition_data(1, high_watermark=1, records=b"r")
    assert driver.fetch(2, session) == (session, [1])
    # Partitions with records always count as changed.
    assert driver.fetch(3, session) == (session, [1])
    driver.data[1] = partition_data(1, high_watermark=1)
    assert driver.fetch(4, session) == (session, [])
    driver.data[1] = partition_data(1, high_watermark=1, log_start_offset=1)
    assert driver.fetch(5, session) == (session, [1])


@pytest.mark.parametrize(
    "special",
    [
        partition_data(0, code=E.NOT_LEADER_OR_FOLLOWER),
        partition_data(0, preferred_read_replica=2),
        partition_data(0, diverging_epoch=DivergingEpoch(epoch=0, end_offset=0)),
    ],
)
def test_errors_and_their_end_are_returned_again(
    driver: Driver, special: FetchPartitionData
) -> None:
    session, _ = driver.fetch(BEGIN, wanted={0: 0})
    driver.data[0] = special
    assert driver.fetch(1, session) == (session, [0])
    assert driver.fetch(2, session) == (session, [0])
    driver.data[0] = partition_data(0)
    assert driver.fetch(3, session) == (session, [0])
    assert driver.fetch(4, session) == (session, [])


def test_partitions_come_change_and_go(driver: Driver) -> None:
    session, _ = driver.fetch(BEGIN, wanted={0: 0, 1: 0})
    assert driver.fetch(1, session, {2: 0}) == (session, [2])
    fetching = driver.sessions.new_context(
        request(2, session, {0: 7}, forgotten=(1,)), driver.now, uses_topic_ids=False
    )
    offsets = {w.requested.partition: w.requested.fetch_offset for w in fetching.partitions}
    assert offsets == {0: 7, 2: 0}


def test_a_served_session_moves_to_the_end(driver: Driver) -> None:
    session, _ = driver.fetch(BEGIN, wanted={0: 0, 1: 0, 2: 0})
    driver.data = {
        index: partition_data(index, records=b"r", high_watermark=1) for index in range(2)
    }
    assert driver.fetch(1, session) == (session, [0, 1])
    driver.data[2] = partition_data(2, records=b"r", high_watermark=1)
    assert driver.fetch(2, session) == (session, [2, 0, 1])


def test_a_session_that_wants_nothing_ends(driver: Driver) -> None:
    session, _ = driver.fetch(BEGIN, wanted={0: 0})
    assert driver.fetch(1, session, forgotten=(0,)) == (0, [])
    assert len(driver.sessions) == 0


@pytest.mark.parametrize("epoch", [BEGIN, NEVER])
def test_a_full_fetch_ends_the_session_that_it_names(driver: Driver, epoch: int) -> None:
    old, _ = driver.fetch(BEGIN, wanted={0: 0})
    new, _ = driver.fetch(epoch, old, {0: 0})
    assert (new == 0) == (epoch == NEVER)
    assert new != old
    with pytest.raises(ApiError, match="FETCH_SESSION_ID_NOT_FOUND"):
        driver.fetch(1, old)


def test_what_does_not_fit_is_refused(driver: Driver) -> None:
    session, _ = driver.fetch(BEGIN, wanted={0: 0})
    for epoch in (2, 7):
        with pytest.raises(ApiError, match="INVALID_FETCH_SESSION_EPOCH"):
            driver.fetch(epoch, session)
    with pytest.raises(ApiError, match="FETCH_SESSION_TOPIC_ID_ERROR"):
        driver.fetch(1, session, uses_topic_ids=True)
    with pytest.raises(ApiError, match="FETCH_SESSION_ID_NOT_FOUND"):
        driver.fetch(1, session + 1)
    assert driver.fetch(1, session) == (session, [])


def test_a_request_that_was_overtaken_is_refused(driver: Driver) -> None:
    session, _ = driver.fetch(BEGIN, wanted={0: 0})
    slow = driver.sessions.new_context(request(1, session), driver.now, uses_topic_ids=False)
    driver.fetch(2, session)
    with pytest.raises(ApiError, match="INVALID_FETCH_SESSION_EPOCH"):
        driver.sessions.build_response(slow, [partition_data(0)], driver.now)


def test_epochs_go_round() -> None:
    driver = Driver()
    session, _ = driver.fetch(BEGIN, wanted={0: 0})
    driver.sessions._sessions[session].epoch = 2**31 - 1
    driver.fetch(2**31 - 1, session)
    assert driver.fetch(1, session) == (session, [])


def test_there_is_room_for_so_many_sessions() -> None:
    driver = Driver(max_sessions=2)
    first, _ = driver.fetch(BEGIN, wanted={0: 0})
    driver.fetch(BEGIN, wanted={0: 0})
    assert driver.fetch(BEGIN, wanted={0: 0}) == (0, [0])
    driver.now += EVICTION_AGE_S
    driver.fetch(1, first)
    third, _ = driver.fetch(BEGIN, wanted={0: 0})
    assert third > 0
    assert len(driver.sessions) == 2
    assert driver.fetch(2, first) == (first, [])


def test_a_session_has_so_many_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_session_cache, "MAX_SESSION_PARTITIONS", 2)
    driver = Driver()
    assert driver.fetch(BEGIN, wanted={0: 0, 1: 0, 2: 0}) == (0, [0, 1, 2])
    session, _ = driver.fetch(BEGIN, wanted={0: 0, 1: 0})
    with pytest.raises(ApiError, match="FETCH_SESSION_ID_NOT_FOUND"):
        driver.fetch(1, session, {2: 0})
    assert len(driver.sessions) == 0


async def write(client: RawClient, partition: int, value: bytes) -> None:
    answer = await client.call(produce_request("t", partition, batch(value)), 9)
    assert only(answer).error_code == E.NONE


@pytest.mark.parametrize("version", [7, 12, 13, 18])
async def test_over_the_wire(version: int) -> None:
    async with Broker() as broker, connected(broker) as client:
        await broker.create_topic("t", partitions=2)
        described = await client.call(build_update_metadata_request("t"), 12)
        topic_id = described.topics[0].topic_id if version >= 13 else ZERO_UUID
        named = {"topic_id": topic_id}
        begun = await client.call(request(BEGIN, 0, {0: 0, 1: 0}, **named), version)
        assert (begun.error_code, begun.session_id > 0) == (E.NONE, True)
        assert len(begun.responses[0].partitions) == 2
        session = begun.session_id
        await write(client, 1, b"v")
        answer = await client.call(request(1, session), version)
        assert (answer.session_id, only(answer).partition_index) == (session, 1)
        answer = await client.call(request(2, session, {1: 1}, **named), version)
        assert answer.responses == []
        answer = await client.call(request(2, session, {1: 1}, **named), version)
        assert (answer.error_code, answer.session_id) == (E.INVALID_FETCH_SESSION_EPOCH, 0)
        await broker.restart(1)
    async with Broker() as broker, connected(broker) as client:
        answer = await client.call(request(3, session, {1: 1}, **named), version)
        assert answer.error_code == E.FETCH_SESSION_ID_NOT_FOUND


async def test_sessions_end_with_their_node() -> None:
    async with Broker() as broker:
        await broker.create_topic("t")
        async with connected(broker) as client:
            session = (await client.call(request(BEGIN, 0, {0: 0}), 12)).session_id
        await broker.restart(1)
        async with connected(broker) as client:
            answer = await client.call(request(1, session), 12)
    assert answer.error_code == E.FETCH_SESSION_ID_NOT_FOUND


async def test_a_fetch_of_a_session_waits_for_all_its_partitions() -> None:
    async with Broker() as broker, connected(broker) as client, connected(broker) as other:
        await broker.create_topic("t", partitions=2)
        session = (await client.call(request(BEGIN, 0, {0: 0, 1: 0}), 12)).session_id
        await client.send(request(1, session, max_wait_ms=60_000), 12)
        await write(other, 1, b"v")
        _, answer = await client.receive(FetchRequest.api_key, 12)
        assert only(answer).partition_index == 1
