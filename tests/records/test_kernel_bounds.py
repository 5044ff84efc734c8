"""Whatever Python hands to the compiled kernel, it reads and writes within bounds.

Most of these would crash the process, or be seen by AddressSanitizer, where a check is missing.
"""

from __future__ import annotations

import subprocess
import sys
from array import array
from typing import Any

import pytest

from aiokafkawire.records.columns import Columns

from .kernels import both_kernels

COMPILED, SOURCE = both_kernels()


def crashes(code: str) -> bool:
    """Return whether a process that runs `code` on the compiled kernel crashes."""
    lines = ("from array import array", "import aiokafkawire.records._kernel as kernel", code)
    run = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, timeout=60, check=False
    )
    return run.returncode not in {0, 1}


def under_way(**attributes: int) -> Any:
    records = COMPILED.RecordBuffer((1 << 63) - 1)
    for name, value in attributes.items():
        setattr(records, name, value)
    return records


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("body_bytes", [-1, -(1 << 63), 1, 1 << 62, (1 << 63) - 20])
def test_nothing_is_put_outside_of_the_body(count: int, body_bytes: int) -> None:
    with pytest.raises((IndexError, OverflowError)):
        under_way(count=count, body_bytes=body_bytes).add(0, None, b"value", b"\0")


def test_records_under_way_that_never_began_take_none() -> None:
    assert not crashes("kernel.RecordBuffer.__new__(kernel.RecordBuffer).add(0, b'', b'', b'')")
    blank = COMPILED.RecordBuffer.__new__(COMPILED.RecordBuffer)
    with pytest.raises(IndexError):
        blank.add(0, None, b"value", b"\0")


@pytest.mark.parametrize("kind", [None, int, type(iter([])), type(i for i in ())])
def test_a_delivery_is_of_a_class_that_can_be_one(kind: Any) -> None:
    records = under_way()
    records.add(0, None, b"first", b"\0")
    records.handle_class = kind
    with pytest.raises(TypeError):
        records.put(0, None, b"value")
    assert records.count == 1


def test_columns_that_are_none_have_no_numbers() -> None:
    for call in ("slices(b'', None, None, 0, 1)", "total(None, 0, 1)"):
        assert not crashes(f"kernel.{call}")
    with pytest.raises(IndexError):
        COMPILED.total(None, 0, 1)


def test_the_size_of_a_key_is_its_own() -> None:
    class Long(bytes):
        def __len__(self) -> int:
            return 1 << 30

    class Key:
        def __bytes__(self) -> bytes:
            return Long(b"key")

    assert COMPILED.murmur2(Key()) == COMPILED.murmur2(Long(b"key")) == SOURCE.murmur2(b"key")


@pytest.mark.parametrize("kernel", [COMPILED, SOURCE])
def test_the_first_record_that_is_refused_may_stand_before_the_first(kernel: Any) -> None:
    records = kernel.RecordBuffer(1_000)
    assert records.put_many(0, None, [b"value", "other"], -1, 2) == -1


@pytest.mark.parametrize("kernel", [COMPILED, SOURCE])
def test_a_varint_has_ten_bytes_at_most(kernel: Any) -> None:
    for most in (20, (1 << 31) - 1):
        with pytest.raises(kernel.CorruptRecord):
            kernel.decode_varint(b"\x80" * 40, 0, most)


class Passing:
    """Columns that nobody else holds."""

    def __init__(self, data: bytes, has_headers: bool = False) -> None:
        self.data = data
        self.has_headers = has_headers

    def __getattr__(self, name: str) -> array[int]:
        return array("q", bytes(8 * 4_096))


def test_columns_are_held_while_they_are_filled() -> None:
    body = b"\x0c\0\0\0\x01\x01\0"
    columns = Passing(body)
    assert COMPILED.decode_records(columns, 0, 1, 0, 0, 0, -1) == len(body)
    assert len(COMPILED.make_records(columns, 0, 4_096, "topic", 0, 0, 0)) == 4_096


def test_columns_that_shrink_while_headers_are_set_are_not_overrun() -> None:
    class Shrinking(Columns):
        @property
        def has_headers(self) -> bool:  # type: ignore[override]
            return False

        @has_headers.setter
        def has_headers(self, has: bool) -> None:
            if has:
                seen.append(list(self.offsets))
                del self.offsets[:]

    seen: list[list[int]] = []
    body = b"".join(
        bytes((len(record) << 1,)) + record
        for record in (b"\0\0" + bytes((2 * n, 1, 1, 2, 2, 104, 1)) for n in range(8))
    )
    columns = Shrinking(body, 8)
    assert COMPILED.decode_records(columns, 0, 8, 0, 0, 0, -1) == len(body)
    assert seen == [list(range(8))]
