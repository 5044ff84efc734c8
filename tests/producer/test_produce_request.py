"""Requests from batches and results from responses, which are not trusted."""

from __future__ import annotations

import uuid

import pytest

from aiokafkawire import records, wire
from aiokafkawire.errors import UnsupportedVersion
from aiokafkawire.producer.batch import Batch
from aiokafkawire.producer.batch_actions import BatchAction
from aiokafkawire.producer.batch_future import BatchFuture
from aiokafkawire.producer.produce_request import build_request, parse_response
from aiokafkawire.producer.sequences import BatchSequence
from aiokafkawire.producer.unreported_failures import UnreportedFailures
from aiokafkawire.producer.yield_budget import YieldBudget
from aiokafkawire.types import ProducerIdAndEpoch, TopicPartition
from aiokafkawire.wire.error_codes import ErrorCode
from aiokafkawire.wire.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

IDS = {"a": uuid.UUID(int=1), "b": uuid.UUID(int=2)}


def batch(
    topic: str = "a",
    partition: int = 0,
    *,
    headers=(),
    sequence=None,
    compression=0,
    has_user_timestamp=False,
) -> Batch:
    builder = records.BatchBuilder(compression)
    builder.append(5, b"key", b"value", headers)
    builder.has_user_timestamp = has_user_timestamp
    future = BatchFuture(topic, partition, UnreportedFailures(), YieldBudget())
    made = Batch(future, builder, (1,), 0.0, 0.0)
    made.close()
    made.sequence = sequence
    return made


def built(batches, version=9, acks=-1):
    return build_request(batches, version, acks=acks, timeout_ms=1000, topic_ids=IDS)


def test_batches_are_grouped_by_topic():
    result = built([batch("a", 0), batch("b", 0), batch("a", 1)])
    assert [
        (topic.name, topic.topic_id, [partition.index for partition in topic.partition_data])
        for topic in result.request.topic_data
    ] == [("a", IDS["a"], [0, 1]), ("b", IDS["b"], [0])]
    assert (result.request.acks, result.request.timeout_ms) == (-1, 1000)


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 2), (13, 2)])
def test_the_format_of_records_follows_the_version(version: int, magic: int):
    result = built([batch()], version)
    data = wire.encode(result.request, version)
    request = wire.decode(ProduceRequest, version, data)
    [view] = list(records.iter_batches(memoryview(request.topic_data[0].partition_data[0].records)))
    assert view.magic == magic


def test_the_encoded_batch_has_its_sequence():
    result = built([batch(sequence=BatchSequence(ProducerIdAndEpoch(7, 3), 99))])
    data = result.request.topic_data[0].partition_data[0].records
    [view] = list(records.iter_batches(memoryview(data)))
    assert (view.producer_id, view.producer_epoch, view.base_sequence) == (7, 3, 99)


@pytest.mark.parametrize(
    ("bad", "version"),
    [
        (batch(headers=[("h", b"v")]), 2),
        (batch(has_user_timestamp=True), 1),
        (batch(sequence=BatchSequence(ProducerIdAndEpoch(7, 0), 0)), 2),
        (batch(compression=records.Compression.ZSTD), 6),
    ],
    ids=["headers", "time", "producer id", "zstd"],
)
def test_only_the_batches_that_a_version_does_not_support_are_left_out(bad: Batch, version: int):
    others = [batch("b")]
    result = built([bad, *others], version)
    [(unsupported, error)] = result.unsupported
    assert unsupported is bad
    assert isinstance(error, UnsupportedVersion)
    assert (error.topic, error.partition) == ("a", 0)
    assert result.batches == others


def respond(*partitions: PartitionProduceResponse, name="a", topic_id=wire.ZERO_UUID, nodes=()):
    topic = TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=list(partitions))
    return ProduceResponse(responses=[topic], node_endpoints=list(nodes))


def partition(index: int, code: int = 0, offset: int = 0, **more) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=index, error_code=code, base_offset=offset, **more)


def test_every_batch_gets_its_result():
    batches = [batch("a", 0), batch("a", 1)]
    response = respond(partition(1, offset=8), partition(0, ErrorCode.NOT_ENOUGH_REPLICAS))
    results = parse_response(response, batches, built(batches).request, "1").results
    assert [one for one, _ in results] == batches
    assert [result.action for _, result in results] == [BatchAction.RETRY, BatchAction.APPENDED]
    assert results[1][1].base_offset == 8


def test_topics_are_found_by_their_ids():
    batches = [batch("b")]
    response = respond(partition(0, offset=3), name="", topic_id=IDS["b"])
    [(_, result)] = parse_response(response, batches, built(batches).request, "1").results
    assert result.base_offset == 3


@pytest.mark.parametrize(
    "response",
    [
        ProduceResponse(responses=[]),
        respond(partition(1)),
        respond(partition(0), name="other"),
        respond(partition(0), name="", topic_id=uuid.UUID(int=77)),
    ],
)
def test_a_batch_missing_in_the_response_may_be_in_the_log(response: ProduceResponse):
    batches = [batch()]
    parsed = parse_response(response, batches, built(batches).request, "1")
    [(_, result)] = parsed.results
    assert result.action is BatchAction.RETRY_UNCERTAIN
    assert "does not contain" in str(result.error)


def test_the_first_of_repeated_partition_responses_counts():
    batches = [batch()]
    response = respond(partition(0, offset=3), partition(0, offset=4))
    [(_, result)] = parse_response(response, batches, built(batches).request, "1").results
    assert result.base_offset == 3


def test_leader_hints_are_returned():
    batches = [batch()]
    moved = partition(
        0,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=5),
    )
    node = NodeEndpoint(node_id=2, host="b2", port=9092)
    [hint] = parse_response(
        respond(moved, nodes=[node]), batches, built(batches).request, "1"
    ).hints
    assert hint == (TopicPartition("a", 0), 2, 5, ("b2", 9092))
