from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

import anyio
import pytest

from aiokafkawire.broker import Answer, Close, Drop
from aiokafkawire.errors import (
    BrokerError,
    CommitFailed,
    ProtocolError,
    RequestTimedOut,
    UnsupportedVersion,
)
from aiokafkawire.group.offset_fetch import offset_fetch_request, read_committed_offsets
from aiokafkawire.group.offsets import (
    CommitIdentity,
    offset_commit_request,
    read_commit_codes,
)
from aiokafkawire.types import OffsetAndMetadata, TopicPartition
from aiokafkawire.wire import ZERO_UUID, ApiKey, ErrorCode
from aiokafkawire.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from aiokafkawire.wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from tests.consumer.helpers import TIMEOUT_S, consumer, orders_broker, read

P0 = TopicPartition("orders", 0)
P1 = TopicPartition("orders", 1)
ID = UUID(int=7)


def test_a_commit_request_has_the_membership_and_the_offsets() -> None:
    offsets = {P0: OffsetAndMetadata(5, "note", 3), TopicPartition("b", 2): OffsetAndMetadata(1)}
    request = offset_commit_request("g", CommitIdentity(4, "me", "i"), offsets, {"orders": ID})
    assert (request.group_id, request.generation_id_or_member_epoch) == ("g", 4)
    assert (request.member_id, request.group_instance_id) == ("me", "i")
    assert [(t.name, t.topic_id) for t in request.topics] == [("orders", ID), ("b", ZERO_UUID)]
    (entry,) = request.topics[0].partitions
    assert (entry.partition_index, entry.committed_offset) == (0, 5)
    assert (entry.committed_metadata, entry.committed_leader_epoch) == ("note", 3)
    outside = offset_commit_request("g", CommitIdentity(), offsets, {})
    assert (outside.generation_id_or_member_epoch, outside.member_id) == (-1, "")


def test_commit_responses_have_topic_names_or_ids() -> None:
    entry = OffsetCommitResponsePartition(partition_index=1, error_code=25)
    for naming in ({"name": "orders"}, {"topic_id": ID}):
        topic: Any = OffsetCommitResponseTopic(partitions=[entry], **naming)
        response = OffsetCommitResponse(topics=[topic])
        assert read_commit_codes(response, {"orders": ID}) == {P1: 25}


def test_the_layout_of_a_fetch_request_depends_on_the_version() -> None:
    request, max_version = offset_fetch_request("g", [P0, P1], {"orders": ID})
    assert max_version is None
    old = request.build(7)
    assert (old.group_id, old.require_stable) == ("g", True)
    assert old.topics[0].partition_indexes == [0, 1]
    assert not request.build(6).require_stable
    (group,) = request.build(8).groups
    assert group.group_id == "g"
    assert (group.topics[0].name, group.topics[0].topic_id) == ("orders", ID)
    assert offset_fetch_request("g", [P0], {"orders": ZERO_UUID})[1] == 9
    assert (group.member_id, group.member_epoch) == (None, -1)


def test_a_fetch_request_of_the_consumer_protocol_has_the_member_epoch() -> None:
    request, _ = offset_fetch_request("g", [P0], {"orders": ID}, member_id="me", member_epoch=4)
    (group,) = request.build(9).groups
    assert (group.member_id, group.member_epoch) == ("me", 4)


def old_answer(*entries: tuple[int, int, int]) -> OffsetFetchResponse:
    partitions = [
        OffsetFetchResponsePartition(
            partition_index=index, committed_offset=offset, metadata="m", error_code=code
        )
        for index, offset, code in entries
    ]
    return OffsetFetchResponse(
        topics=[OffsetFetchResponseTopic(name="orders", partitions=partitions)]
    )


def test_a_partition_without_a_commit_is_none() -> None:
    response = old_answer((0, -1, 0), (1, -1, 3))
    assert read_committed_offsets(response, "g", [P0, P1], {}) == {P0: None, P1: None}


