"""Reading of formats that have a layout but no versions: 0.7 and the proposal that followed it."""

import struct
from typing import Any

from aiokafkawire.errors import MalformedMessage
from aiokafkawire.wire.primitives import Buffer

__all__ = ("ByteReader", "encode_string")

MAX_STRING_BYTES = 32_767

_INT16 = struct.Struct(">h")


def encode_string(text: str) -> bytes:
    """A string behind its length as int16. Raises `ValueError` for what does not fit.

    A lone surrogate stands for a byte that is no UTF-8, so that any name can be given back.
    """
    raw = text.encode("utf-8", "surrogateescape")
    if len(raw) > MAX_STRING_BYTES:
        raise ValueError(f"a string of {len(raw)} bytes is over {MAX_STRING_BYTES}")
    return _INT16.pack(len(raw)) + raw


class ByteReader:
    """A position in a buffer, behind which nothing is read.

    Whatever does not fit raises `MalformedMessage` with the names of the message and of the field
    and the position at which the field begins.
    """

    def __init__(self, message: str, data: Buffer, position: int = 0) -> None:
        self.message = message
        self.view = memoryview(data)
        self.position = position

    @property
    def remaining(self) -> int:
        """How many bytes are still to be read."""
        return len(self.view) - self.position

    def int8(self, field: str) -> int:
        return self._read_number(field, "b", 1)

    def int16(self, field: str) -> int:
        return self._read_number(field, "h", 2)

    def int32(self, field: str) -> int:
        return self._read_number(field, "i", 4)

    def int64(self, field: str) -> int:
        return self._read_number(field, "q", 8)

    def string(self, field: str) -> str:
        """A string behind its length as int16; see `encode_string`."""
        start = self.position
        size = self.int16(field)
        return str(self._read(field, size, start), "utf-8", "surrogateescape")

    def bytes(self, field: str, size: int) -> bytes:
        """A copy of the next `size` bytes."""
        return bytes(self._read(field, size, self.position))

    def numbers(self, field: str, code: str, count: int) -> tuple[int, ...]:
        """`count` integers of one width, by its `struct` code."""
        start = self.position
        self.check_count(field, count, struct.calcsize(">" + code), start)
        numbers: tuple[Any, ...] = struct.unpack_from(f">{count}{code}", self.view, start)
        self.position += count * struct.calcsize(">" + code)
        return numbers

    def check_count(self, field: str, count: int, element_bytes: int, start: int) -> int:
        """`count`, which the bytes that are left can hold if none takes less than that."""
        if count < 0:
            raise self.malformed_error(field, f"a count of {count}", start)
        if count * element_bytes > self.remaining:
            raise self.malformed_error(
                field, f"{count} elements cannot be in the bytes that remain", start
            )
        return count

    def expect_end(self) -> None:
        """Raise unless everything was read."""
        if self.remaining:
            raise self.malformed_error(None, f"{self.remaining} trailing bytes", self.position)

    def malformed_error(self, field: str | None, reason: str, position: int) -> MalformedMessage:
        return MalformedMessage(reason, message=self.message, field=field, position=position)

    def _read_number(self, field: str, code: str, size: int) -> int:
        if size > self.remaining:
            raise self.malformed_error(field, "the message ends inside a value", self.position)
        (number,) = struct.unpack_from(">" + code, self.view, self.position)
        self.position += size
        return int(number)

    def _read(self, field: str, size: int, start: int) -> memoryview:
        if size < 0:
            raise self.malformed_error(field, f"a length of {size}", start)
        if size > self.remaining:
            raise self.malformed_error(
                field, f"length {size} is beyond the bytes that remain", start
            )
        self.position += size
        return self.view[self.position - size : self.position]
