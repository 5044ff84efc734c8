"""Verification that a transaction includes a partition before a write (KIP-890)."""

from __future__ import annotations

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.broker.topics import Partition
from aiokafkawire.broker.transactions.events import (
    AddToTransaction,
    TransactionContents,
    VerifyInTransaction,
)
from aiokafkawire.records.batch import BatchView
from aiokafkawire.types import ProducerIdAndEpoch, TopicPartition
from aiokafkawire.wire import ErrorCode

__all__ = ("verify_transaction",)

FIRST_ABORTABLE_VERSION = 11
FIRST_ADDING_VERSION = 12


def verify_transaction(
    context: RequestContext, transactional_id: str | None, partition: Partition, batch: BatchView
) -> None:
    """Raise `ApiError` unless the transaction of a Produce request includes the partition.

    From v12 on the partition is added here; earlier versions are only verified, by releases that do
    so.
    """
    if transactional_id is None:
        raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if context.version < FIRST_ADDING_VERSION and not context.release.verifies_transactions:
        return
    if partition.log.producers.has_open_transaction(batch.producer_id, batch.producer_epoch):
        return
    if not context.state.coordinator_loader.is_available(transactional_id):
        # All clients retry this error.
        raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, "the transaction's coordinator is not ready")
    event = AddToTransaction if context.version >= FIRST_ADDING_VERSION else VerifyInTransaction
    result = context.state.transaction_coordinator.handle(
        transactional_id,
        event(
            producer=ProducerIdAndEpoch(batch.producer_id, batch.producer_epoch),
            scope=TransactionContents(
                partitions=(TopicPartition(partition.topic, partition.index),)
            ),
        ),
    )
    if result.code:
        raise _refusal(context.version, result.code)


def _refusal(version: int, code: ErrorCode) -> ApiError:
    """Translate an error of the transaction coordinator to one of Produce."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, "the producer has a newer epoch")
    if code is ErrorCode.TRANSACTION_ABORTABLE:
        known = version >= FIRST_ABORTABLE_VERSION
        return ApiError(
            code if known else ErrorCode.INVALID_TXN_STATE,
            "the partition was not added to the transaction",
        )
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and version < FIRST_ADDING_VERSION:
        # Older clients do not expect it in Produce; they retry this one.
        return ApiError(
            ErrorCode.NOT_ENOUGH_REPLICAS, "the previous transaction has not completed yet"
        )
    if code is ErrorCode.NOT_COORDINATOR:
        return ApiError(
            ErrorCode.NOT_ENOUGH_REPLICAS, "the transaction coordinator cannot store its state"
        )
    return ApiError(code)
