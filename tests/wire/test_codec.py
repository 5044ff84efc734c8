"""Round trips, hostile bytes and invalid values, through the public functions."""

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokafkawire import wire
from aiokafkawire.errors import MalformedMessage, UnsupportedVersion
from aiokafkawire.wire import codec
from aiokafkawire.wire.diagnostics import diagnose_decode_error
from aiokafkawire.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from aiokafkawire.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartitionData,
    FetchResponse,
)
from aiokafkawire.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from aiokafkawire.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from aiokafkawire.wire.schema import Message
from tests.wire.strategies import messages


@settings(max_examples=100, deadline=None)
@given(messages())
def test_round_trip(drawn: tuple[Message, int]) -> None:
    message, version = drawn
    raw = wire.encode(message, version)
    again = wire.decode(type(message), version, raw)
    assert again == message
    assert wire.encode(again, version) == raw
    form = wire.to_json(message, version)
    assert wire.from_json(type(message), version, form) == message


@settings(max_examples=100, deadline=None)
@given(messages(), st.data())
def test_corrupted_bytes_are_rejected_or_decode_to_another_message(
    drawn: tuple[Message, int], data: st.DataObject
) -> None:
    message, version = drawn
    cls = type(message)
    raw = bytearray(wire.encode(message, version))
    start = data.draw(st.integers(0, len(raw)))
    stop = data.draw(st.integers(start, min(len(raw), start + 4)))
    raw[start:stop] = data.draw(st.binary(max_size=4) | st.sampled_from([b"\xff" * 4, b"\x7f"]))
    decoded, error = decoded_or_error(cls, version, raw)
    if error is None:
        # The diagnostic walker finds no error either.
        assert "could not be decoded" in str(diagnose_decode_error(cls, version, raw))
        # The order of unknown tagged fields may have changed, so bytes are compared.
        again = wire.encode(decoded, version)
        assert wire.encode(wire.decode(cls, version, again), version) == again
    else:
        assert error.message is not None
        assert error.version == version
        assert error.position is not None
        assert 0 <= error.position <= len(raw)
        assert "could not be decoded" not in str(error)


def decoded_or_error(
    cls: type[Message], version: int, raw: bytearray
) -> tuple[Any, MalformedMessage | None]:
    try:
        return wire.decode(cls, version, raw), None
    except MalformedMessage as error:
        return None, error


