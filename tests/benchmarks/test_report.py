from __future__ import annotations

import pytest

from benchmarks.bench import Result
from benchmarks.report import aim_results, check_aim, from_json, report, to_json
from benchmarks.rows import OURS, ROWS, Aim


def result(cpu: float, rate: float = 1.0, *, busy: float = 1.0, broker: float = 0.0) -> Result:
    return Result(rate, cpu, 10.0, busy, broker, None, None, "1.0")


CPU = Aim("ours", "cpu", 2.0, "theirs", 0.5)


@pytest.mark.parametrize(
    ("ours", "theirs", "figure", "ratio"),
    [(3.0, 8.0, 2 / 3, 4 / 3), (4.0, 4.0, 0.5, 0.5), (1.0, 1.0, 2.0, 0.5)],
)
def test_an_aim_is_judged_by_its_figure_and_by_its_ratio(
    ours: float, theirs: float, figure: float, ratio: float
) -> None:
    outcome = check_aim(CPU, {"ours": [result(ours)], "theirs": [result(theirs)]})
    assert outcome is not None
    assert outcome.parts == pytest.approx({"figure": figure, "ratio": ratio})
    assert outcome.reached == (max(figure, ratio) >= 1)
    assert ("MISSED" in str(outcome)) == (max(figure, ratio) < 1)


def test_ratios_are_those_of_one_round() -> None:
    found = {"ours": [result(1.0), result(9.0)], "theirs": [result(2.0), result(18.0)]}
    outcome = check_aim(CPU, found)
    assert outcome is not None
    assert outcome.ratio == 0.5


def test_the_figure_decides_without_another_client() -> None:
    outcome = check_aim(CPU, {"ours": [result(1.9)]})
    assert outcome is not None
    assert outcome.ratio is None
    assert outcome.reached


def test_a_rate_must_reach_its_aim() -> None:
    aim = Aim("ours", "rate", beside="theirs", ratio=1.1)
    slow = check_aim(aim, {"ours": [result(1, 100)], "theirs": [result(1, 100)]})
    quick = check_aim(aim, {"ours": [result(1, 111)], "theirs": [result(1, 100)]})
    assert slow is not None
    assert quick is not None
    assert (slow.reached, quick.reached) == (False, True)


def test_a_side_that_was_not_run_is_not_judged() -> None:
    assert check_aim(CPU, {"theirs": [result(1)]}) is None
    assert check_aim(Aim("ours", "rate", beside="theirs", ratio=1.1), {"ours": [result(1)]}) is None


def test_every_aim_names_sides_of_its_row() -> None:
    for row in ROWS.values():
        names = [actor.name for actor in row.actors]
        assert len(names) == len(set(names))
        for aim in row.aims:
            assert aim.of in names
            assert not aim.beside or aim.beside in names
            assert aim.of.startswith(OURS)


def test_a_waiting_client_is_marked() -> None:
    row = ROWS["send-many"]
    text = []
    for busy, broker in ((0.5, 0.95), (0.5, 0.5), (0.95, 0.95)):
        found = {row.actors[0].name: [result(1, busy=busy, broker=broker)]}
        text.append("\n".join(report([(row, found)], "none")[0]))
    assert ["broker-bound" in one for one in text] == [True, False, False]
    assert ["waits" in one for one in text] == [False, True, False]


def test_results_survive_json() -> None:
    row = ROWS["arrow"]
    rows = [(row, {row.actors[0].name: [result(0.2, 2e6), result(0.3, 1e6)]})]
    kept = to_json(rows, "none")
    assert from_json(kept) == rows
    assert len(kept["arrow"]["aims"]) == len(aim_results(*rows[0])) == len(row.aims)
