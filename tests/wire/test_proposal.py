"""The four messages of the proposal: bytes of its specification, and malformed ones."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.errors import MalformedMessage
from aiokafkawire.wire import kafka07, proposal
from aiokafkawire.wire.proposal import (
    ProposedFetchRequest,
    ProposedFetchResponse,
    ProposedOffsetData,
    ProposedPartitionData,
    ProposedProduceRequest,
    ProposedProduceResponse,
    ProposedTopicData,
)

PRODUCE = ProposedProduceRequest(
    version_id=1,
    correlation_id=7,
    client_id="me",
    required_acks=2,
    ack_timeout=1_000,
    data=(
        ProposedTopicData(
            topic="t",
            partition_data=(
                ProposedPartitionData(partition=0, messages=b"ab"),
                ProposedPartitionData(partition=5, messages=b""),
            ),
        ),
        ProposedTopicData(topic="u", partition_data=()),
    ),
)

DATA = (
    "0002"  # two topics
    "0001 74 0002"  # t, two partitions
    "00000000 00000002 6162"
    "00000005 00000000"
    "0001 75 0000"  # u, none
)

PRODUCE_HEX = (
    "0000002f"  # size
    "0000 0001 00000007 0002 6d65"  # type, version, correlation id, client id
    "02 000003e8" + DATA  # acks as int8, timeout
)

FETCH = ProposedFetchRequest(
    correlation_id=7,
    version_id=1,
    client_id="me",
    max_wait=500,
    min_bytes=1,
    topic_offsets=(ProposedOffsetData(topic="t", partitions=(0, 5), offsets=(100, 0)),),
)

FETCH_HEX = (
    "00000031"
    "0001 00000007 0001 0002 6d65"  # the correlation id comes before the version
    "ffffffff 000001f4 00000001"  # replica id, wait, bytes
    "0001 0001 74"
    "0002 00000000 00000005"
    "0002 00000064 00000000"  # offsets as int32
)

PRODUCED = ProposedProduceResponse(
    correlation_id=7, version_id=1, error=3, errors=(-1, 6), offsets=(2**40, -1)
)

PRODUCED_HEX = (
    "00000020 00000007 0001 0003"  # size, correlation id, version, error
    "0002 ffff 0006"
    "0002 0000010000000000 ffffffffffffffff"
)

FETCHED = ProposedFetchResponse(correlation_id=7, version_id=1, data=PRODUCE.data)

FETCHED_HEX = "00000026 00000007 0001 0000" + DATA


@pytest.mark.parametrize(
    ("message", "drawn", "encode", "decode"),
    [
        (PRODUCE, PRODUCE_HEX, proposal.encode_request, proposal.decode_request),
        (FETCH, FETCH_HEX, proposal.encode_request, proposal.decode_request),
        (PRODUCED, PRODUCED_HEX, proposal.encode_response, proposal.decode_produce_response),
        (FETCHED, FETCHED_HEX, proposal.encode_response, proposal.decode_fetch_response),
    ],
    ids=[
        "ProposedProduceRequest",
        "ProposedFetchRequest",
        "ProposedProduceResponse",
        "ProposedFetchResponse",
    ],
)
def test_messages_match_the_specification(
    message: Any, drawn: str, encode: Callable[[Any], bytes], decode: Callable[[bytes], Any]
) -> None:
    raw = bytes.fromhex(drawn)
    assert encode(message) == raw
    assert decode(raw[4:]) == message
    assert int.from_bytes(raw[:4]) == len(raw) - 4
    for size in range(len(raw) - 4):
        with pytest.raises(MalformedMessage):
            decode(raw[4 : 4 + size])
    with pytest.raises(MalformedMessage, match="1 trailing"):
        decode(raw[4:] + b"?")


def test_message_set_has_the_format_of_0_7() -> None:
    messages = kafka07.encode_messages([kafka07.Kafka07Message(payload=b"hello")])
    item = ProposedPartitionData(partition=0, messages=messages)
    topic = ProposedTopicData(topic="t", partition_data=(item,))
    request = ProposedProduceRequest(
        correlation_id=1, required_acks=1, ack_timeout=0, data=(topic,)
    )
    again = proposal.decode_request(proposal.encode_request(request)[4:])
    assert isinstance(again, ProposedProduceRequest)
    (entry,) = kafka07.iter_messages(again.data[0].partition_data[0].messages)
    assert entry.message.payload == b"hello"


@pytest.mark.parametrize(
    ("frame", "field", "reason"),
    [
        ("0002", "request_type_id", "unknown request type 2"),
        ("0000 0000 00000000 ffff", "client_id", "invalid length -1"),
        ("0000 0000 00000000 0000 00 00000000 ffff", "data", "invalid count -1"),
        ("0000 0000 00000000 0000 00 00000000 0001 0000", "data", "1 elements"),
        ("0001 00000000 0000 0000 00000000 00000000 00000000 7fff", "topic_offsets", "32767"),
    ],
)
def test_malformed_requests(frame: str, field: str, reason: str) -> None:
    with pytest.raises(MalformedMessage) as caught:
        proposal.decode_request(bytes.fromhex(frame))
    assert reason in caught.value.reason
    assert caught.value.field == field


def test_invalid_values() -> None:
    topic = ProposedOffsetData(topic="t", partitions=(0,), offsets=(2**31,))
    wide = ProposedFetchRequest(correlation_id=1, max_wait=0, min_bytes=0, topic_offsets=(topic,))
    with pytest.raises(ValueError, match="ProposedFetchRequest"):
        proposal.encode_request(wide)
    many = ProposedProduceRequest(correlation_id=1, required_acks=128, ack_timeout=0, data=())
    with pytest.raises(ValueError, match="ProposedProduceRequest"):
        proposal.encode_request(many)
    with pytest.raises(ValueError, match="ProposedProduceResponse"):
        proposal.encode_response(
            ProposedProduceResponse(correlation_id=1, errors=(2**15,), offsets=())
        )


@given(st.binary(max_size=60))
def test_any_bytes_decode_or_raise_malformed_message(raw: bytes) -> None:
    for decode in (
        proposal.decode_request,
        proposal.decode_produce_response,
        proposal.decode_fetch_response,
    ):
        with contextlib.suppress(MalformedMessage):
            decode(raw)