def test_fetch_responses_are_decoded() -> None:
    assert read_committed_offsets(old_answer((0, 5, 0)), "g", [P0], {}) == {
        P0: OffsetAndMetadata(5, "m")
    }
    entry = OffsetFetchResponsePartitions(
        partition_index=0,
        committed_offset=6,
        committed_leader_epoch=2,
        metadata=None,
        error_code=0,
    )
    topic = OffsetFetchResponseTopics(topic_id=ID, partitions=[entry])
    group = OffsetFetchResponseGroup(group_id="g", topics=[topic])
    response = OffsetFetchResponse(groups=[group])
    expected = {P0: OffsetAndMetadata(6, "", 2)}
    assert read_committed_offsets(response, "g", [P0], {"orders": ID}) == expected
    with pytest.raises(ProtocolError, match="'h'"):
        read_committed_offsets(response, "h", [P0], {"orders": ID})


def test_a_missing_partition_or_error_code_raises() -> None:
    with pytest.raises(ProtocolError, match="does not contain the partition") as left_out:
        read_committed_offsets(old_answer((0, 5, 0)), "g", [P0, P1], {})
    assert (left_out.value.topic, left_out.value.partition) == P1
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED") as refused:
        read_committed_offsets(old_answer((0, -1, 29)), "g", [P0], {})
    assert (refused.value.topic, refused.value.partition) == P0
    with pytest.raises(BrokerError, match="GROUP_AUTHORIZATION_FAILED"):
        read_committed_offsets(OffsetFetchResponse(error_code=30), "g", [P0], {})


async def test_one_commit_is_in_flight_and_the_newest_offset_wins() -> None:
    async with (
        orders_broker(records=9) as broker,
        consumer(broker, "orders", group_id="g", enable_auto_commit=False) as reader,
    ):
        await read(reader, 9)
        broker.on(ApiKey.OFFSET_COMMIT, Close(carried_out=True), times=2)
        async with anyio.create_task_group() as tasks:
            for offset in range(1, 10):
                tasks.start_soon(reader.commit, {P0: offset})
                await anyio.lowlevel.checkpoint()
        assert (await reader.committed(P0))[P0] == OffsetAndMetadata(9)
        assert len(broker.requests.of(ApiKey.OFFSET_COMMIT)) <= 4


MANY = 21


