"""The protocol of 0.7: bytes of the specification, and transcripts of a 0.7.2 broker."""

import base64
import contextlib
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.errors import MalformedMessage
from aiokafkawire.records import compression
from aiokafkawire.wire import kafka07
from aiokafkawire.wire.kafka07 import (
    Kafka07ErrorCode,
    Kafka07FetchRequest,
    Kafka07FetchResponse,
    Kafka07Message,
    Kafka07MultiFetchRequest,
    Kafka07MultiFetchResponse,
    Kafka07MultiProducerRequest,
    Kafka07OffsetRequest,
    Kafka07OffsetResponse,
    Kafka07ProducerRequest,
    LogEntry,
    Request,
)
from tests.wire import vectors

MAX_DECOMPRESSED_BYTES = 1 << 20

# CRC32 of "hello" is 3610a686.
MAGIC_0 = bytes.fromhex("0000000a 00 3610a686 68656c6c6f")
MAGIC_1 = bytes.fromhex("0000000b 01 00 3610a686 68656c6c6f")


def decompress(codec: int, data: bytes) -> bytes:
    return compression.decompress(codec, data, MAX_DECOMPRESSED_BYTES)


@pytest.mark.parametrize(
    ("message", "raw"),
    [
        pytest.param(Kafka07Message(payload=b"hello", magic=0), MAGIC_0, id="magic 0"),
        pytest.param(Kafka07Message(payload=b"hello"), MAGIC_1, id="magic 1"),
        pytest.param(
            Kafka07Message(payload=b"", attributes=2),
            bytes.fromhex("00000006 01 02 00000000"),
            id="snappy of nothing",
        ),
    ],
)
def test_messages_match_the_specification(message: Kafka07Message, raw: bytes) -> None:
    assert kafka07.encode_messages([message]) == raw
    ((offset, following, found),) = kafka07.iter_messages(raw, 100)
    assert (offset, following) == (100, 100 + len(raw))
    assert found == Kafka07Message(
        payload=message.payload,
        magic=message.magic,
        attributes=message.attributes,
        crc=zlib.crc32(message.payload),
    )
    assert found.crc_valid
    assert message.crc_valid


FETCH = Kafka07FetchRequest(topic="ab", partition=1, offset=2, max_size=3)
PRODUCE = Kafka07ProducerRequest(topic="ab", partition=1, messages=MAGIC_1)


@pytest.mark.parametrize(
    ("request_", "specified"),
    [
        pytest.param(
            PRODUCE,
            "0000001d 0000 0002 6162 00000001 0000000f" + MAGIC_1.hex(),
            id="PRODUCE",
        ),
        pytest.param(
            FETCH, "00000016 0001 0002 6162 00000001 0000000000000002 00000003", id="FETCH"
        ),
        pytest.param(
            Kafka07OffsetRequest(topic="ab", partition=1, time=kafka07.LATEST, max_number=3),
            "00000016 0004 0002 6162 00000001 ffffffffffffffff 00000003",
            id="OFFSETS, latest",
        ),
        pytest.param(
            Kafka07OffsetRequest(topic="ab", partition=1, time=kafka07.EARLIEST, max_number=1),
            "00000016 0004 0002 6162 00000001 fffffffffffffffe 00000001",
            id="OFFSETS, earliest",
        ),
        pytest.param(
            Kafka07MultiFetchRequest(requests=(FETCH, FETCH)),
            "0000002c 0002 0002" + 2 * "0002 6162 00000001 0000000000000002 00000003",
            id="MULTIFETCH",
        ),
        pytest.param(
            Kafka07MultiProducerRequest(requests=(PRODUCE,)),
            "0000001f 0003 0001 0002 6162 00000001 0000000f" + MAGIC_1.hex(),
            id="MULTIPRODUCE",
        ),
    ],
)
def test_requests_match_the_specification(request_: Request, specified: str) -> None:
    raw = bytes.fromhex(specified)
    assert kafka07.encode_request(request_) == raw
    assert kafka07.decode_request(raw[4:]) == (request_, len(raw) - 4)
    # Trailing bytes are left to the caller.
    assert kafka07.decode_request(raw[4:] + b"?") == (request_, len(raw) - 4)
    for size in range(len(raw) - 4):
        with pytest.raises(MalformedMessage):
            kafka07.decode_request(raw[4 : 4 + size])


