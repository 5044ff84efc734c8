"""Metadata over real sockets: which topics are returned, and which are created."""

from __future__ import annotations

from uuid import UUID

import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

from .raw_client import build_update_metadata_request, connected

E = ErrorCode


@pytest.mark.parametrize(
    ("version", "topics", "expected"),
    [(0, [], ["a", "b"]), (1, [], []), (1, None, ["a", "b"]), (12, [], []), (12, None, ["a", "b"])],
)
async def test_all_topics_or_none(
    version: int, topics: list[MetadataRequestTopic] | None, expected: list[str]
) -> None:
    async with Broker() as broker, connected(broker) as client:
        await broker.create_topic("a")
        await broker.create_topic("b")
        response = await client.call(MetadataRequest(topics=topics), version)
    assert [topic.name for topic in response.topics] == expected


async def test_topics_are_made_on_demand() -> None:
    async with Broker(nodes=3, default_partitions=4) as broker, connected(broker) as client:
        (topic,) = (await client.call(build_update_metadata_request("new", create=True), 12)).topics
        assert (topic.error_code, len(topic.partitions)) == (E.NONE, 4)
        assert len(topic.partitions[0].replica_nodes) == 3
        assert topic.topic_id.int != 0
        (topic,) = (await client.call(build_update_metadata_request("other"), 12)).topics
        assert (topic.error_code, topic.partitions) == (E.UNKNOWN_TOPIC_OR_PARTITION, [])
        (topic,) = (
            await client.call(build_update_metadata_request("no/name", create=True), 12)
        ).topics
        assert topic.error_code == E.INVALID_TOPIC_EXCEPTION
        assert list(broker.topics) == ["new"]


async def test_not_when_the_broker_forbids_it() -> None:
    async with Broker(auto_create_topics=False) as broker, connected(broker) as client:
        (topic,) = (await client.call(build_update_metadata_request("new", create=True), 1)).topics
        assert topic.error_code == E.UNKNOWN_TOPIC_OR_PARTITION
        assert broker.topics == {}


async def test_topics_by_id() -> None:
    async with Broker() as broker, connected(broker) as client:
        await broker.create_topic("a")
        (topic,) = (await client.call(build_update_metadata_request("a"), 12)).topics
        for version in (12, 13):
            asked = [
                MetadataRequestTopic(topic_id=topic.topic_id, name=None),
                MetadataRequestTopic(topic_id=UUID(int=9), name=None),
            ]
            known, unknown = (await client.call(MetadataRequest(topics=asked), version)).topics
            assert (known.error_code, known.name) == (E.NONE, "a")
            assert unknown.error_code == E.UNKNOWN_TOPIC_ID
        refused = (await client.call(MetadataRequest(topics=asked), 10)).topics
        assert [t.error_code for t in refused] == [E.INVALID_REQUEST] * 2


async def test_a_topic_requested_twice_is_returned_once() -> None:
    async with Broker() as broker, connected(broker) as client:
        await broker.create_topic("t")
        assert len((await client.call(build_update_metadata_request("t", "t"), 12)).topics) == 1
        (bad,) = (await client.call(build_update_metadata_request("t/t"), 12)).topics
        assert bad.error_code == E.INVALID_TOPIC_EXCEPTION


async def test_the_oldest_clients_do_not_hear_of_dead_replicas() -> None:
    async with Broker(nodes=3) as broker:
        await broker.create_topic("t")
        await broker.kill(broker.leader("t", 0))
        async with connected(broker) as client:
            (topic,) = (
                await client.call(build_update_metadata_request("t", create=True), 0)
            ).topics
    (partition,) = topic.partitions
    assert partition.error_code == E.REPLICA_NOT_AVAILABLE
    assert len(partition.replica_nodes) == 2


async def test_authorized_operations_are_returned_on_request() -> None:
    async with Broker() as broker, connected(broker) as client:
        await broker.create_topic("t")
        request = build_update_metadata_request("t")
        request.include_topic_authorized_operations = True
        request.include_cluster_authorized_operations = True
        response = await client.call(request, 8)
        assert response.topics[0].topic_authorized_operations > 0
        assert response.cluster_authorized_operations > 0
        plain = await client.call(build_update_metadata_request("t"), 8)
        assert plain.topics[0].topic_authorized_operations == -(2**31)


async def test_clients_receive_the_advertised_host() -> None:
    async with Broker(advertised_host="localhost") as broker:
        assert broker.bootstrap_servers.startswith("localhost:")
        assert broker.nodes[1].host == "localhost"
