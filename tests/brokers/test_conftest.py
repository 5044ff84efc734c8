from __future__ import annotations

import pytest

from tests.brokers.conftest import HERE, asked_for
from tests.brokers.fixtures import what_real_kafka_needs
from tests.brokers.kafka import Unavailable

ROOT = HERE.parents[1]


@pytest.mark.parametrize(
    ("arguments", "marker_expression", "wanted"),
    [
        (["tests"], "", False),
        (["tests/records", "tests/behaviour"], "not slow", False),
        (["tests/brokers"], "", True),
        (["tests/records", "tests/brokers/test_kafka.py::test_it"], "", True),
        ([str(HERE)], "", True),
        (["tests"], "real_kafka", True),
    ],
)
def test_the_folder_runs_only_when_named(
    arguments: list[str], marker_expression: str, wanted: bool
) -> None:
    assert asked_for(arguments, ROOT, marker_expression) is wanted


def test_paths_are_taken_from_where_pytest_was_invoked() -> None:
    assert asked_for(["brokers"], ROOT / "tests", "")
    assert not asked_for(["brokers"], ROOT, "")


def test_missing_requirements_skip_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no `mvn`"), what_real_kafka_needs():
        raise Unavailable("no `mvn`")


def test_missing_requirements_fail_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no `mvn`"), what_real_kafka_needs():
        raise Unavailable("no `mvn`")
