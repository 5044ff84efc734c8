"""The kernel's functions, against vectors and their own inverse."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import weakref
import zlib
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aiokafkawire
from aiokafkawire.errors import CorruptRecord
from aiokafkawire.records import kernel, murmur2
from aiokafkawire.records.columns import Columns

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
    with pytest.raises(CorruptRecord, match="5 bytes"):
        kernel.decode_varint(b"\x80" * 5 + b"\0", 0)
    with pytest.raises(CorruptRecord, match="10 bytes"):
        kernel.decode_varint(b"\x80" * 11, 0, 10)
    with pytest.raises(IndexError):
        kernel.decode_varint(b"\x80" * 3, 0)


def test_a_kernel_compiled_from_other_source_says_what_to_do() -> None:
    code = (
        "import sys, types\n"
        "sys.modules['aiokafkawire.records._kernel'] = types.ModuleType('_kernel')\n"
        "import aiokafkawire.records.kernel"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={"AIOKAFKAWIRE_PURE_PYTHON": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert run.returncode == 1
    assert "not of this version of the package: install it again" in run.stderr


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


def test_about_names_the_kernel_in_use() -> None:
    assert (aiokafkawire.about().kernel == "compiled") == kernel.COMPILED


RECORD = kernel.Record(
    "orders", 3, 7, timestamp_ms=5, timestamp_type=1, key=None, value=b"v", headers=[("h", b"1")]
)


@pytest.mark.parametrize("pure", ["0", "1"])
def test_a_record_can_be_pickled_for_a_process_of_either_kernel(pure: str) -> None:
    code = (
        "import pickle, sys; record = pickle.load(sys.stdin.buffer);"
        " from aiokafkawire import Record; assert type(record) is Record;"
        " sys.stdout.buffer.write(pickle.dumps(record))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "AIOKAFKAWIRE_PURE_PYTHON": pure},
        input=pickle.dumps(RECORD),
        capture_output=True,
        check=True,
        timeout=30,
    )
    assert pickle.loads(run.stdout) == RECORD


class Own(kernel.Record):
    """A subclass by an application."""


@pytest.mark.parametrize("module", [kernel, kernel.load_source()])
def test_a_record_is_as_it_was(module: Any) -> None:
    record = module.Record("orders", 3, 7, key=b"k", headers=[("h", None)])
    assert record == module.Record("orders", 3, 7, key=b"k", headers=(("h", None),))
    assert record != module.Record("orders", 3, 7, key=b"k")
    assert record != "orders"
    assert hash(record) == hash(module.Record("orders", 3, 7))
    assert repr(record) == (
        "Record(orders-3 offset 7, timestamp_ms=-1, key=b'k', value=None, headers=1)"
    )
    assert (record.timestamp_ms, record.timestamp_type, record.leader_epoch) == (-1, 0, -1)
    assert record.topic_partition == ("orders", 3)
    for name, value in (("offset", 8), ("value", b"other"), ("headers", ()), ("partition", 0)):
        setattr(record, name, value)
        assert getattr(record, name) == value
    with pytest.raises(AttributeError):
        record.unknown = 1
    with pytest.raises(TypeError, match="weak"):
        weakref.ref(record)
    with pytest.raises(TypeError):
        module.Record("orders", "3", 7).partition + 1
    with pytest.raises(TypeError):
        module.Record("orders", 3)


class Slotted(kernel.Record):
    __slots__ = ("__own", "note", "unset")

    def keep(self, own: int) -> None:
        self.__own = own

    def kept(self) -> int:
        return self.__own


def test_what_a_class_derived_from_record_has_in_slots_is_copied() -> None:
    record = Slotted("orders", 3, 7, value=b"v")
    record.note = "x"
    record.keep(5)
    for made in (copy.copy(record), copy.deepcopy(record), pickle.loads(pickle.dumps(record))):
        assert (type(made), made, made.note, made.kept()) == (Slotted, record, "x", 5)
        assert not hasattr(made, "unset")


class Topic(StrEnum):
    ORDERS = "orders"


@pytest.mark.parametrize("module", [kernel, kernel.load_source()])
def test_a_topic_may_be_of_a_class_derived_from_str(module: Any) -> None:
    record = module.Record(Topic.ORDERS, 3, 7)
    assert record.topic is Topic.ORDERS
    assert record == module.Record("orders", 3, 7)
    columns = Columns(b"", 1)
    columns.key_length[0] = columns.value_length[0] = -1
    (made,) = module.make_records(columns, 0, 1, Topic.ORDERS, 3, 0, -1)
    assert made.topic is Topic.ORDERS


class Held:
    """Notes the calls of records, instead of acknowledging them."""

    delivery_count = 2

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.undecided = True

    def is_undecided(self, offset: int) -> bool:
        return self.undecided

    def __getattr__(self, name: str) -> Callable[[int], str]:
        def call(offset: int) -> str:
            self.calls.append(f"{name} {offset}")
            return name

        return call


@pytest.mark.parametrize("module", [kernel, kernel.load_source()])
async def test_a_record_of_a_share_group_is_acknowledged_by_what_holds_it(module: Any) -> None:
    held = Held()
    columns = Columns(b"key", 1)
    columns.offsets[0], columns.key_length[0], columns.value_length[0] = 7, 3, -1
    (record,) = module.make_records(columns, 0, 1, "jobs", 3, 0, -1, held)
    assert isinstance(record, module.ShareRecord)
    assert isinstance(record, module.Record)
    assert (record.offset, record.key, record.value) == (7, b"key", None)
    assert record.delivery_count == 2
    assert record.lock_expires_at == "lock_expires_at"
    for name in ("accept", "release", "reject", "renew"):
        assert getattr(record, name)() == name
    async with record as entered:
        assert entered is record
    with pytest.raises(ZeroDivisionError):
        async with record:
            raise ZeroDivisionError
    held.undecided = False
    async with record:
        pass
    names = ("lock_expires_at", "accept", "release", "reject", "renew", "accept", "release")
    assert held.calls == [f"{name} 7" for name in names]


def test_a_copy_of_a_record_of_a_share_group_is_held_as_well() -> None:
    held = Held()
    columns = Columns(b"key", 1)
    columns.offsets[0], columns.key_length[0], columns.value_length[0] = 7, 3, -1
    (record,) = kernel.make_records(columns, 0, 1, "jobs", 3, 0, -1, held)
    copied = copy.copy(record)
    assert type(copied) is kernel.ShareRecord
    assert (copied, copied.key) == (record, b"key")
    copied.accept()
    assert held.calls == ["accept 7"]


def test_a_class_derived_from_record_can_be_copied() -> None:
    own = Own("orders", 3, 7, value=b"v")
    own.note = "x"
    for made in (copy.copy(own), pickle.loads(pickle.dumps(own))):
        assert type(made) is Own
        assert (made, made.note) == (own, "x")
