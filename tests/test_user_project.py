"""A project with pytest-asyncio can test itself with this package."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SUITE = """
    import asyncio

    import pytest
    import pytest_asyncio

    from aiokafkawire import Broker, Consumer, Producer

    {mark}

    @pytest_asyncio.fixture
    async def bootstrap_servers():
        async with Broker() as broker:
            yield broker.bootstrap_servers

    async def test_what_is_produced_is_consumed(bootstrap_servers):
        async with Producer(bootstrap_servers=bootstrap_servers) as producer:
            receipt = await producer.send_and_wait("orders", value=b"book", key=b"7")
        async with Consumer(
            "orders", bootstrap_servers=bootstrap_servers, group_id="billing",
            auto_offset_reset="earliest",
        ) as consumer:
            record = await asyncio.wait_for(consumer.getone(), 20)
        assert (record.offset, record.key, record.value) == (receipt.offset, b"7", b"book")

    async def test_clients_are_fixtures_too(producer_and_topic):
        producer, topic = producer_and_topic
        assert (await producer.send_and_wait(topic, value=b"x")).offset == 0

    @pytest_asyncio.fixture
    async def producer_and_topic(bootstrap_servers):
        # Entered and left by the fixture's own task.
        async with Producer(bootstrap_servers=bootstrap_servers) as producer:
            yield producer, "fixture"

    async def test_an_own_exception_is_not_wrapped(bootstrap_servers):
        with pytest.raises(ZeroDivisionError):
            async with Producer(bootstrap_servers=bootstrap_servers):
                1 / 0

    class Container:
        # What frameworks do: start in one task, stop in another.
        def __init__(self, bootstrap_servers):
            self.producer = Producer(bootstrap_servers=bootstrap_servers)
            self.consumer = Consumer("orders", bootstrap_servers=bootstrap_servers, group_id="g")

        async def start(self):
            for client in (self.producer, self.consumer):
                await asyncio.create_task(client.start())

        async def stop(self):
            await asyncio.gather(self.producer.stop(), self.consumer.stop())

    @pytest_asyncio.fixture
    async def container(bootstrap_servers):
        container = Container(bootstrap_servers)
        await container.start()
        yield container
        await container.stop()

    async def test_clients_of_a_container(container):
        await container.producer.send_and_wait("orders", value=b"book")
        while not container.consumer.assignment():
            await container.consumer.getmany(timeout_ms=20)

    async def test_wait_for_leaves_a_client_usable(bootstrap_servers):
        async with Consumer("orders", bootstrap_servers=bootstrap_servers) as consumer:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(consumer.getone(), 0.2)
            assert await consumer.partitions_for("orders") == (0,)
"""


@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_a_project_with_pytest_asyncio(tmp_path: Path, mode: str):
    mark = "pytestmark = pytest.mark.asyncio" if mode == "strict" else ""
    suite = tmp_path / "test_orders.py"
    suite.write_text(textwrap.dedent(SUITE).format(mark=mark))
    arguments = ["-p", "no:anyio", "-p", "no:cacheprovider", f"--asyncio-mode={mode}"]
    arguments += ["-o", "asyncio_default_fixture_loop_scope=function"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", *arguments, str(suite)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "5 passed" in ran.stdout