def test_responses_match_the_specification() -> None:
    fetched = Kafka07FetchResponse(messages=MAGIC_0)
    raw = bytes.fromhex("00000010 0000" + MAGIC_0.hex())
    assert kafka07.encode_response(fetched) == raw
    assert kafka07.decode_fetch_response(raw[4:]) == fetched

    refused = Kafka07FetchResponse(error=Kafka07ErrorCode.WRONG_PARTITION)
    assert kafka07.encode_response(refused) == bytes.fromhex("00000002 0003")
    assert kafka07.decode_fetch_response(b"\x00\x03") == refused

    several = Kafka07MultiFetchResponse(responses=(refused, fetched))
    raw = bytes.fromhex("0000001c 0000 00000002 0003 00000010 0000" + MAGIC_0.hex())
    assert kafka07.encode_response(several) == raw
    assert kafka07.decode_multi_fetch_response(raw[4:]) == several

    offsets = Kafka07OffsetResponse(offsets=(7, 0))
    raw = bytes.fromhex("00000016 0000 00000002 0000000000000007 0000000000000000")
    assert kafka07.encode_response(offsets) == raw
    assert kafka07.decode_offsets_response(raw[4:]) == offsets


@pytest.mark.parametrize(
    ("frame", "field", "reason"),
    [
        ("", "request_type", "ends inside"),
        ("0005", "request_type", "unknown request type 5"),
        ("ffff", "request_type", "unknown request type -1"),
        ("0001 ffff", "topic", "invalid length -1"),
        ("0001 0003 6162", "topic", "length 3 exceeds"),
        ("0000 0001 61 00000000 ffffffff", "messages", "invalid length -1"),
        ("0000 0001 61 00000000 00000001", "messages", "length 1 exceeds"),
        ("0002 ffff", "count", "invalid count -1"),
        ("0002 7fff 0000", "count", "32767 elements"),
        ("0003 0001 0000", "count", "1 elements"),
    ],
)
def test_malformed_requests(frame: str, field: str, reason: str) -> None:
    with pytest.raises(MalformedMessage) as caught:
        kafka07.decode_request(bytes.fromhex(frame))
    assert reason in caught.value.reason
    assert (caught.value.field, caught.value.version) == (field, None)
    assert "vNone" not in str(caught.value)


@pytest.mark.parametrize(
    ("decode", "frame", "reason"),
    [
        (kafka07.decode_fetch_response, "00", "ends inside"),
        (kafka07.decode_multi_fetch_response, "0000 00000001 0000", "invalid length 1"),
        (kafka07.decode_multi_fetch_response, "0000 00000003 0000", "length 1 exceeds"),
        (kafka07.decode_multi_fetch_response, "0000 000000", "ends inside"),
        (kafka07.decode_offsets_response, "0000 ffffffff", "invalid count -1"),
        (kafka07.decode_offsets_response, "0000 7fffffff", "2147483647 elements"),
        (kafka07.decode_offsets_response, "0000 00000000 00", "1 trailing"),
    ],
)
def test_malformed_responses(decode: Callable[[bytes], Any], frame: str, reason: str) -> None:
    with pytest.raises(MalformedMessage) as caught:
        decode(bytes.fromhex(frame))
    assert reason in caught.value.reason


def test_incomplete_last_message_is_skipped() -> None:
    whole = MAGIC_0 + MAGIC_1
    for size in range(len(whole) + 1):
        found = [entry.next_offset for entry in kafka07.iter_messages(whole[:size])]
        assert found == [end for end in (len(MAGIC_0), len(whole)) if end <= size]
    assert kafka07.first_message_size(whole[:4]) == len(MAGIC_0)
    assert kafka07.first_message_size(whole[:3]) is None


@pytest.mark.parametrize(
    ("raw", "field", "reason"),
    [
        ("ffffffff", "length", "invalid length -1"),
        ("00000004 00 000000", "length", "invalid length 4"),
        ("00000005 01 00000000", "length", "invalid length 5 for magic 1"),
        ("00000006 02 00 00000000", "magic", "unknown magic 2"),
    ],
)
def test_malformed_messages(raw: str, field: str, reason: str) -> None:
    data = MAGIC_1 + bytes.fromhex(raw)
    entries = kafka07.iter_messages(data)
    assert next(entries).offset == 0
    with pytest.raises(MalformedMessage) as caught:
        next(entries)
    assert reason in caught.value.reason
    assert caught.value.field == field


def test_invalid_values() -> None:
    with pytest.raises(ValueError, match="FetchRequest"):
        kafka07.encode_request(
            Kafka07FetchRequest(topic="t", partition=2**31, offset=0, max_size=0)
        )
    with pytest.raises(ValueError, match="32768 bytes"):
        kafka07.encode_request(
            Kafka07OffsetRequest(topic="t" * 2**15, partition=0, time=0, max_number=0)
        )
    with pytest.raises(ValueError, match="OffsetResponse"):
        kafka07.encode_response(Kafka07OffsetResponse(offsets=(2**63,)))
    for message in (
        Kafka07Message(payload=b"", magic=2),
        Kafka07Message(payload=b"", magic=0, attributes=1),
    ):
        with pytest.raises(ValueError, match="invalid message: magic"):
            kafka07.encode_messages([message])


