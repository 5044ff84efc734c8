"""Growth of resource usage is detected."""

from __future__ import annotations

from typing import Any

import pytest

from verify.soak.resource_growth import Times, judged, make_use

WARM_AT = 180.0
TIMES = Times(WARM_AT, late_at=1_200.0)


def samples(**changes: Any) -> list[dict[str, Any]]:
    """One every minute, all the same but for what is given by minute."""
    plain = {"resident_kib": 50_000, "descriptors": 12, "tasks": 20}
    return [
        {"at": minute * 60.0, **plain, **changes.get(f"at_{minute}", {})} for minute in range(1, 31)
    ]


def test_constant_usage_is_no_problem() -> None:
    assert judged("worker", samples(), TIMES) == []
    assert judged("worker", samples(at_30={"resident_kib": 52_500}), TIMES) == []
    assert judged("worker", samples(at_29={"descriptors": 11}, at_2={"tasks": 22}), TIMES) == []
    assert judged("worker", samples(at_5={"tasks": 25}, at_25={"tasks": 25}), TIMES) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"at_20": {"resident_kib": 52_600}}, "worker: memory grew by 5.2 %"),
        ({"at_30": {"descriptors": 13}}, "worker: descriptors grew from 12 to 13"),
        ({"at_24": {"tasks": 21}}, "worker: tasks grew from 20 to 21"),
    ],
)
def test_growing_usage_is_named(change: dict[str, Any], problem: str) -> None:
    assert judged("worker", samples(**change), TIMES) == [problem]


def test_too_few_samples_are_reported() -> None:
    assert judged("worker", samples()[:3], TIMES) == ["worker: too few samples"]


def test_usage_is_measured_after_the_warm_up() -> None:
    use = make_use(samples(at_1={"tasks": 30}, at_7={"tasks": 18}), "tasks", WARM_AT)
    assert use is not None
    assert (use.at, use.least, use.most, use.most_before, use.last) == (20, 18, 20, 30, 20)
