import struct

import pytest

from aiokafkawire import wire
from aiokafkawire.errors import MalformedFrame, MalformedMessage, UnsupportedVersion
from aiokafkawire.wire.api import ApiKey
from aiokafkawire.wire.codec import MIN_SEPARATE_BUFFER_BYTES
from aiokafkawire.wire.header import (
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
    peek_correlation_id,
)
from aiokafkawire.wire.messages import api_versions, heartbeat, produce, sync_group
from aiokafkawire.wire.primitives import Buffer

HEARTBEAT = heartbeat.HeartbeatRequest(group_id="g", generation_id=7, member_id="m")


def unframed(parts: list[Buffer]) -> memoryview:
    raw = b"".join(parts)
    assert struct.unpack_from(">i", raw)[0] == len(raw) - 4
    return memoryview(raw)[4:]


@pytest.mark.parametrize("version", [0, 3, 4])
@pytest.mark.parametrize("client_id", [None, "", "client"])
def test_requests_round_trip(version: int, client_id: str | None) -> None:
    frame = unframed(encode_request(HEARTBEAT, version, 42, client_id))
    header, message = decode_request(frame)
    assert header[:4] == (ApiKey.HEARTBEAT, version, 42, client_id)
    assert message == HEARTBEAT
    assert header == decode_request_header(frame)
    assert bytes(frame[header.header_size :]) == wire.encode(HEARTBEAT, version)


def test_bytes_of_both_request_header_versions() -> None:
    old = bytes(unframed(encode_request(HEARTBEAT, 0, 1, "c")))
    assert old.startswith(b"\x00\x0c\x00\x00\x00\x00\x00\x01\x00\x01c\x00\x01g")
    # Flexible: the client id keeps its int16 length, tagged fields follow.
    new = bytes(unframed(encode_request(HEARTBEAT, 4, 1, "c")))
    assert new.startswith(b"\x00\x0c\x00\x04\x00\x00\x00\x01\x00\x01c\x00\x02g")


@pytest.mark.parametrize(("version", "header_bytes"), [(0, 4), (3, 4), (4, 5)])
def test_responses_round_trip(version: int, header_bytes: int) -> None:
    response = heartbeat.HeartbeatResponse(error_code=27)
    frame = unframed(encode_response(response, version, -5))
    assert len(frame) == header_bytes + len(wire.encode(response, version))
    assert peek_correlation_id(frame) == -5
    assert decode_response(heartbeat.HeartbeatResponse, version, frame) == (-5, response)


def test_api_versions_responses_have_the_old_header() -> None:
    response = api_versions.ApiVersionsResponse(
        error_code=0, api_keys=[api_versions.ApiVersion(api_key=18, min_version=0, max_version=4)]
    )
    frame = unframed(encode_response(response, 3, 1))
    assert bytes(frame[:6]) == b"\x00\x00\x00\x01\x00\x00"
    assert decode_response(api_versions.ApiVersionsResponse, 3, frame) == (1, response)


@pytest.mark.parametrize(
    "keys", [[], [api_versions.ApiVersion(api_key=18, min_version=0, max_version=3)]]
)
def test_unsupported_api_versions_is_decoded_as_version_0(
    keys: list[api_versions.ApiVersion],
) -> None:
    refusal = api_versions.ApiVersionsResponse(error_code=35, api_keys=keys)
    frame = unframed(encode_response(refusal, 0, 9))
    assert decode_response(api_versions.ApiVersionsResponse, 4, frame) == (9, refusal)


@pytest.mark.parametrize(
    "body",
    ["0023 01 0012 0000 0002 00 00000000", "0023 00000001", "0023"],
    ids=["librdkafka's mock", "cut off", "bare"],
)
def test_unsupported_api_versions_keeps_its_error_in_any_layout(body: str) -> None:
    frame = memoryview(bytes.fromhex("00000009" + body))
    refusal = api_versions.ApiVersionsResponse(error_code=35, api_keys=[])
    assert decode_response(api_versions.ApiVersionsResponse, 4, frame) == (9, refusal)


def test_other_errors_in_a_wrong_layout_are_malformed() -> None:
    frame = memoryview(bytes.fromhex("00000009 0024 01 0012 0000 0002 00 000000"))
    with pytest.raises(MalformedMessage):
        decode_response(api_versions.ApiVersionsResponse, 4, frame)


@pytest.mark.parametrize(
    ("version", "body"),
    [(0, "001b ffffffff"), (3, "00000000 001b ffffffff"), (4, "00000000 001b 00 00")],
)
def test_error_code_of_a_sync_group_response_with_null_assignment(version: int, body: str) -> None:
    prefix = "00000009" + ("00" if version == 4 else "")
    frame = memoryview(bytes.fromhex(prefix + body))
    refusal = sync_group.SyncGroupResponse(error_code=27, assignment=b"")
    assert decode_response(sync_group.SyncGroupResponse, version, frame) == (9, refusal)
    without_error = memoryview(bytes.fromhex(prefix + body.replace("001b", "0000")))
    with pytest.raises(MalformedMessage):
        decode_response(sync_group.SyncGroupResponse, version, without_error)


def test_header_of_an_unknown_version_is_decoded() -> None:
    frame = bytearray(unframed(encode_request(api_versions.ApiVersionsRequest(), 4, 3, "c")))
    frame[3] = 99
    assert decode_request_header(memoryview(frame))[:4] == (ApiKey.API_VERSIONS, 99, 3, "c")
    with pytest.raises(UnsupportedVersion, match="99"):
        decode_request(memoryview(frame))


def test_malformed_headers() -> None:
    with pytest.raises(UnsupportedVersion, match="unknown API key 9999"):
        decode_request_header(memoryview(struct.pack(">hhi", 9999, 0, 1)))
    with pytest.raises(MalformedMessage, match="RequestHeader"):
        decode_request_header(memoryview(b"\x00\x0c"))
    with pytest.raises(MalformedMessage, match="client_id"):
        decode_request_header(memoryview(b"\x00\x0c\x00\x00\x00\x00\x00\x01\x00\x07c"))
    with pytest.raises(MalformedMessage, match="ResponseHeader v1"):
        decode_response(heartbeat.HeartbeatResponse, 4, memoryview(b"\x00\x00\x00\x01\x01"))
    with pytest.raises(MalformedFrame, match="3 bytes"):
        peek_correlation_id(memoryview(b"abc"))


def test_trailing_bytes_after_a_response() -> None:
    frame = bytes(unframed(encode_response(heartbeat.HeartbeatResponse(error_code=0), 0, 1)))
    with pytest.raises(MalformedMessage, match="1 trailing"):
        decode_response(heartbeat.HeartbeatResponse, 0, memoryview(frame + b"?"))


def test_large_records_are_not_copied() -> None:
    records = b"r" * MIN_SEPARATE_BUFFER_BYTES
    data = produce.PartitionProduceData(index=0, records=records)
    request = produce.ProduceRequest(
        acks=1, timeout_ms=1, topic_data=[produce.TopicProduceData(name="t", partition_data=[data])]
    )
    parts = encode_request(request, 3, 1, None)
    assert any(part is records for part in parts)
    assert decode_request(unframed(parts))[1] == request