@settings(max_examples=50, deadline=None)
@given(messages())
def test_truncated_messages_are_rejected(drawn: tuple[Message, int]) -> None:
    message, version = drawn
    raw = wire.encode(message, version)
    for size in {0, len(raw) // 2, len(raw) - 1} - {-1, len(raw)}:
        with pytest.raises(MalformedMessage):
            wire.decode(type(message), version, raw[:size])


def malformed(cls: type[Message], version: int, raw: bytes) -> tuple[str, str | None, int | None]:
    with pytest.raises(MalformedMessage) as caught:
        wire.decode(cls, version, raw)
    error = caught.value
    assert error.message == cls.__name__
    assert error.version == version
    assert not error.retriable
    return error.reason, error.field, error.position


HEARTBEAT_4 = b"\x02g" + struct.pack(">i", 1) + b"\x02m" + b"\x00"  # no tagged fields yet


@pytest.mark.parametrize(
    ("version", "raw", "reason", "field", "position"),
    [
        pytest.param(0, b"\x00", "ends inside", "group_id", 0, id="cut in a length"),
        pytest.param(0, b"\x00\x05ab", "length 5 exceeds", "group_id", 0, id="overlong string"),
        pytest.param(0, b"\xff\xff", "null", "group_id", 0, id="null string"),
        pytest.param(0, b"\xff\xfe", "negative", "group_id", 0, id="negative length"),
        pytest.param(0, b"\x00\x02\xc3\x28", "UTF-8", "group_id", 2, id="invalid UTF-8"),
        pytest.param(0, b"\x00\x01g\x00\x00", "ends inside", "generation_id", 3, id="cut integer"),
        pytest.param(
            0, b"\x00\x01g\x00\x00\x00\x01\x00\x01m??", "2 trailing", None, 10, id="trailing bytes"
        ),
        pytest.param(4, b"\x00", "null", "group_id", 0, id="null compact string"),
        pytest.param(4, b"\x80\x80", "past the end", "group_id", 0, id="cut varint"),
        pytest.param(
            4, b"\x80\x80\x80\x80\x80\x01", "longer than 5 bytes", "group_id", 0, id="long varint"
        ),
        pytest.param(
            4, b"\xff\xff\xff\xff\x7f", "more than 32 bits", "group_id", 0, id="large varint"
        ),
        pytest.param(
            4,
            b"\x81\x80\x02" + b"x" * 32_768,
            "exceeds the limit of 32767",
            "group_id",
            0,
            id="long string",
        ),
        pytest.param(
            4, HEARTBEAT_4 + b"\x05\x00", "5 tagged fields", "tagged fields", 9, id="tag count"
        ),
        pytest.param(
            4, HEARTBEAT_4 + b"\x01\x07\x09a", "size 9", "tagged fields", 10, id="tag size"
        ),
        pytest.param(
            4,
            HEARTBEAT_4 + b"\x02\x07\x00\x07\x00",
            "duplicate tag",
            "tagged fields",
            12,
            id="same tag",
        ),
    ],
)
def test_hostile_heartbeats(
    version: int, raw: bytes, reason: str, field: str | None, position: int
) -> None:
    found = malformed(HeartbeatRequest, version, raw)
    assert reason in found[0]
    assert found[1:] == (field, position)


def test_array_counts_are_checked_before_allocation() -> None:
    count = struct.pack(">i", 2**31 - 1)
    reason, field, position = malformed(ApiVersionsResponse, 0, b"\x00\x00" + count + b"\x00" * 60)
    assert "2147483647 elements" in reason
    assert (field, position) == ("api_keys", 2)
    # Eleven entries of six bytes do not fit into 60 bytes; ten do.
    eleven = b"\x00\x00\x00\x00\x00\x0b" + b"\x00" * 60
    assert "11 elements" in malformed(ApiVersionsResponse, 0, eleven)[0]
    ten = b"\x00\x00\x00\x00\x00\x0a" + b"\x00" * 60
    assert len(wire.decode(ApiVersionsResponse, 0, ten).api_keys) == 10
    # A compact count of 2^32-2 in a flexible version, and an array of plain integers.
    assert "elements" in malformed(ApiVersionsResponse, 3, b"\x00\x00\xff\xff\xff\xff\x0f")[0]
    assert malformed(ApiVersionsResponse, 0, b"\x00\x00\xff\xff\xff\xff")[0].startswith("null")


def test_error_paths_include_arrays_and_tagged_fields() -> None:
    response = FetchResponse(
        responses=[
            FetchableTopicResponse(topic="a", partitions=[]),
            FetchableTopicResponse(
                topic="b",
                partitions=[
                    FetchPartitionData(
                        partition_index=0, error_code=0, high_watermark=1, records=b"x"
                    )
                ],
            ),
        ]
    )
    raw = wire.encode(response, 4)
    assert malformed(FetchResponse, 4, raw[:-1])[1] == "responses[1].partitions[0].records"
    # Feature "f" at tag 0: its size says 9 bytes, its content takes 8.
    features = b"\x01\x00\x09" + b"\x02\x02f\x00\x01\x00\x02\x00" + b"?"
    reason, field, _ = malformed(ApiVersionsResponse, 3, b"\x00\x00\x01" + b"\x00" * 4 + features)
    assert "9 bytes" in reason
    assert field == "tagged fields.supported_features"


def test_unknown_versions() -> None:
    with pytest.raises(UnsupportedVersion, match="no version 5, only 0 to 4"):
        wire.decode(HeartbeatResponse, 5, b"")
    with pytest.raises(UnsupportedVersion, match="no version -1, only 0 to 4"):
        wire.encode(HeartbeatResponse(error_code=0), -1)


def heartbeat(**changes: Any) -> HeartbeatRequest:
    fields: dict[str, Any] = {"group_id": "g", "generation_id": 1, "member_id": "m"}
    return HeartbeatRequest(**(fields | changes))


def test_field_missing_in_the_version_must_hold_its_default() -> None:
    static = heartbeat(group_instance_id="i")
    assert wire.decode(HeartbeatRequest, 3, wire.encode(static, 3)) == static
    with pytest.raises(UnsupportedVersion, match=r"HeartbeatRequest v2.*group_instance_id.*'i'"):
        wire.encode(static, 2)
    # Unless it is ignorable.
    throttled = HeartbeatResponse(error_code=7, throttle_time_ms=100)
    assert wire.encode(throttled, 0) == b"\x00\x07"
    tagged = heartbeat(unknown_tagged_fields=((1, b""),))
    with pytest.raises(UnsupportedVersion, match="tagged fields"):
        wire.encode(tagged, 0)


@pytest.mark.parametrize(
    ("changes", "version", "error", "text"),
    [
        ({"generation_id": 2**31}, 0, ValueError, "generation_id: 2147483648 is out of range"),
        ({"generation_id": "1"}, 0, TypeError, "generation_id: '1' is not a valid int32"),
        ({"group_id": None}, 0, ValueError, "group_id: None is not allowed"),
        ({"group_id": b"g"}, 4, TypeError, "group_id: b'g' is not a valid string"),
        ({"member_id": "x" * 32_768}, 0, ValueError, "member_id: string of 32768 bytes"),
        ({"member_id": "x" * 32_768}, 4, ValueError, "member_id: string of 32768 bytes"),
        ({"unknown_tagged_fields": ((3, b""), (3, b""))}, 4, ValueError, "duplicate tags"),
    ],
)
def test_invalid_values(
    changes: dict[str, Any], version: int, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match="HeartbeatRequest v") as caught:
        wire.encode(heartbeat(**changes), version)
    assert text in str(caught.value)


def test_known_tag_in_unknown_tagged_fields_is_rejected() -> None:
    clash = ApiVersionsResponse(error_code=0, api_keys=[], unknown_tagged_fields=((1, b""),))
    with pytest.raises(ValueError, match="tags of known fields"):
        wire.encode(clash, 3)


def test_unknown_tagged_fields_are_encoded_in_order() -> None:
    request = heartbeat(unknown_tagged_fields=((300, b"b"), (2, b"a")))
    raw = wire.encode(request, 4)
    assert raw.endswith(b"\x02\x02\x01a\xac\x02\x01b")
    assert wire.encode(wire.decode(HeartbeatRequest, 4, raw), 4) == raw


def test_records_are_not_copied() -> None:
    records = bytearray(codec.MIN_SEPARATE_BUFFER_BYTES)
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1,
        topic_data=[
            TopicProduceData(
                name="t",
                partition_data=[
                    PartitionProduceData(index=0, records=memoryview(records)),
                    PartitionProduceData(index=1, records=b"small"),
                    PartitionProduceData(index=2, records=None),
                ],
            )
        ],
    )
    parts = wire.encode_parts(request, 9)
    assert len(parts) == 3
    raw = bytearray(b"".join(parts))
    records[0] = 1
    assert bytes(parts[1][:1]) == b"\x01"

    (topic,) = wire.decode(ProduceRequest, 9, raw).topic_data
    first, second, third = (p.records for p in topic.partition_data)
    assert isinstance(first, memoryview)
    assert first.obj is raw
    assert second == b"small"
    assert third is None


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_type_is_decoded(kind: Any) -> None:
    raw = wire.encode(ApiVersionsResponse(error_code=0, api_keys=[_key(3)]), 0)
    assert wire.decode(ApiVersionsResponse, 0, kind(raw)).api_keys == [_key(3)]


def _key(key: int) -> ApiVersion:
    return ApiVersion(api_key=key, min_version=0, max_version=1)


def test_join_small_buffers_keeps_large_ones() -> None:
    large = b"x" * codec.MIN_SEPARATE_BUFFER_BYTES
    parts = codec.join_small_buffers([b"a", b"b", large, large, b"c"])
    assert parts == [b"ab", large, large, b"c"]
    assert parts[1] is large
    assert codec.join_small_buffers([]) == []
