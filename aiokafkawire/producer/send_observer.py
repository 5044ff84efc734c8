"""Calls the hooks of a producer for each record, from the call that sends it to its outcome."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from aiokafkawire.errors import RecordTooLarge
from aiokafkawire.hooks import HookFunctions, Sending
from aiokafkawire.logs import log_fields
from aiokafkawire.producer.batch_future import BatchFailed, BatchFuture, BatchSplit
from aiokafkawire.producer.delivery import Delivery
from aiokafkawire.producer.record_args import RecordArgs, validate_record

__all__ = ("SendObserver",)

logger = logging.getLogger("aiokafkawire.hooks")


class SendObserver:
    """Calls the hooks at the start and the end of each record.

    Args:
        hooks: Hooks of the producer.
        max_bytes: Limit of a record.
        fields: `extra` fields of log lines.
    """

    def __init__(self, hooks: HookFunctions, max_bytes: int, fields: Mapping[str, object]) -> None:
        self._on_begun = hooks.on_send_begun
        self._on_ended = hooks.on_send_ended
        self._max_bytes = max_bytes
        self._fields = fields
        self._waiting: dict[BatchFuture, list[tuple[Delivery, Sending]]] = {}
        self._headers_failed = False

    @classmethod
    def of(
        cls, hooks: HookFunctions, max_bytes: int, fields: Mapping[str, object]
    ) -> SendObserver | None:
        """Return an observer, or None without hooks for records."""
        if hooks.on_send_begun is None and hooks.on_send_ended is None:
            return None
        return cls(hooks, max_bytes, fields)

    def begin(self, record: RecordArgs) -> tuple[RecordArgs, Sending]:
        """Return the record with the headers that hooks have set.

        Invalid headers are left out, as is everything that makes the record too large.
        """
        topic, value, key, partition, timestamp_ms, headers, _ = record
        sending = Sending(topic, value, key, [*headers])
        if self._on_begun is None:
            return record, sending
        self._on_begun(sending)
        if sending.headers == [*headers]:
            return record, sending
        try:
            record = validate_record(
                topic,
                value,
                key,
                partition,
                timestamp_ms,
                sending.headers,
                max_bytes=self._max_bytes,
            )
        except (RecordTooLarge, TypeError, ValueError) as error:
            if not self._headers_failed:
                self._headers_failed = True
                logger.warning(
                    "Headers of a hook are left out, and later ones are without this line: %s",
                    error,
                    extra=log_fields(self._fields, error=error),
                )
        return record, sending

    def wait_for(self, delivery: Delivery, sending: Sending) -> None:
        """Call the hook when the outcome of the record is known."""
        future: BatchFuture = delivery.future
        if not future.done:
            self._waiting.setdefault(future, []).append((delivery, sending))
        elif isinstance(outcome := future.value, BatchSplit):
            part, index = outcome.part_of(delivery.index)
            self.wait_for(Delivery(part, index, delivery.timestamp_ms), sending)
        elif isinstance(outcome, BatchFailed):
            self.end(sending, outcome.error_of(delivery.index))
        else:
            sending.metadata = delivery.result()
            self.end(sending, None)

    def end(self, sending: Sending, error: BaseException | None) -> None:
        """Call the hook for the outcome of a record."""
        sending.error = error
        if self._on_ended is not None:
            self._on_ended(sending)

    def on_completed(self, future: BatchFuture) -> None:
        """Call the hook for all records of a batch."""
        for delivery, sending in self._waiting.pop(future, ()):
            self.wait_for(delivery, sending)
