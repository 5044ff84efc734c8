"""Worlds: one seed is one run; time passes by itself; deadlocks are found."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import anyio
import pytest

from aiokafkawire.errors import RequestTimedOut
from aiokafkawire.producer import Producer
from aiokafkawire.runtime import Address, Supervisor, with_runtime
from aiokafkawire.testing.simulation import Deadlock, Livelock, NetworkOptions, Overdue, World
from aiokafkawire.testing.simulation import virtual_time as module
from aiokafkawire.testing.simulation.world import Backend
from tests.elapsed import ends_within
from tests.testing.simulation.programs import BROKER, broker, run

HOUR_S = 3_600
MOMENTS_S = 20.0


@pytest.mark.slow
def test_what_is_produced_is_consumed(backend: Backend) -> None:
    _, values = run("produce_and_consume", 7, backend)
    assert values == [b"%05d" % number for number in range(300)]


@pytest.mark.slow
def test_a_group_outlives_a_member_and_a_node(backend: Backend) -> None:
    world, counts = run("rebalance", 1, backend)
    assert len(counts) == 3
    assert sum(counts.values()) >= 240
    assert any("10.0.2.3 crashes" in line for line in world.trace.lines)


PROGRAMS = ("scatter", "rebalance")


def run_in_subprocess(seed: int, backend: Backend, **environment: str) -> list[str]:
    module = "tests.testing.simulation.programs"
    ran = subprocess.run(
        [sys.executable, "-m", module, str(seed), backend, *PROGRAMS],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


@pytest.mark.slow
def test_a_seed_is_a_run_in_every_process(backend: Backend) -> None:
    here: list[str] = []
    for program in PROGRAMS:
        world, output = run(program, 5, backend)
        here.append(f"{world.trace.count} {world.trace.digest} {output}")
    assert run_in_subprocess(5, backend, PYTHONHASHSEED="1") == here
    other = {"PYTHONHASHSEED": "2", "PYTHONMALLOC": "malloc"}
    assert run_in_subprocess(5, backend, **other) == here


@pytest.mark.slow
def test_another_seed_is_another_run(backend: Backend) -> None:
    digests = {run("produce_and_consume", seed, backend)[0].trace.digest for seed in range(3)}
    assert len(digests) == 3


@pytest.mark.slow
def test_hours_pass_in_moments(backend: Backend) -> None:
    world = World(1, backend=backend)

    async def main() -> None:
        async with (
            broker(world) as servers,
            with_runtime(
                Producer(bootstrap_servers=servers.bootstrap_servers), world.runtime("10.0.1.1")
            ) as producer,
        ):
            await producer.send_and_wait("orders", b"early")
            await anyio.sleep(3 * HOUR_S)
            # Metadata was kept fresh, idle connections were closed, and all is as it was.
            assert (await producer.send_and_wait("orders", b"late")).topic == "orders"

    with ends_within(MOMENTS_S):
        world.run(main)
        assert world.now() > 3 * HOUR_S


def test_deadlines_hold_in_virtual_time(backend: Backend) -> None:
    world = World(1, backend=backend)

    async def main() -> float:
        async with (
            broker(world) as servers,
            with_runtime(
                Producer(bootstrap_servers=servers.bootstrap_servers, max_block_ms=HOUR_S * 1_000),
                world.runtime("10.0.1.1"),
            ) as producer,
        ):
            world.network.sever("10.0.1.1", BROKER)
            began = world.now()
            with pytest.raises(RequestTimedOut):
                await producer.partitions_for("orders")
            return world.now() - began

    assert HOUR_S <= world.run(main) < HOUR_S + 1


def test_a_deadlock_names_each_task_and_its_await(backend: Backend) -> None:
    async def wait_in_vain() -> None:
        await anyio.Event().wait()

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(wait_in_vain, name="the one in vain")
            await anyio.sleep(10)

    with pytest.raises(Deadlock, match=r"at 10\.0\d* s, seed 3") as caught:
        World(3, backend=backend).run(main)
    assert "the one in vain: " in str(caught.value)
    assert "wait_in_vain (test_world.py:" in str(caught.value)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_deadlock_that_ignores_cancellation_is_reported(backend: Backend) -> None:
    async def main() -> None:
        with anyio.CancelScope(shield=True):
            await anyio.Event().wait()

    with pytest.raises(Deadlock):
        World(3, backend=backend).run(main)
    gc.collect()  # an event loop that is broken off leaves things behind, on trio many


def test_a_livelock_of_tasks_is_found(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ITERATIONS_WITHOUT_PROGRESS", 500)

    async def main() -> None:
        while True:
            await anyio.lowlevel.checkpoint()

    with pytest.raises(Livelock, match="no time passes in 500 turns"):
        World(3, backend=backend).run(main)


def test_a_program_that_takes_too_long_is_reported(backend: Backend) -> None:
    closed: list[float] = []

    async def main() -> None:
        try:
            await anyio.sleep(1_000)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(20)  # it may still close what it has
            closed.append(world.now())

    world = World(3, backend=backend)
    with pytest.raises(Overdue, match="not ended in 100 s, at 100") as caught:
        world.run(main, limit_s=100)
    assert "await anyio.sleep(1_000)" in str(caught.value)
    assert closed == [pytest.approx(120)]


def test_a_failure_report_lists_the_network_state(backend: Backend) -> None:
    world = World(3, backend=backend)

    async def main() -> None:
        async with broker(world) as servers:
            host, _, port = servers.bootstrap_servers.partition(",")[0].partition(":")
            client = await world.runtime("10.0.1.1").connect(Address(host, int(port)))
            world.network.sever("10.0.1.1", BROKER, one_way=True)
            await client.send([b"hello?"])
            await anyio.Event().wait()

    with pytest.raises(Overdue) as caught:
        world.run(main, limit_s=10)
    output = str(caught.value)
    assert f"#1 10.0.1.1 -> {BROKER}:20001: 6 bytes not received, held up" in output
    assert "severed one way" in output


def test_leaked_tasks_and_connections_are_reported(backend: Backend) -> None:
    world = World(3, backend=backend)
    address = Address("10.0.0.1", 9092)

    async def main() -> None:
        assert world.left_behind() == []
        supervisor = Supervisor("worker")
        await supervisor.start()
        supervisor.spawn(anyio.sleep, 60.0, name="sleeper")
        await world.runtime(address.host).listen(address)
        await world.runtime("10.0.0.2").connect(address)
        inside = world.left_behind()
        assert [line.split(":")[0] for line in inside if "sleeper" in line] == ["task worker"]
        assert f"listener {address}" in inside

    world.run(main)
    left = world.left_behind()
    assert any(line.startswith("task worker:sleeper: ") for line in left)
    assert any(line.startswith("timer ") and "60." in line for line in left)
    assert f"#1 10.0.0.2 -> {address}: the end at 10.0.0.2" in left


@pytest.mark.slow
def test_what_is_closed_leaves_nothing_behind(backend: Backend) -> None:
    assert run("rebalance", 2, backend)[0].left_behind() == []


def test_what_the_program_raises_comes_out(backend: Backend) -> None:
    async def main() -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        World(1, backend=backend).run(main)


def test_each_purpose_has_its_own_random_generator() -> None:
    world = World(1)
    assert world.rng("a").random() == World(1).rng("a").random()
    assert world.rng("a").random() != world.rng("b").random()
    assert world.rng("a").random() != World(2).rng("a").random()


def test_a_slow_network_is_slow(backend: Backend) -> None:
    options = NetworkOptions(min_delay_s=0.5, max_delay_s=0.6)
    world = World(1, backend=backend, network=options)

    async def main() -> None:
        async with broker(world) as servers:
            began = world.now()
            async with with_runtime(
                Producer(bootstrap_servers=servers.bootstrap_servers), world.runtime("10.0.1.1")
            ):
                # Connecting, and two requests there and back.
                assert 2.5 <= world.now() - began < 10

    world.run(main)
