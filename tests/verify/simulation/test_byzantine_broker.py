"""Whatever a broker lies about next, and whatever the application calls next: errors are typed,
calls end by their deadlines, nothing is left behind, and afterwards all is read that was written.

Rules write a plan, step by step; at the end it is played in the simulated world and judged by the
same checker as every other history. More of them:
`python -m tests.verify.simulation.test_byzantine_broker 500`.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from aiokafkawire.testing.simulation.world import Backend
from aiokafkawire.wire import ApiKey
from verify.simulation.byzantine_responses import APIS_WITH_FALSE_RESPONSES, kinds_for_api
from verify.simulation.plan import Plan, PlannedClient, Step
from verify.simulation.scenarios.byzantine import CALLS, SCENARIO, TOPIC
from verify.simulation.scenarios.group_workers import COMMITS, host_of
from verify.simulation.single_run import BACKENDS, play

A_FEW, DOZENS = 3, 30
STEPS = 12
RECORDS = 10

SENDER, WORKERS = "sender", ("worker-0", "worker-1")

false_responses = st.sampled_from(APIS_WITH_FALSE_RESPONSES).flatmap(
    lambda api: st.tuples(st.just(api), st.sampled_from(list(kinds_for_api(api))))
)


class ByzantineBrokerMachine(RuleBasedStateMachine):
    """Brokers that lie, and applications that call them meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.at_s = 0.2
        self.steps: list[Step] = []

    @initialize(
        backend=st.sampled_from(BACKENDS),
        seed=st.integers(0, 10_000),
        as_of=st.sampled_from([None, "2.8", "1.0"]),
        idempotent=st.booleans(),
        commits=st.sampled_from(COMMITS),
    )
    def set_out(
        self, backend: Backend, seed: int, as_of: str | None, idempotent: bool, commits: str
    ) -> None:
        self.backend, self.seed = backend, seed
        sender = PlannedClient(SENDER, "10.0.1.1", "sends", {"enable_idempotence": idempotent})
        workers = [
            PlannedClient(name, host_of(number), "works", {"commits": commits})
            for number, name in enumerate(WORKERS)
        ]
        self.plan = Plan(
            broker={"nodes": 3, "as_of": as_of, "group_min_session_timeout_ms": 100},
            topics={TOPIC: 2},
            records=RECORDS,
            clients=(sender, *workers),
        )

    def step(self, step: str, /, **arguments: Any) -> None:
        self.steps.append(Step(self.at_s, step, arguments))
        self.at_s = round(self.at_s + 0.1, 3)

    # --- what the broker does wrong next ---

    @rule(false_response=false_responses, times=st.integers(1, 3))
    def false_response_rule(self, false_response: tuple[ApiKey, str], times: int) -> None:
        api, kind = false_response
        self.step("lie", api=api.name, kind=kind, times=times)

    @rule(node=st.integers(1, 3))
    def move_the_coordinator(self, node: int) -> None:
        self.step("move coordinator", key="billing", node=node)

    @rule(seconds=st.sampled_from([0.5, 2.5]))
    def wait(self, seconds: float) -> None:
        self.at_s = round(self.at_s + seconds, 3)

    # --- what the application calls next; sending and reading go on all the time ---

    @rule()
    def flush(self) -> None:
        self.step("ask", client=SENDER, what="flush")

    @rule(worker=st.sampled_from(WORKERS), what=st.sampled_from([w for w in CALLS if w != "flush"]))
    def ask(self, worker: str, what: str) -> None:
        self.step("ask", client=worker, what=what)

    @rule(worker=st.sampled_from(WORKERS))
    def close_and_come_again(self, worker: str) -> None:
        self.step("leave", worker=worker, for_s=0.5)

    @rule(worker=st.sampled_from(WORKERS), silent=st.booleans())
    def die_and_come_again(self, worker: str, silent: bool) -> None:
        self.step("die", worker=worker, for_s=0.5, silent=silent)

    def teardown(self) -> None:
        if not self.steps:
            return
        plan = Plan(
            broker=self.plan.broker,
            topics=self.plan.topics,
            records=self.plan.records,
            clients=self.plan.clients,
            steps=tuple(self.steps),
        )
        result = play(SCENARIO, self.seed, self.backend, plan)
        assert not result.failures, "\n".join([*map(str, result.failures), *result.trace])


def run(examples: int) -> None:
    run_settings = settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        deadline=None,
        derandomize=examples <= DOZENS,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(ByzantineBrokerMachine, settings=run_settings)


def test_a_few_histories_of_lies() -> None:
    run(A_FEW)


@pytest.mark.slow
@pytest.mark.timeout(400)  # a minute's work for a core that has nothing else
def test_dozens_of_histories_of_lies() -> None:
    run(DOZENS)


if __name__ == "__main__":
    run(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
