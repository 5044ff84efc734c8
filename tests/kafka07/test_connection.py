"""Kafka07Connection: reasons to abort it, and unconfirmed requests."""

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
    """Yield a connection and a deadline 10 s from now."""
    async with serve_scripts(script) as server, hosted() as (runtime, supervisor):
        name, _, port = server.rpartition(":")
        connection = Kafka07Connection(await runtime.connect(Address(name, int(port))), "b", 1_000)
        connection.start(supervisor)
        try:
            yield connection, runtime.clock.now() + 10
        finally:
            with anyio.CancelScope(shield=True):
                await connection.aclose()


async def test_response_confirms_earlier_requests() -> None:
    async with connected(respond_with("", "", EMPTY)) as (connection, deadline):
        for _ in range(2):
            await connection.send(REQUEST, "PRODUCE", deadline)
        assert connection.unconfirmed_requests == 2
        assert await connection.request(REQUEST, "FETCH", deadline) == bytes(2)
        assert connection.unconfirmed_requests == 0


async def test_every_call_on_a_lost_connection_fails() -> None:
    async with connected(disconnect_on_request) as (connection, deadline):
        await connection.send(REQUEST, "PRODUCE", deadline)
        with pytest.raises(ConnectionLost):
            await connection.request(REQUEST, "FETCH", deadline)
        for _ in range(2):
            with pytest.raises(ConnectionLost):
                await connection.send(REQUEST, "PRODUCE", deadline)
        assert isinstance(connection.error, ConnectionLost)
        assert connection.unconfirmed_requests >= 1


async def test_unexpected_response_aborts_the_connection() -> None:
    sent = anyio.Event()

    async def respond_unasked(peer: ScriptedConnection) -> None:
        await peer.send(bytes.fromhex(EMPTY))
        sent.set()
        await peer.receive()

    async with connected(respond_unasked) as (connection, deadline):
        await sent.wait()
        assert connection._task is not None
        await connection._task.wait()
        with pytest.raises(MalformedFrame, match="without a pending request"):
            await connection.request(REQUEST, "FETCH", deadline)


async def test_aclose_fails_the_pending_call() -> None:
    async with connected(silent) as (connection, deadline):

        async def request() -> None:
            with pytest.raises(ClientClosed):
                await connection.request(REQUEST, "FETCH", deadline)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(request)
            await anyio.wait_all_tasks_blocked()
            await connection.aclose()
        # The first error is kept.
        connection.abort(ConnectionLost("later"))
        assert isinstance(connection.error, ClientClosed)


async def test_cancelled_call_aborts_the_connection() -> None:
    async with connected(respond_with(FETCH_RESPONSE)) as (connection, deadline):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await connection.request(REQUEST, "FETCH", deadline)
        with pytest.raises(ConnectionLost, match="a FETCH call was cancelled"):
            await connection.request(REQUEST, "FETCH", deadline)
