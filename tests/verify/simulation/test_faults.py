"""The table of faults: what is drawn fits what is done, and fits the scene."""

from __future__ import annotations

import inspect
import random

import pytest

from verify.simulation.faults import FAULTS, Scene, draw_steps

BARE = Scene(nodes=3, hosts=["10.0.1.1"], topics={"orders": 2})
FULL = Scene(
    nodes=3,
    hosts=["10.0.1.1", "10.0.1.2"],
    topics={"orders": 2, "copies": 1},
    groups=["billing"],
    transactional_ids=["books"],
    replicated=True,
)


@pytest.mark.parametrize("kind", FAULTS)
def test_what_is_drawn_is_what_it_takes(kind: str) -> None:
    fault = FAULTS[kind]
    for seed in range(20):
        arguments = fault.draw(random.Random(seed), FULL)
        inspect.signature(fault.inject).bind(None, **arguments)
        assert fault.draw(random.Random(seed), FULL) == arguments


def test_steps_come_in_their_order_and_within_their_time() -> None:
    steps = draw_steps(random.Random(1), FULL, count=50, from_s=2, to_s=9)
    times = [step.at_s for step in steps]
    assert times == sorted(times)
    assert times[0] >= 2
    assert times[-1] <= 9
    assert len(steps) == 50


def test_what_does_not_apply_is_not_drawn() -> None:
    drawn = {step.kind for step in draw_steps(random.Random(1), BARE, count=500, to_s=1)}
    left_out = {"kill, losing what is not on disk", "move coordinator", "lose power"}
    assert drawn == set(FAULTS) - left_out
    apis = {
        step.arguments["api"]
        for step in draw_steps(random.Random(1), BARE, count=500, to_s=1)
        if "api" in step.arguments
    }
    assert "PRODUCE" in apis
    assert not apis & {"JOIN_GROUP", "END_TXN"}


def test_only_kinds_that_are_asked_for() -> None:
    steps = draw_steps(random.Random(1), BARE, count=50, to_s=1, kinds=["lose power", "reset"])
    assert {step.kind for step in steps} == {"lose power", "reset"}
