"""Templates encode requests and match responses as the general codec does."""

from __future__ import annotations

import uuid

import pytest

from aiokafkawire.producer.attempt_result import AttemptResult
from aiokafkawire.producer.batch_actions import BatchAction
from aiokafkawire.producer.produce_request import FIRST_FLEXIBLE_PRODUCE, ProduceTemplate
from aiokafkawire.wire import APIS, ZERO_UUID, ApiKey, encode
from aiokafkawire.wire.header import encode_response
from aiokafkawire.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

VERSIONS = range(FIRST_FLEXIBLE_PRODUCE, APIS[ApiKey.PRODUCE].max_version + 1)
TOPIC_ID = uuid.UUID(int=2**127 + 5)


def template(
    version: int, transactional_id: str | None = None, topic: str = "orders"
) -> ProduceTemplate:
    return ProduceTemplate(
        topic, TOPIC_ID, version, acks=-1, timeout_ms=30_000, transactional_id=transactional_id
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("transactional_id", [None, "tx"])
@pytest.mark.parametrize("sizes", [[61, 120], [61, 16_000], [61, 70_000]])
def test_a_request_is_encoded_as_the_codec_does(
    version: int, transactional_id: str | None, sizes: list[int]
):
    parts = [bytes([number]) * size for number, size in enumerate(sizes)]
    data = PartitionProduceData(index=7, records=b"".join(parts))
    topic = TopicProduceData(name="orders", topic_id=TOPIC_ID, partition_data=[data])
    request = ProduceRequest(
        transactional_id=transactional_id, acks=-1, timeout_ms=30_000, topic_data=[topic]
    )
    body = template(version, transactional_id).encode_body(list(parts), sum(sizes), 7)
    assert b"".join(body) == encode(request, version)


def response_frame(
    version: int, *, name="orders", topic_id=TOPIC_ID, throttle_ms=0, nodes=(), **said
):
    fields = {"index": 7, "error_code": 0, "base_offset": 2**40, "log_append_time_ms": 123} | said
    topic = TopicProduceResponse(
        name=name,
        topic_id=topic_id,
        partition_responses=[PartitionProduceResponse(**{"log_start_offset": 9, **fields})],
    )
    response = ProduceResponse(
        responses=[topic], throttle_time_ms=throttle_ms, node_endpoints=list(nodes)
    )
    return memoryview(b"".join(encode_response(response, version, 99)))[4:]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_successful_response_is_matched(version: int):
    found = template(version).match_response(7, response_frame(version))
    assert found == AttemptResult(BatchAction.APPENDED, None, 2**40, 123)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "more",
    [
        {"error_code": 6},
        {"index": 8},
        {"throttle_ms": 1},
        {"record_errors": [BatchIndexAndErrorMessage(batch_index=0)]},
        {"error_message": "no"},
        {"error_message": ""},
        {"name": "others", "topic_id": ZERO_UUID},
        {"name": "order", "topic_id": uuid.UUID(int=1)},
    ],
    ids=str,
)
def test_any_other_response_is_left_to_the_codec(version: int, more: dict[str, object]):
    assert template(version).match_response(7, response_frame(version, **more)) is None


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= 10])
def test_a_response_with_a_leader_hint_is_left_to_the_codec(version: int):
    leader = LeaderIdAndEpoch(leader_id=1, leader_epoch=3)
    node = NodeEndpoint(node_id=1, host="b", port=9092)
    assert (
        template(version).match_response(7, response_frame(version, current_leader=leader)) is None
    )
    assert template(version).match_response(7, response_frame(version, nodes=[node])) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_truncated_or_longer_frame_is_not_matched(version: int):
    frame = bytes(response_frame(version))
    for end in range(len(frame)):
        assert template(version).match_response(7, memoryview(frame[:end])) is None
    assert template(version).match_response(7, memoryview(frame + b"\0")) is None
