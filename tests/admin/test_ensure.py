"""Topics that are ensured while other clients change them too, and the wait for topics."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafkawire.admin import Admin, EnsuredTopic, NewTopic
from aiokafkawire.broker import Acl, Broker
from aiokafkawire.errors import BrokerError, PartialFailure
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages.create_partitions import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from aiokafkawire.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from tests.admin.fakes import ScriptedAdmin
from tests.admin.scripted import ScriptedCluster

E = ErrorCode


class Cluster(ScriptedCluster):
    """A cluster of one node without DescribeTopicPartitions, whose topics have partitions at 1."""

    def has(self, **partitions: int) -> None:
        self.versions[ApiKey.DESCRIBE_TOPIC_PARTITIONS] = -1
        self.leaders = {
            (name, number): 1 for name, count in partitions.items() for number in range(count)
        }


def created(code: int) -> Any:
    def answer(request: Any) -> CreateTopicsResponse:
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(name=topic.name, error_code=code) for topic in request.topics
            ]
        )

    return answer


def extended(code: int, then: Any = None) -> Any:
    def answer(request: Any) -> CreatePartitionsResponse:
        if then is not None:
            then()
        return CreatePartitionsResponse(
            throttle_time_ms=0,
            results=[
                CreatePartitionsTopicResult(name=topic.name, error_code=code)
                for topic in request.topics
            ],
        )

    return answer


async def test_topics_that_are_there_need_only_permissions_to_describe() -> None:
    acls = [
        Acl("User:*", "Describe", topic="orders"),
        Acl("User:*", "DescribeConfigs", topic="orders"),
    ]
    async with Broker(acls=acls) as broker:
        await broker.create_topic("orders", partitions=2, configs={"segment.ms": "60000"})
        async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            wanted = NewTopic("orders", 2, configs={"segment.ms": "60000"})
            unchanged = {"orders": EnsuredTopic("orders", is_created=False)}
            assert await admin.ensure_topics([wanted]) == unchanged
            broker.remove_acls(acls[1])
            assert await admin.ensure_topics(["orders"]) == unchanged
            with pytest.raises(PartialFailure, match="lacks Create on the topic"):
                await admin.ensure_topics(["other"])


async def test_a_topic_that_another_client_creates_first() -> None:
    cluster = Cluster()
    cluster.has()

    def created_meanwhile(request: Any) -> CreateTopicsResponse:
        cluster.has(a=2)
        return created(E.TOPIC_ALREADY_EXISTS)(request)

    cluster.answer(ApiKey.CREATE_TOPICS, created_meanwhile)
    ensured = await ScriptedAdmin(cluster).ensure_topics([NewTopic("a", 2)])
    assert ensured == {"a": EnsuredTopic("a", is_created=False)}


async def test_partitions_that_another_client_adds_first() -> None:
    cluster = Cluster()
    cluster.has(a=1)
    cluster.answer(
        ApiKey.CREATE_PARTITIONS, extended(E.INVALID_PARTITIONS, then=lambda: cluster.has(a=3))
    )
    ensured = await ScriptedAdmin(cluster).ensure_topics([NewTopic("a", 3)])
    assert ensured == {"a": EnsuredTopic("a", is_created=False)}
    assert not ensured["a"].is_changed


async def test_partitions_that_cannot_be_added() -> None:
    cluster = Cluster()
    cluster.has(a=1, b=3)
    cluster.answer(ApiKey.CREATE_PARTITIONS, extended(E.INVALID_PARTITIONS))
    with pytest.raises(PartialFailure) as caught:
        await ScriptedAdmin(cluster).ensure_topics([NewTopic("a", 3), NewTopic("b", 2)])
    error = caught.value.failed["a"]
    assert isinstance(error, BrokerError)
    assert error.code == E.INVALID_PARTITIONS
    assert caught.value.succeeded == {"b": EnsuredTopic("b", is_created=False)}


async def test_topics_that_cannot_be_created() -> None:
    cluster = Cluster()
    cluster.has()
    cluster.answer(ApiKey.CREATE_TOPICS, created(E.INVALID_REPLICATION_FACTOR))
    results = await ScriptedAdmin(cluster).ensure_topics(["a"], return_errors=True)
    assert isinstance(results["a"], BrokerError)


async def test_a_plan_changes_nothing() -> None:
    cluster = Cluster()
    cluster.has(a=1)
    cluster.answer(ApiKey.CREATE_PARTITIONS, extended(0))
    wanted = [NewTopic("a", 4), NewTopic("b", 4)]
    cluster.answer(ApiKey.CREATE_TOPICS, created(0))
    planned = await ScriptedAdmin(cluster).ensure_topics(wanted, validate_only=True)
    assert planned == {
        "a": EnsuredTopic("a", is_created=False, added_partitions=3),
        "b": EnsuredTopic("b", is_created=True),
    }
    for api in (ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS):
        assert [sent.message.validate_only for sent in cluster.requests(api)] == [True]


async def test_the_assignment_of_a_topic_gives_its_partitions() -> None:
    cluster = Cluster()
    cluster.has(a=1)
    cluster.answer(ApiKey.CREATE_TOPICS, created(E.TOPIC_ALREADY_EXISTS))
    cluster.answer(ApiKey.CREATE_PARTITIONS, extended(0))
    topic = NewTopic("a", replica_assignments={0: [1], 1: [2]})
    ensured = await ScriptedAdmin(cluster).ensure_topics([topic], validate_only=True)
    assert ensured["a"].added_partitions == 1


def test_assignments_and_numbers_are_alternatives() -> None:
    with pytest.raises(ValueError, match="replica_assignments cannot be combined"):
        NewTopic("a", 3, replica_assignments={0: [1]})
