"""From bytes to messages, and what a reading loop asks for next."""

from __future__ import annotations

from base64 import b64encode
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.errors import BrokerError, CorruptRecords, RecordTooLarge, UnknownServerError
from aiokafkawire.kafka07.partition_reader import (
    FetchResult,
    MessageAndOffset,
    PartitionReader,
    ReadStatus,
    broker_error,
)
from aiokafkawire.records.compression import Compression, compress
from aiokafkawire.wire import kafka07
from aiokafkawire.wire.kafka07 import ErrorCode
from tests.wire.vectors import lines


def encoded(*payloads: bytes) -> bytes:
    return kafka07.encode_messages([kafka07.Message(payload=payload) for payload in payloads])


def wrapped(inner: bytes, codec: int = Compression.GZIP) -> bytes:
    packed = compress(codec, inner)
    return kafka07.encode_messages([kafka07.Message(payload=packed, attributes=codec)])


def fetched(data: bytes, offset: int = 0, **fields: Any) -> FetchResult:
    fields = {"max_decompressed_bytes": 2**20, **fields}
    return FetchResult(topic="t", partition=1, offset=offset, data=data, **fields)


def reader_at(offset: int = 0, size: int = 40, max_size: int = 100) -> PartitionReader:
    return PartitionReader("t", 1, offset, size_bytes=size, max_size_bytes=max_size)


def remaining_messages(reader: PartitionReader) -> list[MessageAndOffset]:
    return list(iter(reader.next_message, None))


def test_messages_come_with_the_offset_after_them() -> None:
    data = encoded(b"a", b"bc") + encoded(b"cut")[:-1]
    one = fetched(data, 100)
    assert list(one) == [(b"a", 111), (b"bc", 123)]
    assert one.next_offset == 123
    assert list(fetched(b"", 7)) == []
    assert fetched(b"", 7).next_offset == 7


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY])
def test_inside_of_a_set_the_offset_is_the_sets(codec: int) -> None:
    packed = wrapped(encoded(b"a", b"b"), codec)
    end = 100 + len(packed)
    one = fetched(packed + encoded(b"c"), 100)
    assert list(one) == [(b"a", 100), (b"b", end), (b"c", end + 11)]


def test_damage_is_told_after_what_is_before_it() -> None:
    bad = kafka07.encode_messages([kafka07.Message(payload=b"x", crc=1)])
    messages = iter(fetched(encoded(b"a") + bad + encoded(b"b"), 100))
    assert next(messages) == (b"a", 111)
    with pytest.raises(CorruptRecords) as caught:
        next(messages)
    error = caught.value
    assert (error.topic, error.partition, error.offset, error.next_offset) == ("t", 1, 111, 122)
    assert "checksum" in str(error)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param("ffffffff", id="negative length"),
        pytest.param("00000004 00 000000", id="shorter than its header"),
        pytest.param("00000006 02 00 00000000", id="magic"),
    ],
)
def test_what_is_no_message(data: str) -> None:
    one = fetched(encoded(b"a") + bytes.fromhex(data), 5)
    for read in (lambda: list(one), lambda: one.next_offset):
        with pytest.raises(CorruptRecords) as caught:
            read()
        assert (caught.value.offset, caught.value.next_offset) == (16, None)


def test_a_codec_of_later_versions_is_none_of_0_7() -> None:
    data = kafka07.encode_messages(
        [kafka07.Message(payload=compress(Compression.LZ4, encoded(b"a")), attributes=3)]
    )
    with pytest.raises(CorruptRecords, match="no codec 3"):
        list(fetched(data))


def test_a_bomb_is_stopped() -> None:
    bomb = wrapped(encoded(bytes(2**22)))
    one = fetched(bomb, 9)
    with pytest.raises(CorruptRecords, match="1048576") as caught:
        list(one)
    assert (caught.value.offset, caught.value.next_offset) == (9, 9 + len(bomb))
    deep = wrapped(wrapped(wrapped(encoded(b"a"))))
    with pytest.raises(CorruptRecords, match="deep"):
        list(fetched(deep))


@given(st.binary(max_size=200), st.integers(0, 2**40))
def test_any_bytes_are_messages_or_damage(data: bytes, offset: int) -> None:
    ends: list[int | None] = [offset]
    try:
        ends += [message.next_offset for message in fetched(data, offset)]
    except CorruptRecords as error:
        ends += [error.offset]
    for before, after in pairwise(ends):
        assert before is not None
        assert after is not None
        assert before <= after <= offset + len(data)


def test_messages_are_those_that_a_consumer_of_0_7_2_gave() -> None:
    compared = 0
    for transcript in lines("kafka07"):
        for step in transcript["steps"]:
            answer = step["decoded_response"]
            if not isinstance(answer, dict) or "consumed" not in answer or answer["error"]:
                continue
            if step.get("closedAfter") or answer["consumedError"] is not None:
                continue
            data = bytes.fromhex(step["receive"])[6:]
            given = [
                [message.next_offset, b64encode(message.payload).decode()]
                for message in fetched(data, step["decoded"]["offset"])
            ]
            assert given == answer["consumed"], transcript["id"]
            compared += 1
    assert compared > 100


