"""Search for open transactions that no coordinator will finish (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aiokafkawire.admin.items import partial_failure
from aiokafkawire.admin.partitions import expand_partitions
from aiokafkawire.admin.requester import Requester
from aiokafkawire.admin.transaction_messages import (
    describe_producers,
    describe_transactions,
    list_transactions,
)
from aiokafkawire.admin.types.transactions import (
    HangingTransaction,
    ProducerState,
    TransactionDescription,
)
from aiokafkawire.errors import BrokerError, KafkaError
from aiokafkawire.types import AnyPartition, NodeId, TopicPartition
from aiokafkawire.wire import ErrorCode

__all__ = ("find_hanging",)

OpenTransactions = dict[tuple[TopicPartition, int], ProducerState]
"""Producers with an open transaction, by partition and producer id."""


async def find_hanging(
    requester: Requester,
    partitions: Iterable[AnyPartition | str] | None,
    broker_id: NodeId | None,
    max_transaction_timeout_ms: int,
) -> list[HangingTransaction]:
    """Return hanging transactions; see `TransactionOperations.find_hanging_transactions`."""
    expanded = await expand_partitions(requester, partitions, broker_id=broker_id)
    failed: dict[TopicPartition, KafkaError] = {
        tp: error for tp, error in expanded.items() if error is not None
    }
    described = await describe_producers(
        requester, [tp for tp in expanded if tp not in failed], broker_id
    )
    oldest = requester.runtime.clock.wall_ms() - max_transaction_timeout_ms
    candidates: OpenTransactions = {}
    for tp, producers in described.items():
        if isinstance(producers, KafkaError):
            failed[tp] = producers
            continue
        for producer in producers:
            if producer.current_transaction_start_offset is None:
                continue
            if producer.last_timestamp_ms is None or producer.last_timestamp_ms < oldest:
                candidates[tp, producer.producer_id] = producer
    hanging = await _without_coordinator(requester, candidates) if candidates else []
    if failed:
        if len(failed) == len(expanded) and len(set(map(id, failed.values()))) == 1:
            raise next(iter(failed.values()))
        found = {(each.topic_partition, each.producer.producer_id): each for each in hanging}
        raise partial_failure(found, failed, "partitions", len(expanded))
    return hanging


async def _without_coordinator(
    requester: Requester, candidates: OpenTransactions
) -> list[HangingTransaction]:
    """Return the transactions whose coordinator will not write a marker to their partition."""
    producer_ids = sorted({producer_id for _, producer_id in candidates})
    listed = await list_transactions(requester, producer_ids=producer_ids)
    ids = {each.producer_id: each.transactional_id for each in listed}
    described = await describe_transactions(requester, sorted(ids.values()))
    descriptions = _known(described)
    hanging = []
    for (tp, producer_id), producer in sorted(candidates.items(), key=lambda each: each[0]):
        transactional_id = ids.get(producer_id)
        description = None if transactional_id is None else descriptions[transactional_id]
        # The coordinator lists the partitions to which it has yet to write a marker.
        if description is None or tp not in description.topic_partitions:
            hanging.append(HangingTransaction(tp, producer, transactional_id))
    return hanging


def _known(
    described: Mapping[str, TransactionDescription | KafkaError],
) -> dict[str, TransactionDescription | None]:
    """Return the descriptions, None for an id that has expired since it was listed.

    Raises:
        PartialFailure: Some ids could not be described.
    """
    known: dict[str, TransactionDescription | None] = {}
    failed: dict[str, KafkaError] = {}
    for transactional_id, value in described.items():
        if not isinstance(value, KafkaError):
            known[transactional_id] = value
        elif isinstance(value, BrokerError) and value.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            known[transactional_id] = None
        else:
            failed[transactional_id] = value
    if failed:
        raise partial_failure(known, failed, "transactional ids", len(described))
    return known
