"""One connection: what ends it, and what its end leaves open."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import anyio
import pytest

from aiokafkawire.errors import ClientClosed, ConnectionLost, MalformedFrame
from aiokafkawire.kafka07.connection import Kafka07Connection
from aiokafkawire.runtime import Address
from tests.connection.scripted import hosted

from .scripted_broker import (
    FETCH_RESPONSE,
    Script,
    ScriptedConnection,
    disconnect_on_request,
    respond_with,
    serve_scripts,
    silent,
)

REQUEST = bytes.fromhex("00000004 0002 0000")
EMPTY = "00000002 0000"


@contextlib.asynccontextmanager
async def connected(script: Script) -> AsyncIterator[tuple[Kafka07Connection, float]]:
    """A connection, and a deadline that is far away."""
    async with serve_scripts(script) as server, hosted() as (runtime, host):
        name, _, port = server.rpartition(":")
        connection = Kafka07Connection(await runtime.connect(Address(name, int(port))), "b", 1_000)
        connection.start(host)
        try:
            yield connection, runtime.clock.now() + 10
        finally:
            with anyio.CancelScope(shield=True):
                await connection.aclose()


async def test_an_answer_confirms_what_was_sent_before() -> None:
    async with connected(respond_with("", "", EMPTY)) as (connection, deadline):
        for _ in range(2):
            await connection.send(REQUEST, "PRODUCE", deadline)
        assert connection.unconfirmed_requests == 2
        assert await connection.request(REQUEST, "FETCH", deadline) == bytes(2)
        assert connection.unconfirmed_requests == 0


async def test_its_end_is_noticed_and_told_each_time() -> None:
    async with connected(disconnect_on_request) as (connection, deadline):
        await connection.send(REQUEST, "PRODUCE", deadline)
        with pytest.raises(ConnectionLost):
            await connection.request(REQUEST, "FETCH", deadline)
        for _ in range(2):
            with pytest.raises(ConnectionLost):
                await connection.send(REQUEST, "PRODUCE", deadline)
        assert isinstance(connection.error, ConnectionLost)
        assert connection.unconfirmed_requests >= 1


async def test_an_answer_that_nobody_waits_for_ends_it() -> None:
    said = anyio.Event()

    async def unasked(peer: ScriptedConnection) -> None:
        await peer.send(bytes.fromhex(EMPTY))
        said.set()
        await peer.receive()

    async with connected(unasked) as (connection, deadline):
        await said.wait()
        assert connection._task is not None
        await connection._task.wait()
        with pytest.raises(MalformedFrame, match="nothing was asked for"):
            await connection.request(REQUEST, "FETCH", deadline)


async def test_closing_wakes_who_waits() -> None:
    async with connected(silent) as (connection, deadline):

        async def request() -> None:
            with pytest.raises(ClientClosed):
                await connection.request(REQUEST, "FETCH", deadline)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(request)
            await anyio.wait_all_tasks_blocked()
            await connection.aclose()
        # The first reason stays.
        connection.abort(ConnectionLost("later"))
        assert isinstance(connection.error, ClientClosed)


async def test_a_call_that_is_given_up_ends_it() -> None:
    async with connected(respond_with(FETCH_RESPONSE)) as (connection, deadline):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await connection.request(REQUEST, "FETCH", deadline)
        with pytest.raises(ConnectionLost, match="given up in the middle of a FETCH"):
            await connection.request(REQUEST, "FETCH", deadline)
