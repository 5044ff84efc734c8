"""One node: failing accepts, and its end."""

from __future__ import annotations

import errno
import logging
from typing import Any

import anyio
import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.runtime import Address, Listener, RealRuntime, Transport
from aiokafkawire.wire.messages.api_versions import ApiVersionsRequest

from .raw_client import connected

VERSIONS = ApiVersionsRequest()


def failing_once(listener: Any, code: int) -> None:
    """Make the accept after the pending one fail."""
    accept = listener.accept
    failures = [OSError(code, "injected")]

    async def fail_or_accept() -> Any:
        if failures:
            raise failures.pop()
        return await accept()

    listener.accept = fail_or_accept


@pytest.fixture
def listeners(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The listeners of all started nodes."""
    from aiokafkawire.runtime import RealRuntime

    made: list[Any] = []
    listen = RealRuntime.listen

    class Listener:
        """A listener whose methods can be replaced."""

        def __init__(self, real: Any) -> None:
            self.address = real.address
            self.accept = real.accept
            self.aclose = real.aclose

    async def kept(self: RealRuntime, address: Any) -> Any:
        made.append(Listener(await listen(self, address)))
        return made[-1]

    monkeypatch.setattr(RealRuntime, "listen", kept)
    return made


async def test_a_lack_of_file_descriptors_passes(
    listeners: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with Broker() as broker:
        failing_once(listeners[0], errno.EMFILE)
        for _ in range(3):
            async with connected(broker) as client:
                assert (await client.call(VERSIONS, 0)).error_code == 0
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert [line.split(":")[1] for line in warnings] == [" accept failed"]


async def test_another_failure_ends_accepting_and_keeps_what_is_open(
    listeners: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with Broker() as broker:
        async with connected(broker) as client:
            # Now the next accept is pending.
            await client.call(VERSIONS, 0)
        failing_once(listeners[0], errno.EINVAL)
        async with connected(broker) as client:
            assert (await client.call(VERSIONS, 0)).error_code == 0
            assert (await client.call(VERSIONS, 0)).error_code == 0
            assert "stopped accepting connections" in caplog.text
        await broker.restart(1)
        async with connected(broker) as client:
            assert (await client.call(VERSIONS, 0)).error_code == 0


async def test_connections_are_counted_until_they_end() -> None:
    async with Broker(max_connections=1) as broker:
        for _ in range(3):
            async with connected(broker) as client:
                await client.call(VERSIONS, 0)
                async with connected(broker) as refused:
                    assert await refused.closed()
            with anyio.fail_after(20):
                while len(broker._nodes[1].connections):
                    await anyio.lowlevel.checkpoint()


async def test_a_killed_node_can_start_with_as_many_connections_as_ever() -> None:
    async with Broker(max_connections=1) as broker:
        for _ in range(3):
            async with connected(broker) as client:
                assert (await client.call(VERSIONS, 0)).error_code == 0
                await broker.restart(1)


class LateListener:
    """A listener that delivers a connection a moment late, whatever happens meanwhile."""

    def __init__(self, listener: Listener) -> None:
        self.address = listener.address
        self.came, self.go = anyio.Event(), anyio.Event()
        self._listener = listener

    async def accept(self) -> Transport:
        transport = await self._listener.accept()
        self.came.set()
        with anyio.CancelScope(shield=True):
            await self.go.wait()
        return transport

    async def aclose(self) -> None:
        await self._listener.aclose()


class LateRuntime(RealRuntime):
    async def listen(self, address: Address) -> Listener:
        self.listener = LateListener(await super().listen(address))
        return self.listener


async def test_a_connection_that_comes_while_its_node_is_killed_is_closed() -> None:
    runtime = LateRuntime()
    async with Broker(runtime=runtime) as broker, connected(broker) as client:
        await runtime.listener.came.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(broker.kill, 1)
            await anyio.wait_all_tasks_blocked()
            runtime.listener.go.set()
        assert await client.closed()


async def test_a_connection_that_comes_while_the_broker_is_cut_off_is_closed() -> None:
    runtime = LateRuntime()
    async with Broker(runtime=runtime) as broker, connected(broker) as client:
        await runtime.listener.came.wait()
        # As when the event loop ends below it.
        broker._lifecycle.abort()
        runtime.listener.go.set()
        assert await client.closed()
