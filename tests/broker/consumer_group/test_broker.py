"""Consumer groups of the embedded broker over real sockets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aiokafkawire.broker import Acl, Broker
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages import consumer_group_heartbeat as messages
from aiokafkawire.wire.messages import offset_commit
from aiokafkawire.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from aiokafkawire.wire.messages.list_groups import ListGroupsRequest
from tests.broker.raw_client import RawClient, connected

E = ErrorCode


def heartbeat(member_id: str, epoch: int, **fields: Any) -> Any:
    if epoch == 0:
        fields = {
            "rebalance_timeout_ms": 5_000,
            "subscribed_topic_names": ["t"],
            "topic_partitions": [],
        } | fields
    return messages.ConsumerGroupHeartbeatRequest(
        group_id="g", member_id=member_id, member_epoch=epoch, **fields
    )


def owned(response: Any, *partitions: int) -> list[Any]:
    [topic] = response.assignment.topic_partitions
    return [
        messages.ConsumerGroupHeartbeatTopicPartitions(
            topic_id=topic.topic_id, partitions=list(partitions)
        )
    ]


def partitions_of(response: Any) -> list[list[int]]:
    return [each.partitions for each in response.assignment.topic_partitions]


async def reconciling(client: RawClient) -> Any:
    """Bring a group to where one member was asked to revoke; return its first assignment."""
    first = await client.call(heartbeat("m1", 0), 1)
    await client.call(heartbeat("m2", 0), 1)
    asked = await client.call(heartbeat("m1", first.member_epoch), 1)
    assert partitions_of(asked) == [[0, 1]]
    return first


async def go_on(client: RawClient, first: Any) -> None:
    """Acknowledge, and give the partition to the other member."""
    answer = await client.call(heartbeat("m1", 2), 1)
    assert (answer.error_code, answer.member_epoch, answer.assignment) == (E.NONE, 2, None)
    revoked = heartbeat("m1", 2, topic_partitions=owned(first, 0, 1))
    assert (await client.call(revoked, 1)).member_epoch == 3
    assert partitions_of(await client.call(heartbeat("m2", 3), 1)) == [[2]]


async def test_group_survives_a_restart(tmp_path: Path) -> None:
    async with Broker(data_dir=tmp_path, auto_create_topics=False) as broker:
        await broker.create_topic("t", partitions=3)
        async with connected(broker) as client:
            first = await reconciling(client)
    async with Broker(data_dir=tmp_path) as broker, connected(broker) as client:
        await go_on(client, first)


async def test_group_moves_with_its_coordinator() -> None:
    async with Broker(3) as broker:
        await broker.create_topic("t", partitions=3)
        coordinator = broker.coordinator("g")
        other = next(node for node in broker.live_nodes if node != coordinator)
        async with connected(broker, other) as client:
            answer = await client.call(heartbeat("m1", 0), 1)
            assert answer.error_code == E.NOT_COORDINATOR
            request = ConsumerGroupDescribeRequest(
                group_ids=["g"], include_authorized_operations=False
            )
            described = await client.call(request, 1)
            assert described.groups[0].error_code == E.NOT_COORDINATOR
        async with connected(broker, coordinator) as client:
            first = await reconciling(client)
        await broker.kill(coordinator)
        async with connected(broker, broker.coordinator("g")) as client:
            await go_on(client, first)


@pytest.mark.parametrize(
    ("as_of", "version", "code"),
    [
        ("3.7", 0, E.UNSUPPORTED_VERSION),
        ("3.9", 0, E.UNSUPPORTED_VERSION),
        ("4.0", 1, E.NONE),
        ("4.3", 1, E.NONE),
    ],
)
async def test_releases(as_of: str, version: int, code: ErrorCode) -> None:
    async with Broker(as_of=as_of) as broker, connected(broker) as client:
        await broker.create_topic("t", partitions=3)
        answer = await client.call(heartbeat("m1", 0), version)
        assert answer.error_code == code
        if not code:
            assert answer.member_epoch == (2 if as_of == "4.3" else 1)


@pytest.mark.parametrize("as_of", ["4.0", "4.3"])
async def test_commit_with_an_older_epoch(as_of: str) -> None:
    """Kafka 4.3 accepts it for partitions that the member has owned since (KIP-1251)."""
    async with Broker(as_of=as_of) as broker, connected(broker) as client:
        await broker.create_topic("t", partitions=3)
        epoch = (await client.call(heartbeat("m1", 0), 1)).member_epoch
        first = await client.call(heartbeat("m1", 0), 1)
        await client.call(heartbeat("m2", 0), 1)
        await client.call(heartbeat("m1", epoch), 1)
        acknowledged = heartbeat("m1", epoch, topic_partitions=owned(first, 0, 1))
        assert (await client.call(acknowledged, 1)).member_epoch == epoch + 1
        codes = []
        for generation in (epoch, epoch + 1, epoch + 2):
            request = offset_commit.OffsetCommitRequest(
                group_id="g",
                generation_id_or_member_epoch=generation,
                member_id="m1",
                topics=[
                    offset_commit.OffsetCommitRequestTopic(
                        name="t",
                        partitions=[
                            offset_commit.OffsetCommitRequestPartition(
                                partition_index=index, committed_offset=1, committed_metadata=""
                            )
                            for index in (0, 2)
                        ],
                    )
                ],
            )
            response = await client.call(request, 9)
            codes.append([each.error_code for each in response.topics[0].partitions])
    older = [E.STALE_MEMBER_EPOCH] * 2 if as_of == "4.0" else [E.NONE, E.STALE_MEMBER_EPOCH]
    assert codes == [older, [E.NONE] * 2, [E.STALE_MEMBER_EPOCH] * 2]


async def test_access_control() -> None:
    acls = [
        Acl("User:ANONYMOUS", "Read", group="g"),
        Acl("User:ANONYMOUS", "Describe", topic="t"),
    ]
    async with Broker(acls=acls) as broker, connected(broker) as client:
        await broker.create_topic("t", partitions=1)
        await broker.create_topic("secret", partitions=1)
        refused = await client.call(heartbeat("m1", 0, subscribed_topic_names=["secret"]), 1)
        assert refused.error_code == E.TOPIC_AUTHORIZATION_FAILED
        request = heartbeat("m1", 0)
        request.group_id = "other"
        assert (await client.call(request, 1)).error_code == E.GROUP_AUTHORIZATION_FAILED
        # A regular expression leaves out what the member may not see.
        regex = heartbeat("m1", 0, subscribed_topic_names=None, subscribed_topic_regex=".*")
        joined = await client.call(regex, 1)
        found = await client.call(heartbeat("m1", joined.member_epoch), 1)
        assert partitions_of(found) == [[0]]


async def test_failed_join_leaves_no_group() -> None:
    async with Broker() as broker, connected(broker) as client:
        regex = heartbeat("m1", 0, subscribed_topic_regex="(")
        answer = await client.call(regex, 1)
        assert answer.error_code == E.INVALID_REGULAR_EXPRESSION
        assert (await client.call(ListGroupsRequest(), 5)).groups == []
