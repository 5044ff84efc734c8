"""The coordinator answers as Kafka 4.3.0 did in recorded conversations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.testing.simulation import World
from aiokafkawire.wire.messages.init_producer_id import InitProducerIdRequest
from tests.broker.consumer_group.replay import Replay
from tests.wire.vectors import lines

HERE, CLIENT = "10.0.0.1", "10.0.1.1"

SESSION_6_S: Mapping[str, Any] = {
    "group_consumer_session_timeout_ms": 6_000,
    "group_consumer_heartbeat_interval_ms": 500,
}


POLICY: Mapping[str, Any] = {"group_consumer_assignment_interval_ms": 1_000}


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


def grow(name: str, partitions: int) -> Any:
    async def hook(replay: Replay, due: float) -> None:
        await replay.broker.add_partitions(name, partitions)

    return hook


def delete(name: str) -> Any:
    async def hook(replay: Replay, due: float) -> None:
        await replay.broker.delete_topic(name)

    return hook


def recreate(name: str, partitions: int) -> Any:
    async def hook(replay: Replay, due: float) -> None:
        await replay.broker.delete_topic(name)
        await replay.broker.create_topic(name, partitions=partitions)

    return hook


def bind(topic_id: str) -> Any:
    """Bind an id that the recording has first in heartbeats that it leaves out."""

    async def hook(replay: Replay, due: float) -> None:
        replay.ids[topic_id] = replay.assigned[0]

    return hook


def connect_to(*, is_coordinator: bool) -> Any:
    async def hook(replay: Replay, due: float) -> None:
        coordinator = replay.broker.coordinator("gmove")
        others = [node for node in replay.broker.live_nodes if node != coordinator]
        await replay.connect_to(coordinator if is_coordinator else others[0])

    return hook


async def kill_coordinator(replay: Replay, due: float) -> None:
    await replay.broker.kill(replay.broker.coordinator("gmove"))
    await replay.connect_to(replay.broker.coordinator("gmove"))


def init_producer_id(transactional_id: str) -> Any:
    async def hook(replay: Replay, due: float) -> None:
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=60_000
        )
        connection = await replay.connection("admin")
        replay.producer_id = (await connection.call(request, 4)).producer_id

    return hook


def poll(group: str, *members: str, first: Any = None) -> Any:
    async def hook(replay: Replay, due: float) -> None:
        if first is not None:
            await first(replay, due)
        for member in members:
            await replay.poll(member, group, due)

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
    "subscriptions and offsets": Run(
        (
            "static",
            "regex",
            "assignors",
            "rack",
            "group-config",
            "offsets",
            "topic-changes",
            "types",
        ),
        {
            **SESSION_6_S,
            "group_consumer_regex_refresh_interval_ms": 10_000,
            "group_consumer_min_session_timeout_ms": 1_000,
            "group_consumer_min_heartbeat_interval_ms": 100,
        },
        {"t": 3},
        {
            "static": {"3.071": poll("gs", "d1")},
            "regex": {
                "assignment came": poll("gr", "r1"),
                "new matching topic": poll("gr", "r1", first=create("re-1", 2)),
                "10.637": create("other", 1),
            },
            "topic-changes": {
                "0.041": create("tc", 2),
                "new partitions": poll("gtc", "c1", first=grow("tc", 4)),
                "deleted topic left": poll("gtc", "c1", first=delete("tc")),
                "recreated topic": poll("gtc", "c1", first=create("tc", 1)),
                "0.474": bind("gZhdiuEqQiCV5z6vmZTDpw"),
                "topic deleted and recreated": recreate("tc", 3),
            },
        },
    ),
    "lost answers": Run(
        (
            "static-without-instance-id",
            "static-lost-join-response",
            "dynamic-rejoin-epoch-0",
            "leave-with-fields",
        ),
        SESSION_6_S,
        {},
        {"static-lost-join-response": {"0.001": create("t", 3)}},
    ),
    "empty groups and admin": Run(
        (
            "empty-conversions-policy-disabled",
            "admin-removes-member",
            "join-check-order",
            "subscription-to-invalid-name",
        ),
        {**SESSION_6_S, "group_consumer_migration_policy": "disabled"},
        {},
        {"empty-conversions-policy-disabled": {"0.008": create("t", 3)}},
    ),
    "resolved expressions": Run(
        (
            "session-and-regex-two-members",
            "static-rejoin-other-subscription",
            "fenced-while-leaving",
        ),
        {},
        {"b": 2},
    ),
    "conversions": Run(
        (
            "upgrade",
            "upgrade-eager",
            "upgrade-not-possible",
            "empty-conversions",
            "txn-offsets",
        ),
        SESSION_6_S,
        {"t": 3},
        {
            "upgrade-eager": {"n gets all": poll("gv", "n")},
            "txn-offsets": {"0.327": init_producer_id("tx")},
        },
    ),
    "policy disabled": Run(
        ("policy-disabled",),
        {**POLICY, "group_consumer_migration_policy": "disabled"},
        {"t": 3},
    ),
    "policy upgrade": Run(
        ("policy-upgrade",), {**POLICY, "group_consumer_migration_policy": "upgrade"}, {"t": 3}
    ),
    "policy downgrade": Run(
        ("policy-downgrade",),
        {**POLICY, "group_consumer_migration_policy": "downgrade"},
        {"t": 3},
    ),
    "coordinator moves": Run(
        ("coordinator-moves",),
        {**SESSION_6_S, "nodes": 3},
        {"t": 3},
        {
            "coordinator-moves": {
                "heartbeat at a node": connect_to(is_coordinator=False),
                "0.026": connect_to(is_coordinator=True),
                "m1 was asked to revoke": kill_coordinator,
            }
        },
    ),
    "assignment interval": Run(
        ("defaults",),
        {"group_consumer_assignment_interval_ms": 1_000},
        {},
        {
            "defaults": {
                "0.008": create("t", 3),
                "1.02 s: m1": poll("g", "m1"),
                "1.02 s: m2": poll("g", "m2"),
            }
        },
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


def test_every_conversation_is_replayed() -> None:
    replayed = [scenario for run in RUNS.values() for scenario in run.scenarios]
    recorded = {line["scenario"] for line in lines("consumer-group-conversations")}
    assert set(replayed) == recorded
    assert len(replayed) == len(recorded)
