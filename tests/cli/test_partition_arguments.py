from __future__ import annotations

import pytest

from aiokafkawire import Admin, Broker, TopicPartition
from aiokafkawire.cli.error_text import CommandFailed
from aiokafkawire.cli.partition_arguments import expand_partitions, parse_partitions
from aiokafkawire.errors import InvalidOption

ZERO, TWO = TopicPartition("orders", 0), TopicPartition("orders", 2)


def test_topics_partitions_and_ranges() -> None:
    assert parse_partitions(["orders:0,2", "refunds", "orders:2-2"]) == [ZERO, TWO, "refunds"]
    assert parse_partitions(["orders:1-3"]) == [TopicPartition("orders", n) for n in (1, 2, 3)]


@pytest.mark.parametrize(
    "text", [":1", "orders:", "orders:x", "orders:3-1", "orders:0-999999", "o:-1"]
)
def test_what_is_no_partition_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match=r"TOPIC:PARTITIONS|orders:0,2-4"):
        parse_partitions([text])


async def test_topics_become_their_partitions() -> None:
    async with Broker() as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        await broker.create_topic("orders", partitions=3)
        await broker.create_topic("refunds", partitions=1)
        assert await expand_partitions(admin, [TWO, "refunds", TWO]) == [
            TWO,
            TopicPartition("refunds", 0),
        ]
        assert len(await expand_partitions(admin, [])) == 4
        with pytest.raises(CommandFailed, match="'order' does not exist; did you mean 'orders'"):
            await expand_partitions(admin, ["order"])
        with pytest.raises(CommandFailed, match="no partition 7: it has"):
            await expand_partitions(admin, parse_partitions(["orders:7"]))
