"""The kernel's functions, against vectors and their own inverse."""

from __future__ import annotations

import subprocess
import sys
import zlib
from collections.abc import Callable

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aiokafkawire
from aiokafkawire.errors import CorruptRecords
from aiokafkawire.records import kernel, murmur2

from .kernels import kernel_hash
from .vectors import load, unbase64

VECTORS = load("hashes")
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


def vectors(kind: str) -> list[dict[str, object]]:
    chosen = [vector for vector in VECTORS if vector["kind"] == kind]
    assert chosen
    return chosen


def test_murmur2_vectors(record_property: Callable[[str, object], None]) -> None:
    chosen = vectors("murmur2")
    for vector in chosen:
        key = unbase64(vector["key"])  # type: ignore[arg-type]
        assert key is not None
        hashed = murmur2(key)
        assert hashed == murmur2(bytearray(key)) == murmur2(memoryview(key)) == vector["murmur2"]
        assert hashed & 0x7FFFFFFF == vector["toPositive"]
    record_property("summary", f"golden vectors, hashes/murmur2: {len(chosen)}")


def test_checksum_vectors(record_property: Callable[[str, object], None]) -> None:
    chosen = vectors("crc")
    for vector in chosen:
        data = unbase64(vector["data"])  # type: ignore[arg-type]
        assert zlib.crc32(data) == vector["crc32"]
        assert crc32c.crc32c(data) == vector["crc32c"]
    record_property("summary", f"golden vectors, hashes/crc: {len(chosen)}")


def test_varint_vectors(record_property: Callable[[str, object], None]) -> None:
    chosen = vectors("varint")
    for vector in chosen:
        encoded = bytes.fromhex(vector["varlong"])  # type: ignore[arg-type]
        assert kernel.encode_varint(vector["value"]) == encoded  # type: ignore[arg-type]
        assert kernel.decode_varint(encoded, 0, 10) == (vector["value"], len(encoded))
    record_property("summary", f"golden vectors, hashes/varint: {len(chosen)}")


@given(INT64, st.binary(max_size=3))
def test_varints_round_trip(value: int, before: bytes) -> None:
    encoded = kernel.encode_varint(value)
    assert 1 <= len(encoded) <= 10
    assert kernel.decode_varint(before + encoded + b"x", len(before), 10) == (
        value,
        len(before) + len(encoded),
    )


def test_a_varint_has_an_end() -> None:
    assert kernel.decode_varint(b"\x80" * 4 + b"\0", 0) == (0, 5)
    with pytest.raises(CorruptRecords, match="5 bytes"):
        kernel.decode_varint(b"\x80" * 5 + b"\0", 0)
    with pytest.raises(CorruptRecords, match="10 bytes"):
        kernel.decode_varint(b"\x80" * 11, 0, 10)
    with pytest.raises(IndexError):
        kernel.decode_varint(b"\x80" * 3, 0)


def test_the_interpreted_kernel_can_be_asked_for() -> None:
    code = "from aiokafkawire.records import kernel; print(kernel.COMPILED)"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={"AIOKAFKAWIRE_PURE_PYTHON": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert run.stdout == "False\n"


def test_the_compiled_kernel_is_of_the_sources_that_stand_beside_it() -> None:
    if kernel.COMPILED:
        assert kernel_hash() == kernel.SOURCE_HASH, "make .venv/.ready"
    assert kernel.load_source().COMPILED is False


def test_what_is_told_of_the_kernel_is_so() -> None:
    assert (aiokafkawire.about().kernel == "compiled") == kernel.COMPILED
