"""Whether a partition takes a batch of a transaction (KIP-890)."""

from __future__ import annotations

from aiokafkawire.broker.call import Call
from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.broker.topics import Partition
from aiokafkawire.broker.transactions.events import Add, Scope, Verify
from aiokafkawire.records.batch import BatchView
from aiokafkawire.types import ProducerIdAndEpoch, TopicPartition
from aiokafkawire.wire import ErrorCode

__all__ = ("admit",)

FIRST_ABORTABLE_VERSION = 11
FIRST_ADDING_VERSION = 12


def admit(call: Call, transactional_id: str | None, partition: Partition, batch: BatchView) -> None:
    """Raise `Refusal` unless the partition belongs to the transaction of a Produce request.

    From version 12 on the partition is added here; before, releases that mind look whether it was.
    """
    if transactional_id is None:
        raise Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if call.version < FIRST_ADDING_VERSION and not call.release.verifies_transactions:
        return
    if partition.log.producers.is_open(batch.producer_id, batch.producer_epoch):
        return
    if not call.state.coordination.can_be_asked(transactional_id):
        # An error that every client tries again.
        raise Refusal(ErrorCode.NOT_ENOUGH_REPLICAS, "the transaction's coordinator is not ready")
    event = Add if call.version >= FIRST_ADDING_VERSION else Verify
    answer = call.state.transactions.handle(
        transactional_id,
        event(
            producer=ProducerIdAndEpoch(batch.producer_id, batch.producer_epoch),
            scope=Scope(partitions=(TopicPartition(partition.topic, partition.index),)),
        ),
    )
    if answer.code:
        raise _refusal(call.version, answer.code)


def _refusal(version: int, code: ErrorCode) -> Refusal:
    """What the transaction's coordinator said, as a partition's leader says it."""
    if code is ErrorCode.PRODUCER_FENCED:
        return Refusal(ErrorCode.INVALID_PRODUCER_EPOCH, "the producer has a newer epoch")
    if code is ErrorCode.TRANSACTION_ABORTABLE:
        known = version >= FIRST_ABORTABLE_VERSION
        return Refusal(
            code if known else ErrorCode.INVALID_TXN_STATE,
            "the partition was not added to the transaction",
        )
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and version < FIRST_ADDING_VERSION:
        # Older clients do not expect it here; this one they try again.
        return Refusal(ErrorCode.NOT_ENOUGH_REPLICAS, "the last transaction has not ended yet")
    if code is ErrorCode.NOT_COORDINATOR:
        return Refusal(ErrorCode.NOT_ENOUGH_REPLICAS, "the transaction cannot be stored")
    return Refusal(code)
