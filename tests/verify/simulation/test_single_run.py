"""One run: its plan is the seed's, its trace too, and whatever goes wrong in it is a failure."""

from __future__ import annotations

import logging
import random
import threading

import anyio
import pytest

from aiokafkawire.producer import Producer
from aiokafkawire.runtime import with_runtime
from aiokafkawire.testing.simulation.world import Backend
from verify.invariants.checker import Guarantees
from verify.simulation.harness import Harness
from verify.simulation.plan import Plan, PlannedClient, Step
from verify.simulation.scenario import Scenario
from verify.simulation.scenarios import plain
from verify.simulation.single_run import BACKENDS, draw, play

LOGGER = logging.getLogger("aiokafkawire.cluster")
BOTH = pytest.mark.parametrize("backend", BACKENDS)


def scenario(run: object, *, limit_s: float = 1_000.0) -> Scenario:
    """One with a single node, and steps that only `run` knows."""

    def drawn(rng: random.Random) -> Plan:
        steps = tuple(Step(0.1 * n, "count", {"n": n}) for n in range(5))
        return Plan(broker={"nodes": 1}, steps=steps, clients=(PlannedClient("a", "h", "k"),))

    return Scenario("made", drawn, run, lambda plan: Guarantees(), limit_s=limit_s)  # type: ignore[arg-type]


@BOTH
def test_the_same_seed_is_the_same_run(backend: Backend) -> None:
    first, again = (play(plain.SCENARIO, 3, backend) for _ in range(2))
    assert not first.failures
    assert first.events > 20
    assert (first.digest, first.events, first.seconds) == (
        again.digest,
        again.events,
        again.seconds,
    )
    assert play(plain.SCENARIO, 4, backend).digest != first.digest


@BOTH
def test_warnings_of_other_threads_do_not_change_the_digest(backend: Backend) -> None:
    """A client that another test left in a thread may log at any time."""

    def digest(*, warns: bool) -> str:
        async def run(harness: Harness) -> None:
            async def count(n: int) -> None:
                if warns:
                    thread = threading.Thread(target=LOGGER.warning, args=("no broker",))
                    thread.start()
                    thread.join()

            harness.on("count", count)
            await harness.run_steps()

        return play(scenario(run), 1, backend).digest

    assert digest(warns=True) == digest(warns=False)


def test_a_plan_is_drawn_from_the_seed_alone() -> None:
    assert draw(plain.SCENARIO, 3) == draw(plain.SCENARIO, 3)
    assert draw(plain.SCENARIO, 3) != draw(plain.SCENARIO, 4)


@BOTH
def test_steps_happen_at_their_times(backend: Backend) -> None:
    seen: list[tuple[int, float]] = []

    async def run(harness: Harness) -> None:
        async def count(n: int) -> None:
            seen.append((n, round(harness.now(), 3)))

        harness.on("count", count)
        await harness.run_steps()

    result = play(scenario(run), 1, backend)
    assert not result.failures
    assert [n for n, _ in seen] == [0, 1, 2, 3, 4]
    assert [at for _, at in seen[1:]] == [0.1, 0.2, 0.3, 0.4]


@BOTH
def test_an_exception_of_a_scenario_is_a_failure(backend: Backend) -> None:
    async def run(harness: Harness) -> None:
        async def task() -> None:
            raise KeyError("broken")

        async with anyio.create_task_group() as group:
            group.start_soon(task)

    (failure,) = play(scenario(run), 1, backend).failures
    assert failure.kind == "KeyError"
    assert "broken" in failure.text


@BOTH
def test_a_violation_noted_by_a_scenario_is_a_failure(backend: Backend) -> None:
    async def run(harness: Harness) -> None:
        harness.violated(1, "a record is gone")

    result = play(scenario(run), 1, backend)
    assert [failure.kind for failure in result.failures] == ["invariant 1"]


@BOTH
def test_a_call_over_its_time_is_a_failure(backend: Backend) -> None:
    async def run(harness: Harness) -> None:
        await harness.bounded("a nap", 1.0, anyio.sleep(0.9))
        await harness.bounded("a sleep", 1.0, anyio.sleep(3))

    (failure,) = play(scenario(run), 1, backend).failures
    assert failure.kind == "invariant 9"
    assert "a sleep took 3.000 s" in failure.text


@BOTH
def test_a_condition_not_met_in_time_is_a_failure(backend: Backend) -> None:
    async def run(harness: Harness) -> None:
        await harness.until(lambda: False, "peace")

    (failure,) = play(scenario(run), 1, backend).failures
    assert failure.kind == "invariant 11"
    assert "peace" in failure.text


@BOTH
def test_an_undelivered_record_is_a_failure(backend: Backend) -> None:
    async def run(harness: Harness) -> None:
        await harness.make_topic("orders", 2)
        producer = with_runtime(
            Producer(client_id="sender", bootstrap_servers=harness.servers),
            harness.runtime("10.0.1.1"),
        )
        async with harness.recorder.producer(producer, "sender") as sender:
            await sender.send_and_wait("orders", sender.value(), partition=1)
        await harness.until_consumed("orders")

    (failure,) = play(scenario(run), 1, backend).failures
    assert failure.kind == "invariant 11"
    assert "1 records, [('orders', 1, 0)]" in failure.text


@BOTH
def test_a_run_that_does_not_end_is_a_failure(backend: Backend) -> None:
    async def run(harness: Harness) -> None:
        await anyio.sleep_forever()

    (failure,) = play(scenario(run, limit_s=20), 1, backend).failures
    assert failure.kind == "Overdue"


@BOTH
def test_a_task_left_behind_is_a_failure(backend: Backend) -> None:
    async def run(harness: Harness) -> None:
        # Opened and never closed.
        await harness.runtime("10.0.1.1").connect(harness.broker.nodes[1])

    result = play(scenario(run), 1, backend)
    assert [failure.kind for failure in result.failures] == ["invariant 10"]
