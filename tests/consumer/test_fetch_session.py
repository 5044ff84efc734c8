"""Fetch sessions: the state machine by itself, and against the embedded broker."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any
from uuid import UUID

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokafkawire.broker import Answer, Broker, Drop
from aiokafkawire.consumer import fetch_session as f
from aiokafkawire.consumer.fetch_buffer import FetchBuffer
from aiokafkawire.consumer.fetch_planner import PartitionFetch
from aiokafkawire.consumer.partition import AssignedPartition
from aiokafkawire.consumer.partition_states import Fetching
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ZERO_UUID, ApiKey, ErrorCode

from .helpers import consumer, eventually, numbers, orders_broker, parts, produce, read, until
from .record_data import P0, P1

IDS = {"orders": UUID(int=5)}


@cache
def partition_of(tp: TopicPartition, time: int) -> AssignedPartition:
    return AssignedPartition(tp, "earliest", Fetching(FetchBuffer(0)))


def part(tp: TopicPartition, offset: int = 0, *, time: int = 1) -> PartitionFetch:
    """Return a fetch of a partition in its first or a later assignment (`time`)."""
    state = Fetching(FetchBuffer(offset))
    return PartitionFetch(partition_of(tp, time), state, state.buffer, offset, 1, 1_000, -1, False)


def sent(session: f.FetchSession, *tps: PartitionFetch, ids: Mapping[str, UUID] = IDS) -> Any:
    return session.request(tps, ids)


def going(*tps: PartitionFetch, session_id: int = 9) -> f.FetchSession:
    session = f.FetchSession()
    session.handle(f.Accepted(sent(session, *tps), session_id))
    return session


STATES = {"NewSession": f.FetchSession, "OpenSession": lambda: going(part(P0))}
EVENTS: dict[str, Any] = {
    "Accepted": lambda session: f.Accepted(sent(session, part(P0)), 9),
    "Accepted by 0": lambda session: f.Accepted(sent(session, part(P0)), 0),
    "Accepted by another": lambda session: f.Accepted(sent(session, part(P0)), 3),
    "Rejected id": lambda session: f.Rejected(ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
    "Rejected epoch": lambda session: f.Rejected(ErrorCode.INVALID_FETCH_SESSION_EPOCH),
    "ResponseLost": lambda session: f.ResponseLost(),
}
EXPECTED = {
    "NewSession": {
        "Accepted": (9, 1),
        "Accepted by 0": 0,
        "Accepted by another": (3, 1),
        "Rejected id": 0,
        "Rejected epoch": 0,
        "ResponseLost": 0,
    },
    "OpenSession": {
        "Accepted": (9, 2),
        "Accepted by 0": 0,
        "Accepted by another": (3, 1),
        "Rejected id": 0,
        "Rejected epoch": 9,
        "ResponseLost": 9,
    },
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("event", EVENTS)
def test_every_state_and_event(state: str, event: str) -> None:
    session = STATES[state]()
    session.handle(EVENTS[event](session))
    match EXPECTED[state][event]:
        case (session_id, epoch):
            assert isinstance(session.state, f.OpenSession)
            assert (session.state.session_id, session.state.epoch) == (session_id, epoch)
        case previous_session_id:
            assert session.state == f.NewSession(previous_session_id)


def test_the_table_has_all_states_and_events() -> None:
    states, events = (f.NewSession, f.OpenSession), (f.Accepted, f.Rejected, f.ResponseLost)
    assert set(f.TRANSITIONS) == {(state, event) for state in states for event in events}


def test_the_first_request_lists_all_partitions_and_later_ones_the_changes() -> None:
    session = f.FetchSession()
    first = sent(session, part(P0), part(P1))
    assert (first.session_id, first.epoch, len(first.parts)) == (0, 0, 2)
    session.handle(f.Accepted(first, 9))
    same = sent(session, part(P0), part(P1))
    assert (same.session_id, same.epoch, same.parts, same.forgotten) == (9, 1, (), ())
    session.handle(f.Accepted(same, 9))
    moved = sent(session, part(P0, 5), part(P1))
    assert [p.partition.tp for p in moved.parts] == [P0]
    fewer = sent(session, part(P1))
    assert (fewer.parts, fewer.forgotten) == ((), ((P0, IDS["orders"]),))


def test_a_recreated_topic_or_reassigned_partition_opens_a_new_session() -> None:
    session = going(part(P0), part(P1))
    for asked in (
        sent(session, part(P0), part(P1), ids={"orders": UUID(int=6)}),
        sent(session, part(P0), part(P1, time=2)),
    ):
        assert (asked.session_id, asked.epoch, asked.forgotten) == (9, 0, ())
        assert [p.partition.tp for p in asked.parts] == [P0, P1]


def test_a_session_uses_topic_names_or_ids() -> None:
    session = going(part(P0))
    asked = sent(session, part(P0), ids={"orders": ZERO_UUID})
    assert (asked.session_id, asked.epoch, asked.max_version) == (9, 0, 12)
    assert len(asked.parts) == 1
    session.handle(f.Accepted(asked, 10))
    assert sent(session, part(P0), ids={"orders": ZERO_UUID}).max_version == 12


def test_session_epochs_wrap_to_one() -> None:
    session = going(part(P0))
    assert isinstance(session.state, f.OpenSession)
    session.state = f.OpenSession(9, f.MAX_EPOCH, session.state.last)
    session.handle(f.Accepted(sent(session, part(P0)), 9))
    assert isinstance(session.state, f.OpenSession)
    assert session.state.epoch == 1


class Node:
    """The fetch sessions of a broker."""

    def __init__(self) -> None:
        self.sessions: dict[int, tuple[int, dict[TopicPartition, int]]] = {}
        self.next_id = 1

    def answer(self, asked: f.SessionRequest, *, full: bool) -> tuple[int, int, Any]:
        """Return the error code, the session id and the fetched partitions."""
        named = {p.partition.tp: p.offset for p in asked.parts}
        if asked.epoch == 0:
            self.sessions.pop(asked.session_id, None)
            if full:
                return 0, 0, named
            session_id, self.next_id = self.next_id, self.next_id + 1
            self.sessions[session_id] = (1, named)
            return 0, session_id, named
        if asked.session_id not in self.sessions:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, None
        epoch, known = self.sessions[asked.session_id]
        if epoch != asked.epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0, None
        for tp, _ in asked.forgotten:
            del known[tp]
        self.sessions[asked.session_id] = (epoch + 1, known | named)
        return 0, asked.session_id, known | named


OUTCOMES = ["answered", "answered", "answered", "lost before", "lost after", "forgot"]


@settings(max_examples=100, deadline=None)
@given(st.data())
@pytest.mark.slow
def test_a_broker_fetches_exactly_the_requested_partitions_after_any_loss(
    data: st.DataObject,
) -> None:
    session, node = f.FetchSession(), Node()
    tps = parts("orders", 4)
    for _ in range(data.draw(st.integers(1, 15))):
        planned = [part(tp, data.draw(st.integers(0, 2))) for tp in tps if data.draw(st.booleans())]
        asked = session.request(planned, IDS)
        match data.draw(st.sampled_from(OUTCOMES)):
            case "lost before":
                session.handle(f.ResponseLost())
            case "lost after":
                node.answer(asked, full=False)
                session.handle(f.ResponseLost())
            case what:
                if what == "forgot":
                    node.sessions.clear()
                code, session_id, fetched = node.answer(asked, full=data.draw(st.booleans()))
                if code:
                    session.handle(f.Rejected(code))
                else:
                    assert fetched == {p.partition.tp: p.offset for p in planned}
                    session.handle(f.Accepted(asked, session_id))


async def test_idle_fetches_list_no_partition() -> None:
    async with orders_broker(20) as broker:
        await produce(broker, "orders", 3, numbers(0, 2))
        async with consumer(broker) as reader:
            reader.assign(parts("orders", 20))
            await read(reader, 2)
            await broker.wait_for_request(
                ApiKey.FETCH, matching=lambda seen: not seen.message.topics, count=2
            )
            await produce(broker, "orders", 7, numbers(0, 2))
            assert {record.partition for record in await read(reader, 2)} == {7}
            await broker.wait_for_request(
                ApiKey.FETCH,
                matching=lambda seen: (
                    [
                        (p.partition, p.fetch_offset)
                        for topic in seen.message.topics
                        for p in topic.partitions
                    ]
                    == [(7, 2)]
                ),
            )


async def test_paused_partitions_leave_the_session_and_come_back() -> None:
    async with orders_broker(2) as broker, consumer(broker) as reader:
        reader.assign([P0, P1])
        await until(lambda: len(broker.requests.of(ApiKey.FETCH)) >= 2, reader)
        reader.pause(P0)
        left = await broker.wait_for_request(
            ApiKey.FETCH, matching=lambda seen: bool(seen.message.forgotten_topics_data)
        )
        assert left.message.forgotten_topics_data[0].partitions == [0]
        await produce(broker, "orders", 0, numbers(0, 2))
        reader.resume(P0)
        assert len(await read(reader, 2)) == 2


@pytest.mark.parametrize(
    "action",
    [
        Answer(ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        Answer(ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        Answer(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
        Drop(carried_out=True),
    ],
)
@pytest.mark.slow
async def test_a_failed_session_is_opened_again(action: Any) -> None:
    async with (
        orders_broker(2, records=2) as broker,
        consumer(broker, request_timeout_ms=200) as reader,
    ):
        reader.assign([P0, P1])
        await read(reader, 2)
        fault = broker.on(ApiKey.FETCH, action, times=1)
        await produce(broker, "orders", 1, numbers(0, 2))
        await produce(broker, "orders", 0, numbers(2, 4))
        assert len(await read(reader, 4)) == 4
        assert fault.hits == 1


@pytest.mark.parametrize("options", [{"max_fetch_sessions": 1}, {"as_of": "1.0"}])
async def test_requests_to_brokers_without_sessions_list_all_partitions(options: Any) -> None:
    async with (
        orders_broker(2, **options) as broker,
        consumer(broker) as first,
        consumer(broker, client_id="second") as reader,
    ):
        first.assign([P0])
        # It has the only session that the broker allows.
        await until(lambda: len(broker.requests.of(ApiKey.FETCH)) >= 2, first)
        reader.assign([P0, P1])
        await reader.getmany(timeout_ms=100)

        def is_second(seen: Any) -> bool:
            return bool(seen.client_id == "second")

        await broker.wait_for_request(ApiKey.FETCH, count=3, matching=is_second)
        assert all(
            len(seen.message.topics[0].partitions) == 2
            for seen in broker.requests.of(ApiKey.FETCH)
            if is_second(seen)
        )


async def test_a_partition_assigned_again_is_listed_again() -> None:
    async with (
        orders_broker(records=2) as broker,
        consumer(broker, "orders", group_id="g", max_poll_records=2) as reader,
    ):
        await read(reader, 2)
        assert reader.lag(P0) == 0
        before = reader.metrics()["rebalances_total"]
        broker.on(ApiKey.HEARTBEAT, Answer(ErrorCode.REBALANCE_IN_PROGRESS), times=1)
        await until(lambda: reader.metrics()["rebalances_total"] > before, reader)
        await until(lambda: reader.lag(P0) == 0, reader)
        assert reader.highwater(P0) == 2


@pytest.mark.parametrize("as_of", ["2.8", "4.3"])
async def test_a_topic_recreated_during_a_fetch_is_read(as_of: str) -> None:
    async with Broker(as_of=as_of) as broker:
        for topic in ("orders", "payments"):
            await broker.create_topic(topic, 1)
            await produce(broker, topic, 0, numbers(0, 2))
        held, released = anyio.Event(), anyio.Event()

        async def hold(seen: Any) -> None:
            held.set()
            await released.wait()

        async def starts_over() -> bool:
            return await reader.position(P0) == 0

        async with consumer(broker, "orders", "payments") as reader:
            await read(reader, 4)
            hung = broker.on(ApiKey.FETCH, hold)
            await held.wait()
            hung.remove()
            await broker.delete_topic("orders")
            await broker.create_topic("orders", 1)
            await produce(broker, "orders", 0, numbers(0, 2))
            reader._running.cluster.request_update()
            await eventually(starts_over)
            released.set()
            assert len(await read(reader, 2)) == 2
