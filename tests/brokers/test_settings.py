from __future__ import annotations

from tests.brokers.releases import RELEASES
from tests.brokers.settings import kraft_settings, needs_log4j, zookeeper_settings


def old(version: str, nodes: int = 1) -> dict[str, str]:
    return zookeeper_settings(RELEASES[version], 1, 9092, 2181, nodes)


def test_the_address_is_set_with_the_option_of_the_release() -> None:
    assert old("0.8.2.2").items() >= {"host.name": "127.0.0.1", "port": "9092"}.items()
    assert old("0.9.0.1")["listeners"] == "PLAINTEXT://127.0.0.1:9092"
    assert "port" not in old("0.9.0.1")
    new = kraft_settings(RELEASES["4.3.0"], 1, 9092, {1: 9093, 2: 9094})
    assert new["listeners"] == "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
    assert new["controller.quorum.voters"] == "1@127.0.0.1:9093,2@127.0.0.1:9094"


def test_internal_topics_have_as_many_replicas_as_there_are_nodes() -> None:
    assert "offsets.topic.replication.factor" not in old("0.8.1.1")
    assert old("0.8.2.2")["offsets.topic.replication.factor"] == "1"
    assert old("2.8.2", nodes=3)["transaction.state.log.replication.factor"] == "3"
    assert old("2.8.2", nodes=3)["min.insync.replicas"] == "2"


def test_releases_before_4_log_nothing_without_a_configuration() -> None:
    assert [version for version in RELEASES if not needs_log4j(RELEASES[version])] == [
        "4.3.0",
        "4.2.0",
        "4.1.1",
        "4.0.0",
    ]


def test_nodes_talk_to_each_other_on_ports_of_their_own_if_they_have_them() -> None:
    settings = kraft_settings(RELEASES["4.3.0"], 1, 9092, {1: 9093}, inter_broker_port=9094)
    assert settings["inter.broker.listener.name"] == "INTERNAL"
    for name in ("listeners", "advertised.listeners"):
        assert "INTERNAL://127.0.0.1:9094" in settings[name]
    assert "INTERNAL:PLAINTEXT" in settings["listener.security.protocol.map"]
    plain = kraft_settings(RELEASES["4.3.0"], 1, 9092, {1: 9093})
    assert "inter.broker.listener.name" not in plain
