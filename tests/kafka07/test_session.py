"""Kafka07Session: exclusive use of the connection, and lost produce requests."""

from __future__ import annotations

import anyio
import pytest

from aiokafkawire.errors import ConnectionFailed, ConnectionLost, KafkaError, RequestTimedOut
from aiokafkawire.kafka07 import Client
from aiokafkawire.kafka07 import session as module
from aiokafkawire.runtime import Address, RealRuntime, Transport

from .scripted_broker import connected_client, disconnect_on_request, silent


async def test_number_of_waiting_calls_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING_CALLS", 2)
    errors: list[KafkaError] = []

    async def request() -> None:
        try:
            await client.end_offset("t", 0)
        except KafkaError as error:
            errors.append(error)

    async with connected_client(silent) as client, anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(request)
            await anyio.wait_all_tasks_blocked()
        # One call is in flight and two wait.
        assert [error.retriable for error in errors] == [True]
        assert "2 calls are already waiting" in str(errors[0])
        tasks.cancel_scope.cancel()


async def test_lost_produces_of_several_connections_are_counted() -> None:
    async with connected_client(disconnect_on_request) as client:
        session = client._lifecycle.require_session()
        for _ in range(3):
            # Bypasses the check that produce() makes before sending.
            session._lost_produces, lost = 0, session._lost_produces
            await client.produce("t", [b"a"], 0)
            session._lost_produces = lost
            with pytest.raises(ConnectionLost):
                await client.end_offset("t", 0)
            session._discard_closed_connection()
        with pytest.raises(ConnectionLost, match=r"3 earlier produce call\(s\)"):
            await client.flush()
        await client.flush()


@pytest.mark.slow
async def test_connection_setup_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(self: RealRuntime, address: Address) -> Transport:
        await anyio.sleep_forever()
        raise AssertionError

    async with connected_client(disconnect_on_request, request_timeout_ms=200) as client:
        with pytest.raises(ConnectionLost):
            await client.end_offset("t", 0)
        monkeypatch.setattr(RealRuntime, "connect", never)
        with pytest.raises(RequestTimedOut, match="not connected") as caught:
            await client.end_offset("t", 0)
        assert not caught.value.sent
    client = Client("127.0.0.1:1", socket_connection_setup_timeout_ms=50)
    with pytest.raises(ConnectionFailed, match="socket_connection_setup_timeout_ms"):
        await client.start()


async def test_failed_task_aborts_the_connection() -> None:
    async with connected_client(silent) as client:
        session = client._lifecycle.require_session()

        async def request() -> None:
            with pytest.raises(KafkaError, match="a defect"):
                await client.end_offset("t", 0)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(request)
            await anyio.wait_all_tasks_blocked()
            session.on_task_failed(KafkaError("a defect"))
