"""What grows is noticed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.soak.resource_growth import Times, judged, use_of

WARM_AT = 180.0
TIMES = Times(WARM_AT, late_at=1_200.0)


def samples(**changes: Any) -> list[dict[str, Any]]:
    """One every minute, all the same but for what is given by minute."""
    plain = {"resident_kib": 50_000, "descriptors": 12, "tasks": 20}
    return [
        {"at": minute * 60.0, **plain, **changes.get(f"at_{minute}", {})} for minute in range(1, 31)
    ]


def test_who_stays_the_same_is_right() -> None:
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
def test_who_grows_is_named(change: dict[str, Any], problem: str) -> None:
    assert judged("worker", samples(**change), TIMES) == [problem]


def test_who_told_too_little_is_named() -> None:
    assert judged("worker", samples()[:3], TIMES) == ["worker: it told too little"]


def test_use_is_of_the_time_after_the_warm_up() -> None:
    use = use_of(samples(at_1={"tasks": 30}, at_7={"tasks": 18}), "tasks", WARM_AT)
    assert use is not None
    assert (use.at, use.least, use.most, use.most_before, use.last) == (20, 18, 20, 30, 20)
