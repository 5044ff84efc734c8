"""Share groups append the records that Kafka 4.3.0 appended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.broker.groups.consumer_group.records import RECORD_TYPES
from aiokafkawire.testing.simulation import World
from aiokafkawire.wire.json_converter import to_json
from tests.broker.share.replay import ShareReplay
from tests.broker.share.test_conversations import CLIENT, HERE, RUNS
from tests.wire.vectors import lines

TYPE_OF_KEY = {key: number for number, (key, _) in RECORD_TYPES.items()}
LEFT_OUT = {
    "clientHost",
    "metadataHash",
    "assignmentTimestamp",
    "topicId",
    "createTimestamp",
    "writeTimestamp",
}


def plain(value: Any) -> Any:
    """Return a record without times, hashes and topic ids."""
    if isinstance(value, dict):
        return {
            name: plain(each)
            for name, each in value.items()
            if name not in LEFT_OUT | {"valueVersion"}
        }
    return [plain(each) for each in value] if isinstance(value, list) else value


def recorded(scenario: str) -> list[Mapping[str, Any]]:
    found = [line for line in lines("coordinator-appends") if line["scenario"] == scenario]
    return [line for line in found if "recordType" in line]


@pytest.fixture(scope="module")
def appended() -> tuple[list[Any], list[Any]]:
    """Records of the group, and updates of share partition 0, of the recorded conversations."""
    run = RUNS["releases"]
    world = World(1, backend="asyncio")
    groups: list[Any] = []
    updates: list[Any] = []

    async def main() -> None:
        async with Broker(
            host=HERE, runtime=world.runtime(HERE), as_of="4.3", **run.options
        ) as broker:
            await broker.create_topic("t", partitions=run.topics["t"])
            state = broker._running
            log, persister = (
                state.group_coordinator.consumer_groups.log,
                state.share_partitions.persister,
            )
            append, write = log.append, persister.write

            def note_append(group_id: str, records: Any) -> None:
                groups.extend(
                    (TYPE_OF_KEY[type(key)], plain(to_json(value, 0))) for key, value in records
                )
                append(group_id, records)

            def note_write(key: Any, update: Any, leader_epoch: int) -> None:
                updates.append(update)
                write(key, update, leader_epoch)

            log.append = note_append
            persister.write = note_write
            replay = ShareReplay(broker, world.runtime(CLIENT), topics=run.ids)
            for topic_id in run.ids:
                replay.bind(topic_id)
            conversations = [
                line
                for line in lines("share-group-conversations")
                if line["scenario"] in run.scenarios
            ]
            await replay.run_all(conversations, run.hooks)

    world.run(main)
    return groups, updates


def test_records_of_the_group(appended: tuple[list[Any], list[Any]]) -> None:
    expected = [
        (line["recordType"], plain(line["value"])) for line in recorded("persisted-share-group")
    ]
    assert appended[0][: len(expected)] == expected


def test_updates_of_a_share_partition(appended: tuple[list[Any], list[Any]]) -> None:
    expected = [
        (
            value["startOffset"],
            value["deliveryCompleteCount"],
            [
                (
                    each["firstOffset"],
                    each["lastOffset"],
                    each["deliveryState"],
                    each["deliveryCount"],
                )
                for each in value["stateBatches"]
            ],
        )
        for line in recorded("persisted-share-state")
        for value in [line["value"]]
        if line["record"] == "ShareUpdate"
    ]
    found = [
        (
            update.start_offset,
            update.delivery_complete_count,
            [(each.first, each.last, each.state, each.delivery_count) for each in update.batches],
        )
        for update in appended[1]
    ]
    assert found[: len(expected)] == expected
