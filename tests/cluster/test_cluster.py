"""Bootstrap, topics, routing and retry against scripted nodes."""

from __future__ import annotations

import anyio

from aiokafkawire.types import TopicPartition

from .scripted import cluster_client, scripted_cluster, topic_of


def soon(seconds: float = 5) -> float:
    return anyio.current_time() + seconds


async def test_bootstrap_finds_the_nodes_and_a_topic():
    async with scripted_cluster(3) as scripted:
        scripted.topics["t"] = topic_of("t", 1, 2, 3)
        async with cluster_client(bootstrap_servers=scripted.bootstrap) as cluster:
            await cluster.start(soon())
            assert sorted(cluster.metadata.nodes) == [1, 2, 3]
            topic = await cluster.topic("t", soon())
            assert tuple(topic.partitions) == (0, 1, 2)
            assert cluster.metadata.leader(TopicPartition("t", 1)) == (2, 0)
