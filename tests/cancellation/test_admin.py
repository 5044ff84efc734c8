"""Each coroutine of the admin client, cancelled at each of its suspensions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, ClassVar

import pytest

from aiokafkawire import Admin
from aiokafkawire.broker import Broker
from aiokafkawire.errors import BrokerError, PartialFailure, UnsupportedVersion
from tests.admin.calls import CALLS, Arguments, Call
from tests.cancellation.cancellation_case import (
    CancellationCase,
    cancel_at_each_suspension,
    parametrize_cases,
    public_coroutines,
)

pytestmark = pytest.mark.slow

REFUSED = (PartialFailure, BrokerError, UnsupportedVersion)
"""Answers of a broker to a call that it refuses; the call was made nevertheless."""


class Administrating(CancellationCase):
    """A topic with records, a group with a committed offset, and an admin client."""

    make_call: ClassVar[Callable[..., Awaitable[Any]]]

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        async with super().open():
            async with self.producer() as producer:
                await producer.send_and_wait(self.topic, b"value")
            async with self.admin() as self.client:
                await self.client.alter_consumer_group_offsets(self.arguments.group, {self.tp: 1})
                yield

    @property
    def arguments(self) -> Arguments:
        return Arguments(self.topic)

    def admin(self) -> Admin:
        return Admin(**self.broker.client_options(), retry_backoff_ms=5)

    async def call(self) -> None:
        with suppress(*REFUSED):
            await type(self).make_call(self.client, self.arguments)

    async def finish(self) -> None:
        await self.client.wait_for_topics([self.topic])
        assert self.topic in await self.client.list_topics()


def case_of(name: str, call: Call) -> type[Administrating]:
    return type(
        name, (Administrating,), {"covers": f"Admin.{name}", "make_call": staticmethod(call)}
    )


class Start(Administrating):
    covers = "Admin.start"

    async def prepare(self) -> None:
        self.other = self.admin()

    async def call(self) -> None:
        await self.other.start()

    async def check(self, _: object) -> None:
        await self.other.stop()


class AsyncWith(Start):
    covers = "Admin.__aenter__"

    async def call(self) -> None:
        await self.other.__aenter__()


class Stop(Administrating):
    covers = "Admin.stop"

    async def prepare(self) -> None:
        self.other = self.admin()
        await self.other.start()

    async def call(self) -> None:
        await self.other.stop()

    async def check(self, _: object) -> None:
        await self.other.stop()
        assert "closed" in repr(self.other)


class Aclose(Stop):
    covers = "Admin.aclose"

    async def call(self) -> None:
        await self.other.aclose()


CASE_CLASSES: list[type[CancellationCase]] = [
    *(case_of(name, call) for name, call in CALLS.items()),
    Start,
    AsyncWith,
    Stop,
    Aclose,
]


@parametrize_cases(CASE_CLASSES)
async def test_cancelled_at_each_suspension(world_class: type[CancellationCase], broker: Broker):
    assert await cancel_at_each_suspension(world_class(broker)) > 0


def test_every_coroutine_of_the_admin_client_has_a_row() -> None:
    assert {case.covers for case in CASE_CLASSES} == public_coroutines(Admin)