def wrapper(*messages: Kafka07Message, codec: int = 1) -> Kafka07Message:
    raw = compression.compress(codec, kafka07.encode_messages(messages))
    return Kafka07Message(payload=raw, attributes=codec)


@pytest.mark.parametrize("codec", [1, 2])
def test_offsets_in_a_compressed_set(codec: int) -> None:
    plain = Kafka07Message(payload=b"plain")
    first, empty = (
        wrapper(Kafka07Message(payload=b"a"), Kafka07Message(payload=b"b"), codec=codec),
        wrapper(),
    )
    sizes = [len(kafka07.encode_messages([message])) for message in (plain, first, empty, plain)]
    data = kafka07.encode_messages([plain, first, empty, plain])
    assert list(kafka07.iter_payloads(data, 10, decompress)) == [
        (10 + sizes[0], b"plain"),
        (10 + sizes[0], b"a"),
        (10 + sum(sizes[:2]), b"b"),
        (10 + sum(sizes), b"plain"),
    ]


def test_nesting_of_compressed_sets_is_limited() -> None:
    inner = wrapper(Kafka07Message(payload=b"a"), codec=2)
    data = kafka07.encode_messages([wrapper(inner)])
    assert list(kafka07.iter_payloads(data, 0, decompress)) == [(len(data), b"a")]
    data = kafka07.encode_messages([wrapper(wrapper(inner))])
    with pytest.raises(MalformedMessage, match="more than 2 deep"):
        list(kafka07.iter_payloads(data, 0, decompress))


def test_iter_payloads_verifies_checksums() -> None:
    wrong = Kafka07Message(payload=b"a", crc=7)
    assert not wrong.crc_valid
    for message in (wrong, wrapper(wrong)):
        data = kafka07.encode_messages([message])
        assert len(list(kafka07.iter_messages(data))) == 1
        with pytest.raises(MalformedMessage, match="checksum"):
            list(kafka07.iter_payloads(data, 0, decompress))


@given(st.binary(max_size=60))
def test_any_bytes_decode_or_raise_malformed_message(raw: bytes) -> None:
    for decode in (
        kafka07.decode_request,
        kafka07.decode_fetch_response,
        kafka07.decode_multi_fetch_response,
        kafka07.decode_offsets_response,
        lambda data: list(kafka07.iter_messages(data)),
    ):
        with contextlib.suppress(MalformedMessage):
            decode(raw)


# The transcripts of a real 0.7.2.

FILE = "kafka07"


def message_of(form: dict[str, Any]) -> Kafka07Message:
    return Kafka07Message(
        payload=base64.b64decode(form["payload"]),
        magic=form["magic"],
        attributes=form.get("attributes", 0),
        crc=form["crc"],
    )


def set_of(form: dict[str, Any]) -> bytes:
    """Build a set from messages and from raw bytes."""
    parts = []
    for message in form["messages"]:
        if "raw" in message:
            raw = bytes.fromhex(message["raw"])
            parts.append(len(raw).to_bytes(4) + raw)
        else:
            parts.append(kafka07.encode_messages([message_of(message)]))
    return b"".join(parts) + bytes.fromhex(form.get("rest", ""))


def topic_of(form: dict[str, Any]) -> str:
    topic: str | dict[str, str] = form["topic"]
    if isinstance(topic, str):
        return topic
    return bytes.fromhex(topic["hex"]).decode("utf-8", "surrogateescape")


def produce_of(form: dict[str, Any]) -> Kafka07ProducerRequest:
    messages = set_of(form)
    assert len(messages) == form["messagesLength"]
    return Kafka07ProducerRequest(
        topic=topic_of(form), partition=form["partition"], messages=messages
    )


def fetch_of(form: dict[str, Any]) -> Kafka07FetchRequest:
    return Kafka07FetchRequest(
        topic=topic_of(form),
        partition=form["partition"],
        offset=form["offset"],
        max_size=form["maxSize"],
    )


