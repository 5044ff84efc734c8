"""Versions negotiated with real brokers, also while a broker starts."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import anyio
import pytest

from aiokafkawire.connection import BrokerClient, NodeApiVersions
from aiokafkawire.runtime import Address
from aiokafkawire.wire import ApiKey
from tests.brokers.fixtures import what_real_kafka_needs
from tests.brokers.kafka import Kafka
from tests.connection.scripted import hosted, make_config

WITHIN_S = 20.0


async def versions_of(address: tuple[str, int]) -> NodeApiVersions:
    async with hosted() as (runtime, supervisor):
        client = BrokerClient(Address(*address), make_config(), runtime, supervisor)
        try:
            return await client.get_api_versions(anyio.current_time() + WITHIN_S)
        finally:
            await client.aclose()


@contextmanager
def closing_first(count: int, target: tuple[str, int]) -> Iterator[tuple[str, int]]:
    """A relay that closes its first connections once something was said there."""
    taken: list[socket.socket] = []

    def carry(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def serve() -> None:
        with suppress(OSError):
            for number in range(1_000):
                client, _ = listener.accept()
                taken.append(client)
                if number < count:
                    client.recv(1)
                    client.close()
                    continue
                broker = socket.create_connection(target)
                taken.append(broker)
                for pair in ((client, broker), (broker, client)):
                    threading.Thread(target=carry, args=pair, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)
        for connection in taken:
            connection.close()


@pytest.mark.parametrize("closed", [0, 1, 2, 3])
def test_a_broker_that_closes_its_first_connections_is_not_taken_for_an_old_one(
    kafka_43_server: Kafka, closed: int
):
    with closing_first(closed, kafka_43_server.nodes[0].address) as address:
        versions = anyio.run(versions_of, address)
    assert versions.release is None
    assert versions.latest_usable_version(ApiKey.PRODUCE) >= 11


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "release"),
    [("0.8.0", "0.8.0"), ("0.8.1.1", "0.8.1"), ("0.8.2.2", "0.8.2"), ("0.9.0.1", "0.9")],
)
def test_releases_that_cannot_be_asked_are_found_by_what_they_answer(version: str, release: str):
    with what_real_kafka_needs(), Kafka(version) as kafka:
        found = anyio.run(versions_of, kafka.nodes[0].address)
    assert found.release == release
