"""Reader for formats without versions: that of Kafka 0.7 and the proposal that followed it."""

import struct
from typing import Any

from aiokafkawire.errors import MalformedMessage
from aiokafkawire.wire.primitives import Buffer

__all__ = ("ByteReader", "encode_string")

MAX_STRING_BYTES = 32_767

_INT16 = struct.Struct(">h")


def encode_string(text: str) -> bytes:
    """Encode a string with its int16 length. Raises `ValueError` if it is too long.

    Lone surrogates encode bytes that are not UTF-8 ("surrogateescape"), so that any name
    round-trips.
    """
    raw = text.encode("utf-8", "surrogateescape")
    if len(raw) > MAX_STRING_BYTES:
        raise ValueError(f"string of {len(raw)} bytes exceeds the limit of {MAX_STRING_BYTES}")
    return _INT16.pack(len(raw)) + raw


class ByteReader:
    """A cursor over a buffer that never reads past its end.

    Invalid data raises `MalformedMessage` with the names of the message and the field and the
    start position of the field.
    """

    def __init__(self, message: str, data: Buffer, position: int = 0) -> None:
        self.message = message
        self.view = memoryview(data)
        self.position = position

    @property
    def remaining(self) -> int:
        """Number of bytes that are not read yet."""
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
        """Read a string with its int16 length; see `encode_string`."""
        start = self.position
        size = self.int16(field)
        return str(self._read(field, size, start), "utf-8", "surrogateescape")

    def bytes(self, field: str, size: int) -> bytes:
        """Read `size` bytes as a copy."""
        return bytes(self._read(field, size, self.position))

    def numbers(self, field: str, code: str, count: int) -> tuple[int, ...]:
        """Read `count` integers of the `struct` code `code`."""
        start = self.position
        self.check_count(field, count, struct.calcsize(">" + code), start)
        numbers: tuple[Any, ...] = struct.unpack_from(f">{count}{code}", self.view, start)
        self.position += count * struct.calcsize(">" + code)
        return numbers

    def check_count(self, field: str, count: int, element_bytes: int, start: int) -> int:
        """Return `count` if the remaining bytes can hold that many elements."""
        if count < 0:
            raise self.malformed_error(field, f"invalid count {count}", start)
        if count * element_bytes > self.remaining:
            raise self.malformed_error(
                field, f"{count} elements do not fit into {self.remaining} remaining bytes", start
            )
        return count

    def expect_end(self) -> None:
        """Raise `MalformedMessage` if bytes remain."""
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
            raise self.malformed_error(field, f"invalid length {size}", start)
        if size > self.remaining:
            raise self.malformed_error(
                field, f"length {size} exceeds the {self.remaining} remaining bytes", start
            )
        self.position += size
        return self.view[self.position - size : self.position]
