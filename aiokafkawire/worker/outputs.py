"""Records that a worker writes in a transaction, with the offsets of the records they come from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from aiokafkawire.errors import IllegalState
from aiokafkawire.producer.record_args import validate_record
from aiokafkawire.records import Record
from aiokafkawire.types import require_topic_name
from aiokafkawire.worker.letters import FailedRecord, Header, Origin

__all__ = ("AttemptOutput", "OutputRecord", "UncommittedRecord")


OBJECTS_BYTES = 300
"""Bytes of the Python objects of a record, about. While transactions cannot commit, nothing else
limits the number of finished records."""


class OutputRecord(NamedTuple):
    """A record to write: the arguments of `Producer.send`."""

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Iterable[Header] = ()


class AttemptOutput:
    """The records that a handler sends during an attempt.

    They are written only if the attempt succeeds.

    Args:
        max_bytes: Limit of the size of a record.
    """

    __slots__ = ("_by_offset", "_is_open", "_max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._by_offset: dict[int, list[OutputRecord]] = {}
        self._is_open = True

    def send(self, source: Record, *arguments: Any) -> None:
        """Add an output record of a source record.

        Raises:
            IllegalState: The attempt has ended.
            ValueError: The name of the topic or of a header is invalid. `Producer.send` would raise
                it in each transaction that has the record.
        """
        if not self._is_open:
            raise IllegalState("the attempt has ended: call send() before the handler returns")
        topic, value, key, partition, timestamp_ms, headers, _ = validate_record(
            *arguments, max_bytes=self._max_bytes
        )
        require_topic_name(topic)
        for name, _ in headers:
            name.encode()
        output = OutputRecord(topic, value, key, partition, timestamp_ms, headers)
        self._by_offset.setdefault(source.offset, []).append(output)

    def close(self) -> None:
        """Take no more records."""
        self._is_open = False

    def of(self, source: Record) -> list[OutputRecord]:
        """Return what was sent for a record."""
        return self._by_offset.get(source.offset, [])


@dataclass(frozen=True, slots=True)
class UncommittedRecord:
    """A finished record whose output is not committed.

    Attributes:
        record: The record that was read.
        origin: The place where it was written first.
        attempts: Its attempts.
        output: The records to write with its offset.
        failed: Set if the output is a dead letter.
    """

    record: Record
    origin: Origin
    attempts: int
    output: tuple[OutputRecord, ...]
    failed: FailedRecord | None = None

    @property
    def size(self) -> int:
        """Memory of the record and its output, about: keys, values, headers and objects."""
        records: tuple[Record | OutputRecord, ...] = (self.record, *self.output)
        size = len(records) * OBJECTS_BYTES
        for each in records:
            size += len(each.key or b"") + len(each.value or b"")
            for name, content in each.headers:
                size += len(name) + len(content or b"")
        return size
