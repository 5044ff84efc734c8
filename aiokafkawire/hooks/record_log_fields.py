"""Log fields of the record that a worker processes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextvars import ContextVar

from aiokafkawire.logs import NO_FIELDS, log_fields

from .events import ClientInfo, Processing

__all__ = ("RecordLogFields",)


class RecordLogFields(logging.Filter):
    """Adds the processed record to each log line that is written meanwhile, by any library.

    It is a hook of workers and a filter of log handlers::

        fields = RecordLogFields()
        log_handler.addFilter(fields)
        worker = Worker(..., hooks=[fields])

    Lines have the fields `kafka_client_id`, `kafka_group`, `kafka_topic`, `kafka_partition`,
    `kafka_offset` and `kafka_attempt`; for a batch, `kafka_offset` is its first offset. Those that
    a line has already stay. Tasks and threads that a handler starts inherit the fields.
    """

    def __init__(self) -> None:
        super().__init__()
        self._fields: ContextVar[Mapping[str, object]] = ContextVar("fields", default=NO_FIELDS)

    def on_process_begun(self, client: ClientInfo, processing: Processing, /) -> None:
        """Add fields from now on, in this context."""
        record = processing.records[0]
        fields = log_fields(
            client_id=client.client_id,
            group=client.group_id,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            attempt=processing.attempt,
        )
        self._fields.set(fields)

    def on_process_ended(self, client: ClientInfo, processing: Processing, /) -> None:
        """Add no fields any more."""
        self._fields.set(NO_FIELDS)

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields to a log line, which is always written."""
        for name, value in self._fields.get().items():
            if name not in record.__dict__:
                record.__dict__[name] = value
        return True
