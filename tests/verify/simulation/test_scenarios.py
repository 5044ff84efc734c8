"""A few seeds of each scenario on each backend; the many are `make simulate`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from aiokafkawire.testing.simulation.world import Backend
from verify.simulation.scenarios import NAMES, chain, coordinator, load, producing
from verify.simulation.scenarios.corners import CORNERS
from verify.simulation.single_run import BACKENDS, draw, play

SEEDS: dict[Backend, int] = {"asyncio": 0, "trio": 1}


LONG: dict[str, Backend] = {"idle_day": "trio", "sessions": "asyncio"}
"""Scenarios that take 10 to 30 seconds: here on one backend each."""

RUNS = [
    pytest.param(name, backend, marks=pytest.mark.slow if name in LONG else ())
    for name in NAMES
    for backend in BACKENDS
    if LONG.get(name, backend) == backend
]


@pytest.mark.timeout(600)  # An idle day takes 20 s; ten times as long beside other suites.
@pytest.mark.parametrize(("name", "backend"), RUNS)
def test_no_guarantee_is_violated(name: str, backend: Backend) -> None:
    result = play(load((name,))[name], SEEDS[backend], backend)
    assert not result.failures, "\n".join([*map(str, result.failures), *result.trace])


@pytest.mark.slow
@pytest.mark.timeout(450)  # twice `LIMIT_S`, and some more
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_seed_is_the_same_run_in_every_process(backend: Backend) -> None:
    digests = [_digests(backend, hash_seed, malloc) for hash_seed, malloc in OTHERS]
    assert digests[0] == digests[1]
    assert len(set(digests[0])) == len(NAMES) - len(LONG) + len(CORNERS)


OTHERS = (("1", "pymalloc"), ("2", "malloc"))
LIMIT_S = 200

DIGESTS = """
import sys
from verify.simulation.single_run import draw, play
from verify.simulation.scenarios import corners, load

for name, scenario in load(sys.argv[2:]).items():
    print(name, play(scenario, 1, sys.argv[1], shown_lines=0).digest)

# Each corner case with the first seed that draws it.
left, seed = set(corners.CORNERS), 0
while left:
    corner = draw(corners.SCENARIO, seed).options["corner"]
    if corner in left:
        left.remove(corner)
        print(corner, play(corners.SCENARIO, seed, sys.argv[1], shown_lines=0).digest)
    seed += 1
"""


def _digests(backend: Backend, hash_seed: str, malloc: str) -> list[str]:
    names = [name for name in NAMES if name not in LONG]
    command = [sys.executable, "-c", DIGESTS, backend, *names]
    environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONMALLOC": malloc}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=LIMIT_S
    )
    return done.stdout.splitlines()


def test_senders_whose_records_expire_soon_are_not_more_than_brokers_can_take() -> None:
    """Expired records must be in doubt because of a fault, not because of the length of the
    queue."""
    slow = 0
    for seed in range(3_000):
        plan = draw(producing.SCENARIO, seed)
        doubted = [step for step in plan.steps if step.kind == "leave in doubt"]
        if not doubted or "replicate" not in plan.broker:
            continue
        (client,) = (each for each in plan.clients if each.name == doubted[0].arguments["sender"])
        hop_s = plan.network.get("max_delay_s", 0.0)
        slow += hop_s == 0.1
        replicated_s = producing.HOPS * hop_s
        assert client.arguments["pause_s"] >= 2 * replicated_s
        request_s = client.arguments["options"]["request_timeout_ms"] / 1_000
        assert producing.IN_FLIGHT * replicated_s + 2 * hop_s <= request_s < producing.EXPIRES_S
    assert slow > 10


def test_requests_in_flight_do_not_time_out_behind_each_other() -> None:
    """After the heal `sender0` has five requests in flight; the last response takes over 1 s."""
    result = play(producing.SCENARIO, 7_014_555, "asyncio")
    assert not result.failures, "\n".join(map(str, result.failures))


def test_records_of_senders_that_do_not_wait_outlive_the_queue_without_a_fault() -> None:
    """A send that expires behind the sender's own queue is no violation, and hides real ones."""
    slow = 0
    for seed in range(1_000):
        plan = draw(producing.SCENARIO, seed)
        hop_s = plan.network.get("max_delay_s", 0.0)
        if hop_s != 0.1 or "replicate" not in plan.broker or "max_message_bytes" in plan.broker:
            continue
        for client in plan.of("sends"):
            options = client.arguments["options"]
            tricks = [step.kind for step in plan.steps if step.kind in producing.TRICKS]
            if client.arguments["style"] == "send_and_wait" or "acks" in options:
                continue
            if options["batch_size_bytes"] != 200 or client.arguments["payload_bytes"] < 100:
                continue
            if "leave in doubt" in tricks:  # It limits the rate instead.
                continue
            slow += 1
            replicated_s = plan.records * producing.HOPS * hop_s
            assert options.get("delivery_timeout_ms", 120_000) >= 1_000 * replicated_s
    assert slow > 10


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_queue_longer_than_its_sender_can_deliver_in_time_is_no_violation(
    backend: Backend,
) -> None:
    """`sender2` buffers 30 records in 0.7 s. A request has about one per partition, and takes
    more than 0.2 s."""
    result = play(producing.SCENARIO, 7_008_196, backend)
    assert not result.failures, "\n".join(map(str, result.failures))


def test_a_commit_may_wait_for_loading_and_then_for_a_backoff() -> None:
    """The coordinator loads for 2 s, and the last retry comes 1 s after that."""
    result = play(coordinator.SCENARIO, 7_012_918, "trio")
    assert not result.failures, "\n".join(map(str, result.failures))


def test_a_group_reads_copies_of_records_that_were_passed_on_already() -> None:
    """One partition of `packed` has no leader until the heal; its records are copied twice."""
    result = play(chain.SCENARIO, 7_011_769, "asyncio")
    assert not result.failures, "\n".join(map(str, result.failures))
