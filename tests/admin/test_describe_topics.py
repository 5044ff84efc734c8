"""Pages of DescribeTopicPartitions, the fallback to Metadata, and hostile answers."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from aiokafkawire.errors import (
    BrokerError,
    ConnectionLost,
    PartialFailure,
    ProtocolError,
    UnsupportedVersion,
)
from aiokafkawire.wire import ZERO_UUID, ApiKey, ErrorCode
from aiokafkawire.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from aiokafkawire.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from tests.admin.fakes import ScriptedAdmin
from tests.admin.scripted import ScriptedCluster

E = ErrorCode
PAGES = ApiKey.DESCRIBE_TOPIC_PARTITIONS


def partition(index: int, leader: int = 1) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        error_code=0,
        partition_index=index,
        leader_id=leader,
        leader_epoch=4,
        replica_nodes=[1, 2],
        isr_nodes=[1],
        eligible_leader_replicas=[2],
        offline_replicas=[],
    )


def topic(name: str | None, *partitions: int, code: int = 0) -> Any:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        topic_id=UUID(int=7),
        partitions=[partition(index) for index in partitions],
    )


def page(*topics: Any, after: tuple[str, int] | None = None) -> Any:
    cursor = None if after is None else Cursor(topic_name=after[0], partition_index=after[1])
    response = DescribeTopicPartitionsResponse(
        throttle_time_ms=0, topics=list(topics), next_cursor=cursor
    )
    return lambda _: response


async def test_topics_over_several_pages() -> None:
    cluster = ScriptedCluster()
    cluster.answer(
        PAGES,
        page(topic("a", 0), topic("b", 0, 1), after=("b", 2)),
        page(topic("b", 2, 3), topic("c", 0)),
    )
    described = await ScriptedAdmin(cluster).describe_topics(["c", "b", "a"])
    assert {name: [*each.partitions] for name, each in described.items()} == {
        "c": [0],
        "b": [0, 1, 2, 3],
        "a": [0],
    }
    info = described["b"].partitions[3]
    assert (info.leader_id, info.replicas, info.isr) == (1, (1, 2), (1,))
    assert (info.leader_epoch, info.eligible_leader_replicas, info.last_known_elr) == (
        4,
        (2,),
        None,
    )
    first, second = (sent.message for sent in cluster.requests(PAGES))
    assert [each.name for each in first.topics] == ["a", "b", "c"]
    assert [each.name for each in second.topics] == ["b", "c"]
    assert second.cursor == Cursor(topic_name="b", partition_index=2)


async def test_pages_of_many_topics() -> None:
    names = [f"topic-{number:03}" for number in range(450)]
    cluster = ScriptedCluster()

    def answer(request: Any) -> DescribeTopicPartitionsResponse:
        if request.topics[0].name == names[200] and len(cluster.requests(PAGES)) < 4:
            raise ConnectionLost("gone")
        response: DescribeTopicPartitionsResponse = page(
            *(topic(each.name, 0) for each in request.topics)
        )(request)
        return response

    cluster.answer(PAGES, answer)
    described = await ScriptedAdmin(cluster).describe_topics(names)
    assert list(described) == names
    sizes = [len(sent.message.topics) for sent in cluster.requests(PAGES)]
    # Pages are requested in parallel, in any order.
    assert sorted(sizes) == [50, 200, 200, 200]


async def test_a_topic_that_is_deleted_between_its_pages() -> None:
    cluster = ScriptedCluster()
    unknown = page(topic("a", code=E.UNKNOWN_TOPIC_OR_PARTITION))
    cluster.answer(PAGES, page(topic("a", 0), after=("a", 1)), unknown)
    results = await ScriptedAdmin(cluster).describe_topics(["a"], return_errors=True)
    assert isinstance(results["a"], BrokerError)


@pytest.mark.parametrize("after", [("b", 0), ("a", 9), ("z", 1)])
async def test_a_page_that_is_no_later_one(after: tuple[str, int]) -> None:
    cluster = ScriptedCluster()
    cluster.answer(PAGES, page(topic("b", 0), after=("b", 1)), page(topic("b", 1), after=after))
    with pytest.raises(ProtocolError, match="no later page"):
        await ScriptedAdmin(cluster).describe_topics(["a", "b"])


async def test_hostile_topics() -> None:
    cluster = ScriptedCluster()
    cluster.answer(PAGES, page(topic(None, 0), topic("other", 0), topic("a", 0)))
    with pytest.raises(PartialFailure) as caught:
        await ScriptedAdmin(cluster).describe_topics(["a", "b"])
    assert list(caught.value.succeeded) == ["a"]
    assert isinstance(caught.value.failed["b"], ProtocolError)


async def test_a_topic_that_a_broker_does_not_know_yet() -> None:
    cluster = ScriptedCluster()
    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    cluster.answer(PAGES, page(topic("a", code=unknown)), page(topic("a", 0)))
    assert list(await ScriptedAdmin(cluster).describe_topics(["a"])) == ["a"]
    cluster.answer(PAGES, page(topic("a", code=unknown)))
    cluster.sent.clear()
    results = await ScriptedAdmin(cluster).describe_topics(["a"], return_errors=True)
    error = results["a"]
    assert isinstance(error, BrokerError)
    assert error.code == unknown
    assert len(cluster.requests(PAGES)) == 3


def metadata(*topics: tuple[str | None, UUID, int]) -> Any:
    def answer(_: object) -> MetadataResponse:
        return MetadataResponse(
            brokers=[],
            controller_id=1,
            topics=[
                MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id, partitions=[])
                for name, topic_id, code in topics
            ],
        )

    return answer


async def test_metadata_of_brokers_without_pages() -> None:
    cluster = ScriptedCluster(versions={PAGES: -1, ApiKey.METADATA: 5})
    cluster.answer(ApiKey.METADATA, metadata(("a", ZERO_UUID, 0)))
    described = await ScriptedAdmin(cluster).describe_topics(["a"])
    assert described["a"].topic_id is None
    (sent,) = cluster.requests(ApiKey.METADATA)
    assert [each.name for each in sent.message.topics] == ["a"]
    assert not sent.message.allow_auto_topic_creation


async def test_old_brokers_are_asked_for_all_topics() -> None:
    cluster = ScriptedCluster(versions={PAGES: -1, ApiKey.METADATA: 1})
    cluster.answer(ApiKey.METADATA, metadata(("a", ZERO_UUID, 0), ("b", ZERO_UUID, 0)))
    results = await ScriptedAdmin(cluster).describe_topics(["b", "c"], return_errors=True)
    assert cluster.requests(ApiKey.METADATA)[0].message.topics is None
    error = results["c"]
    assert isinstance(error, BrokerError)
    assert error.code == E.UNKNOWN_TOPIC_OR_PARTITION


async def test_topics_by_id() -> None:
    known, unknown, missing = uuid4(), uuid4(), uuid4()
    cluster = ScriptedCluster()
    cluster.answer(ApiKey.METADATA, metadata(("a", known, 0), (None, unknown, E.UNKNOWN_TOPIC_ID)))
    results = await ScriptedAdmin(cluster).describe_topics(
        [known, unknown, missing], return_errors=True
    )
    described = results[known]
    assert not isinstance(described, Exception)
    assert (described.name, described.topic_id) == ("a", known)
    assert isinstance(results[unknown], BrokerError)
    assert isinstance(results[missing], ProtocolError)


async def test_brokers_without_topic_ids() -> None:
    cluster = ScriptedCluster(versions={ApiKey.METADATA: 9})
    with pytest.raises(UnsupportedVersion, match=r"Metadata v12 needs Kafka 3\.1 or later"):
        await ScriptedAdmin(cluster).describe_topics([uuid4()])


async def test_a_topic_of_a_wrong_type() -> None:
    with pytest.raises(TypeError, match="a topic must be a name or a UUID, not 1"):
        await ScriptedAdmin(ScriptedCluster()).describe_topics(["t", 1])  # type: ignore[list-item]
