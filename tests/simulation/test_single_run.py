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
from tests.invariants.checker import Promises
from tests.simulation.harness import Stage
from tests.simulation.plan import Plan, PlannedClient, Step
from tests.simulation.scenario import Programme
from tests.simulation.scenarios import plain
from tests.simulation.single_run import BACKENDS, draw, play

LOGGER = logging.getLogger("aiokafkawire.cluster")
BOTH = pytest.mark.parametrize("backend", BACKENDS)


def programme(run: object, *, limit_s: float = 1_000.0) -> Programme:
    """One with a single node, and steps that only `run` knows."""

    def drawn(rng: random.Random) -> Plan:
        steps = tuple(Step(0.1 * n, "count", {"n": n}) for n in range(5))
        return Plan(broker={"nodes": 1}, steps=steps, clients=(PlannedClient("a", "h", "k"),))

    return Programme("made", drawn, run, lambda plan: Promises(), limit_s=limit_s)  # type: ignore[arg-type]


@BOTH
def test_the_same_seed_is_the_same_run(backend: Backend) -> None:
    first, again = (play(plain.PROGRAMME, 3, backend) for _ in range(2))
    assert not first.failures
    assert first.events > 20
    assert (first.digest, first.events, first.seconds) == (
        again.digest,
        again.events,
        again.seconds,
    )
    assert play(plain.PROGRAMME, 4, backend).digest != first.digest


@BOTH
def test_warnings_of_other_threads_do_not_change_the_digest(backend: Backend) -> None:
    """A client that another test left in a thread may log at any time."""

    def digest(*, warns: bool) -> str:
        async def run(stage: Stage) -> None:
            async def count(n: int) -> None:
                if warns:
                    thread = threading.Thread(target=LOGGER.warning, args=("no broker",))
                    thread.start()
                    thread.join()

            stage.on("count", count)
            await stage.carry_out()

        return play(programme(run), 1, backend).digest

    assert digest(warns=True) == digest(warns=False)


def test_a_plan_is_drawn_from_the_seed_alone() -> None:
    assert draw(plain.PROGRAMME, 3) == draw(plain.PROGRAMME, 3)
    assert draw(plain.PROGRAMME, 3) != draw(plain.PROGRAMME, 4)


@BOTH
def test_steps_happen_at_their_times(backend: Backend) -> None:
    seen: list[tuple[int, float]] = []

    async def run(stage: Stage) -> None:
        async def count(n: int) -> None:
            seen.append((n, round(stage.now(), 3)))

        stage.on("count", count)
        await stage.carry_out()

    played = play(programme(run), 1, backend)
    assert not played.failures
    assert [n for n, _ in seen] == [0, 1, 2, 3, 4]
    assert [at for _, at in seen[1:]] == [0.1, 0.2, 0.3, 0.4]


@BOTH
def test_what_a_programme_raises_is_a_failure(backend: Backend) -> None:
    async def run(stage: Stage) -> None:
        async def task() -> None:
            raise KeyError("broken")

        async with anyio.create_task_group() as group:
            group.start_soon(task)

    (failure,) = play(programme(run), 1, backend).failures
    assert failure.kind == "KeyError"
    assert "broken" in failure.text


@BOTH
def test_what_a_programme_sees_is_a_failure(backend: Backend) -> None:
    async def run(stage: Stage) -> None:
        stage.violated(1, "a record is gone")

    played = play(programme(run), 1, backend)
    assert [failure.kind for failure in played.failures] == ["invariant 1"]


@BOTH
def test_a_call_over_its_time_is_a_failure(backend: Backend) -> None:
    async def run(stage: Stage) -> None:
        await stage.bounded("a nap", 1.0, anyio.sleep(0.9))
        await stage.bounded("a sleep", 1.0, anyio.sleep(3))

    (failure,) = play(programme(run), 1, backend).failures
    assert failure.kind == "invariant 9"
    assert "a sleep took 3.000 s" in failure.text


@BOTH
def test_what_does_not_come_in_time_is_a_failure(backend: Backend) -> None:
    async def run(stage: Stage) -> None:
        await stage.until(lambda: False, "peace")

    (failure,) = play(programme(run), 1, backend).failures
    assert failure.kind == "invariant 11"
    assert "peace" in failure.text


@BOTH
def test_a_record_that_nobody_was_given_is_a_failure(backend: Backend) -> None:
    async def run(stage: Stage) -> None:
        await stage.make_topic("orders", 2)
        producer = with_runtime(
            Producer(client_id="sender", bootstrap_servers=stage.servers), stage.runtime("10.0.1.1")
        )
        async with stage.recorder.producer(producer, "sender") as sender:
            await sender.send_and_wait("orders", sender.value(), partition=1)
        await stage.until_consumed("orders")

    (failure,) = play(programme(run), 1, backend).failures
    assert failure.kind == "invariant 11"
    assert "1 records, [('orders', 1, 0)]" in failure.text


@BOTH
def test_a_run_that_does_not_end_is_a_failure(backend: Backend) -> None:
    async def run(stage: Stage) -> None:
        await anyio.sleep_forever()

    (failure,) = play(programme(run, limit_s=20), 1, backend).failures
    assert failure.kind == "Overdue"


@BOTH
def test_a_task_left_behind_is_a_failure(backend: Backend) -> None:
    async def run(stage: Stage) -> None:
        # Opened and never closed.
        await stage.runtime("10.0.1.1").connect(stage.broker.nodes[1])

    played = play(programme(run), 1, backend)
    assert [failure.kind for failure in played.failures] == ["invariant 10"]
