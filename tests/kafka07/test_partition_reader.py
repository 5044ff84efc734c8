"""Decoding of fetched messages, and the requests of PartitionReader."""

from __future__ import annotations

from base64 import b64encode
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.errors import BrokerError, CorruptRecord, RecordTooLarge, UnknownServerError
from aiokafkawire.kafka07.partition_reader import (
    FetchResult,
    MessageAndOffset,
    PartitionReader,
    ReadStatus,
    broker_error,
)
from aiokafkawire.records.compression import Compression, compress
from aiokafkawire.wire import kafka07
from aiokafkawire.wire.kafka07 import Kafka07ErrorCode
from tests.wire.vectors import lines


def encoded(*payloads: bytes) -> bytes:
    return kafka07.encode_messages(
        [kafka07.Kafka07Message(payload=payload) for payload in payloads]
    )


def wrapped(inner: bytes, codec: int = Compression.GZIP) -> bytes:
    packed = compress(codec, inner)
    return kafka07.encode_messages([kafka07.Kafka07Message(payload=packed, attributes=codec)])


def fetched(data: bytes, offset: int = 0, **fields: Any) -> FetchResult:
    fields = {"max_decompressed_bytes": 2**20, **fields}
    return FetchResult(topic="t", partition=1, offset=offset, data=data, **fields)


def reader_at(offset: int = 0, size: int = 40, max_size: int = 100) -> PartitionReader:
    return PartitionReader("t", 1, offset, size_bytes=size, max_size_bytes=max_size)


def remaining_messages(reader: PartitionReader) -> list[MessageAndOffset]:
    return list(iter(reader.next_message, None))


def test_messages_carry_the_next_offset() -> None:
    data = encoded(b"a", b"bc") + encoded(b"cut")[:-1]
    one = fetched(data, 100)
    assert list(one) == [(b"a", 111), (b"bc", 123)]
    assert one.next_offset == 123
    assert list(fetched(b"", 7)) == []
    assert fetched(b"", 7).next_offset == 7


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY])
def test_next_offset_within_a_compressed_set_is_that_of_the_set(codec: int) -> None:
    packed = wrapped(encoded(b"a", b"b"), codec)
    end = 100 + len(packed)
    one = fetched(packed + encoded(b"c"), 100)
    assert list(one) == [(b"a", 100), (b"b", end), (b"c", end + 11)]


def test_messages_before_a_corrupt_one_are_returned() -> None:
    bad = kafka07.encode_messages([kafka07.Kafka07Message(payload=b"x", crc=1)])
    messages = iter(fetched(encoded(b"a") + bad + encoded(b"b"), 100))
    assert next(messages) == (b"a", 111)
    with pytest.raises(CorruptRecord) as caught:
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
def test_malformed_messages(data: str) -> None:
    one = fetched(encoded(b"a") + bytes.fromhex(data), 5)
    for read in (lambda: list(one), lambda: one.next_offset):
        with pytest.raises(CorruptRecord) as caught:
            read()
        assert (caught.value.offset, caught.value.next_offset) == (16, None)


def test_codecs_of_later_releases_are_unknown() -> None:
    data = kafka07.encode_messages(
        [kafka07.Kafka07Message(payload=compress(Compression.LZ4, encoded(b"a")), attributes=3)]
    )
    with pytest.raises(CorruptRecord, match="unknown codec 3"):
        list(fetched(data))


def test_decompressed_size_and_nesting_are_limited() -> None:
    bomb = wrapped(encoded(bytes(2**22)))
    one = fetched(bomb, 9)
    with pytest.raises(CorruptRecord, match="1048576") as caught:
        list(one)
    assert (caught.value.offset, caught.value.next_offset) == (9, 9 + len(bomb))
    deep = wrapped(wrapped(wrapped(encoded(b"a"))))
    with pytest.raises(CorruptRecord, match="deep"):
        list(fetched(deep))


@given(st.binary(max_size=200), st.integers(0, 2**40))
def test_any_bytes_decode_or_raise_corrupt_records(data: bytes, offset: int) -> None:
    ends: list[int | None] = [offset]
    try:
        ends += [message.next_offset for message in fetched(data, offset)]
    except CorruptRecord as error:
        ends += [error.offset]
    for before, after in pairwise(ends):
        assert before is not None
        assert after is not None
        assert before <= after <= offset + len(data)


