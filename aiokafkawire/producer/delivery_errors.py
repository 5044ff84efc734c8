"""Errors of batches that failed: certainly not written, or with an unknown outcome."""

from __future__ import annotations

from aiokafkawire.errors import DeliveryTimedOut, DeliveryUnknown
from aiokafkawire.producer.attempt_result import AttemptResult
from aiokafkawire.producer.batch import Batch

__all__ = ("delivery_timed_out", "delivery_unknown", "oversize_suspected")


def delivery_timed_out(batch: Batch, text: str) -> DeliveryTimedOut:
    """Return the error of a batch that expired and is certainly not in the log."""
    error = DeliveryTimedOut(
        f"{text}; the record was not written",
        topic=batch.future.topic,
        partition=batch.future.partition,
        attempt=batch.attempts or None,
    )
    error.__cause__ = batch.last_error
    return error


def delivery_unknown(batch: Batch, why: str, cause: Exception | None) -> DeliveryUnknown:
    """Return the error of a batch that may be in the log."""
    error = DeliveryUnknown(
        f"the record was sent, but whether it was written is unknown: {why}",
        topic=batch.future.topic,
        partition=batch.future.partition,
        attempt=batch.attempts,
    )
    error.__cause__ = cause
    return error


def oversize_suspected(batch: Batch, result: AttemptResult) -> DeliveryUnknown:
    """Return the error of a batch that may have exceeded the broker's request limit."""
    why = (
        f"the broker closed the connection {batch.oversize_disconnects} times after a request of"
        f" {result.closed_after_bytes} bytes; it may exceed the broker's"
        " socket.request.max.bytes"
    )
    return delivery_unknown(batch, why, result.error)
