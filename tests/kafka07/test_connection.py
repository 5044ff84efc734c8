"""One connection: what ends it, and what its end leaves open."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import anyio
import pytest

from aiokafkawire.errors import ClientClosed, ConnectionLost, MalformedFrame
from aiokafkawire.kafka07.connection import Connection
from aiokafkawire.runtime import Address
from tests.connection.scripted import hosted

from .peer import FETCHED, Peer, Script, answering, hanging_up, playing, silent

REQUEST = bytes.fromhex("00000004 0002 0000")
EMPTY = "00000002 0000"


@contextlib.asynccontextmanager
async def connected(script: Script) -> AsyncIterator[tuple[Connection, float]]:
    """A connection, and a deadline that is far away."""
    async with playing(script) as server, hosted() as (runtime, host):
        name, _, port = server.rpartition(":")
        connection = Connection(await runtime.connect(Address(name, int(port))), "b", 1_000)
        connection.start(host)
        try:
            yield connection, runtime.clock.now() + 10
        finally:
            with anyio.CancelScope(shield=True):
                await connection.aclose()


async def test_an_answer_confirms_what_was_sent_before() -> None:
    async with connected(answering("", "", EMPTY)) as (connection, deadline):
        for _ in range(2):
            await connection.send(REQUEST, "PRODUCE", deadline)
        assert connection.unconfirmed == 2
        assert await connection.ask(REQUEST, "FETCH", deadline) == bytes(2)
        assert connection.unconfirmed == 0


async def test_its_end_is_noticed_and_told_each_time() -> None:
    async with connected(hanging_up) as (connection, deadline):
        await connection.send(REQUEST, "PRODUCE", deadline)
        with pytest.raises(ConnectionLost):
            await connection.ask(REQUEST, "FETCH", deadline)
        for _ in range(2):
            with pytest.raises(ConnectionLost):
                await connection.send(REQUEST, "PRODUCE", deadline)
        assert isinstance(connection.error, ConnectionLost)
        assert connection.unconfirmed >= 1


async def test_an_answer_that_nobody_waits_for_ends_it() -> None:
    said = anyio.Event()

    async def unasked(peer: Peer) -> None:
        await peer.say(bytes.fromhex(EMPTY))
        said.set()
        await peer.hear()

    async with connected(unasked) as (connection, deadline):
        await said.wait()
        assert connection._task is not None
        await connection._task.wait()
        with pytest.raises(MalformedFrame, match="nothing was asked for"):
            await connection.ask(REQUEST, "FETCH", deadline)


async def test_closing_wakes_who_waits() -> None:
    async with connected(silent) as (connection, deadline):

        async def ask() -> None:
            with pytest.raises(ClientClosed):
                await connection.ask(REQUEST, "FETCH", deadline)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            await connection.aclose()
        # The first reason stays.
        connection.poison(ConnectionLost("later"))
        assert isinstance(connection.error, ClientClosed)


async def test_a_call_that_is_given_up_ends_it() -> None:
    async with connected(answering(FETCHED)) as (connection, deadline):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await connection.ask(REQUEST, "FETCH", deadline)
        with pytest.raises(ConnectionLost, match="given up in the middle of a FETCH"):
            await connection.ask(REQUEST, "FETCH", deadline)
