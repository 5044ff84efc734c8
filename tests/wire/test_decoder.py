import pytest

from aiokafkawire import wire
from aiokafkawire.errors import MalformedMessage
from aiokafkawire.wire import codec
from aiokafkawire.wire.decoder import DECODE_ERRORS, PREMADE_UNPACKERS, make_decoder
from aiokafkawire.wire.messages.fetch import FetchPartitionData, FetchResponse
from aiokafkawire.wire.messages.headers import RequestHeaderData, ResponseHeaderData
from aiokafkawire.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from aiokafkawire.wire.messages.metadata import MetadataResponse
from aiokafkawire.wire.primitives import int32
from aiokafkawire.wire.schema import Message, data
from tests.wire import vectors


@data(name="ReplicaNodes", versions="0", flexible="none")
class ReplicaNodes(Message):
    nodes: list[int32]


def test_decoder_returns_its_end_and_starts_anywhere() -> None:
    decode = make_decoder(HeartbeatResponse, 0)
    raw = b"??\x00\x1b??"
    assert decode(raw, 2, len(raw)) == (HeartbeatResponse(error_code=27), 4)


def test_decoders_are_cached() -> None:
    wire.decode(HeartbeatResponse, 0, b"\x00\x00")
    made = codec._DECODERS[HeartbeatResponse, 0]
    wire.decode(HeartbeatResponse, 0, b"\x00\x00")
    assert codec._DECODERS[HeartbeatResponse, 0] is made


def test_defaults_are_not_shared() -> None:
    raw = b"\x00" * 4 + b"\x00" * 4
    first = wire.decode(MetadataResponse, 0, raw)
    assert (first.throttle_time_ms, first.cluster_id, first.controller_id) == (0, None, -1)
    topic = b"\x00\x01t" + b"\x00\x00\x00\x01" + b"\x00" * 14 + b"\x00" * 4
    first_fetch, second_fetch = (
        wire.decode(FetchResponse, 0, b"\x00\x00\x00\x01" + topic) for _ in range(2)
    )
    ours: FetchPartitionData = first_fetch.responses[0].partitions[0]
    theirs: FetchPartitionData = second_fetch.responses[0].partitions[0]
    assert ours.aborted_transactions == []
    assert ours.aborted_transactions is not theirs.aborted_transactions
    assert ours.current_leader == theirs.current_leader
    assert ours.current_leader is not theirs.current_leader


def test_every_prefix_of_a_message_is_rejected() -> None:
    longest = max(
        (vector for _, vector in vectors.by_message()["MetadataResponse"] if vector["version"] > 9),
        key=lambda vector: len(vector["hex"]) if len(vector["hex"]) < 2_000 else 0,
    )
    raw = bytes.fromhex(longest["hex"])
    decode = make_decoder(MetadataResponse, longest["version"])
    for size in range(len(raw)):
        with pytest.raises(DECODE_ERRORS):
            decode(raw[:size], 0, size)
        with pytest.raises(MalformedMessage):
            wire.decode(MetadataResponse, longest["version"], raw[:size])


def test_only_records_and_headers_are_decoded_in_place() -> None:
    in_place = {
        cls.__name__
        for api in wire.APIS.values()
        for cls in (api.request, api.response)
        if cls.decoded_in_place
    }
    assert in_place == {
        "ProduceRequest",
        "FetchResponse",
        "ShareFetchResponse",
        "FetchSnapshotResponse",
    }
    assert RequestHeaderData.decoded_in_place
    assert ResponseHeaderData.decoded_in_place
    raw = bytearray(wire.encode(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 0))
    for buffer in (raw, memoryview(raw), bytes(raw)):
        assert wire.decode(HeartbeatRequest, 0, buffer).member_id == "m"


def test_arrays_of_numbers_of_any_length() -> None:
    for count in (0, 1, PREMADE_UNPACKERS - 1, PREMADE_UNPACKERS, PREMADE_UNPACKERS + 1, 300):
        numbers = list(range(-1, count - 1))
        state = ReplicaNodes(nodes=numbers)
        raw = wire.encode(state, 0)
        assert wire.decode(ReplicaNodes, 0, raw) == state
        with pytest.raises(MalformedMessage):
            wire.decode(ReplicaNodes, 0, raw[:-1])
