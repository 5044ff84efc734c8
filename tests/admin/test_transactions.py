"""Requests about producers and transactions, and the search for hanging ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aiokafkawire.admin import (
    AbortTransactionSpec,
    HangingTransaction,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from aiokafkawire.cluster import ToNode
from aiokafkawire.errors import BrokerError, PartialFailure, ProtocolError, UnsupportedVersion
from aiokafkawire.types import ProducerIdAndEpoch, TopicPartition
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages import describe_producers as producers
from aiokafkawire.wire.messages import describe_transactions as transactions
from aiokafkawire.wire.messages.init_producer_id import InitProducerIdResponse
from aiokafkawire.wire.messages.list_transactions import (
    ListedTransactionState,
    ListTransactionsResponse,
)
from aiokafkawire.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from tests.admin.scripted import ScriptedAdmin, ScriptedCluster, coordinators_at

E = ErrorCode
TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
SPEC = AbortTransactionSpec(TP, 7, 3, 5)


@pytest.fixture
async def cluster(anyio_backend: object) -> ScriptedCluster:
    cluster = ScriptedCluster(leaders={TP: 1, OTHER: 2})
    cluster.answer(ApiKey.FIND_COORDINATOR, coordinators_at(3))
    return cluster


@pytest.fixture
async def admin(cluster: ScriptedCluster) -> ScriptedAdmin:
    return ScriptedAdmin(cluster)


def producing(*states: tuple[int, int, int], last_sequence: int = 4) -> Callable[[Any], Any]:
    """Answer with producer id, start of the transaction and last timestamp, in each partition."""

    def answer(request: producers.DescribeProducersRequest) -> Any:
        active = [
            producers.ProducerState(
                producer_id=producer_id,
                producer_epoch=3,
                last_sequence=last_sequence,
                last_timestamp=timestamp,
                coordinator_epoch=-1,
                current_txn_start_offset=start,
            )
            for producer_id, start, timestamp in states
        ]
        return producers.DescribeProducersResponse(
            throttle_time_ms=0,
            topics=[
                producers.TopicResponse(
                    name=topic.name,
                    partitions=[
                        producers.DescribeProducersPartitionResponse(
                            partition_index=index, error_code=0, active_producers=active
                        )
                        for index in topic.partition_indexes
                    ],
                )
                for topic in request.topics
            ],
        )

    return answer


def listed(*found: tuple[str, int, str], code: int = 0) -> Callable[[Any], Any]:
    return lambda request: ListTransactionsResponse(
        throttle_time_ms=0,
        error_code=code,
        unknown_state_filters=[],
        transaction_states=[
            ListedTransactionState(transactional_id=name, producer_id=pid, transaction_state=state)
            for name, pid, state in found
        ],
    )


def described(code: int = 0, *partitions: int) -> Callable[[Any], Any]:
    return lambda request: transactions.DescribeTransactionsResponse(
        throttle_time_ms=0,
        transaction_states=[
            transactions.DescribedTransactionState(
                error_code=code,
                transactional_id=name,
                transaction_state="Ongoing",
                transaction_timeout_ms=60_000,
                transaction_start_time_ms=-1,
                producer_id=7,
                producer_epoch=3,
                topics=[
                    transactions.DescribeTransactionsTopicData(
                        topic="t", partitions=list(partitions)
                    )
                ],
            )
            for name in request.transactional_ids
        ],
    )


async def test_producers_of_partitions(cluster: ScriptedCluster, admin: ScriptedAdmin):
    cluster.answer(ApiKey.DESCRIBE_PRODUCERS, producing((7, -1, 100)))
    state = ProducerState(7, 3, 4, 100, None, None)
    assert await admin.describe_producers([TP, OTHER]) == {TP: [state], OTHER: [state]}
    assert {sent.to for sent in cluster.requests(ApiKey.DESCRIBE_PRODUCERS)} == {
        ToNode(1),
        ToNode(2),
    }
    await admin.describe_producers([TP], broker_id=3)
    assert cluster.sent[-1].to == ToNode(3)


async def test_what_a_producer_lacks_is_none(cluster: ScriptedCluster, admin: ScriptedAdmin):
    cluster.answer(ApiKey.DESCRIBE_PRODUCERS, producing((7, -1, -1), last_sequence=-1))
    ((producer,),) = (await admin.describe_producers([TP])).values()
    assert producer == ProducerState(7, 3, None, None, None, None)


async def test_a_transaction(cluster: ScriptedCluster, admin: ScriptedAdmin):
    cluster.answer(ApiKey.DESCRIBE_TRANSACTIONS, described(0, 1))
    expected = TransactionDescription(
        3, TransactionState.ONGOING, 7, 3, 60_000, None, frozenset({OTHER})
    )
    assert await admin.describe_transactions(["x"]) == {"x": expected}
    cluster.answer(ApiKey.DESCRIBE_TRANSACTIONS, described(E.TRANSACTIONAL_ID_NOT_FOUND))
    with pytest.raises(PartialFailure, match="TRANSACTIONAL_ID_NOT_FOUND"):
        await admin.describe_transactions(["x"])


async def test_listings_are_merged(cluster: ScriptedCluster, admin: ScriptedAdmin):
    cluster.answer(
        ApiKey.LIST_TRANSACTIONS,
        listed(("b", 2, "Ongoing")),
        listed(("a", 1, "Nonsense"), ("b", 2, "Ongoing")),
    )
    assert await admin.list_transactions(
        states=["Ongoing"], producer_ids=[1, 2], duration_ms=5, transactional_id_pattern="a|b"
    ) == [
        TransactionListing("a", 1, TransactionState.UNKNOWN),
        TransactionListing("b", 2, TransactionState.ONGOING),
    ]
    request = cluster.sent[-1].message
    assert (request.state_filters, request.producer_id_filters) == (["Ongoing"], [1, 2])
    assert (request.duration_filter, request.transactional_id_pattern) == (5, "a|b")


@pytest.mark.parametrize(
    ("version", "filters", "release"),
    [
        (-1, {}, "3.0"),
        (0, {"duration_ms": 1}, "3.8"),
        (1, {"transactional_id_pattern": "x"}, "4.1"),
    ],
)
async def test_filters_that_brokers_lack(
    cluster: ScriptedCluster,
    admin: ScriptedAdmin,
    version: int,
    filters: dict[str, Any],
    release: str,
):
    cluster.versions[ApiKey.LIST_TRANSACTIONS] = version
    cluster.answer(ApiKey.LIST_TRANSACTIONS, listed())
    with pytest.raises(UnsupportedVersion, match=release):
        await admin.list_transactions(**filters)


async def test_a_broker_that_fails_to_list(cluster: ScriptedCluster, admin: ScriptedAdmin):
    cluster.answer(
        ApiKey.LIST_TRANSACTIONS, listed(("a", 1, "Empty")), listed(code=E.INVALID_REQUEST)
    )
    with pytest.raises(PartialFailure) as caught:
        await admin.list_transactions()
    assert list(caught.value.succeeded) == ["a"]
    assert len(caught.value.failed) == 2


def marked(*codes: int, topic: str = "t") -> list[Callable[[Any], Any]]:
    def answer(code: int) -> Callable[[Any], Any]:
        partition = WritableTxnMarkerPartitionResult(partition_index=0, error_code=code)
        marker = WritableTxnMarkerResult(
            producer_id=7,
            topics=[WritableTxnMarkerTopicResult(name=topic, partitions=[partition])],
        )
        return lambda request: WriteTxnMarkersResponse(markers=[marker])

    return [answer(code) for code in codes]


async def test_a_marker_is_sent_to_the_leader(cluster: ScriptedCluster, admin: ScriptedAdmin):
    cluster.answer(ApiKey.WRITE_TXN_MARKERS, *marked(E.NOT_LEADER_OR_FOLLOWER, 0))
    await admin.abort_transaction(SPEC)
    assert cluster.sent[-1].to == ToNode(1)
    (marker,) = cluster.sent[-1].message.markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 3, 5)
    assert not marker.transaction_result


async def test_the_error_of_the_only_partition_is_raised(
    cluster: ScriptedCluster, admin: ScriptedAdmin
):
    cluster.answer(ApiKey.WRITE_TXN_MARKERS, *marked(E.INVALID_PRODUCER_EPOCH))
    with pytest.raises(BrokerError, match="INVALID_PRODUCER_EPOCH"):
        await admin.abort_transaction(SPEC)
    cluster.answer(ApiKey.WRITE_TXN_MARKERS, *marked(0, topic="u"))
    with pytest.raises(ProtocolError):
        await admin.abort_transaction(SPEC)


def fenced(code: int = 0) -> Callable[[Any], Any]:
    return lambda request: InitProducerIdResponse(error_code=code, producer_id=7, producer_epoch=4)


async def test_producers_are_fenced(cluster: ScriptedCluster, admin: ScriptedAdmin):
    cluster.answer(ApiKey.INIT_PRODUCER_ID, fenced(E.CONCURRENT_TRANSACTIONS), fenced())
    assert await admin.fence_producers(["x", "y"]) == {
        "x": ProducerIdAndEpoch(7, 4),
        "y": ProducerIdAndEpoch(7, 4),
    }
    for sent in cluster.requests(ApiKey.INIT_PRODUCER_ID):
        # A timeout of 1 ms could let the coordinator fail to write the epoch.
        assert sent.message.transaction_timeout_ms == cluster.config.request_timeout_ms
        assert sent.to == ToNode(3)


async def test_a_transaction_is_terminated(cluster: ScriptedCluster, admin: ScriptedAdmin):
    cluster.answer(ApiKey.INIT_PRODUCER_ID, fenced())
    await admin.force_terminate_transaction("x")
    cluster.answer(ApiKey.INIT_PRODUCER_ID, fenced(E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    with pytest.raises(BrokerError, match="transactional id"):
        await admin.force_terminate_transaction("x")


LONG_AGO = 1_000
"""Timestamp of a transaction that is older than any timeout, in milliseconds."""


@pytest.mark.parametrize(
    ("listings", "answer", "ids"),
    [
        ([], None, [None]),
        ([("x", 7, "Ongoing")], described(0, 0, 1), []),
        ([("x", 7, "Ongoing")], described(0, 1), ["x"]),
        ([("x", 7, "Empty")], described(E.TRANSACTIONAL_ID_NOT_FOUND), ["x"]),
    ],
)
async def test_hanging_transactions(
    cluster: ScriptedCluster,
    admin: ScriptedAdmin,
    listings: list[Any],
    answer: Any,
    ids: list[str | None],
):
    young = cluster.runtime.clock.wall_ms()
    cluster.answer(
        ApiKey.DESCRIBE_PRODUCERS, producing((7, 10, LONG_AGO), (8, -1, LONG_AGO), (9, 11, young))
    )
    cluster.answer(ApiKey.LIST_TRANSACTIONS, listed(*listings))
    cluster.answer(ApiKey.DESCRIBE_TRANSACTIONS, answer)
    found = await admin.find_hanging_transactions([TP])
    state = ProducerState(7, 3, 4, LONG_AGO, None, 10)
    assert found == [HangingTransaction(TP, state, each) for each in ids]
    assert all(each.spec == AbortTransactionSpec(TP, 7, 3, 0) for each in found)
    assert cluster.requests(ApiKey.LIST_TRANSACTIONS)[0].message.producer_id_filters == [7]


async def test_without_open_transactions_no_coordinator_is_asked(
    cluster: ScriptedCluster, admin: ScriptedAdmin
):
    cluster.answer(ApiKey.DESCRIBE_PRODUCERS, producing((8, -1, LONG_AGO)))
    assert await admin.find_hanging_transactions() == []
    assert await admin.find_hanging_transactions(["t"], broker_id=2) == []
    sent = cluster.requests(ApiKey.DESCRIBE_PRODUCERS)[-1]
    assert sent.to == ToNode(2)
    assert [topic.partition_indexes for topic in sent.message.topics] == [[1]]
    assert cluster.requests(ApiKey.LIST_TRANSACTIONS) == []


async def test_partitions_that_cannot_be_searched_are_named(
    cluster: ScriptedCluster, admin: ScriptedAdmin
):
    cluster.answer(ApiKey.DESCRIBE_PRODUCERS, producing((7, 10, LONG_AGO)))
    cluster.answer(ApiKey.LIST_TRANSACTIONS, listed())
    with pytest.raises(PartialFailure, match="UNKNOWN_TOPIC_OR_PARTITION") as caught:
        await admin.find_hanging_transactions(["t", "missing"])
    assert len(caught.value.succeeded) == 2
    cluster.answer(ApiKey.DESCRIBE_TRANSACTIONS, described(E.UNKNOWN_SERVER_ERROR))
    cluster.answer(ApiKey.LIST_TRANSACTIONS, listed(("x", 7, "Ongoing")))
    with pytest.raises(PartialFailure, match="internal error"):
        await admin.find_hanging_transactions([TP])
    with pytest.raises(TypeError, match="iterable"):
        await admin.find_hanging_transactions("t")
