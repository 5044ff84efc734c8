"""Both connectors and real Kafka. These tests run when this folder is named; else they are
deselected."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers.conftest import asked_for
from tests.brokers.fixtures import what_real_kafka_needs
from tests.brokers.kafka import Kafka
from tests.spark.parity.connectors import Connector, start_both
from tests.spark.parity.topics import PROPERTIES, World

HERE = Path(__file__).resolve().parent
TIMEOUT_S = 400
"""Of the first one, which waits until all is there."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    files = {HERE / "test_parity.py", HERE / "test_migration.py"}
    ours = [item for item in items if item.path in files]
    for item in ours:
        item.add_marker(pytest.mark.timeout(TIMEOUT_S))
    if not asked_for(config.args, config.invocation_params.dir, "", HERE):
        config.hook.pytest_deselected(items=ours)
        items[:] = [item for item in items if item not in set(ours)]


@pytest.fixture(scope="session")
def connectors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Connector, Connector]]:
    with what_real_kafka_needs():
        both = start_both(tmp_path_factory.mktemp("connectors"))
    yield both
    for connector in both:
        connector.close()


@pytest.fixture(scope="session")
def world(connectors: tuple[Connector, Connector]) -> Iterator[World]:
    with what_real_kafka_needs(), Kafka(properties=PROPERTIES) as kafka:
        made = World(kafka)
        made.make_shared()
        for connector in connectors:
            connector.wait_until_ready()
        yield made
