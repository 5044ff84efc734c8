"""Real Kafka 0.10.2.2 takes from a stranger what its controller and its followers say."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import pytest

from aiokafkawire.runtime import Address
from tests.brokers import inter_broker
from tests.brokers.fixtures import what_real_kafka_needs
from tests.brokers.inter_broker import ON_ONE_PAIR, Pair
from tests.brokers.kafka import Kafka

VERSION = "0.10.2.2"


def pairs() -> Iterator[Kafka]:
    """A cluster of two nodes, thrown away."""
    with what_real_kafka_needs(), Kafka(VERSION, nodes=2) as kafka:
        yield kafka
        for node in kafka.nodes:
            # It would elect a leader in its place, and believe the request.
            node.kill()


shared_pair = pytest.fixture(pairs, scope="module")
own_pair = pytest.fixture(pairs)


def hold(kafka: Kafka, check: Callable[..., Awaitable[None]], *arguments: Any) -> None:
    """Start from the addresses, and let a check have its way."""

    async def main() -> None:
        addresses = {node.node_id: Address(*node.address) for node in kafka.nodes}
        await check(await Pair.of(addresses), *arguments)

    anyio.run(main)


@pytest.mark.parametrize("check", ON_ONE_PAIR, ids=lambda check: check.__name__)
def test_checks_on_a_new_topic(shared_pair: Kafka, check: Callable[..., Awaitable[None]]) -> None:
    hold(shared_pair, check)


@pytest.mark.parametrize("version", [0, 1])
def test_update_metadata(own_pair: Kafka, version: int) -> None:
    hold(own_pair, inter_broker.update_metadata_replaces_who_lives, version)


def test_controlled_shutdown(own_pair: Kafka) -> None:
    hold(own_pair, inter_broker.controlled_shutdown_moves_the_lead)
