"""Base class of cancellation cases: setup, the cancelled call, and the checks after it."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import anyio
import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.consumer import Consumer
from aiokafkawire.producer import Producer
from aiokafkawire.share import ShareConsumer
from aiokafkawire.types import TopicPartition
from tests.cancellation.suspensions import Outcome, each_suspension, ways
from tests.leaks import nothing_left

__all__ = (
    "CancellationCase",
    "ClientInstanceId",
    "cancel_at_each_suspension",
    "public_coroutines",
    "stored_values",
)

WITHIN_S = 60.0

QUICK: dict[str, Any] = {"fetch_max_wait_ms": 20, "retry_backoff_ms": 5}


class CancellationCase:
    """The case of one public coroutine, used for all ways and suspensions."""

    covers: ClassVar[str] = ""
    """Class and name of the coroutine, as `Producer.send`."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.topic = f"topic-{uuid.uuid4().hex[:12]}"
        self.tp = TopicPartition(self.topic, 0)
        self.number = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Set up everything that the calls share."""
        await self.broker.create_topic(self.topic, partitions=1)
        yield

    async def prepare(self) -> None:
        """Prepare each call."""

    async def call(self) -> Any:
        """Make the call that is cancelled."""
        raise AssertionError

    async def check(self, outcome: Outcome) -> None:
        """Check what must hold after each call."""

    async def finish(self) -> None:
        """Check after the last call: the client works, nothing is lost or duplicated."""

    def producer(self, **options: Any) -> Producer:
        return Producer(**self.broker.client_options(), **options)

    def consumer(self, *topics: str, **options: Any) -> Consumer:
        options = QUICK | {"auto_offset_reset": "earliest"} | options
        return Consumer(*topics, **self.broker.client_options(), **options)

    def next_value(self) -> bytes:
        self.number += 1
        return b"%05d" % self.number


class ClientInstanceId(CancellationCase):
    """A new client for each call, whose brokers collect metrics."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        async with super().open(), Broker(client_telemetry=True) as self.collector:
            yield

    def new_client(self) -> Producer | Consumer | ShareConsumer:
        raise AssertionError

    async def prepare(self) -> None:
        self.client = self.new_client()
        await self.client.start()

    async def call(self) -> uuid.UUID:
        return await self.client.client_instance_id()

    async def check(self, outcome: Outcome) -> None:
        instance_id = await self.client.client_instance_id()
        assert outcome.result in {None, instance_id}
        await self.client.stop()


async def cancel_at_each_suspension(case: CancellationCase) -> int:
    """Cancel the call at each suspension in each way; return the number of calls."""
    calls = 0
    with anyio.fail_after(WITHIN_S):
        async with nothing_left(timers=False), case.open():
            for name, way, when in ways():
                await case.prepare()
                number = 0
                async for outcome in each_suspension(case.call, way, when):
                    calls += 1
                    number += 1
                    try:
                        if outcome.error is not None and not outcome.cancelled:
                            raise outcome.error
                        await case.check(outcome)
                    except Exception as error:
                        error.add_note(f"{case.covers}: {name}, at suspension {number}")
                        raise
                    if outcome.hit:
                        await case.prepare()
            await case.finish()
    return calls


def public_coroutines(*classes: type) -> set[str]:
    """Return the names of all public coroutines."""
    return {
        f"{cls.__name__}.{name}"
        for cls in classes
        for name, member in inspect.getmembers(cls, inspect.iscoroutinefunction)
        if not name.startswith("_") or name in {"__aenter__", "__anext__"}
    }


async def stored_values(case: CancellationCase) -> list[bytes]:
    """Return all values of the case's topic."""
    async with case.consumer() as consumer:
        consumer.assign(case.tp)
        end = (await consumer.end_offsets(case.tp))[case.tp]
        values: list[bytes] = []
        while len(values) < end:
            for records in (await consumer.getmany(timeout_ms=1_000)).values():
                values += [value for value in records.values() if value is not None]
    return values


def parametrize_cases(cases: list[type[CancellationCase]]) -> Any:
    """Parametrize a test with each case."""
    return pytest.mark.parametrize("world_class", cases, ids=lambda case: case.__name__)


Step = Callable[[], Awaitable[Any]]
