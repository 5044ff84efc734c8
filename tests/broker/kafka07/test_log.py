"""A log of bytes in segments."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.broker.kafka07.log import Log, OffsetOutOfRange
from aiokafkawire.wire.kafka07 import EARLIEST, LATEST

NOW_MS = 1_000


def log_of(*sets: bytes, segment_bytes: int = 10, retention_bytes: int = 1_000) -> Log:
    """A log with these message sets, of one message each, written at 1, 2, 3 … ms."""
    log = Log(segment_bytes, retention_bytes, 0)
    for number, data in enumerate(sets, 1):
        log.append(data, 1, number)
    return log


def test_the_log_is_read_from_any_position() -> None:
    log = log_of(b"abc", b"defg")
    assert (log.start, log.end) == (0, 7)
    assert log.read(0, 100) == b"abcdefg"
    assert log.read(4, 2) == b"ef"
    assert log.read(7, 100) == b""
    for offset in (-1, 8, 2**62):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, 100)


def test_a_full_segment_is_rolled() -> None:
    log = log_of(b"a" * 10, b"b", b"c", b"d" * 30, b"e")
    assert log.read(0, 100) == b"a" * 10 + b"b"
    assert log.read(10, 100) == b"b"
    assert log.read(11, 100) == b"c" + b"d" * 30
    assert log.offsets(LATEST, 10, NOW_MS) == (43, 42, 11, 0)


def test_a_set_without_messages_is_seen_after_the_next() -> None:
    log = log_of(b"a")
    log.append(b"empty", 0, 2)
    assert log.end == 1
    assert log.offsets(LATEST, 10, NOW_MS) == (1, 0)
    log.append(b"b", 1, 3)
    assert log.read(0, 100) == b"aemptyb"
    # A new segment makes it visible as well.
    log = log_of(b"a" * 10)
    log.append(b"empty", 0, 2)
    log.append(b"", 0, 3)
    assert log.end == 15


def test_offsets_of_a_time_are_those_of_segments_written_by_then() -> None:
    log = log_of(b"a" * 11, b"b" * 11, b"c" * 11)
    assert log.offsets(EARLIEST, 10, NOW_MS) == (0,)
    assert log.offsets(0, 10, NOW_MS) == ()
    assert log.offsets(1, 10, NOW_MS) == (0,)
    assert log.offsets(2, 10, NOW_MS) == (11, 0)
    assert log.offsets(NOW_MS - 1, 10, NOW_MS) == (22, 11, 0)
    assert log.offsets(NOW_MS, 2, NOW_MS) == (33, 22)
    assert log.offsets(LATEST, 0, NOW_MS) == ()
    assert log_of().offsets(LATEST, 10, NOW_MS) == (0,)


def test_old_segments_go() -> None:
    log = log_of(*[bytes([65 + number]) * 11 for number in range(5)], retention_bytes=30)
    assert (log.start, log.end) == (33, 55)
    assert log.offsets(EARLIEST, 1, NOW_MS) == (33,)
    with pytest.raises(OffsetOutOfRange):
        log.read(32, 1)
    # A segment above the retention size is kept until another one follows.
    log = log_of(b"a" * 100, retention_bytes=30)
    assert log.start == 0
    log.append(b"b", 1, 2)
    assert (log.start, log.end) == (100, 101)


@given(st.lists(st.binary(max_size=30)), st.integers(1, 50), st.integers(1, 40))
def test_reading_on_gives_all_that_was_written(sets: list[bytes], segment: int, size: int) -> None:
    log = log_of(*sets, segment_bytes=segment, retention_bytes=10_000)
    read = bytearray()
    while data := log.read(len(read), size):
        assert len(data) <= size
        read += data
    assert read == b"".join(sets)
