"""Records as a caller gives them in columns, checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from aiokafkawire.producer.new_record import RECORD_OVERHEAD_BYTES, NewRecord, checked
from aiokafkawire.records.batch import BATCH_OVERHEAD_BYTES
from aiokafkawire.records.kernel import Buffer, Header, longest

__all__ = ("Columns",)


class Columns:
    """Records of one topic. `plain`: all go to one partition at a time, are of `bytes` and None,
    and have neither headers nor a time of their own.

    Raises what `checked` raises, for any of the records.
    """

    __slots__ = (
        "_max_bytes",
        "_records",
        "count",
        "keys",
        "partition",
        "plain",
        "topic",
        "values",
    )

    def __init__(  # noqa: PLR0917 - in the order of a record's parts
        self,
        topic: str,
        values: Sequence[Buffer | None],
        keys: Sequence[Buffer | None] | None,
        partition: int | None,
        timestamps_ms: Sequence[int | None] | None,
        headers: Sequence[Iterable[Header]] | None,
        *,
        max_bytes: int,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.values = _listed(values)
        self.keys = None if keys is None else _listed(keys)
        self.count = len(self.values)
        self._max_bytes = max_bytes
        self._records: list[NewRecord] | None = None
        for name, column in (
            ("keys", self.keys),
            ("timestamps_ms", timestamps_ms),
            ("headers", headers),
        ):
            if column is not None and len(column) != self.count:
                raise ValueError(
                    f"{name} has {len(column)} entries, but there are {self.count} values"
                )
        self.plain = (
            timestamps_ms is None
            and headers is None
            and (keys is None or partition is not None)
            and self._are_plain()
        )
        if not self.plain:
            # Headers may be such as can be looked at once, and bytes may change later.
            self._records = [
                self._checked(
                    index,
                    None if timestamps_ms is None else timestamps_ms[index],
                    () if headers is None else headers[index],
                )
                for index in range(self.count)
            ]
        elif self.count:
            self.record(0)  # the topic and the partition are those of all

    def _are_plain(self) -> bool:
        largest = RECORD_OVERHEAD_BYTES + BATCH_OVERHEAD_BYTES
        for column in (self.values, self.keys):
            if column is not None:
                size = longest(column)
                if size < 0:
                    return False
                largest += size
        return largest <= self._max_bytes

    def record(self, index: int) -> NewRecord:
        """One of them."""
        return self._checked(index) if self._records is None else self._records[index]

    def _checked(
        self, index: int, timestamp_ms: int | None = None, headers: Iterable[Header] = ()
    ) -> NewRecord:
        return checked(
            self.topic,
            self.values[index],
            None if self.keys is None else self.keys[index],
            self.partition,
            timestamp_ms,
            headers,
            max_bytes=self._max_bytes,
        )


def _listed(column: Any) -> list[Any] | tuple[Any, ...]:
    """A column whose entries are Python's own, and that nobody changes while it is sent."""
    if type(column) is tuple:
        return column
    return column.to_pylist() if hasattr(column, "to_pylist") else list(column)
