"""Runs on listeners with SASL and TLS."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aiokafkawire.testing.simulation.world import Backend
from verify.simulation.plan import Plan
from verify.simulation.scenario import Scenario
from verify.simulation.scenarios import plain, secure, sessions
from verify.simulation.security import PASSWORDS, Security, first_release
from verify.simulation.single_run import BACKENDS, draw, play

SEEDS = range(4)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_seed_is_the_same_run_twice(backend: Backend) -> None:
    digests = [
        [play(secure.SCENARIO, seed, backend, shown_lines=0).digest for seed in SEEDS]
        for _ in range(2)
    ]
    assert digests[0] == digests[1]
    assert len(set(digests[0])) == len(SEEDS)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_clients_that_encrypt_keep_their_guarantees(protocol: str, backend: Backend) -> None:
    sasl = protocol == "SASL_SSL"
    security = Security(protocol, "SCRAM-SHA-512", 1_500) if sasl else Security("SSL")  # type: ignore[arg-type]
    for seed in SEEDS:
        plan = replace(draw(plain.SCENARIO, seed), security=security)
        result = play(plain.SCENARIO, seed, backend, plan)
        assert not result.failures, "\n".join([*map(str, result.failures), *result.trace])


def test_a_wrong_password_is_noticed() -> None:
    """The scenario would report what an application sees."""
    plan = Plan(
        broker={"nodes": 1},
        topics={sessions.TOPIC: 1},
        options={"fetch_max_wait_ms": 60_000},
        clients=draw(sessions.SCENARIO, 0).clients[:1],
        steps=(),
        security=Security("SASL_PLAINTEXT", "PLAIN", 120_000),
    )
    scenario = replace(sessions.SCENARIO, run=_run_with_a_wrong_password, limit_s=3_600)
    result = play(scenario, 0, "asyncio", plan)
    assert any("AuthenticationFailed" in failure.text for failure in result.failures)


async def _run_with_a_wrong_password(harness: object) -> None:
    harness.password = "wrong"  # type: ignore[attr-defined]
    await sessions.run(harness)  # type: ignore[arg-type]


def test_sessions_need_a_release_that_ends_them() -> None:
    assert first_release(Security("SASL_PLAINTEXT", "PLAIN")) == "0.10.0"
    assert first_release(Security("SASL_PLAINTEXT", "SCRAM-SHA-256")) == "0.10.2"
    assert first_release(Security("SASL_PLAINTEXT", "PLAIN", 4_000)) == "2.2"


def test_draws_are_mixed() -> None:
    drawn = [draw(secure.SCENARIO, seed) for seed in range(300)]
    assert {plan.security.mechanism for plan in drawn} == {
        *("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    }
    assert {plan.security.max_reauth_ms for plan in drawn} == {0, 1_500, 4_000}
    assert {plan.options["base"] for plan in drawn} == secure.BASES.keys()


@pytest.mark.parametrize("scenario", [secure.SCENARIO, sessions.SCENARIO])
def test_the_password_is_looked_for_in_what_is_logged(scenario: Scenario) -> None:
    plan = draw(scenario, 0)
    arguments = plan.security.broker_arguments(PASSWORDS[0])
    assert {*arguments["sasl"].users.values()} <= {*scenario.guarantees(plan).secrets}
