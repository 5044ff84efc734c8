"""The checker with all invariants together."""

from __future__ import annotations

import gc

import pytest

from tests.verify.invariants.history_builder import HistoryBuilder, log, v
from verify.invariants.checker import INVARIANTS, Guarantees, check, judge
from verify.invariants.observed import Observed


def test_there_is_a_function_for_each_invariant() -> None:
    assert sorted(INVARIANTS) == list(range(1, 18))
    for number, invariant in INVARIANTS.items():
        assert (invariant.__doc__ or "").startswith(f"({number}) ")


def test_of_nothing_nothing_is_said_but_why() -> None:
    check_result = judge([], Observed(), Guarantees())
    assert check_result.violations == ()
    assert {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 17} <= set(check_result.not_checked)
    assert all(check_result.not_checked.values())


def test_a_violation_shows_the_count_and_the_first_events() -> None:
    builder = HistoryBuilder()
    builder.made()
    builder.producer()
    builder.sent(*[v(number) for number in range(20)])
    [violation] = check(builder.history, Observed(logs=(log(),)), Guarantees())
    assert str(violation).startswith("(1) 20 acknowledged records are not in the log: p-0|")
    assert violation.text.endswith(" and 15 more")
    assert len(violation.events) == 5


@pytest.mark.parametrize("collecting", [True, False])
def test_the_collector_is_left_as_it_was(collecting: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if collecting else gc.disable)()
        check([], Observed(), Guarantees())
        assert gc.isenabled() is collecting
    finally:
        (gc.enable if before else gc.disable)()
