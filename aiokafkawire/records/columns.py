"""Records in columns, of one batch or of several consecutive batches."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Any

from .kernel import COMPILED, Buffer, Headers, decode_headers, slices

__all__ = ("RECORD_COLUMN_BYTES", "Columns")

RECORD_COLUMN_BYTES = 6 * 8
"""Memory of the columns per record, without the data."""


class Columns:
    """Records as parallel columns over one immutable buffer.

    `key_length` and `value_length` are negative for null. `has_headers` is true if any record has
    headers, which follow its value.
    """

    __slots__ = (
        "data",
        "has_headers",
        "key_length",
        "key_start",
        "offsets",
        "timestamps",
        "value_length",
        "value_start",
    )

    def __init__(self, data: Buffer, count: int) -> None:
        self.data: Any = data if COMPILED else bytes(data)
        self.has_headers = False
        self.offsets = blank = array("q", (0,)) * count
        self.timestamps = blank[:]
        self.key_start = blank[:]
        self.key_length = blank[:]
        self.value_start = blank[:]
        self.value_length = blank[:]

    def __len__(self) -> int:
        return len(self.offsets)

    def cut(self, count: int) -> None:
        """Keep only the first `count` records."""
        for column in (
            self.offsets,
            self.timestamps,
            self.key_start,
            self.key_length,
            self.value_start,
            self.value_length,
        ):
            del column[count:]

    def index_of(self, offset: int) -> int:
        """Return the index of the first record with this offset or a later one."""
        return bisect_left(self.offsets, offset)

    def set_timestamps(self, timestamp_ms: int) -> None:
        """Set the timestamp of all records, for log-append time."""
        self.timestamps = array("q", (timestamp_ms,)) * len(self.offsets)

    def key(self, index: int) -> bytes | None:
        return slices(self.data, self.key_start, self.key_length, index, index + 1)[0]

    def value(self, index: int) -> bytes | None:
        return slices(self.data, self.value_start, self.value_length, index, index + 1)[0]

    def headers_position(self, index: int) -> int:
        """Return the position of the header count of a record in `data`, if `has_headers`."""
        size = self.value_length[index]
        return self.value_start[index] + (size if size > 0 else 0)

    def headers(self, index: int) -> Headers:
        return decode_headers(self.data, self.headers_position(index)) if self.has_headers else ()