def request_of(form: dict[str, Any]) -> Request:
    match form["request"]:
        case "PRODUCE":
            return produce_of(form)
        case "FETCH":
            return fetch_of(form)
        case "MULTIPRODUCE":
            return Kafka07MultiProducerRequest(requests=tuple(map(produce_of, form["requests"])))
        case "MULTIFETCH":
            return Kafka07MultiFetchRequest(requests=tuple(map(fetch_of, form["requests"])))
        case "OFFSETS":
            return Kafka07OffsetRequest(
                topic=topic_of(form),
                partition=form["partition"],
                time=form["time"],
                max_number=form["maxNumber"],
            )
    raise AssertionError(form)


def frames(raw: bytes) -> Iterator[bytes]:
    while raw:
        end = 4 + int.from_bytes(raw[:4])
        yield raw[4:end]
        raw = raw[end:]


def as_list(form: Any) -> list[Any]:
    return form if isinstance(form, list) else [form]


def has_no_request(form: dict[str, Any]) -> bool:
    parts = [form, *form.get("requests", ())]
    return (
        "malformed" in form
        or form["request"] is None
        or form.get("count", 0) < 0
        or any(part.get("topic", "") is None for part in parts)
    )


@pytest.mark.parametrize("transcript", vectors.lines(FILE), ids=lambda line: line["id"])
def test_requests_of_a_transcript(
    transcript: dict[str, Any], record_property: Callable[[str, object], None]
) -> None:
    for step in transcript["steps"]:
        expected = as_list(step["decoded"])
        if "note" in expected[0]:
            # Only an invalid length was sent.
            continue
        for form, frame in zip(expected, frames(bytes.fromhex(step["send"])), strict=True):
            if "request" not in form or has_no_request(form):
                with pytest.raises(MalformedMessage):
                    kafka07.decode_request(frame)
                record_property("counted", "requests of 0.7 that are none, refused")
                continue
            request = request_of(form)
            trailing = bytes.fromhex(form.get("trailing", ""))
            assert kafka07.encode_request(request)[4:] + trailing == frame
            assert kafka07.decode_request(frame) == (request, len(frame) - len(trailing))
            record_property("counted", "requests of 0.7 made from their decoded form")


def check_set(response: Kafka07FetchResponse, form: dict[str, Any], offset: int) -> None:
    assert response.error == form["error"]
    assert response.messages == set_of(form)
    if "consumed" not in form:
        assert not response.messages
        return
    entries: list[LogEntry] = []
    refused = None
    try:
        entries += kafka07.iter_messages(response.messages, offset)
    except MalformedMessage as error:
        refused = error
    assert entries == [
        LogEntry(expected["offset"], expected["next"], message_of(expected))
        for expected in form["messages"]
    ]
    for entry, expected in zip(entries, form["messages"], strict=True):
        assert entry.message.crc_valid == expected["crcValid"]
        assert entry.message.compression == (expected["compression"] or 0)
    if form["consumedError"]:
        # The set starts with an incomplete message.
        assert refused or (not entries and kafka07.first_message_size(response.messages))
        return
    assert refused is None
    consumed = list(kafka07.iter_payloads(response.messages, offset, decompress))
    assert consumed == [(after, base64.b64decode(data)) for after, data in form["consumed"]]


def check_response(frame: bytes, form: dict[str, Any], request: dict[str, Any]) -> bytes:
    """Compare a decoded frame with its description, and encode it again."""
    assert len(frame) == form["length"]
    if "offsets" in form:
        offsets = kafka07.decode_offsets_response(frame)
        assert offsets == Kafka07OffsetResponse(error=form["error"], offsets=tuple(form["offsets"]))
        return kafka07.encode_response(offsets)
    if "responses" in form:
        several = kafka07.decode_multi_fetch_response(frame)
        assert several.error == form["error"]
        expected = zip(several.responses, form["responses"], request["requests"], strict=True)
        for response, part, asked in expected:
            assert len(response.messages) + 2 == part["length"]
            check_set(response, part, asked["offset"])
        return kafka07.encode_response(several)
    fetched = kafka07.decode_fetch_response(frame)
    check_set(fetched, form, request["offset"])
    return kafka07.encode_response(fetched)


@pytest.mark.parametrize("transcript", vectors.lines(FILE), ids=lambda line: line["id"])
def test_responses_of_a_transcript(
    transcript: dict[str, Any], record_property: Callable[[str, object], None]
) -> None:
    for step in transcript["steps"]:
        if step["decoded_response"] is None:
            continue
        requests = [form for form in as_list(step["decoded"]) if form["request"] != "PRODUCE"]
        forms = as_list(step["decoded_response"])
        for frame, form, request in zip(
            frames(bytes.fromhex(step["receive"])), forms, requests, strict=False
        ):
            raw = check_response(frame, form, request)
            assert raw == len(frame).to_bytes(4) + frame
            record_property("counted", "responses of 0.7.2, both directions")
