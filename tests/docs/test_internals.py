"""The internals page names existing folders, files and functions, in the order of calls."""

from __future__ import annotations

import asyncio
import importlib
import re
import sys
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import NamedTuple

import pytest

from aiokafkawire import Consumer, Producer
from aiokafkawire.testing import Answer, ApiKey, ErrorCode, KafkaBroker

from .pages import ROOT

PACKAGE = ROOT / "aiokafkawire"
PAGE = (ROOT / "docs" / "internals.md").read_text(encoding="utf-8")
PATH = re.compile(r"`([\w/]+(?:\.py|/))`")
STEP = re.compile(r"^\d+\. `([\w/]+\.py)` `([\w.]+)`", re.MULTILINE)


class Function(NamedTuple):
    """A function of the package. `path` is relative to the package's folder."""

    path: str
    name: str

    def __str__(self) -> str:
        return f"{self.path} {self.name}"


def section(heading: str) -> str:
    _, found, rest = PAGE.partition(f"\n## {heading}\n")
    assert found, heading
    return rest.partition("\n## ")[0]


def steps(heading: str) -> list[Function]:
    return [Function(*found) for found in STEP.findall(section(heading))]


# --- the map ---


def test_each_package_folder_has_its_row() -> None:
    folders = {f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")}
    assert folders <= {*re.findall(r"^\| `(\w+/)` \|", PAGE, re.MULTILINE)}


def test_each_state_machine_with_a_table_has_its_row() -> None:
    machines = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if re.search(r"^TRANSITIONS\b", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    rows = re.findall(r"^\| `.*$", PAGE, re.MULTILINE)
    assert machines <= {path for row in rows for path in PATH.findall(row)}


def test_each_named_path_exists() -> None:
    named = {name.rstrip("/") for name in PATH.findall(PAGE)}
    roots = [PACKAGE, ROOT]
    assert [name for name in named if not any((root / name).exists() for root in roots)] == []


# --- the walks ---


async def send_and_wait(broker: KafkaBroker, trace: Trace) -> None:
    async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        await producer.send_and_wait("orders", b"known topic, open connection")
        with trace:
            await (await producer.send("orders", b"book"))


async def read_one(broker: KafkaBroker, trace: Trace) -> None:
    servers = broker.bootstrap_servers
    async with (
        Producer(bootstrap_servers=servers) as producer,
        Consumer("orders", bootstrap_servers=servers, auto_offset_reset="earliest") as consumer,
    ):
        for value in (b"known position", b"fetch under way"):
            await producer.send_and_wait("orders", value)
            assert await consumer.getmany(timeout_ms=5_000)
        with trace:
            await producer.send_and_wait("orders", b"book")
            assert await consumer.getmany(timeout_ms=5_000)
            # The read above may have got the response; this one needs another Fetch.
            await producer.send_and_wait("orders", b"pen")
            assert await consumer.getmany(timeout_ms=5_000)


async def rejoin(broker: KafkaBroker, trace: Trace) -> None:
    servers = broker.bootstrap_servers
    async with Producer(bootstrap_servers=servers) as producer:
        await producer.send_and_wait("orders", b"book")
    async with Consumer(
        "orders",
        group_id="billing",
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=50,
        session_timeout_ms=6_000,
    ) as consumer:
        # Without a position, nothing is committed on revocation, and no epoch is validated.
        assert await consumer.getmany(timeout_ms=20_000)
        with trace:
            # The next Heartbeat to be answered may be on its way already: trace a whole one.
            await consumer.getmany(timeout_ms=200)
            broker.on(ApiKey.HEARTBEAT, Answer(error_code=ErrorCode.REBALANCE_IN_PROGRESS), times=1)
            while not broker.requests.of(ApiKey.SYNC_GROUP)[1:]:
                await consumer.getmany(timeout_ms=100)
            while not broker.requests.of(ApiKey.OFFSET_FOR_LEADER_EPOCH):
                await consumer.getmany(timeout_ms=100)
            # The broker has seen the request; the consumer may not have the response yet.
            await consumer.getmany(timeout_ms=100)


async def commit(broker: KafkaBroker, trace: Trace) -> None:
    servers = broker.bootstrap_servers
    async with Producer(bootstrap_servers=servers) as producer:
        await producer.send_and_wait("orders", b"book")
    async with Consumer(
        "orders",
        group_id="billing",
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        assert await consumer.getmany(timeout_ms=5_000)
        with trace:
            await consumer.commit()


WALKS: dict[str, Callable[[KafkaBroker, Trace], Awaitable[None]]] = {
    "A record, from send to acknowledgement": send_and_wait,
    "Bytes of a Fetch response, to records": read_one,
    "A heartbeat error, to the rejoin": rejoin,
    "A commit": commit,
}


class Trace:
    """Records the calls of the package's functions in this thread, resumed coroutines included."""

    def __init__(self) -> None:
        self.calls: list[Function] = []

    def __enter__(self) -> None:
        sys.setprofile(self._called)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(f"{PACKAGE}/"):
            name = frame.f_code.co_qualname
            self.calls.append(Function(path.removeprefix(f"{PACKAGE}/"), name))


@pytest.mark.parametrize("heading", WALKS)
def test_each_function_of_a_walk_exists(heading: str) -> None:
    for path, name in steps(heading):
        found = importlib.import_module(f"aiokafkawire.{path[:-3].replace('/', '.')}")
        for part in name.split("."):
            assert hasattr(found, part), f"{heading}: {name} in {path}"
            found = getattr(found, part)


@pytest.mark.parametrize("heading", WALKS)
def test_the_functions_of_a_walk_are_called_in_its_order(heading: str) -> None:
    trace = Trace()
    with KafkaBroker() as broker:
        asyncio.run(asyncio.wait_for(WALKS[heading](broker, trace), timeout=30))
    walk = steps(heading)
    assert len(walk) >= 8
    assert missing(walk, trace.calls) is None


def missing(walk: list[Function], calls: list[Function]) -> str | None:
    """Return the first step that is not called after all steps before it."""
    remaining = iter(calls)
    for number, step in enumerate(walk, 1):
        if step not in remaining:
            return f"step {number}, {step}"
    return None


def test_a_walk_in_another_order_is_noticed() -> None:
    one, two = Function("a.py", "one"), Function("a.py", "two")
    assert missing([one, two], [one, one, two]) is None
    assert missing([one, two], [two, one]) == "step 2, a.py two"
    assert missing([two, one], [one, two]) == "step 2, a.py one"
