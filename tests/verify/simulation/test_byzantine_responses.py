"""Lies: each changes an answer that was right, and what every client could see through alone."""

from __future__ import annotations

import random

import pytest

from aiokafkawire.broker import Answer, SeenRequest
from aiokafkawire.errors import CorruptRecord
from aiokafkawire.records import BatchBuilder, DecodeOptions, decode_fetch
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartitionData,
    FetchResponse,
)
from aiokafkawire.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from verify.simulation.byzantine_responses import (
    APIS_WITH_FALSE_RESPONSES,
    BATCHES,
    FALSE_RESPONSES,
    FRAMES,
    MAX_UNPACKED_BYTES,
    FalseResponse,
    draw_false_response,
    false_response_rule,
    kinds_for_api,
)


def a_batch() -> bytes:
    builder = BatchBuilder(0, None, 2**20)
    for number in range(3):
        builder.append(1_700_000_000_000, None, b"value %d" % number)
    return b"".join(map(bytes, builder.close().encode(2, base_offset=10)))


def fetched(records: bytes) -> FetchResponse:
    data = FetchPartitionData(partition_index=0, error_code=0, high_watermark=13, records=records)
    return FetchResponse(responses=[FetchableTopicResponse(topic="orders", partitions=[data])])


def seen(client_id: str = "worker") -> SeenRequest:
    return SeenRequest(
        api_key=ApiKey.HEARTBEAT,
        version=0,
        node_id=1,
        client_id=client_id,
        correlation_id=1,
        connection=1,
        size_bytes=10,
        message=HeartbeatRequest(group_id="g", generation_id=1, member_id="m"),
        at=0.0,
    )


@pytest.mark.parametrize("kind", BATCHES)
def test_a_false_batch_is_rejected_and_a_good_one_is_not(kind: str) -> None:
    good = a_batch()
    changed = FalseResponse(kind=kind).response(fetched(good + good))
    assert isinstance(changed, FetchResponse)
    bad = bytes(changed.responses[0].partitions[0].records or b"")
    assert bad != good + good
    assert bad.endswith(good)
    assert len(bad) < MAX_UNPACKED_BYTES
    with pytest.raises(CorruptRecord) as caught:
        decode_fetch(
            "orders", 0, bad, 10, DecodeOptions(max_decompressed_bytes=MAX_UNPACKED_BYTES)
        ).take(100)
    assert (caught.value.topic, caught.value.partition) == ("orders", 0)


@pytest.mark.parametrize("kind", FRAMES)
def test_a_frame_that_lies_is_another(kind: str) -> None:
    frame = (12).to_bytes(4) + bytes(range(12))
    assert FalseResponse(kind=kind).frame([frame[:4], frame[4:]]) != [frame]


def test_every_lie_is_about_something() -> None:
    assert {kind for api in APIS_WITH_FALSE_RESPONSES for kind in kinds_for_api(api)} == set(
        FALSE_RESPONSES
    )
    drawn = [draw_false_response(random.Random(seed)) for seed in range(300)]
    assert {each["api"] for each in drawn} == {api.name for api in APIS_WITH_FALSE_RESPONSES}
    assert all(each["kind"] in kinds_for_api(ApiKey[each["api"]]) for each in drawn)


def test_answers_that_refuse_are_left_as_they_are() -> None:
    refusal = HeartbeatResponse(error_code=27)
    assert FalseResponse(kind="an older generation").response(refusal) is refusal


def test_nodes_do_not_lie_to_each_other() -> None:
    assert false_response_rule("noise")(seen("broker-2")) is None
    assert false_response_rule("noise")(seen()) == FalseResponse(kind="noise")
    assert false_response_rule("a negative error")(seen()) == Answer(-7)
