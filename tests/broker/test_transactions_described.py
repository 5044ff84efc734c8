"""Descriptions of transactions and producers (KIP-664), and the advertised features."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.api_versions import ApiVersionsRequest
from aiokafkawire.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
)
from aiokafkawire.wire.messages.describe_transactions import DescribeTransactionsRequest
from aiokafkawire.wire.messages.list_transactions import ListTransactionsRequest

from .raw_client import RawClient, connected
from .transactional_client import TransactionalClient, a_topic

E = ErrorCode


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker() as broker:
        await a_topic(broker)
        yield broker


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[RawClient]:
    async with connected(broker) as client:
        yield client


async def described(client: RawClient, *names: str) -> list[Any]:
    request = DescribeTransactionsRequest(transactional_ids=list(names))
    return list((await client.call(request, 0)).transaction_states)


async def listed(client: RawClient, version: int = 2, **filters: Any) -> list[tuple[str, str]]:
    request = ListTransactionsRequest(
        **{"state_filters": [], "producer_id_filters": [], **filters}  # type: ignore[arg-type]
    )
    answer = await client.call(request, version)
    assert answer.error_code == E.NONE
    return [(each.transactional_id, each.transaction_state) for each in answer.transaction_states]


async def producers(client: RawClient, topic: str = "t", partition: int = 0) -> Any:
    request = DescribeProducersRequest(
        topics=[DescribeProducersTopicRequest(name=topic, partition_indexes=[partition])]
    )
    (answer,) = (await client.call(request, 0)).topics
    (found,) = answer.partitions
    return found


async def test_a_transaction_is_described(client: RawClient) -> None:
    producer = TransactionalClient(client)
    await producer.init(timeout_ms=7_000)
    (empty,) = await described(client, "tx")
    assert (empty.transaction_state, empty.transaction_start_time_ms) == ("Empty", -1)
    await producer.add(0, 1)
    await producer.add_offsets("g")
    (found,) = await described(client, "tx")
    assert found.error_code == E.NONE
    assert (found.transaction_state, found.transaction_timeout_ms) == ("Ongoing", 7_000)
    assert (found.producer_id, found.producer_epoch) == (producer.me.producer_id, 0)
    assert found.transaction_start_time_ms > 1_500_000_000_000
    where = {topic.topic: topic.partitions for topic in found.topics}
    assert where.pop("t") == [0, 1]
    ((offsets,),) = where.values()
    assert list(where) == ["__consumer_offsets"]
    assert 0 <= offsets < 50
    await producer.end(commit=False)
    (after,) = await described(client, "tx")
    assert (after.transaction_state, after.topics) == ("CompleteAbort", [])


async def test_transactions_are_listed_by_what_is_asked_for(client: RawClient) -> None:
    made = {}
    for name in ("a1", "a2", "b1"):
        made[name] = TransactionalClient(client, name)
        await made[name].init()
    await made["a2"].add(0)
    assert await listed(client) == [("a1", "Empty"), ("a2", "Ongoing"), ("b1", "Empty")]
    assert await listed(client, state_filters=["Ongoing"]) == [("a2", "Ongoing")]
    assert await listed(client, state_filters=["Ongoing", "Gone"]) == [("a2", "Ongoing")]
    assert await listed(client, state_filters=["Gone"]) == []
    b1 = [made["b1"].me.producer_id]
    assert await listed(client, producer_id_filters=b1) == [("b1", "Empty")]
    assert await listed(client, transactional_id_pattern="a.") == [
        ("a1", "Empty"),
        ("a2", "Ongoing"),
    ]
    assert await listed(client, transactional_id_pattern="a") == []
    assert ("a2", "Ongoing") not in await listed(client, version=1, duration_filter=60_000)
    assert ("a2", "Ongoing") in await listed(client, version=1, duration_filter=-1)


async def test_unknown_filters_of_a_list_are_returned(client: RawClient) -> None:
    request = ListTransactionsRequest(state_filters=["Empty", "Gone"], producer_id_filters=[])
    assert (await client.call(request, 0)).unknown_state_filters == ["Gone"]
    for pattern in ("(", "x" * 1_001):
        request.transactional_id_pattern = pattern
        answer = await client.call(request, 2)
        assert answer.error_code == E.INVALID_REGULAR_EXPRESSION


async def test_a_node_lists_what_it_coordinates() -> None:
    async with Broker(nodes=3) as broker:
        names = [f"tx-{n}" for n in range(9)]
        found = {}
        for node in broker.live_nodes:
            async with connected(broker, node) as client:
                for name in names:
                    code = await TransactionalClient(client, name).init()
                    here = broker.coordinator(name) == node
                    assert code == (E.NONE if here else E.NOT_COORDINATOR)
        for node in broker.live_nodes:
            async with connected(broker, node) as client:
                found[node] = [name for name, _ in await listed(client)]
                elsewhere = [name for name in names if broker.coordinator(name) != node]
                codes = {each.error_code for each in await described(client, *elsewhere)}
                assert codes == {E.NOT_COORDINATOR}
        assert sorted(name for each in found.values() for name in each) == names
        assert all(broker.coordinator(name) == node for node in found for name in found[node])


async def test_describe_producers_lists_the_producers(broker: Broker, client: RawClient) -> None:
    assert (await producers(client)).active_producers == []
    producer = TransactionalClient(client)
    await producer.init()
    await producer.add(0)
    await producer.produce(b"a", b"b")
    (found,) = (await producers(client)).active_producers
    assert (found.producer_id, found.producer_epoch) == (producer.me.producer_id, 0)
    assert (found.last_sequence, found.last_timestamp) == (1, 1_001)
    assert (found.coordinator_epoch, found.current_txn_start_offset) == (-1, 0)
    await producer.end(commit=True)
    (found,) = (await producers(client)).active_producers
    assert (found.last_sequence, found.current_txn_start_offset) == (1, -1)
    assert found.coordinator_epoch == 0
    assert (await producers(client, partition=9)).error_code == E.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(("replicas", "code"), [(1, E.NOT_LEADER_OR_FOLLOWER), (2, E.NONE)])
async def test_only_replicas_describe_producers(replicas: int, code: ErrorCode) -> None:
    async with Broker(nodes=2) as broker:
        await broker.create_topic("t", 1, replicas)
        async with connected(broker, 3 - broker.leader("t", 0)) as client:
            assert (await producers(client)).error_code == code


@pytest.mark.parametrize(
    ("as_of", "supported", "finalized"),
    [
        ("2.8", {}, {}),
        ("3.3", {"metadata.version": (1, 7)}, {"metadata.version": 7}),
        (
            "3.9",
            {"metadata.version": (1, 21), "kraft.version": (0, 1)},
            {"metadata.version": 21, "kraft.version": 1},
        ),
        (
            "4.0",
            {
                "metadata.version": (7, 25),
                "kraft.version": (0, 1),
                "transaction.version": (0, 2),
                "group.version": (0, 1),
                "eligible.leader.replicas.version": (0, 1),
            },
            {
                "metadata.version": 25,
                "kraft.version": 1,
                "transaction.version": 2,
                "group.version": 1,
            },
        ),
    ],
)
async def test_features_are_those_of_the_release(
    as_of: str, supported: dict[str, tuple[int, int]], finalized: dict[str, int]
) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    newest = 4 if as_of in {"3.9", "4.0"} else 3
    async with Broker(as_of=as_of) as broker, connected(broker) as client:
        answer = await client.call(request, newest)
        features = {
            each.name: (each.min_version, each.max_version) for each in answer.supported_features
        }
        assert features == supported
        older = await client.call(request, 3)
    for each in (answer, older):
        levels = {feature.name: feature.max_version_level for feature in each.finalized_features}
        assert levels == finalized
        assert each.finalized_features_epoch == (1 if finalized else -1)
    assert {each.name for each in older.supported_features} == {
        name for name, (low, _) in supported.items() if low
    }


async def test_a_cluster_has_the_features_of_its_oldest_node() -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    async with Broker(nodes=2, as_of="4.3") as broker:
        await broker.restart(1, as_of="3.9")
        async with connected(broker, 2) as client:
            answer = await client.call(request, 4)
        assert "transaction.version" in {each.name for each in answer.supported_features}
        assert "transaction.version" not in {each.name for each in answer.finalized_features}
