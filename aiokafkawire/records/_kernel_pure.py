"""Pure Python counterparts of the functions in `_kernel.pxd`, for an interpreted `_kernel.py`.

The module also replaces the module `cython`; its directives then have no effect.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

if TYPE_CHECKING:
    from .columns import Columns

from aiokafkawire.errors import CorruptRecord

T = TypeVar("T")

compiled = False
KERNEL_HASH = b""
MAX_UINT64 = (1 << 64) - 1

_SMALL = 8192  # varints of the numbers below it take at most two bytes
_WORD = Struct("<I").unpack_from


def cclass(kind: T) -> T:
    return kind


no_gc = cclass


def freelist(_size: int) -> Callable[[T], T]:
    return cclass


def overflowcheck(_on: bool) -> Callable[[T], T]:
    return cclass


def _zigzag(value: int) -> bytes:
    if not -1 <= value >> 63 <= 0:
        raise OverflowError(f"{value} takes more than 64 bits")
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw > 127:
        out.append(raw & 127 | 128)
        raw >>= 7
    out.append(raw)
    return bytes(out)


_VARINTS = [_zigzag(n) for n in range(_SMALL)]


def word(data: bytes, at: int) -> int:
    """Read a little-endian integer of four bytes."""
    return int(_WORD(data, at)[0])


def low(number: int) -> int:
    """Return the lower 32 bits."""
    return number & 0xFFFFFFFF


def signed(number: int) -> int:
    """Interpret 32 bits as a signed integer."""
    return number - ((number & 0x80000000) << 1)


def whole(data: Any) -> Any:
    """Return the buffer (compiled: its address and size)."""
    return data


def varint(data: Any, position: int, max_bytes: int) -> tuple[int, int]:
    """Decode a zigzag varint; return its value and the position after it."""
    raw = 0
    for shift in range(0, 7 * max_bytes, 7):
        byte = data[position]
        position += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            if raw > MAX_UINT64:
                raise OverflowError("a varint takes more than 64 bits")
            return raw >> 1 ^ -(raw & 1), position
    raise CorruptRecord(f"a varint is longer than {max_bytes} bytes")


def failed(position: int) -> NoReturn:
    """Raise the error that the compiled `varint` returns as a negative position."""
    raise AssertionError(position)


def numbers(column: array[int], _start: int, _stop: int) -> array[int]:
    """Return the column (compiled: a pointer, after a check of the bounds)."""
    return column


def column_arrays(columns: Columns) -> Columns:
    """Return the columns (compiled: a tuple that keeps their memory alive)."""
    return columns


def pointers(arrays: Columns, _start: int, _stop: int) -> Columns:
    """Return the columns (compiled: pointers to them)."""
    return arrays


def cut(data: bytes, at: int, size: int) -> bytes | None:
    """Return a slice of the data, None if its size is negative."""
    return data[at : at + size] if size >= 0 else None


def text(data: bytes, at: int, size: int) -> str:
    return str(data[at : at + size], "utf-8", "replace")


def copy(out: bytearray | memoryview, to: int, data: bytes, at: int, size: int) -> None:
    out[to : to + size] = data[at : at + size]


def blank(kind: Any) -> Any:
    """Create an object without calling `__init__`."""
    return kind.__new__(kind)


def likely(condition: bool) -> bool:
    return condition


def varint_size(value: int) -> int:
    if -64 <= value < 64:
        return 1
    return 2 if -_SMALL <= value < _SMALL else len(_zigzag(value))


def beginning(data: bytearray, size: int) -> bytes:
    """Return the first `size` bytes."""
    return bytes(memoryview(data)[:size])


def extend(out: bytearray, _used: int, _size: int) -> bytearray:
    """Return the buffer to append to (compiled: the position for more bytes)."""
    return out


def put_varint(out: bytearray, value: int) -> bytearray:
    out += _VARINTS[value] if 0 <= value < _SMALL else _zigzag(value)
    return out


def put_bytes(out: bytearray, data: bytes | None, _size: int) -> bytearray:
    if data:
        out += data
    return out
