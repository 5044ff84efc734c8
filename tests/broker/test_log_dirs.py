"""DescribeLogDirs and AlterReplicaLogDirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from aiokafkawire.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)

from .raw_client import batch, connected, produce_request

E = ErrorCode


async def describe(
    broker: Broker, topics: dict[str, list[int]] | None = None, *, node: int = 1
) -> Any:
    wanted = (
        None
        if topics is None
        else [
            DescribableLogDirTopic(topic=name, partitions=indexes)
            for name, indexes in topics.items()
        ]
    )
    async with connected(broker, node) as client:
        response = await client.call(DescribeLogDirsRequest(topics=wanted), 5)
    assert response.error_code == E.NONE
    (directory,) = response.results
    return directory


def sizes(directory: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, each.partition_index): each.partition_size
        for topic in directory.topics
        for each in topic.partitions
    }


async def test_the_size_of_each_log_is_described(tmp_path: Path) -> None:
    async with Broker(data_dir=tmp_path) as broker:
        await broker.create_topic("t", 2)
        records = batch(b"v")
        async with connected(broker) as client:
            await client.call(produce_request("t", 0, records), 9)
        directory = await describe(broker)
        assert directory.log_dir == str(tmp_path)
        assert sizes(directory) == {("t", 0): len(records), ("t", 1): 0}
        assert directory.total_bytes > directory.usable_bytes > 0
        some = await describe(broker, {"t": [0, 9], "nowhere": [0]})
        assert sizes(some) == {("t", 0): len(records)}
        assert (await describe(broker, {})).topics == []


@pytest.mark.parametrize("replicate", [False, True])
async def test_a_node_describes_its_replicas(replicate: bool) -> None:
    async with Broker(nodes=2, replicate=replicate) as broker:
        await broker.create_topic("t", 2, 1)
        for node in (1, 2):
            directory = await describe(broker, node=node)
            (partition,) = sizes(directory)
            assert broker.leader(*partition) == node
            assert (directory.log_dir, directory.total_bytes) == ("/memory", -1)


@pytest.mark.parametrize(
    ("path", "codes"),
    [
        (
            "/memory",
            [E.NONE, E.NOT_LEADER_OR_FOLLOWER, E.UNKNOWN_TOPIC_OR_PARTITION],
        ),
        ("/other", [E.LOG_DIR_NOT_FOUND] * 3),
        ("relative", [E.LOG_DIR_NOT_FOUND] * 3),
    ],
)
async def test_there_is_one_directory(path: str, codes: list[ErrorCode]) -> None:
    async with Broker(nodes=2) as broker:
        await broker.create_topic("t", 2, 1)
        mine = next(index for index in range(2) if broker.leader("t", index) == 1)
        topic = AlterReplicaLogDirTopic(name="t", partitions=[mine, 1 - mine, 9])
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[topic])])
        async with connected(broker, 1) as client:
            (result,) = (await client.call(request, 2)).results
        assert [each.error_code for each in result.partitions] == codes
