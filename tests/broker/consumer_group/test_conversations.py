"""The coordinator answers as Kafka 4.3.0 did in recorded conversations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.testing.simulation import World
from tests.broker.consumer_group.replay import Replay
from tests.wire.vectors import lines

HERE, CLIENT = "10.0.0.1", "10.0.1.1"

SESSION_6_S: Mapping[str, Any] = {
    "group_consumer_session_timeout_ms": 6_000,
    "group_consumer_heartbeat_interval_ms": 500,
}


class Run(NamedTuple):
    """Conversations with one broker, its options, and its topics."""

    scenarios: tuple[str, ...]
    options: Mapping[str, Any]
    topics: Mapping[str, int]
    hooks: Mapping[str, Mapping[str, Any]] = {}


def create(name: str, partitions: int) -> Any:
    async def hook(replay: Replay, due: float) -> None:
        await replay.broker.create_topic(name, partitions=partitions)

    return hook


def recreate(name: str, partitions: int) -> Any:
    async def hook(replay: Replay, due: float) -> None:
        await replay.broker.delete_topic(name)
        await replay.broker.create_topic(name, partitions=partitions)

    return hook


def poll(group: str, *members: str, first: Any = None) -> Any:
    async def hook(replay: Replay, due: float) -> None:
        if first is not None:
            await first(replay, due)
        for member in members[:-1]:
            await replay.poll(member, group, due - 0.01, step_s=due)
        await replay.poll(members[-1], group, due)

    return hook


RUNS = {
    "members": Run(
        (
            "join-first",
            "join-empty-subscription",
            "join-v0-broker-generated-id",
            "two-members",
            "fenced-epoch",
            "group-max-size",
            "session-timeout",
            "rebalance-timeout",
        ),
        {**SESSION_6_S, "group_consumer_max_size": 3},
        {"t": 3, "t2": 2},
    ),
}


@pytest.mark.parametrize("name", list(RUNS))
def test_responses_equal_kafka(name: str, record_property: Callable[[str, object], None]) -> None:
    run = RUNS[name]
    world = World(1, backend="asyncio")
    compared: list[int] = []
    differences: list[str] = []

    async def main() -> None:
        async with Broker(
            host=HERE,
            runtime=world.runtime(HERE),
            as_of="4.3",
            auto_create_topics=False,
            **run.options,
        ) as broker:
            for topic, count in run.topics.items():
                await broker.create_topic(topic, partitions=count)
            replay = Replay(broker, world.runtime(CLIENT))
            for scenario in run.scenarios:
                found = [
                    line
                    for line in lines("consumer-group-conversations")
                    if line["scenario"] == scenario
                ]
                replay.connections = {}
                await replay.run(found, run.hooks.get(scenario, {}))
            compared.append(replay.compared)
            differences.extend(replay.differences)

    world.run(main)
    print("\n".join(differences))
    assert not differences
    record_property("compared", compared[0])
    print(f"{name}: {compared[0]} responses equal Kafka's")
