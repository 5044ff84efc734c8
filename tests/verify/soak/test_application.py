"""The applications do their work, and write down what they see, on the embedded broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from aiokafkawire.broker import Broker
from verify.invariants.events import (
    Acknowledged,
    Closed,
    Event,
    Polled,
    TransactionEnded,
    from_line,
    make_value,
)
from verify.soak.application import (
    ROLES,
    Job,
    RoleContext,
    StreamingRecorder,
    original,
    parse_job,
    resident_kib,
    tasks,
)

RECORDS = 30


class EventCollector:
    """Keeps the written events, and sets an event for an awaited one."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._awaited: list[tuple[Callable[[], bool], anyio.Event]] = []

    def write(self, line: str) -> None:
        self.events.append(from_line(line))
        for holds, event in self._awaited:
            if holds():
                event.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        event = anyio.Event()
        self._awaited.append((holds, event))
        if not holds():
            with anyio.fail_after(60):
                await event.wait()

    def values(self, topic: str) -> set[bytes]:
        """Return the values that consumers were given of a topic."""
        return {
            original(value)
            for event in self.events
            if isinstance(event, Polled) and event.topic == topic
            for _, value in event.records
        }


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(nodes=1, group_min_session_timeout_ms=500) as broker:
        for topic in ("orders", "copies"):
            await broker.create_topic(topic, partitions=2)
        yield broker


def job(broker: Broker, role: str, name: str, **facts: Any) -> Job:
    return Job(role=role, name=name, servers=broker.bootstrap_servers, partitions=2, **facts)


async def test_records_go_through_all_roles(broker: Broker) -> None:
    notebook = EventCollector()
    attempts = [
        RoleContext(found, StreamingRecorder(notebook.write))
        for found in (
            job(broker, "produce", "producer-1", target="orders", rate=300.0),
            job(broker, "by_hand", "hand-1", source="orders", group="hand"),
            job(broker, "auto_commit", "auto-1", source="orders", group="auto"),
            job(
                broker,
                "transactions",
                "first-1",
                source="orders",
                target="copies",
                group="first",
            ),
            job(broker, "by_hand", "last-1", source="copies", group="last"),
        )
    ]
    async with anyio.create_task_group() as group:
        for context in attempts:
            group.start_soon(ROLES[context.job.role], context)
        await notebook.until(lambda: len(notebook.values("copies")) >= RECORDS)
        for context in attempts:
            context.stop.set()
    events = notebook.events
    sent = {v for e in events if isinstance(e, Acknowledged) for _, v in e.records}
    assert notebook.values("copies") <= notebook.values("orders") <= sent
    assert any(
        isinstance(event, TransactionEnded) and event.outcome == "committed" for event in events
    )
    assert {event.client for event in events if isinstance(event, Closed)} == {
        "producer-1",
        "hand-1",
        "auto-1",
        "first-1",
        "first-1.producer.1",
        "last-1",
    }


def test_a_job_goes_over_the_command_line() -> None:
    found = Job(role="produce", name="p", servers="s:1", options={"acks": "all"})
    assert parse_job(found.to_argument()) == found


def test_a_copy_knows_its_original() -> None:
    first = make_value("producer-1", 7)
    copy = make_value("first-1.producer.1", 3, original(first))
    again = make_value("second-2.producer.1", 9, original(copy))
    assert original(first) == original(copy) == original(again) == first


async def test_what_is_used_is_counted() -> None:
    before = tasks()
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep_forever)
        await anyio.lowlevel.checkpoint()
        assert tasks() == before + 1
        group.cancel_scope.cancel()
    assert resident_kib() > 5_000
