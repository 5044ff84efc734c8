"""Share groups answer as Kafka 4.3.0 did in recorded conversations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import anyio
import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.broker.configs import ConfigResourceType
from aiokafkawire.testing.simulation import World
from aiokafkawire.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.broker.share.replay import ShareReplay
from tests.wire.vectors import lines

HERE, CLIENT = "10.0.0.1", "10.0.1.1"

OPTIONS: Mapping[str, Any] = {
    "group_share_heartbeat_interval_ms": 500,
    "group_share_min_heartbeat_interval_ms": 500,
    "group_share_session_timeout_ms": 6_000,
    "group_share_min_record_lock_duration_ms": 1_000,
}


def lock(ms: int) -> Mapping[str, Any]:
    return {**OPTIONS, "group_share_record_lock_duration_ms": ms}


class Run(NamedTuple):
    """Conversations with one broker, its options, topics, and groups that start at the earliest."""

    scenarios: tuple[str, ...]
    options: Mapping[str, Any]
    topics: Mapping[str, int]
    ids: Mapping[str, str]
    earliest: tuple[str, ...] = ()
    read_committed: tuple[str, ...] = ()
    hooks: Mapping[str, Mapping[str, Any]] = {}
    places: Mapping[tuple[str, float, str], str] = {}
    deliberate: tuple[tuple[str, float], ...] = ()
    upfront: tuple[str, ...] = ()


def create(name: str, partitions: int, recorded_id: str) -> Any:
    async def hook(replay: ShareReplay, due: float) -> None:
        await anyio.sleep(due - anyio.current_time())
        await replay.broker.create_topic(name, partitions=partitions)
        replay.bind(recorded_id)

    return hook


def grow(name: str, partitions: int) -> Any:
    async def hook(replay: ShareReplay, due: float) -> None:
        await replay.broker.add_partitions(name, partitions)

    return hook


def poll(group: str, member: str, first: Any = None) -> Any:
    async def hook(replay: ShareReplay, due: float) -> None:
        if first is not None:
            await first(replay, due)
        await replay.poll_share_group(group, member)

    return hook


def delete(name: str) -> Any:
    async def hook(replay: ShareReplay, due: float) -> None:
        await replay.broker.delete_topic(name)

    return hook


def disconnect(name: str) -> Any:
    async def hook(replay: ShareReplay, due: float) -> None:
        await replay.disconnect(name)
        await anyio.sleep(0.05)

    return hook


def delete_records(name: str, before: int) -> Any:
    async def hook(replay: ShareReplay, due: float) -> None:
        replay.broker._running.cluster.topics[name].partitions[0].log.delete_before(before)

    return hook


def use_node(replay: ShareReplay, node: int) -> None:
    """Send further requests to a node; earlier connections stay open."""
    replay.node, replay.connections = node, {}


async def join(replay: ShareReplay, due: float) -> None:
    """Join, as the member of the recording did, and fetch from the leader."""
    replay.node = replay.broker.coordinator("sm")
    connection = await replay.connection("A")
    for epoch in (0, 2):
        heartbeat = ShareGroupHeartbeatRequest(
            group_id="sm", member_id="A", member_epoch=epoch, subscribed_topic_names=["t"]
        )
        await connection.call(heartbeat, 1)
    replay.broker._running.cluster.topics["t"].partitions[0].leader = 1
    use_node(replay, 1)


async def fetch_from_follower(replay: ShareReplay, due: float) -> None:
    use_node(replay, 2)


async def kill_leader(replay: ShareReplay, due: float) -> None:
    partition = replay.broker._running.cluster.topics["t"].partitions[0]
    await replay.broker.kill(partition.leader)
    use_node(replay, partition.leader)


RUNS = {
    "leader moves": Run(
        ("share-leader-moves",),
        {**lock(5_000), "nodes": 3, "default_replication_factor": 3},
        {"t": 1},
        {"Wafg19a1QfSaXOHbrAm1gQ": "t"},
        ("sm",),
        hooks={
            "share-leader-moves": {
                "assigned": join,
                "share fetch at a node": fetch_from_follower,
                "new leader": kill_leader,
            }
        },
    ),
    "topics": Run(
        (
            "share-topic-deleted",
            "share-partitions-added",
            "share-two-connections",
            "share-describe-v0",
        ),
        lock(5_000),
        {"t": 3},
        {
            "3G1kY8HGRauu-nKKxeq9Mw": "td",
            "abEr5pZYT5qRy5z8wxgvjQ": "t",
            "2TVaBqeOTUSA4ejQBSrzpg": "td",
        },
        hooks={
            "share-topic-deleted": {
                "0.079": create("td", 1, "3G1kY8HGRauu-nKKxeq9Mw"),
                "0.498": poll("s4", "X"),
                "td still in the session": delete("td"),
                "1.597": create("td", 1, "2TVaBqeOTUSA4ejQBSrzpg"),
            },
            "share-partitions-added": {
                "assigned 0.11 s later": poll("s5", "Y", first=grow("td", 3))
            },
        },
        # In Kafka, the share partitions of the new topic were still being initialized.
        deliberate=(("share-topic-deleted", 1.608), ("share-topic-deleted", 1.615)),
        places={("share-two-connections", 8.102, "ShareAcknowledge"): "Z#2"},
    ),
    "sessions": Run(
        ("share-replace-session", "share-forget-acquired", "share-max-wait-and-many"),
        lock(5_000),
        {"t": 3},
        {"jdn_FRtaSAS6tAtlInwdMw": "t"},
        ("s1",),
    ),
    "different subscriptions": Run(
        ("share-heterogeneous-topic-deleted",),
        OPTIONS,
        {"a": 2, "b": 2},
        {},
        hooks={"share-heterogeneous-topic-deleted": {"0.9": delete("a")}},
    ),
    "releases": Run(
        ("share-connection-closed", "share-release-wakes-fetch"),
        lock(20_000),
        {"t": 3},
        {"qzF5UnXtTKWl8RPZkgaWcQ": "t"},
        hooks={"share-connection-closed": {"0.383": disconnect("A")}},
    ),
    "acknowledgements": Run(
        (
            "share-join",
            "share-auto-offset-reset",
            "share-ack",
            "share-ack-errors",
            "share-session-errors",
            "share-lock",
        ),
        {**lock(3_000), "group_share_delivery_count_limit": 3},
        {"t": 2},
        {"YKR0feqQS3-3KhWK--3OTQ": "t"},
        hooks={"share-session-errors": {"2.647": disconnect("A")}},
    ),
    "many members": Run(
        (
            "share-many",
            "share-read-committed",
            "share-offsets-admin",
            "share-describe",
            "share-session-limit",
        ),
        {**lock(3_000), "group_share_max_share_sessions": 10, "group_share_max_size": 10},
        {"t": 1, "t2": 1},
        {"5dabLt5TSt2yRc0sF2xsww": "t", "IruZCdcUTKeXnPQfmgInGg": "t2"},
        ("sg", "si"),
        ("si",),
        # Kafka's leader keeps the state of a group that was altered or deleted; ours does not. In
        # the last one, share partitions were still being initialized.
        deliberate=(
            ("share-offsets-admin", 33.913),
            *(("share-session-limit", at) for at in (0.002, 0.003, 0.004, 0.019, 0.03)),
            ("share-session-limit", 0.034),
        ),
        upfront=("t",),
    ),
    "admin": Run(
        (
            "share-alter-live",
            "share-leave-open-session",
            "share-log-start",
            "share-same-conn",
            "share-max-locks",
        ),
        lock(5_000),
        {"t": 1, "tl": 1},
        {"2OcpGFAvRFyQeISs_vz5fA": "t", "6KFxysaiTUeO6aj1Z9RmEw": "tl"},
        ("s1", "s2", "s3"),
        hooks={
            "share-log-start": {"0.226": delete_records("t", 10)},
            "share-same-conn": {"0.41": disconnect("G")},
        },
        # Kafka's leader still has the state of before AlterShareGroupOffsets; ours loads it again.
        deliberate=(("share-alter-live", 2.39),),
        upfront=("t", "tl"),
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
            for group in run.earliest:
                configs = {"share.auto.offset.reset": "earliest"}
                if group in run.read_committed:
                    configs["share.isolation.level"] = "read_committed"
                broker._running.cluster.dynamic_configs.replace(
                    ConfigResourceType.GROUP, group, configs
                )
            replay = ShareReplay(
                broker,
                world.runtime(CLIENT),
                topics=run.ids,
                places=run.places,
                deliberate=run.deliberate,
                upfront=run.upfront,
            )
            for recorded_id, topic in run.ids.items():
                if topic in run.topics:
                    replay.bind(recorded_id)
            found = [
                line
                for scenario in run.scenarios
                for line in lines("share-group-conversations")
                if line["scenario"] == scenario
            ]
            await replay.run_all(found, run.hooks)
            compared.append(replay.compared)
            differences.extend(replay.differences)

    world.run(main)
    print("\n".join(differences))
    assert not differences
    record_property("compared", compared[0])
    print(f"{name}: {compared[0]} responses equal Kafka's")


def test_every_conversation_is_replayed() -> None:
    replayed = [scenario for run in RUNS.values() for scenario in run.scenarios]
    recorded = {line["scenario"] for line in lines("share-group-conversations")}
    assert set(replayed) == recorded
    assert len(replayed) == len(recorded)
