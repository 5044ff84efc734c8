"""Each operation of Java's Admin and of ours gives the same result on the same cluster."""

from __future__ import annotations

import anyio
import pytest

from tests.brokers.admin_parity.cases import CASES
from tests.brokers.admin_parity.cluster import ParityKafka
from tests.brokers.admin_parity.comparable import (
    Failure,
    Struct,
    Unordered,
    comparable,
    differences,
    snake_case,
)
from tests.brokers.admin_parity.comparison import OPERATIONS, Outcome, run_on_kafka, table
from tests.brokers.admin_parity.embedded import (
    KNOWN_DIFFERENCES,
    differences_from_kafka,
    run_on_embedded,
)
from tests.brokers.fixtures import what_real_kafka_needs


@pytest.fixture(scope="module")
def on_kafka() -> list[Outcome]:
    """Outcomes on real Kafka."""
    with what_real_kafka_needs(), ParityKafka() as kafka:
        return anyio.run(run_on_kafka, kafka, CASES)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_java_and_ours_are_equal(on_kafka: list[Outcome], capsys: pytest.CaptureFixture[str]):
    with capsys.disabled():
        print(f"\n{table(on_kafka)}")
    different = {outcome.case.operation: outcome.differences for outcome in on_kafka}
    assert {name: found for name, found in different.items() if found} == {}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_embedded_broker_gives_the_same_results(on_kafka: list[Outcome]):
    embedded = anyio.run(run_on_embedded, CASES)
    different = {outcome.case.operation: outcome.differences for outcome in embedded}
    assert {name: found for name, found in different.items() if found} == {}
    assert differences_from_kafka(on_kafka, embedded) == []
    assert len(KNOWN_DIFFERENCES) <= 5


def test_every_operation_is_listed_once():
    assert len(OPERATIONS) == len({*OPERATIONS}) == 61
    assert {case.operation for case in CASES} == {*OPERATIONS}


@pytest.mark.parametrize(
    ("java", "ours", "count"),
    [
        (Struct(a=1), Struct(a=1, b=2), 0),
        (Struct(a=1, b=2), Struct(a=1), 1),
        ({"x": 1}, {"x": 1, "y": 2}, 1),
        ([1, 2], [2, 1], 2),
        (Unordered([1, 2]), [2, 1], 0),
        ([Struct(a=1), Struct(a=2)], [Struct(a=2), Struct(a=1)], 0),
        ([1], [1, 2], 1),
        (Failure("A"), Failure("B"), 1),
        (1, None, 1),
    ],
)
def test_differences(java: object, ours: object, count: int):
    assert len(list(differences(java, ours))) == count


def test_ignored_fields():
    assert list(differences(Struct(a=1), Struct(a=2), {"a"})) == []


def test_the_comparable_form():
    assert comparable({("t", 1): frozenset({2})}) == {'["t", 1]': [2]}
    assert snake_case("getGroupInstanceId") == "group_instance_id"