# --- the loop ---


def test_the_loop_goes_on_after_what_was_taken() -> None:
    reader = reader_at(100)
    assert reader.next_request == kafka07.FetchRequest(
        topic="t", partition=1, offset=100, max_size=40
    )
    assert reader.next_message() is None
    assert (
        reader.handle_response(fetched(encoded(b"a", b"b") + b"\0\0", 100)) is ReadStatus.MESSAGES
    )
    assert reader.next_message() == (b"a", 111)
    assert reader.next_request.offset == 111
    assert remaining_messages(reader) == [(b"b", 122)]
    assert reader.next_request.offset == 122
    assert reader.handle_response(fetched(b"", 122)) is ReadStatus.END_OF_LOG


def test_an_empty_set_is_passed_over() -> None:
    empty = wrapped(b"")
    reader = reader_at()
    reader.handle_response(fetched(empty + encoded(b"a")))
    assert remaining_messages(reader) == [(b"a", len(empty) + 11)]
    reader.handle_response(fetched(empty, reader.offset))
    assert remaining_messages(reader) == []
    assert reader.offset == 2 * len(empty) + 11


def test_a_loop_asks_for_as_much_as_the_message_needs() -> None:
    reader = reader_at()
    data = encoded(bytes(60), b"a")
    assert reader.handle_response(fetched(data[:40])) is ReadStatus.INCOMPLETE_MESSAGE
    assert reader.next_request.max_size == 70
    assert reader.handle_response(fetched(data[:70])) is ReadStatus.MESSAGES
    assert len(remaining_messages(reader)) == 1
    # And for the usual size afterwards.
    assert reader.next_request.max_size == 40


def test_a_loop_that_cannot_see_the_length_asks_for_twice_as_much() -> None:
    reader = reader_at(size=3, max_size=5)
    assert reader.handle_response(fetched(b"\0\0\0")) is ReadStatus.INCOMPLETE_MESSAGE
    assert reader.next_request.max_size == 5
    with pytest.raises(RecordTooLarge) as caught:
        reader.handle_response(fetched(b"\0\0\0\x0b\0"))
    assert caught.value.size_bytes == 15


def test_a_message_beyond_the_bound_is_told_with_its_size() -> None:
    reader = reader_at(7)
    data = encoded(bytes(91))
    with pytest.raises(RecordTooLarge, match="fetch_size_max_bytes") as caught:
        reader.handle_response(fetched(data[:40], 7))
    error = caught.value
    assert (error.size_bytes, error.topic, error.partition, error.offset) == (101, "t", 1, 7)
    # It stands where it stood.
    assert reader.next_request == kafka07.FetchRequest(
        topic="t", partition=1, offset=7, max_size=40
    )


def test_a_segment_that_ends_inside_of_a_message_is_damage() -> None:
    for piece in (b"\0", encoded(b"abc")[:-1]):
        with pytest.raises(CorruptRecords, match="segment ends") as caught:
            reader_at(7).handle_response(fetched(piece, 7))
        assert caught.value.offset == 7


def test_a_loop_stands_at_damage() -> None:
    reader = reader_at()
    bad = encoded(b"a") + kafka07.encode_messages([kafka07.Message(payload=b"x", crc=1)])
    reader.handle_response(fetched(bad))
    assert reader.next_message() == (b"a", 11)
    with pytest.raises(CorruptRecords):
        reader.next_message()
    assert reader.next_message() is None
    assert reader.next_request.offset == 11


def test_errors_are_raised_each_time() -> None:
    error = broker_error(1, broker="b", api="FETCH", topic="t", partition=1, offset=5)
    one = fetched(b"", error=error)
    for read in (
        lambda: list(one),
        lambda: one.next_offset,
        lambda: reader_at().handle_response(one),
    ):
        with pytest.raises(BrokerError, match="OFFSET_OUT_OF_RANGE") as caught:
            read()
        assert caught.value is not error


def test_codes_have_errors_of_their_own() -> None:
    where: dict[str, Any] = {"broker": "b", "api": "FETCH", "topic": "t", "partition": 1}
    for code in (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.WRONG_PARTITION):
        error = broker_error(code, offset=9, **where)
        assert type(error) is BrokerError
        assert (error.code, error.name, error.retriable) == (code, code.name, False)
        assert str(error).endswith("(broker b, api FETCH, topic t, partition 1, offset 9)")
    for number in (-1, 2, 99):
        unknown = broker_error(number, **where)
        assert isinstance(unknown, UnknownServerError)
        assert unknown.code == number
