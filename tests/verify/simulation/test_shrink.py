"""A shrunk plan fails for the same reason as the original."""

from __future__ import annotations

from verify.simulation.plan import Plan, PlannedClient, Step
from verify.simulation.shrink import shrink


def plan(steps: int = 20, clients: int = 6, records: int = 100) -> Plan:
    return Plan(
        broker={"nodes": 1},
        records=records,
        clients=tuple(PlannedClient(f"c{n}", f"10.0.1.{n}", "sends") for n in range(clients)),
        steps=tuple(Step(float(n), "kill", {"node": n}) for n in range(steps)),
    )


def test_only_what_it_fails_by_is_left() -> None:
    def fails(tried: Plan) -> bool:
        nodes = {step.arguments["node"] for step in tried.steps}
        names = {client.name for client in tried.clients}
        return {3, 17} <= nodes and "c4" in names and tried.records >= 7

    left = shrink(plan(), fails)
    assert (left.steps, left.clients, left.records) == ([3, 17], [4], 7)
    assert fails(left.made())


def test_what_fails_without_anything_is_left_empty() -> None:
    left = shrink(plan(), lambda tried: True)
    assert (left.steps, left.clients, left.records) == ([], [], 0)


def test_a_plan_of_which_nothing_can_go_stays_whole() -> None:
    whole = plan(4, 2, 3)
    left = shrink(whole, lambda tried: tried == whole)
    assert left.made() == whole


def test_the_number_of_runs_is_bounded() -> None:
    runs = 0

    def fails(tried: Plan) -> bool:
        nonlocal runs
        runs += 1
        return len(tried.steps) == 20

    left = shrink(plan(), fails, max_runs=9)
    assert runs == 9
    assert len(left.steps) == 20
