from __future__ import annotations

import json

import pytest

from benchmarks.bench import Result
from benchmarks.report import aim_results, to_json
from benchmarks.rows import OURS
from benchmarks.scaling.curve import Curve
from benchmarks.spark import scale
from benchmarks.spark.report import load, report, table
from benchmarks.spark.rows import ROWS, THEIRS, USES, driver_action


def result(rate: float, p50: float | None = None) -> Result:
    return Result(rate, 1.0, busy=1.5, broker_busy=0.2, p50_ms=p50, about="PySpark")


def test_every_row_has_an_aim_relative_to_the_connector():
    for row in ROWS.values():
        names = [actor.name for actor in row.actors]
        assert names[:2] == [OURS, THEIRS]
        (aim,) = row.aims
        assert (aim.of, aim.beside) == (OURS, THEIRS)
        assert aim.at_least != row.waits
        assert aim.ratio is not None


def test_every_variant_is_run():
    run = {f"{actor.action} {actor.use}" for row in ROWS.values() for actor in row.actors}
    assert set(USES) <= run
    for row in ROWS.values():
        for actor in row.actors:
            assert driver_action(actor).name == row.name


def test_a_rate_must_be_high_and_a_latency_low(tmp_path):
    batch = {OURS: [result(130), result(390)], THEIRS: [result(100), result(300)]}
    trickle = {OURS: [result(1, 300)], THEIRS: [result(1, 200)]}
    rows = [(ROWS["batch"], batch), (ROWS["trickle"], trickle)]
    assert [one.reached for row, found in rows for one in aim_results(row, found)] == [True, False]
    lines, missed = report(rows)
    assert missed == 1
    assert "MISSED" in lines[-1]
    line = next(one for one in table(rows) if one.startswith(f"| {ROWS['batch'].title}: {OURS}"))
    assert "| 1.30 | >= 1.3 |" in line
    line = next(one for one in table(rows) if one.startswith(f"| {ROWS['trickle'].title}: {OURS}"))
    assert "300 (300 to 300) ms" in line
    assert "| 1.50 | <= 1.3 |" in line
    path = tmp_path / "spark.json"
    path.write_text(json.dumps(to_json(rows, "none")))
    assert load(path) == rows


def test_a_side_that_was_not_run_has_no_ratio():
    lines = table([(ROWS["batch"], {OURS: [result(100)]})])
    assert lines[-1].endswith("|  | >= 1.3 |")


@pytest.mark.parametrize("name", ROWS)
def test_quick_rows_are_shorter(name):
    assert 4 * ROWS[name].quick().messages == ROWS[name].messages


def test_faster_than_linear_growth_is_reported(tmp_path):
    linear = Curve(OURS, "partitions", "s of CPU", ((4, 4.0), (64, 6.0), (512, 30.0)))
    steep = Curve(THEIRS, "rows", "s of CPU", ((1, 1.0), (4, 6.0), (16, 36.0)))
    assert scale.grows_linearly(linear)
    assert not scale.grows_linearly(steep)
    path = tmp_path / "scale.json"
    idle = {OURS: {"requests a second": 0.5, "all, % of a core": 1.5}}
    scale.save(path, [linear], idle)
    scale.save(path, [steep], {})
    assert scale.load(path) == ([steep, linear], idle)
    drawn = scale.drawn([steep, linear])
    assert drawn.count("<polyline") == 2
    assert scale.figures_table(idle)[-1] == f"| {OURS} | 0.50 | 1.50 |"
    assert scale.too_busy(idle) == []
    assert scale.too_busy({OURS: {"requests a second": 1.1, "all, % of a core": 2.1}}) == [
        "requests",
        "CPU",
    ]
