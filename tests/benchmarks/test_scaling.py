from __future__ import annotations

import math
import xml.etree.ElementTree as ET

import pytest

from benchmarks import svg
from benchmarks.scaling import coordinator
from benchmarks.scaling.assigning import CASES, cpu_ms
from benchmarks.scaling.curve import Curve, table

SIZES = (10, 100, 1_000, 10_000)


def curve(power: float, *, log: bool = False) -> Curve:
    points = ((n, 0.01 * n**power * (math.log(n) if log else 1)) for n in SIZES)
    return Curve("it", "partitions", "ms", tuple(points))


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 1.3, 2.0])
def test_the_exponent_of_a_power_is_found(power: float) -> None:
    assert curve(power).exponent == pytest.approx(power)
    assert curve(power).last == pytest.approx(power)


def test_n_log_n_is_within_the_bound_and_squares_are_not() -> None:
    assert curve(1.0, log=True).bounded
    assert not curve(1.4).bounded
    assert "GROWS FASTER" in "\n".join(table([curve(1.0), curve(2.0)]))


def test_growth_at_the_last_size_is_found() -> None:
    points = ((10, 1.0), (100, 1.0), (1_000, 1.0), (10_000, 40.0))
    assert not Curve("it", "partitions", "ms", points).bounded


def test_a_constant_share_does_not_hide_growth() -> None:
    points = tuple((n, 5 + 1e-5 * n * n) for n in SIZES)
    assert not Curve("it", "partitions", "ms", points).bounded


def test_every_assignor_is_measured_in_every_case() -> None:
    for _, case, kinds in CASES:
        for kind in kinds:
            assert cpu_ms(kind, case, 20, 3, 1) > 0


async def test_the_coordinator_of_a_crowd_is_measured() -> None:
    found = await coordinator.measure(4, rounds=1, interval_ms=0)
    assert len(found) == 5
    assert all(cost > 0 for cost in found.values())


def test_drawings_are_well_formed() -> None:
    bars = svg.bars("a < b", [("block & more", [svg.Bar("x", 1.0, "1 us", 0)]), ("none", [])])
    points = svg.curves("t", [("ms", "partitions", {"it": curve(1.0).points, "0": [(1, 0)]})])
    for drawing in (bars, points):
        assert ET.fromstring(drawing).tag.endswith("svg")
    assert points.count("<polyline") == 2
