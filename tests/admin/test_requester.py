"""Routing, regrouping, retries and hostile answers of operations on many items."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from aiokafkawire.admin.items import ItemRequest, ItemResult, finish_items
from aiokafkawire.admin.routing import Target
from aiokafkawire.cluster import ToAnyNode, ToController, ToNode
from aiokafkawire.errors import (
    BrokerError,
    ConnectionFailed,
    ConnectionLost,
    NoBrokerAvailable,
    PartialFailure,
    ProtocolError,
    RequestTimedOut,
    UnsupportedVersion,
)
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from aiokafkawire.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from aiokafkawire.wire.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from aiokafkawire.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from tests.admin.scripted import ScriptedCluster

E = ErrorCode


def delete_groups(**fields: Any) -> ItemRequest[str, None]:
    def build(groups: Sequence[str], version: int, timeout_ms: int) -> DeleteGroupsRequest:
        return DeleteGroupsRequest(groups_names=list(groups))

    def read(response: DeleteGroupsResponse) -> Iterable[ItemResult]:
        for group in response.results:
            yield ItemResult(group.group_id, None, group.error_code)

    return ItemRequest(api_key=ApiKey.DELETE_GROUPS, build=build, read=read, **fields)


def deleted(*codes: tuple[str, int]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        throttle_time_ms=0,
        results=[DeletableGroupResult(group_id=group, error_code=code) for group, code in codes],
    )


def coordinators_at(**nodes: int) -> Any:
    def answer(request: Any) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(
                    key=key,
                    node_id=nodes[key],
                    host="h",
                    port=nodes[key],
                    error_code=0,
                    error_message=None,
                )
                for key in request.coordinator_keys
            ]
        )

    return answer


def all_deleted(request: Any) -> DeleteGroupsResponse:
    return deleted(*((group, 0) for group in request.groups_names))


async def test_items_are_grouped_by_coordinator() -> None:
    cluster = ScriptedCluster()
    cluster.answer(ApiKey.FIND_COORDINATOR, coordinators_at(a=1, b=2, c=1))
    cluster.answer(ApiKey.DELETE_GROUPS, all_deleted)
    results = await cluster.requester().request_items(delete_groups(), ["a", "b", "c", "a"])
    assert results == {"a": None, "b": None, "c": None}
    assert len(cluster.requests(ApiKey.FIND_COORDINATOR)) == 1
    assert {
        (sent.to, *sent.message.groups_names) for sent in cluster.requests(ApiKey.DELETE_GROUPS)
    } == {(ToNode(1), "a", "c"), (ToNode(2), "b")}


async def test_items_whose_coordinator_moved_are_regrouped() -> None:
    cluster = ScriptedCluster()
    cluster.answer(ApiKey.FIND_COORDINATOR, coordinators_at(a=1, b=1), coordinators_at(a=3, b=1))
    cluster.answer(
        ApiKey.DELETE_GROUPS,
        lambda _: deleted(("a", E.NOT_COORDINATOR), ("b", 0)),
        all_deleted,
    )
    results = await cluster.requester().request_items(delete_groups(), ["a", "b"])
    assert results == {"a": None, "b": None}
    assert cluster.forgotten == ["a"]
    last = cluster.requests(ApiKey.DELETE_GROUPS)[-1]
    assert (last.to, last.message.groups_names) == (ToNode(3), ["a"])


async def test_coordinators_are_found_one_by_one_before_kafka_3() -> None:
    cluster = ScriptedCluster(versions={ApiKey.FIND_COORDINATOR: 3})

    async def find(key: str, type: int, *, deadline: float) -> int:
        return {"a": 1, "b": 2}[key]

    cluster.find_coordinator = find  # type: ignore[attr-defined]
    cluster.answer(ApiKey.DELETE_GROUPS, all_deleted)
    assert await cluster.requester().request_items(delete_groups(), ["a", "b"]) == {
        "a": None,
        "b": None,
    }


async def test_a_lost_connection_is_retried_at_the_new_coordinator() -> None:
    cluster = ScriptedCluster()
    cluster.answer(ApiKey.FIND_COORDINATOR, coordinators_at(a=1), coordinators_at(a=2))
    cluster.answer(ApiKey.DELETE_GROUPS, lambda _: ConnectionLost("gone"), all_deleted)
    assert await cluster.requester().request_items(delete_groups(), ["a"]) == {"a": None}
    assert cluster.requests(ApiKey.DELETE_GROUPS)[-1].to == ToNode(2)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (deleted(("b", 0)), "lacks a result for a"),
        (deleted(("x", 0), ("b", 0)), "lacks a result for a"),
        (deleted(("a", 0), ("a", 0), ("b", 0)), "more than one result for a"),
        (deleted(("a", 0), ("b", 0), ("a", E.NON_EMPTY_GROUP)), "more than one result for a"),
    ],
)
async def test_hostile_answers(answer: DeleteGroupsResponse, reason: str) -> None:
    cluster = ScriptedCluster()
    cluster.answer(ApiKey.FIND_COORDINATOR, coordinators_at(a=1, b=1))
    cluster.answer(ApiKey.DELETE_GROUPS, lambda _: answer)
    results = await cluster.requester().request_items(delete_groups(), ["a", "b"])
    assert results["b"] is None
    error = results["a"]
    assert isinstance(error, ProtocolError)
    assert reason in str(error)
    assert (error.group, error.api) == ("a", "DeleteGroups")


async def test_an_error_of_an_item_that_does_not_pass() -> None:
    cluster = ScriptedCluster()
    cluster.answer(ApiKey.FIND_COORDINATOR, coordinators_at(a=1, b=1))
    cluster.answer(ApiKey.DELETE_GROUPS, lambda _: deleted(("a", E.NON_EMPTY_GROUP), ("b", 0)))
    results = await cluster.requester().request_items(delete_groups(), ["a", "b"])
    assert len(cluster.requests(ApiKey.DELETE_GROUPS)) == 1
    with pytest.raises(PartialFailure) as caught:
        finish_items(results, "groups")
    error = caught.value.failed["a"]
    assert isinstance(error, BrokerError)
    assert (error.code, error.group, error.broker) == (E.NON_EMPTY_GROUP, "a", "broker")
    assert caught.value.succeeded == {"b": None}
    assert not caught.value.retriable
    assert "1 of 2 groups failed: a: NON_EMPTY_GROUP" in str(caught.value)
    assert finish_items(results, "groups", return_errors=True) == results


async def test_an_error_that_passes_is_returned_at_the_deadline() -> None:
    cluster = ScriptedCluster()
    cluster.answer(ApiKey.FIND_COORDINATOR, coordinators_at(a=1))
    cluster.answer(ApiKey.DELETE_GROUPS, lambda _: deleted(("a", E.COORDINATOR_LOAD_IN_PROGRESS)))
    results = await cluster.requester(0.05).request_items(delete_groups(), ["a"])
    error = results["a"]
    assert isinstance(error, BrokerError)
    assert error.code == E.COORDINATOR_LOAD_IN_PROGRESS
    assert len(cluster.requests(ApiKey.DELETE_GROUPS)) > 1


async def test_a_timeout_keeps_the_error_before_it() -> None:
    cluster = ScriptedCluster()
    cluster.answer(ApiKey.FIND_COORDINATOR, coordinators_at(a=1))
    cluster.answer(
        ApiKey.DELETE_GROUPS,
        lambda _: deleted(("a", E.COORDINATOR_LOAD_IN_PROGRESS)),
        lambda _: RequestTimedOut("the deadline had passed", retriable=False),
    )
    results = await cluster.requester(0.1).request_items(delete_groups(), ["a"])
    assert isinstance(results["a"], BrokerError)


async def test_a_coordinator_that_cannot_be_found() -> None:
    cluster = ScriptedCluster()

    def answer(request: Any) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(
                    key="a",
                    node_id=-1,
                    host="",
                    port=-1,
                    error_code=E.GROUP_AUTHORIZATION_FAILED,
                    error_message="no",
                )
            ]
        )

    cluster.answer(ApiKey.FIND_COORDINATOR, answer)
    results = await cluster.requester().request_items(delete_groups(), ["a", "b"])
    assert [type(error).__name__ for error in results.values()] == [
        "AuthorizationFailed",
        "ProtocolError",
    ]


def delete_records() -> ItemRequest[TopicPartition, int]:
    def build(
        partitions: Sequence[TopicPartition], version: int, timeout_ms: int
    ) -> DeleteRecordsRequest:
        return DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=tp.topic,
                    partitions=[DeleteRecordsPartition(partition_index=tp.partition, offset=5)],
                )
                for tp in partitions
            ],
            timeout_ms=timeout_ms,
        )

    def read(response: DeleteRecordsResponse) -> Iterable[ItemResult]:
        for topic in response.topics:
            for part in topic.partitions:
                tp = TopicPartition(topic.name, part.partition_index)
                yield ItemResult(tp, part.low_watermark, part.error_code)

    return ItemRequest(api_key=ApiKey.DELETE_RECORDS, build=build, read=read, max_unknown=3)


def records_deleted(code: int = 0) -> Any:
    def answer(request: DeleteRecordsRequest) -> DeleteRecordsResponse:
        return DeleteRecordsResponse(
            throttle_time_ms=0,
            topics=[
                DeleteRecordsTopicResult(
                    name=topic.name,
                    partitions=[
                        DeleteRecordsPartitionResult(
                            partition_index=part.partition_index, low_watermark=5, error_code=code
                        )
                        for part in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )

    return answer


T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


async def test_items_are_grouped_by_leader_and_regrouped_when_it_moves() -> None:
    cluster = ScriptedCluster(leaders={T0: 2, T1: 3})

    def moved(request: DeleteRecordsRequest) -> DeleteRecordsResponse:
        cluster.leaders[T0] = cluster.leaders[T1] = 1
        answer: DeleteRecordsResponse = records_deleted(E.NOT_LEADER_OR_FOLLOWER)(request)
        return answer

    cluster.answer(ApiKey.DELETE_RECORDS, moved, moved, records_deleted())
    results = await cluster.requester().request_items(delete_records(), [T0, T1])
    assert results == {T0: 5, T1: 5}
    *parallel, last = (sent.to for sent in cluster.requests(ApiKey.DELETE_RECORDS))
    assert {*parallel} == {ToNode(2), ToNode(3)}
    assert last == ToNode(1)


async def test_an_unknown_partition_is_looked_up_a_few_times() -> None:
    cluster = ScriptedCluster(leaders={T0: 2})
    cluster.answer(ApiKey.DELETE_RECORDS, records_deleted())
    results = await cluster.requester().request_items(delete_records(), [T0, T1])
    assert results[T0] == 5
    error = results[T1]
    assert isinstance(error, BrokerError)
    assert (error.code, error.partition) == (E.UNKNOWN_TOPIC_OR_PARTITION, 1)
    assert "it has 1 partition" in str(error)
    assert len(cluster.requests(ApiKey.METADATA)) == 3


async def test_an_unreachable_cluster_raises_its_own_error() -> None:
    cluster = ScriptedCluster()
    reason = NoBrokerAvailable("no broker", retriable=False)
    cluster.answer(ApiKey.METADATA, lambda _: reason)
    results = await cluster.requester().request_items(delete_records(), [T0, T1])
    with pytest.raises(NoBrokerAvailable) as caught:
        finish_items(results, "partitions")
    assert caught.value is reason


async def test_a_named_broker_that_does_not_exist() -> None:
    cluster = ScriptedCluster()
    cluster.answer(ApiKey.DELETE_GROUPS, all_deleted)
    request = delete_groups(target=Target.NAMED_BROKER, locate=int, context=lambda _: {})
    results = await cluster.requester().request_items(request, ["2", "7"])
    assert results["2"] is None
    assert isinstance(results["7"], ConnectionFailed)
    assert "the cluster has no broker 7; its brokers are 1, 2, 3" in str(results["7"])


async def test_one_request_holds_at_most_max_items() -> None:
    cluster = ScriptedCluster()
    cluster.answer(ApiKey.FIND_COORDINATOR, coordinators_at(**dict.fromkeys("abcde", 1)))
    cluster.answer(ApiKey.DELETE_GROUPS, all_deleted)
    await cluster.requester().request_items(delete_groups(max_items=2), "abcde")
    sizes = [len(sent.message.groups_names) for sent in cluster.requests(ApiKey.DELETE_GROUPS)]
    assert sorted(sizes) == [1, 2, 2]


async def test_unsupported_version_names_the_release() -> None:
    cluster = ScriptedCluster(versions={ApiKey.DESCRIBE_CLUSTER: 1})
    with pytest.raises(UnsupportedVersion, match=r"DescribeCluster v2 needs Kafka 4\.0 or later"):
        await cluster.requester().request(
            DescribeClusterRequest(include_cluster_authorized_operations=False), min_version=2
        )


async def test_an_error_of_the_response_itself_is_retried_or_raised() -> None:
    def answer(code: int) -> Any:
        return lambda _: DescribeClusterResponse(
            throttle_time_ms=0, error_code=code, error_message="why", cluster_id="c", brokers=[]
        )

    cluster = ScriptedCluster()
    message = DescribeClusterRequest(include_cluster_authorized_operations=False)
    cluster.answer(ApiKey.DESCRIBE_CLUSTER, answer(E.BROKER_NOT_AVAILABLE), answer(0))
    await cluster.requester().request(message)
    assert [sent.to for sent in cluster.sent] == [ToAnyNode(), ToAnyNode()]
    cluster.answer(ApiKey.DESCRIBE_CLUSTER, answer(E.CLUSTER_AUTHORIZATION_FAILED))
    with pytest.raises(BrokerError, match="why"):
        await cluster.requester().request(message)


async def test_an_infinite_deadline() -> None:
    cluster = ScriptedCluster()
    cluster.answer(ApiKey.FIND_COORDINATOR, coordinators_at(a=1))
    cluster.answer(ApiKey.DELETE_GROUPS, lambda request: deleted(("a", 0)))
    requester = cluster.requester(timeout_s=float("inf"))
    assert requester.timeout_ms == cluster.config.request_timeout_ms
    assert requester.left_ms == 2**31 - 1
    assert await requester.request_items(delete_groups(), ["a"]) == {"a": None}


async def test_the_controller_is_the_default_route_of_its_apis() -> None:
    assert ScriptedCluster().requester().default_route(ApiKey.CREATE_TOPICS) == ToController()


def test_a_partial_failure_shows_three_errors_and_counts_the_others() -> None:
    results = {
        name: BrokerError(code=E.NON_EMPTY_GROUP, name="NON_EMPTY_GROUP") for name in "abcde"
    }
    with pytest.raises(PartialFailure, match=r"5 of 5 groups failed: a: .*; c: .*; and 2 more"):
        finish_items(results, "groups")
