"""Conversion of transactional ids to lines of the store and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aiokafkawire.broker.groups.offsets import CommittedOffset
from aiokafkawire.broker.transactions.events import TransactionState
from aiokafkawire.broker.transactions.transaction_metadata import TransactionMetadata
from aiokafkawire.errors import KafkaError
from aiokafkawire.types import ProducerIdAndEpoch, TopicPartition

__all__ = ("deserialize", "restore", "serialize")


def serialize(transaction: TransactionMetadata) -> dict[str, Any]:
    """Return the line of a transactional id; a dead one becomes a deletion."""
    if transaction.state is TransactionState.DEAD:
        return {"transactional_id": transaction.transactional_id, "state": None}
    return {
        "transactional_id": transaction.transactional_id,
        "state": transaction.state.value,
        "producer": _identity(transaction.producer),
        "previous": _identity(transaction.previous),
        "next_producer_id": transaction.next_producer_id,
        "bumps_epoch": transaction.bumps_epoch,
        "timeout_ms": transaction.timeout_ms,
        "started_ms": transaction.started_ms,
        "updated_ms": transaction.updated_ms,
        "partitions": [[tp.topic, tp.partition] for tp in transaction.partitions],
        "groups": list(transaction.groups),
        "offsets": [
            [group, tp.topic, tp.partition, entry.offset, entry.leader_epoch, entry.metadata]
            for group, offsets in transaction.offsets.items()
            for tp, entry in offsets.items()
        ],
    }


def deserialize(line: Mapping[str, Any], new_producer_id: Callable[[], int]) -> TransactionMetadata:
    """Return the transactional id of a line. Raises `KafkaError` if the line is invalid."""
    try:
        transaction = TransactionMetadata(str(line["transactional_id"]), new_producer_id)
        if line["state"] is None:
            transaction.state = TransactionState.DEAD
            return transaction
        restore(transaction, line)
    except (KeyError, TypeError, ValueError) as error:
        raise KafkaError(f"the stored transactions are damaged: {error!r} in {line!r}") from error
    return transaction


def restore(transaction: TransactionMetadata, line: Mapping[str, Any]) -> None:
    """Set the state to that of a line, which is no deletion."""
    transaction.partitions.clear()
    transaction.groups.clear()
    transaction.offsets.clear()
    transaction.state = TransactionState(line["state"])
    transaction.producer = ProducerIdAndEpoch(*line["producer"])
    previous = line["previous"]
    transaction.previous = None if previous is None else ProducerIdAndEpoch(*previous)
    transaction.next_producer_id = int(line["next_producer_id"])
    transaction.bumps_epoch = bool(line["bumps_epoch"])
    transaction.timeout_ms = int(line["timeout_ms"])
    transaction.started_ms = int(line["started_ms"])
    transaction.updated_ms = int(line["updated_ms"])
    for topic, partition in line["partitions"]:
        transaction.partitions[TopicPartition(str(topic), int(partition))] = None
    transaction.groups.update(dict.fromkeys(map(str, line["groups"])))
    for group, topic, partition, offset, leader_epoch, metadata in line["offsets"]:
        offsets = transaction.offsets.setdefault(str(group), {})
        entry = CommittedOffset(int(offset), int(leader_epoch), str(metadata))
        offsets[TopicPartition(str(topic), int(partition))] = entry


def _identity(producer: ProducerIdAndEpoch | None) -> list[int] | None:
    return None if producer is None else [producer.producer_id, producer.epoch]
