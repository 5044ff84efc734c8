"""librdkafka's share consumer against the embedded broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.broker.test_confluent import produce, quiet
from tests.broker.threaded_broker import ThreadedBroker, repeat_until, threaded_broker

confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
admin = pytest.importorskip("confluent_kafka.admin")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not hasattr(confluent_kafka, "ShareConsumer"), reason="confluent-kafka is older than 2.16"
    ),
]

PARTITIONS = 2


@pytest.fixture
def threaded() -> Iterator[ThreadedBroker]:
    with threaded_broker(
        "asyncio",
        nodes=3,
        as_of="4.3",
        group_share_heartbeat_interval_ms=100,
        group_share_session_timeout_ms=6_000,
    ) as broker:
        broker.call(broker.broker.create_topic, "t", PARTITIONS)
        yield broker


def set_config(threaded: ThreadedBroker, name: str, value: str) -> None:
    client = admin.AdminClient({"bootstrap.servers": threaded.servers}, logger=quiet())
    entry = admin.ConfigEntry(name, value, incremental_operation=admin.AlterConfigOpType.SET)
    resource = admin.ConfigResource(
        admin.ConfigResource.Type.GROUP, "g", incremental_configs=[entry]
    )
    for future in client.incremental_alter_configs([resource]).values():
        future.result()


def consumer(threaded: ThreadedBroker, **options: Any) -> Any:
    found = confluent_kafka.ShareConsumer(
        {"bootstrap.servers": threaded.servers, "group.id": "g", **options}, logger=quiet()
    )
    found.subscribe(["t"])
    return found


def test_members_share_partitions_in_implicit_mode(threaded: ThreadedBroker) -> None:
    set_config(threaded, "share.auto.offset.reset", "earliest")
    produce(threaded, "t", [f"{i}" for i in range(300)])
    consumers = [consumer(threaded) for _ in range(3)]
    seen: Counter[str] = Counter()

    def step() -> None:
        for each in consumers:
            for message in each.poll(0.2):
                assert message.error() is None, message.error()
                seen[message.value().decode()] += 1

    repeat_until(step, lambda: len(seen) == 300)
    for each in consumers:
        each.commit_sync()
        each.close()
    assert set(seen.values()) == {1}


def test_released_records_come_again(threaded: ThreadedBroker) -> None:
    set_config(threaded, "share.auto.offset.reset", "earliest")
    produce(threaded, "t", [f"{i}" for i in range(30)])
    member = consumer(threaded, **{"share.acknowledgement.mode": "explicit"})
    types = confluent_kafka.AcknowledgeType
    counts: Counter[str] = Counter()
    accepted: set[str] = set()

    def step() -> None:
        for message in member.poll(0.2):
            value = message.value().decode()
            counts[value] += 1
            assert message.delivery_count() == counts[value]
            is_second = counts[value] == 2
            member.acknowledge(message, types.ACCEPT if is_second else types.RELEASE)
            if is_second:
                accepted.add(value)
        results = member.commit_sync()
        assert not any(results.values()), results

    repeat_until(step, lambda: len(accepted) == 30)
    member.close()
    assert set(counts.values()) == {2}
