"""The embedded broker answers other share consumers as Kafka 4.3.0 did.

Java's and librdkafka's share consumers were recorded by a proxy.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.broker.configs import ConfigResourceType
from aiokafkawire.testing.simulation import World
from tests.broker.share.replay import ShareReplay
from tests.wire.vectors import lines

HERE, CLIENT = "10.0.0.1", "10.0.1.1"


@pytest.mark.parametrize(
    ("scenario", "group"), [("java-share-consumer", "jsh"), ("confluent-share-consumer", "cks")]
)
def test_responses_equal_kafka(
    scenario: str, group: str, record_property: Callable[[str, object], None]
) -> None:
    world = World(1, backend="asyncio")
    compared: list[int] = []
    differences: list[str] = []
    found = []
    topic_ids = set()
    for line in lines("share-consumer-conversations"):
        if line["scenario"] != scenario or "note" in line:
            continue
        side = "from" if "request" in line else "to"
        found.append({**line, side: f"connection {line['conn']}"})
        for topic in line.get("response", {}).get("responses", ()):
            topic_ids.add(topic["topicId"])

    async def main() -> None:
        async with Broker(
            host=HERE,
            runtime=world.runtime(HERE),
            as_of="4.3",
            group_share_heartbeat_interval_ms=500,
            group_share_assignment_interval_ms=990,
        ) as broker:
            await broker.create_topic("t", partitions=4)
            broker._running.cluster.dynamic_configs.replace(
                ConfigResourceType.GROUP, group, {"share.auto.offset.reset": "earliest"}
            )
            replay = ShareReplay(
                broker,
                world.runtime(CLIENT),
                topics=dict.fromkeys(topic_ids, "t"),
                upfront={"t"},
                # Kafka's FindCoordinator v2 says NONE.
                deliberate=[
                    ("confluent-share-consumer", 0.086),
                    ("confluent-share-consumer", 0.127),
                ],
            )
            for topic_id in topic_ids:
                replay.bind(topic_id)
            await replay.run_all(found, {})
            compared.append(replay.compared)
            differences.extend(replay.differences)

    world.run(main)
    print("\n".join(differences))
    assert not differences
    record_property("compared", compared[0])
    print(f"{scenario}: {compared[0]} responses equal Kafka's")
