"""A plan can be taken apart by the numbers of its steps and clients."""

from __future__ import annotations

from verify.simulation.plan import Plan, PlannedClient, Step

PLAN = Plan(
    broker={"nodes": 3},
    topics={"orders": 2},
    records=10,
    clients=(PlannedClient("a", "10.0.1.1", "sends"), PlannedClient("b", "10.0.1.2", "reads")),
    steps=(Step(0.5, "kill", {"node": 1, "for_s": 2.0}), Step(1.0, "reset", {"host": "10.0.1.1"})),
)


def test_a_part_of_a_plan() -> None:
    part = PLAN.only(steps=[1], clients=[], records=3)
    assert [step.kind for step in part.steps] == ["reset"]
    assert part.clients == ()
    assert part.records == 3
    assert part.broker == PLAN.broker
    assert PLAN.only() == PLAN


def test_clients_of_a_kind() -> None:
    assert [client.name for client in PLAN.of("reads")] == ["b"]


def test_a_plan_shows_the_numbers_of_its_steps_and_clients() -> None:
    assert str(PLAN).splitlines()[2:] == [
        "topics {'orders': 2}, 10 records, {}",
        "client 0: a at 10.0.1.1: sends()",
        "client 1: b at 10.0.1.2: reads()",
        "step 0:     0.500 s  kill(node=1, for_s=2.0)",
        "step 1:     1.000 s  reset(host='10.0.1.1')",
    ]


def test_a_step_may_begin_iterations_after_its_time() -> None:
    assert str(Step(0.5, "kill", {"node": 1}, 3)) == "    0.500 s + 3  kill(node=1)"