@pytest.fixture
def few_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send `MANY` partitions in three requests."""
    monkeypatch.setattr("aiokafkawire.group.offsets.MAX_OFFSETS", 10)


@pytest.mark.usefixtures("few_offsets")
async def test_a_large_commit_is_sent_in_several_requests() -> None:
    async with (
        orders_broker(MANY) as broker,
        consumer(broker, group_id="g", enable_auto_commit=False) as reader,
    ):
        offsets = {TopicPartition("orders", number): number for number in range(MANY)}
        reader.assign([P0])
        with anyio.fail_after(TIMEOUT_S):
            await reader.commit(offsets)
            assert len(broker.requests.of(ApiKey.OFFSET_COMMIT)) == 3
            found = await reader.committed(*offsets)
    assert {tp: known.offset for tp, known in found.items() if known is not None} == offsets


@pytest.mark.usefixtures("few_offsets")
@pytest.mark.parametrize("fault", [Answer(ErrorCode.COORDINATOR_NOT_AVAILABLE), Close()])
async def test_a_failed_request_of_a_large_commit_is_retried(fault: Any) -> None:
    async with (
        orders_broker(MANY) as broker,
        consumer(broker, group_id="g", enable_auto_commit=False) as reader,
    ):
        offsets = {TopicPartition("orders", number): number for number in range(MANY)}
        reader.assign([P0])
        await reader.commit({P0: 0})
        broker.on(ApiKey.OFFSET_COMMIT, fault, times=1)
        with anyio.fail_after(TIMEOUT_S):
            await reader.commit(offsets)
            assert len(broker.requests.of(ApiKey.OFFSET_COMMIT)) > 4
            found = await reader.committed(*offsets)
    assert {tp: known.offset for tp, known in found.items() if known is not None} == offsets


@pytest.mark.usefixtures("few_offsets")
async def test_a_rejected_request_of_a_large_commit_fails_it() -> None:
    async with (
        orders_broker(MANY) as broker,
        consumer(broker, "orders", group_id="g", enable_auto_commit=False) as reader,
    ):
        offsets = {TopicPartition("orders", number): 0 for number in range(MANY)}
        while len(reader.assignment()) < MANY:
            await reader.getmany(timeout_ms=100)
        broker.on(ApiKey.OFFSET_COMMIT, Answer(ErrorCode.ILLEGAL_GENERATION), times=1)
        with anyio.fail_after(TIMEOUT_S), pytest.raises(CommitFailed):
            await reader.commit(offsets)


@pytest.mark.slow
async def test_a_commit_without_a_response_ends_at_the_deadline() -> None:
    async with orders_broker() as broker:
        options = {"group_id": "g", "default_api_timeout_ms": 200, "enable_auto_commit": False}
        async with consumer(broker, **options) as reader:
            reader.assign([P0])
            fault = broker.on(ApiKey.OFFSET_COMMIT, Drop())
            with anyio.fail_after(TIMEOUT_S), pytest.raises(RequestTimedOut):
                await reader.commit({P0: 4})
            fault.remove()


async def test_cancelling_the_wait_does_not_revert_the_commit() -> None:
    async with (
        orders_broker() as broker,
        consumer(broker, group_id="g", enable_auto_commit=False) as reader,
    ):
        reader.assign([P0])
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:

                async def cancel(seen: Any) -> None:
                    scope.cancel()

                broker.on(ApiKey.OFFSET_COMMIT, cancel, times=1)
                tasks.start_soon(reader.commit, {P0: 4})
        assert scope.cancelled_caught
        with anyio.fail_after(TIMEOUT_S):
            while (await reader.committed(P0))[P0] != OffsetAndMetadata(4):
                await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize(
    "code",
    [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID],
)
async def test_a_fenced_commit_fails_and_sends_a_heartbeat(code: int) -> None:
    async with orders_broker(records=9) as broker:
        options = {"group_id": "g", "enable_auto_commit": False, "heartbeat_interval_ms": 20_000}
        async with consumer(broker, "orders", **options) as reader:
            await read(reader, 3)
            broker.on(ApiKey.OFFSET_COMMIT, Answer(code), times=1)
            with anyio.fail_after(TIMEOUT_S), pytest.raises(CommitFailed):
                await reader.commit()
            await broker.wait_for_request(ApiKey.HEARTBEAT, timeout_s=5)
            await reader.commit()
            assert (await reader.committed(P0))[P0].offset == 3  # type: ignore[union-attr]


async def test_rejected_partitions_of_a_commit_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "aiokafkawire.group")
    async with (
        orders_broker() as broker,
        consumer(broker, group_id="g", enable_auto_commit=False) as reader,
    ):
        reader.assign([P0])
        with anyio.fail_after(TIMEOUT_S):
            await reader.commit({P0: 3})
            broker.on(ApiKey.OFFSET_COMMIT, Answer(ErrorCode.OFFSET_METADATA_TOO_LARGE), times=1)
            with pytest.raises(BrokerError, match="OFFSET_METADATA_TOO_LARGE") as refused:
                await reader.commit({P0: 4})
    assert refused.value.group == "g"
    assert "Group g: committed orders [0: 3]\n" in caplog.text
    assert "committed none; rejected (error codes): orders [0: 12]\n" in caplog.text


ZOOKEEPER: dict[str, Any] = {"offsets_storage": "zookeeper", "enable_auto_commit": False}


async def test_offsets_in_zookeeper_and_in_kafka_are_independent() -> None:
    async with orders_broker(2, nodes=2, as_of="2.8") as broker:
        async with (
            consumer(broker, group_id="g", **ZOOKEEPER) as old,
            consumer(broker, group_id="g", enable_auto_commit=False) as new,
        ):
            old.assign([P0, P1])
            new.assign([P0])
            assert await old.committed(P0) == {P0: None}
            await old.commit({P0: OffsetAndMetadata(3, "note")})
            await new.commit({P0: 7})
            assert await old.committed(P0, P1) == {P0: OffsetAndMetadata(3), P1: None}
            assert (await new.committed(P0))[P0] == OffsetAndMetadata(7)
        versions = [seen.version for seen in broker.requests.of(ApiKey.OFFSET_COMMIT)]
        assert versions == [0, 8]


async def test_a_commit_to_zookeeper_is_retried() -> None:
    async with (
        orders_broker(as_of="2.8") as broker,
        consumer(broker, group_id="g", **ZOOKEEPER) as reader,
    ):
        reader.assign([P0])
        fault = broker.on(ApiKey.OFFSET_COMMIT, Close(), times=1)
        with anyio.fail_after(TIMEOUT_S):
            await reader.commit({P0: 3})
            assert await reader.committed(P0) == {P0: OffsetAndMetadata(3)}
        assert fault.hits == 1
        assert not broker.requests.of(ApiKey.FIND_COORDINATOR)


async def test_a_group_member_can_commit_to_zookeeper() -> None:
    async with orders_broker(records=9, as_of="2.8") as broker:
        options = {"group_id": "g", **ZOOKEEPER}
        async with consumer(broker, "orders", max_poll_records=4, **options) as reader:
            await read(reader, 4)
            await reader.commit()
        async with consumer(broker, "orders", **options) as reader:
            assert [record.offset for record in await read(reader, 5)] == [4, 5, 6, 7, 8]


@pytest.mark.parametrize(
    ("release", "storage"),
    [("0.8.0", "kafka"), ("0.8.0", "zookeeper"), ("0.8.1", "kafka")],
)
async def test_an_unsupported_storage_error_names_the_broker_and_the_alternatives(
    release: str, storage: str
) -> None:
    async with orders_broker(as_of=release) as broker:
        options = {"api_version": release, "offsets_storage": storage, "enable_auto_commit": False}
        async with consumer(broker, group_id="g", **options) as reader:
            reader.assign([P0])
            with anyio.fail_after(TIMEOUT_S):
                for call in (reader.commit({P0: 1}), reader.committed(P0), reader.getone()):
                    with pytest.raises(UnsupportedVersion, match=r"0\.8\.1 to 2\.8") as caught:
                        await call
                    assert caught.value.broker == f"1 at {broker.bootstrap_servers}"
                    assert f"Kafka {release}" in str(caught.value)


async def test_a_commit_of_a_topic_without_an_id_uses_its_name() -> None:
    options = {"group_id": "g", "allow_auto_create_topics": False}
    async with orders_broker(as_of="4.3") as broker, consumer(broker, **options) as reader:
        reader.assign([P0, TopicPartition("missing", 0)])
        with anyio.fail_after(TIMEOUT_S):
            await reader.position(P0)  # the metadata has its topic from then on
            await reader.commit({P0: 1})
            with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
                await reader.commit({P0: 2, TopicPartition("missing", 0): 1})
        first, *others = [seen.version for seen in broker.requests.of(ApiKey.OFFSET_COMMIT)]
        assert (first, {*others}) == (10, {9})


async def test_brokers_without_zookeeper_reject_that_storage() -> None:
    async with (
        orders_broker(as_of="4.3") as broker,
        consumer(broker, group_id="g", **ZOOKEEPER) as reader,
    ):
        reader.assign([P0])
        with anyio.fail_after(TIMEOUT_S), pytest.raises(UnsupportedVersion):
            await reader.commit({P0: 1})