def test_messages_match_those_of_the_0_7_2_consumer() -> None:
    compared = 0
    for transcript in lines("kafka07"):
        for step in transcript["steps"]:
            answer = step["decoded_response"]
            if not isinstance(answer, dict) or "consumed" not in answer or answer["error"]:
                continue
            if step.get("closedAfter") or answer["consumedError"] is not None:
                continue
            data = bytes.fromhex(step["receive"])[6:]
            decoded = [
                [message.next_offset, b64encode(message.payload).decode()]
                for message in fetched(data, step["decoded"]["offset"])
            ]
            assert decoded == answer["consumed"], transcript["id"]
            compared += 1
    assert compared > 100


# --- PartitionReader ---


def test_next_request_starts_after_the_last_message() -> None:
    reader = reader_at(100)
    assert reader.next_request == kafka07.Kafka07FetchRequest(
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


def test_reader_skips_an_empty_set() -> None:
    empty = wrapped(b"")
    reader = reader_at()
    reader.handle_response(fetched(empty + encoded(b"a")))
    assert remaining_messages(reader) == [(b"a", len(empty) + 11)]
    reader.handle_response(fetched(empty, reader.offset))
    assert remaining_messages(reader) == []
    assert reader.offset == 2 * len(empty) + 11


def test_fetch_size_grows_to_the_size_of_the_message() -> None:
    reader = reader_at()
    data = encoded(bytes(60), b"a")
    assert reader.handle_response(fetched(data[:40])) is ReadStatus.INCOMPLETE_MESSAGE
    assert reader.next_request.max_size == 70
    assert reader.handle_response(fetched(data[:70])) is ReadStatus.MESSAGES
    assert len(remaining_messages(reader)) == 1
    # The next request has the configured size again.
    assert reader.next_request.max_size == 40


def test_fetch_size_doubles_while_the_length_is_unknown() -> None:
    reader = reader_at(size=3, max_size=5)
    assert reader.handle_response(fetched(b"\0\0\0")) is ReadStatus.INCOMPLETE_MESSAGE
    assert reader.next_request.max_size == 5
    with pytest.raises(RecordTooLarge) as caught:
        reader.handle_response(fetched(b"\0\0\0\x0b\0"))
    assert caught.value.size_bytes == 15


def test_record_too_large_names_the_size() -> None:
    reader = reader_at(7)
    data = encoded(bytes(91))
    with pytest.raises(RecordTooLarge, match="fetch_size_max_bytes") as caught:
        reader.handle_response(fetched(data[:40], 7))
    error = caught.value
    assert (error.size_bytes, error.topic, error.partition, error.offset) == (101, "t", 1, 7)
    # The position is unchanged.
    assert reader.next_request == kafka07.Kafka07FetchRequest(
        topic="t", partition=1, offset=7, max_size=40
    )


def test_segment_that_ends_inside_a_message_is_corrupt() -> None:
    for piece in (b"\0", encoded(b"abc")[:-1]):
        with pytest.raises(CorruptRecord, match="segment ends") as caught:
            reader_at(7).handle_response(fetched(piece, 7))
        assert caught.value.offset == 7


def test_reader_stays_at_a_corrupt_message() -> None:
    reader = reader_at()
    bad = encoded(b"a") + kafka07.encode_messages([kafka07.Kafka07Message(payload=b"x", crc=1)])
    reader.handle_response(fetched(bad))
    assert reader.next_message() == (b"a", 11)
    with pytest.raises(CorruptRecord):
        reader.next_message()
    assert reader.next_message() is None
    assert reader.next_request.offset == 11


def test_error_of_a_result_is_copied_for_each_raise() -> None:
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


def test_exceptions_of_error_codes() -> None:
    where: dict[str, Any] = {"broker": "b", "api": "FETCH", "topic": "t", "partition": 1}
    for code in (Kafka07ErrorCode.OFFSET_OUT_OF_RANGE, Kafka07ErrorCode.WRONG_PARTITION):
        error = broker_error(code, offset=9, **where)
        assert type(error) is BrokerError
        assert (error.code, error.name, error.retriable) == (code, code.name, False)
        assert str(error).endswith("(broker b, api FETCH, topic t, partition 1, offset 9)")
    for number in (-1, 2, 99):
        unknown = broker_error(number, **where)
        assert isinstance(unknown, UnknownServerError)
        assert unknown.code == number
