"""Checks of records that are given as columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from aiokafkawire.producer.record_args import RECORD_OVERHEAD_BYTES, RecordArgs, validate_record
from aiokafkawire.records.batch import BATCH_OVERHEAD_BYTES
from aiokafkawire.records.kernel import Header, longest

__all__ = ("RecordColumns", "copy_column")


class RecordColumns:
    """The records of one call of `send_many`.

    Attributes:
        is_fast: All records go to the same partition until its batch is full, have `bytes` or None
            as key and value, and have neither headers nor timestamps.

    Raises:
        TypeError: An argument of a record has the wrong type.
        ValueError: The columns differ in length, or an argument is out of range.
        RecordTooLarge: A record may exceed `max_bytes`.
    """

    __slots__ = (
        "_max_bytes",
        "_records",
        "count",
        "is_fast",
        "keys",
        "partition",
        "topic",
        "values",
    )

    def __init__(  # noqa: PLR0917 - in the order of a record's parts
        self,
        topic: str,
        values: Sequence[Any],
        keys: Sequence[Any] | None,
        partition: int | None,
        timestamps_ms: Sequence[int | None] | None,
        headers: Sequence[Iterable[Header]] | None,
        *,
        max_bytes: int,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.values = copy_column(values)
        self.keys = None if keys is None else copy_column(keys)
        self.count = len(self.values)
        self._max_bytes = max_bytes
        self._records: list[RecordArgs] | None = None
        for name, column in (
            ("keys", self.keys),
            ("timestamps_ms", timestamps_ms),
            ("headers", headers),
        ):
            if column is not None and len(column) != self.count:
                raise ValueError(
                    f"{name} has {len(column)} entries, but there are {self.count} values"
                )
        self.is_fast = (
            timestamps_ms is None
            and headers is None
            and (keys is None or partition is not None)
            and self._can_be_fast()
        )
        if not self.is_fast:
            # Headers may be iterators, and a bytes-like value may change later.
            self._records = [
                self._validate(
                    index,
                    None if timestamps_ms is None else timestamps_ms[index],
                    () if headers is None else headers[index],
                )
                for index in range(self.count)
            ]
        elif self.count:
            self.record(0)  # checks topic and partition, which all records share

    def _can_be_fast(self) -> bool:
        largest = RECORD_OVERHEAD_BYTES + BATCH_OVERHEAD_BYTES
        for column in (self.values, self.keys):
            if column is not None:
                size = longest(column)
                if size < 0:
                    return False
                largest += size
        return largest <= self._max_bytes

    def record(self, index: int) -> RecordArgs:
        """Return the checked arguments of one record."""
        return self._validate(index) if self._records is None else self._records[index]

    def _validate(
        self, index: int, timestamp_ms: int | None = None, headers: Iterable[Header] = ()
    ) -> RecordArgs:
        return validate_record(
            self.topic,
            self.values[index],
            None if self.keys is None else self.keys[index],
            self.partition,
            timestamp_ms,
            headers,
            max_bytes=self._max_bytes,
        )


def copy_column(column: Any) -> list[Any] | tuple[Any, ...]:
    """Return a column of Python objects that the caller cannot change during the call."""
    if type(column) is tuple:
        return column
    return column.to_pylist() if hasattr(column, "to_pylist") else list(column)
