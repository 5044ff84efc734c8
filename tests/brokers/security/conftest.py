"""One broker at a time, kept while the tests that follow want the same release."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.brokers.fixtures import what_real_kafka_needs
from tests.brokers.kafka import DEFAULT_VERSION
from tests.brokers.security.servers import SecureKafka, SecureServers

NewTopic = Callable[[SecureKafka], str]


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureServers]:
    made = SecureServers(tmp_path_factory.mktemp("security"))
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def kafka(servers: SecureServers) -> SecureKafka:
    """Kafka 4.3.0 with all listeners."""
    with what_real_kafka_needs():
        return servers.get(DEFAULT_VERSION)


@pytest.fixture
def new_topic() -> NewTopic:
    """Create a topic of one partition with a new name."""

    def create(kafka: SecureKafka) -> str:
        name = f"topic-{uuid.uuid4().hex[:12]}"
        kafka.create_topic(name)
        return name

    return create


@pytest.fixture
def topic(kafka: SecureKafka, new_topic: NewTopic) -> str:
    return new_topic(kafka)
