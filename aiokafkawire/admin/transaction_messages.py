"""Requests about producers and transactions, and the reading of their responses."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from aiokafkawire.admin.items import (
    ItemRequest,
    ItemResult,
    partition_context,
    raise_broker_failures,
)
from aiokafkawire.admin.requester import Requester
from aiokafkawire.admin.response_values import unless_negative
from aiokafkawire.admin.routing import Target
from aiokafkawire.admin.types.transactions import (
    AbortTransactionSpec,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from aiokafkawire.cluster import CoordinatorType
from aiokafkawire.connection import VersionedRequest
from aiokafkawire.errors import KafkaError, UnsupportedVersion
from aiokafkawire.types import NodeId, TopicPartition, partitions_by_topic
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicRequest,
)
from aiokafkawire.wire.messages.describe_producers import ProducerState as WireProducerState
from aiokafkawire.wire.messages.describe_transactions import (
    DescribedTransactionState,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from aiokafkawire.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from aiokafkawire.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

__all__ = (
    "describe_producers",
    "describe_transactions",
    "list_transactions",
    "marker_request",
    "read_markers",
)

FIRST_WITH_DURATION = 1
FIRST_WITH_PATTERN = 2
"""Versions of ListTransactions."""


async def describe_producers(
    requester: Requester, partitions: Iterable[TopicPartition], broker_id: NodeId | None
) -> dict[TopicPartition, list[ProducerState] | KafkaError]:
    """Send DescribeProducers to the leaders, or to one broker."""

    def build(
        tps: Sequence[TopicPartition], version: int, timeout_ms: int
    ) -> DescribeProducersRequest:
        return DescribeProducersRequest(
            topics=[
                DescribeProducersTopicRequest(
                    name=topic, partition_indexes=[tp.partition for tp in each]
                )
                for topic, each in partitions_by_topic(tps).items()
            ]
        )

    request: ItemRequest[TopicPartition, list[ProducerState]] = ItemRequest(
        api_key=ApiKey.DESCRIBE_PRODUCERS,
        build=build,
        read=_read_producers,
        target=None if broker_id is None else Target.NAMED_BROKER,
        locate=None if broker_id is None else lambda tp: broker_id,
        context=partition_context,
    )
    return await requester.request_items(request, partitions)


def _read_producers(response: DescribeProducersResponse) -> Iterator[ItemResult]:
    for topic in response.topics:
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition_index)
            producers = [*map(_producer, partition.active_producers)]
            yield ItemResult(tp, producers, partition.error_code, partition.error_message)


def _producer(state: WireProducerState) -> ProducerState:
    return ProducerState(
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        last_sequence=unless_negative(state.last_sequence),
        last_timestamp_ms=unless_negative(state.last_timestamp),
        coordinator_epoch=unless_negative(state.coordinator_epoch),
        current_transaction_start_offset=unless_negative(state.current_txn_start_offset),
    )


async def describe_transactions(
    requester: Requester, transactional_ids: Iterable[str]
) -> dict[str, TransactionDescription | KafkaError]:
    """Send DescribeTransactions to the coordinators."""

    def build(ids: Sequence[str], version: int, timeout_ms: int) -> DescribeTransactionsRequest:
        return DescribeTransactionsRequest(transactional_ids=list(ids))

    request: ItemRequest[str, DescribedTransactionState] = ItemRequest(
        api_key=ApiKey.DESCRIBE_TRANSACTIONS, build=build, read=_read_transactions
    )
    found = await requester.request_items(request, transactional_ids)
    results: dict[str, TransactionDescription | KafkaError] = {}
    for transactional_id, state in found.items():
        try:
            results[transactional_id] = (
                state
                if isinstance(state, KafkaError)
                else _description(state, await _coordinator(requester, transactional_id))
            )
        except KafkaError as error:
            results[transactional_id] = error
    return results


async def _coordinator(requester: Requester, transactional_id: str) -> NodeId:
    return await requester.cluster.find_coordinator(
        transactional_id, CoordinatorType.TRANSACTION, deadline=requester.deadline
    )


def _read_transactions(response: DescribeTransactionsResponse) -> Iterator[ItemResult]:
    for state in response.transaction_states:
        yield ItemResult(state.transactional_id, state, state.error_code)


def _description(state: DescribedTransactionState, coordinator: NodeId) -> TransactionDescription:
    return TransactionDescription(
        coordinator_id=coordinator,
        state=TransactionState(state.transaction_state),
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        transaction_timeout_ms=state.transaction_timeout_ms,
        transaction_start_time_ms=unless_negative(state.transaction_start_time_ms),
        topic_partitions=frozenset(
            TopicPartition(topic.topic, partition)
            for topic in state.topics
            for partition in topic.partitions
        ),
    )


async def list_transactions(
    requester: Requester,
    *,
    states: Collection[TransactionState] = (),
    producer_ids: Collection[int] = (),
    duration_ms: int | None = None,
    transactional_id_pattern: str | None = None,
) -> list[TransactionListing]:
    """Send ListTransactions to all brokers; see `TransactionOperations.list_transactions`."""

    def build(version: int) -> ListTransactionsRequest:
        request = ListTransactionsRequest(
            state_filters=[state.value for state in states],
            producer_id_filters=list(producer_ids),
        )
        if duration_ms is not None:
            if version < FIRST_WITH_DURATION:
                raise UnsupportedVersion("the filter by duration needs Kafka 3.8 or later")
            request.duration_filter = duration_ms
        if transactional_id_pattern is not None:
            if version < FIRST_WITH_PATTERN:
                raise UnsupportedVersion("the filter by pattern needs Kafka 4.1 or later")
            request.transactional_id_pattern = transactional_id_pattern
        return request

    message: VersionedRequest[ListTransactionsResponse] = VersionedRequest(
        ApiKey.LIST_TRANSACTIONS, build
    )
    responses = await requester.request_all(message)
    found: dict[str, TransactionListing] = {}
    failed: dict[NodeId, KafkaError] = {}
    for node_id, response in responses.items():
        if isinstance(response, KafkaError):
            failed[node_id] = response
            continue
        for state in response.transaction_states:
            # Two brokers may list an id while its coordinator moves.
            found.setdefault(
                state.transactional_id,
                TransactionListing(
                    state.transactional_id,
                    state.producer_id,
                    TransactionState(state.transaction_state),
                ),
            )
    in_order = dict(sorted(found.items()))
    raise_broker_failures(in_order, failed, len(responses))
    return [*in_order.values()]


def marker_request(spec: AbortTransactionSpec) -> WriteTxnMarkersRequest:
    """Return the request that aborts a transaction in one partition."""
    topic, partition = spec.topic_partition
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=spec.producer_id,
                producer_epoch=spec.producer_epoch,
                transaction_result=False,
                topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
                coordinator_epoch=spec.coordinator_epoch,
            )
        ]
    )


def read_markers(response: WriteTxnMarkersResponse) -> Iterator[ItemResult]:
    """Yield the result of each partition."""
    for marker in response.markers:
        for topic in marker.topics:
            for partition in topic.partitions:
                tp = TopicPartition(topic.name, partition.partition_index)
                yield ItemResult(tp, code=partition.error_code)
