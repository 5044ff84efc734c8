"""Calls cancelled at each of their suspension points, and their effect on the next call."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.errors import ConnectionLost
from aiokafkawire.kafka07 import Client
from tests.cancellation.suspensions import each_suspension, ways
from tests.leaks import nothing_left

from .scripted_broker import FAST_OPTIONS

pytestmark = pytest.mark.slow

Call = Callable[[Client], Awaitable[Any]]

CALLS: dict[str, Call] = {
    "produce": lambda client: client.produce("other", [b"a"], 0),
    "multi_produce": lambda client: client.multi_produce([("other", 0, [b"a"])]),
    "fetch": lambda client: client.fetch("t", 0, 0),
    "multi_fetch": lambda client: client.multi_fetch([("t", 0, 0), ("t", 0, 11)]),
    "offsets": lambda client: client.offsets("t", 0),
    "beginning_offset": lambda client: client.beginning_offset("t", 0),
    "end_offset": lambda client: client.end_offset("t", 0),
}


async def report_lost_produces(client: Client) -> None:
    """Consume the one error that reports an interrupted produce call."""
    with contextlib.suppress(ConnectionLost):
        await client.flush()
    await client.flush()


@pytest.mark.parametrize("name", CALLS)
async def test_a_cancelled_call_does_not_affect_the_next_one(name: str) -> None:
    async with (
        Broker(kafka07_port=0) as broker,
        nothing_left(timers=False),
        Client(broker.kafka07_server, **FAST_OPTIONS) as client,
    ):
        await client.produce("t", [b"a", b"b"], 0)
        for _, way, when in ways():
            async for outcome in each_suspension(lambda: CALLS[name](client), way, when):
                if outcome.error is not None and not outcome.cancelled:
                    raise outcome.error
                await report_lost_produces(client)
                assert await client.end_offset("t", 0) == 22
                # Each message is complete or absent.
                assert await client.end_offset("other", 0) % 11 == 0


async def test_flush_can_be_cancelled() -> None:
    async with (
        Broker(kafka07_port=0) as broker,
        Client(broker.kafka07_server, **FAST_OPTIONS) as client,
    ):

        async def produce_and_flush() -> None:
            await client.produce("t", [b"a"], 0)
            await client.flush()

        for _, way, when in ways():
            async for outcome in each_suspension(produce_and_flush, way, when):
                assert outcome.cancelled or outcome.error is None
                await report_lost_produces(client)
        assert await client.end_offset("t", 0) % 11 == 0


async def test_cancelled_reads_lose_no_messages() -> None:
    values = [b"%d" % number for number in range(40)]
    async with (
        Broker(kafka07_port=0) as broker,
        Client(broker.kafka07_server, **FAST_OPTIONS, fetch_size_bytes=30) as client,
    ):
        await client.produce("t", values, 0)
        await client.flush()
        for _, way, when in ways():
            messages = client.messages("t", 0, 0)
            read: list[bytes] = []

            async def some(messages: Any = messages, read: list[bytes] = read) -> None:
                for _ in range(5):
                    read.append((await anext(messages)).payload)

            async for _outcome in each_suspension(some, way, when):
                pass
            assert read == values[: len(read)]
            assert len(read) >= 5


async def test_start_can_be_cancelled() -> None:
    async with Broker(kafka07_port=0) as broker, nothing_left(timers=False):
        for _, way, when in ways():

            async def start_and_stop() -> None:
                async with Client(broker.kafka07_server, **FAST_OPTIONS) as client:
                    await client.produce("t", [b"a"], 0)

            async for outcome in each_suspension(start_and_stop, way, when):
                assert outcome.cancelled or outcome.error is None
