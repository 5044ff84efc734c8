"""The records of one batch in columns."""

from __future__ import annotations

from array import array

from .kernel import Headers, decode_headers

__all__ = ("Columns",)


class Columns:
    """The records of one batch as parallel columns over one buffer.

    `key_length` and `value_length` are negative for null. `has_headers` says whether any record has
    headers: they begin where its value ends.
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

    def __init__(self, data: bytes, count: int) -> None:
        blank = bytes(8 * count)
        self.data = data
        self.has_headers = False
        self.offsets = array("q", blank)
        self.timestamps = array("q", blank)
        self.key_start = array("q", blank)
        self.key_length = array("q", blank)
        self.value_start = array("q", blank)
        self.value_length = array("q", blank)

    def __len__(self) -> int:
        return len(self.offsets)

    def set_timestamps(self, timestamp_ms: int) -> None:
        """Give all records the same timestamp, as log-append time does."""
        self.timestamps = array("q", (timestamp_ms,)) * len(self.offsets)

    def key(self, index: int) -> bytes | None:
        start = self.key_start[index]
        size = self.key_length[index]
        return None if size < 0 else self.data[start : start + size]

    def value(self, index: int) -> bytes | None:
        start = self.value_start[index]
        size = self.value_length[index]
        return None if size < 0 else self.data[start : start + size]

    def headers_position(self, index: int) -> int:
        """Where the header count of a record stands in `data`, if `has_headers`."""
        size = self.value_length[index]
        return self.value_start[index] + (size if size > 0 else 0)

    def headers(self, index: int) -> Headers:
        return decode_headers(self.data, self.headers_position(index)) if self.has_headers else ()
