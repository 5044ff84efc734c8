"""Damaged bytes give `CorruptRecord` or records, never another error, never much memory."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokafkawire.errors import CorruptRecord
from aiokafkawire.records import (
    DecodeOptions,
    IsolationLevel,
    decode_fetch,
    down_convert,
    iter_batches,
    validate_produced,
)

from .record_data import with_crcs
from .vectors import load, unbase64

LIMIT = 1 << 20
SEEDS = [
    data
    for vector in load("records")
    if vector["group"] != "huge" and (data := unbase64(vector["bytes"])) is not None
]


def assert_read_or_refused(data: bytes) -> None:
    """Each way in which bytes from outside are read."""
    options = DecodeOptions(
        check_crcs=False,
        isolation=IsolationLevel.READ_COMMITTED,
        max_decompressed_bytes=LIMIT,
    )
    fetched = decode_fetch("t", 0, data, 0, options, aborted=[(1, 0)])
    failure = None
    try:
        for records in fetched:
            before = -1
            for record in records:
                assert record.offset > before
                before = record.offset
            assert records.next_offset > before
    except CorruptRecord as error:
        failure = error
    assert fetched.exhausted or failure is not None
    assert failure is None or (failure.topic, failure.partition) == ("t", 0)
    try:
        for batch in validate_produced(data, LIMIT):
            assert batch.count == len(batch.columns(LIMIT))
    except CorruptRecord:
        return


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data) - 1))
        kind = draw(st.integers(0, 3))
        if kind == 0:
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == 1:
            data[at : at + 4] = draw(st.binary(min_size=4, max_size=4))
        elif kind == 2:
            data[at : at + draw(st.integers(0, 9))] = draw(st.binary(max_size=9))
        else:
            data[at] = draw(st.sampled_from([0, 1, 127, 128, 255]))
        if not data:
            return b""
    return bytes(data)


@settings(max_examples=100)
@given(damaged())
def test_damaged_vectors(data: bytes) -> None:
    assert_read_or_refused(data)
    assert_read_or_refused(with_crcs(data))


@settings(max_examples=50)
@given(st.binary(max_size=200))
def test_noise(data: bytes) -> None:
    assert_read_or_refused(data)


@settings(max_examples=30)
@given(damaged())
def test_damage_takes_little_memory(data: bytes) -> None:
    tracemalloc.start()
    try:
        assert_read_or_refused(with_crcs(data))
        assert tracemalloc.get_traced_memory()[1] < 12 * LIMIT
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("vector", [v for v in load("records") if v["group"] == "bad"][::5])
def test_conversion_of_bad_batches(vector: dict[str, object]) -> None:
    data = unbase64(vector["bytes"])  # type: ignore[arg-type]
    assert data is not None
    try:
        converted = down_convert(iter_batches(data), 1)
    except CorruptRecord:
        assert "error" in vector
    else:
        assert {batch.magic for batch in iter_batches(converted)} <= {0, 1}
