"""A release that needs ZooKeeper starts with one of its own, keeps its data and ends with it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.brokers import raw
from tests.brokers.fixtures import what_real_kafka_needs
from tests.brokers.kafka import Kafka
from tests.brokers.process import HOST
from tests.brokers.test_raw import answering
from tests.brokers.zookeeper import create_topic

VERSION = "0.8.2.2"
"""One without CreateTopics, whose topics are made through ZooKeeper."""


def test_a_restart_keeps_topics_and_the_end_frees_the_ports(tmp_path: Path) -> None:
    with what_real_kafka_needs(), Kafka(VERSION, directory=tmp_path) as kafka:
        [node] = kafka.nodes
        ports = [node.port, node.controller_port]
        kafka.create_topic("orders", partitions=3, configs={"max.message.bytes": "1000"})
        with pytest.raises(FileExistsError, match="/topics/orders"):
            kafka.create_topic("orders")
        before = raw.metadata(node.address)
        assert before.nodes == {1: node.address}
        assert before.leaders == {"orders": {0: 1, 1: 1, 2: 1}}
        kafka.restart()
        assert raw.metadata(node.address) == before
        assert kafka.nodes[0].controller_port == ports[1], "ZooKeeper's own port"
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((HOST, port), 1)
    log = (tmp_path / "node-1/server.log").read_text()
    assert log.count("shut down completed") == 2, "the broker shut down before ZooKeeper"


@pytest.mark.parametrize("answer", [b"", b"\x00\x00", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_what_is_not_zookeeper_is_an_os_error(answer: bytes) -> None:
    with answering(answer) as address, pytest.raises(OSError):
        create_topic(address[1], "orders", {0: [1]}, {})
