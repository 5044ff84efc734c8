"""The listeners are right: other clients write and read through them."""

from __future__ import annotations

import pytest

from tests.brokers.fixtures import what_real_kafka_needs
from tests.brokers.security.cases import (
    COMBINATIONS,
    combinations_of,
)
from tests.brokers.security.conftest import NewTopic
from tests.brokers.security.peers import PEERS, confluent_round_trip
from tests.brokers.security.servers import SecureKafka, SecureServers
from tests.brokers.security.support import OLDER

# kafka-python leaks sockets of connection attempts.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

IN_SHORT = "confluent-kafka"

CANNOT_ESCAPE = ("SCRAM-SHA-256, comma and equals sign", "kafka-python")
"""kafka-python sends user names of SCRAM as they are."""

CASES = [
    pytest.param(combination, peer, marks=() if peer == IN_SHORT else pytest.mark.slow)
    for combination in COMBINATIONS
    for peer in PEERS
    if (combination, peer) != CANNOT_ESCAPE
]


@pytest.mark.parametrize(("combination", "peer"), CASES)
def test_other_clients_get_in(
    servers: SecureServers, kafka: SecureKafka, topic: str, combination: str, peer: str
):
    listener, access = COMBINATIONS[combination](servers)
    assert PEERS[peer](kafka.address(listener), access, topic, b"value") == b"value"


@OLDER
def test_another_client_gets_in_to_older_releases(
    servers: SecureServers, new_topic: NewTopic, version: str
):
    with what_real_kafka_needs():
        kafka = servers.get(version)
    for combination, (listener, access) in combinations_of(servers, kafka).items():
        topic = new_topic(kafka)
        found = confluent_round_trip(kafka.address(listener), access, topic, combination.encode())
        assert found == combination.encode()
