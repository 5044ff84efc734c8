"""The scenario of share groups."""

from __future__ import annotations

from collections import Counter

from verify.simulation.faults import FAULTS
from verify.simulation.scenarios import share
from verify.simulation.single_run import draw


def test_plans_have_members_of_each_kind_and_every_kind_of_fault() -> None:
    plans = [draw(share.SCENARIO, seed) for seed in range(300)]
    kinds = Counter(step.kind for plan in plans for step in plan.steps)
    assert kinds.keys() >= {
        *("leave", "die", "stall", "cancel", "move leader", "move coordinator", "reset"),
        *("close instead of an answer", "no answer", "late answer", "refusal"),
    }
    workers = [worker.arguments for plan in plans for worker in plan.of("works")]
    assert {worker["reads"] for worker in workers} == share.READS.keys()
    assert {worker["works"] for worker in workers} == share.WORKS.keys()
    assert {worker["acquires"] for worker in workers} == {"batch_optimized", "record_limit"}
    assert {worker["mode"] for worker in workers} == {"implicit", "explicit"}
    assert any(worker["renewal_limit_ms"] for worker in workers)
    assert FAULTS.keys() >= set(share.NETWORK)


def test_a_rejoining_member_is_not_refused() -> None:
    for seed in range(300):
        for step in draw(share.SCENARIO, seed).steps:
            if step.kind == "refusal" and step.arguments["code"] in share.REJOINS:
                assert step.arguments["times"] == 1
