"""Real brokers as pytest fixtures, to be imported by any conftest.py that wants them.

Where a machine lacks Maven or Java the tests are skipped with the reason; with CI=true in
the environment that is a failure.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.brokers.kafka import DEFAULT_VERSION, Kafka, Unavailable

_SESSION_KAFKA = pytest.StashKey[dict[tuple[str, int], Kafka]]()


@contextmanager
def what_real_kafka_needs() -> Iterator[None]:
    """Turn `Unavailable` into a skip, or into a failure in CI."""
    try:
        yield
    except Unavailable as lack:
        if os.environ.get("CI", "").lower() in {"1", "true"}:
            pytest.fail(f"CI lacks what real Kafka needs: {lack}", pytrace=False)
        pytest.skip(str(lack))


def session_kafka(config: pytest.Config, nodes: int = 1, version: str = DEFAULT_VERSION) -> Kafka:
    """This test run's cluster of a release and size, whichever conftest.py asks.

    It is closed at the end of the run.
    """
    clusters = config.stash.setdefault(_SESSION_KAFKA, {})
    kafka = clusters.get((version, nodes))
    if kafka is None:
        kafka = Kafka(version, nodes=nodes)
        with what_real_kafka_needs():
            config.add_cleanup(kafka.close)
            kafka.start()
        clusters[version, nodes] = kafka
    return kafka


@pytest.fixture(scope="session")
def kafka_43_server(pytestconfig: pytest.Config) -> Kafka:
    """The session's Kafka 4.3.0, to suspend, restart, or create topics on. Leave it running."""
    return session_kafka(pytestconfig)


@pytest.fixture(scope="session")
def kafka_43_cluster(pytestconfig: pytest.Config) -> Kafka:
    """The session's Kafka 4.3.0 of three nodes. Leave them running."""
    return session_kafka(pytestconfig, 3)


@pytest.fixture(scope="session")
def kafka_43(kafka_43_server: Kafka) -> str:
    """The bootstrap address of the session's Kafka 4.3.0."""
    return kafka_43_server.bootstrap_servers
