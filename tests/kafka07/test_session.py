"""Turns on the one connection, and what is remembered of those that ended."""

from __future__ import annotations

import anyio
import pytest

from aiokafkawire.errors import ConnectionFailed, ConnectionLost, KafkaError, RequestTimedOut
from aiokafkawire.kafka07 import Client
from aiokafkawire.kafka07 import session as module
from aiokafkawire.runtime import Address, RealRuntime, Transport

from .scripted_broker import connected_client, disconnect_on_request, silent


async def test_the_number_of_waiting_calls_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING_CALLS", 2)
    refused: list[KafkaError] = []

    async def request() -> None:
        try:
            await client.end_offset("t", 0)
        except KafkaError as error:
            refused.append(error)

    async with connected_client(silent) as client, anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(request)
            await anyio.wait_all_tasks_blocked()
        # One is under way and two wait.
        assert [error.retriable for error in refused] == [True]
        assert "2 calls wait" in str(refused[0])
        tasks.cancel_scope.cancel()


async def test_what_is_lost_on_several_connections_is_counted() -> None:
    async with connected_client(disconnect_on_request) as client:
        session = client._lifecycle.running()
        for _ in range(3):
            # Past the check of those that write.
            session._lost_produces, lost = 0, session._lost_produces
            await client.produce("t", [b"a"], 0)
            session._lost_produces = lost
            with pytest.raises(ConnectionLost):
                await client.end_offset("t", 0)
            session._discard_lost_connection()
        with pytest.raises(ConnectionLost, match=r"3 earlier call\(s\) produced"):
            await client.flush()
        await client.flush()


@pytest.mark.slow
async def test_a_connection_that_is_not_made_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(self: RealRuntime, address: Address) -> Transport:
        await anyio.sleep_forever()
        raise AssertionError

    async with connected_client(disconnect_on_request, request_timeout_ms=200) as client:
        with pytest.raises(ConnectionLost):
            await client.end_offset("t", 0)
        monkeypatch.setattr(RealRuntime, "connect", never)
        with pytest.raises(RequestTimedOut, match="there was no connection") as caught:
            await client.end_offset("t", 0)
        assert not caught.value.sent
    client = Client("127.0.0.1:1", socket_connection_setup_timeout_ms=50)
    with pytest.raises(ConnectionFailed, match="in time"):
        await client.start()


async def test_a_task_that_failed_ends_the_connection() -> None:
    async with connected_client(silent) as client:
        session = client._lifecycle.running()

        async def request() -> None:
            with pytest.raises(KafkaError, match="a defect"):
                await client.end_offset("t", 0)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(request)
            await anyio.wait_all_tasks_blocked()
            session.broken(KafkaError("a defect"))
