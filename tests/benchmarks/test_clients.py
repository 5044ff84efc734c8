from __future__ import annotations

import asyncio
from importlib import import_module

import pytest

from aiokafkawire import Broker, Producer
from benchmarks.compare import COMPARED
from benchmarks.load import PARTITIONS, VALUE, Setup
from benchmarks.rows import OURS, ROWS, Row
from benchmarks.side import CLIENTS, measure

# A warning from the import of kafka-python.
pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated")
COUNT = 2_000
ALL_ROWS = {**ROWS, **COMPARED}
ACTORS = sorted({(actor.client, actor.action) for row in ROWS.values() for actor in row.actors})


@pytest.mark.parametrize("client", CLIENTS)
def test_each_client_has_a_version(client: str) -> None:
    about = import_module(f"benchmarks.clients.{CLIENTS[client]}").about()
    assert isinstance(about, str)
    assert any(letter.isdigit() for letter in about)


@pytest.mark.parametrize(("client", "action"), ACTORS)
def test_each_side_of_a_row_exists(client: str, action: str) -> None:
    module = import_module(f"benchmarks.clients.{CLIENTS[client]}")
    assert action in (module.ACTIONS if client == "Java" else module.SIDES)


async def our_side(row: Row) -> None:
    from benchmarks.clients import ours

    async with Broker(default_partitions=PARTITIONS) as broker:
        await broker.create_topic("t", partitions=PARTITIONS)
        if row.reads:
            async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
                for number in range(COUNT):
                    await producer.send("t", VALUE, partition=number % PARTITIONS)
        for action in {actor.action for actor in row.actors if actor.client == OURS}:
            setup = Setup(broker.bootstrap_servers, "t")
            count = COUNT // 10 if row.waits else COUNT
            found = await measure(ours.SIDES[action], setup, count, profiled=False, broker=None)
            assert found["messages"] > 0
            assert found["cpu_seconds"] > 0
            assert ("p50_ms" in found) == row.waits


@pytest.mark.parametrize("name", ALL_ROWS)
def test_our_side_of_a_row_runs(name: str) -> None:
    asyncio.run(our_side(ALL_ROWS[name]))
