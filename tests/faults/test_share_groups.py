"""Share consumers under faults and errors of brokers (KIP-932)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal

import anyio
import pytest

from aiokafkawire.admin import Admin, ConfigResource, ConfigResourceType
from aiokafkawire.broker import Answer, Broker, Close, Corrupt, Drop, SeenRequest
from aiokafkawire.errors import (
    AcknowledgementFailed,
    AuthorizationFailed,
    CorruptRecord,
    KafkaError,
    RequestTimedOut,
    UnsupportedVersion,
)
from aiokafkawire.producer import Producer
from aiokafkawire.share import AcknowledgeType, ShareConsumer, ShareRecord
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    ShareAcknowledgePartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from aiokafkawire.wire.messages.share_fetch import (
    ShareFetchableTopicResponse,
    ShareFetchPartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
)
from tests.behaviour.support import POLL_MS, WITHIN_S, fill, numbered
from tests.faults.support import IMPATIENT

pytestmark = pytest.mark.slow

PATIENT = {"request_timeout_ms": 30_000}
"""Options of a client whose sessions are not lost on a busy machine."""

FETCH, ACKNOWLEDGE = ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE


@pytest.fixture
async def broker(anyio_backend: object) -> AsyncIterator[Broker]:
    async with Broker(
        nodes=3,
        group_share_min_heartbeat_interval_ms=50,
        group_share_heartbeat_interval_ms=50,
        group_share_assignment_interval_ms=0,
    ) as broker:
        yield broker


@pytest.fixture
async def group_id(broker: Broker, group_id: str) -> str:
    """A share group that reads from the start."""
    async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        group = ConfigResource(ConfigResourceType.GROUP, group_id)
        await admin.incremental_alter_configs({group: {"share.auto.offset.reset": "earliest"}})
    return group_id


def member(broker: Broker, topic: str, group_id: str, **options: Any) -> ShareConsumer:
    options = {"fetch_max_wait_ms": 50, "share_acknowledgement_mode": "explicit"} | options
    return ShareConsumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        group_id=group_id,
        **(IMPATIENT | options),
    )


async def take(consumer: ShareConsumer, count: int) -> list[ShareRecord]:
    records: list[ShareRecord] = []
    with anyio.fail_after(WITHIN_S):
        while len(records) < count:
            found = await consumer.getmany(timeout_ms=POLL_MS, max_records=count - len(records))
            for some in found.values():
                records.extend(some)
    return records


def refuse_partitions(seen: SeenRequest) -> ShareAcknowledgeResponse:
    """Respond to a ShareAcknowledge with an error for each of its partitions."""
    assert isinstance(seen.message, ShareAcknowledgeRequest)
    return ShareAcknowledgeResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        node_endpoints=[],
        responses=[
            ShareAcknowledgeTopicResponse(
                topic_id=topic.topic_id,
                partitions=[
                    ShareAcknowledgePartitionData(
                        partition_index=partition.partition_index,
                        error_code=ErrorCode.INVALID_RECORD_STATE,
                        current_leader=LeaderIdAndEpoch(),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in seen.message.topics
        ],
    )


def fail_partitions(seen: SeenRequest) -> ShareFetchResponse:
    """Respond to a ShareFetch with UNKNOWN_SERVER_ERROR for each of its partitions."""
    assert isinstance(seen.message, ShareFetchRequest)
    return ShareFetchResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        node_endpoints=[],
        responses=[
            ShareFetchableTopicResponse(
                topic_id=topic.topic_id,
                partitions=[
                    ShareFetchPartitionData(
                        partition_index=partition.partition_index,
                        error_code=ErrorCode.UNKNOWN_SERVER_ERROR,
                        acknowledge_error_code=ErrorCode.NONE,
                        current_leader=LeaderIdAndEpoch(),
                        records=b"",
                        acquired_records=[],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in seen.message.topics
        ],
    )


async def test_a_lost_connection_fails_acknowledgements_and_records_come_again(
    broker: Broker, topic: str, group_id: str
) -> None:
    await fill(broker.bootstrap_servers, topic, numbered(2))
    async with member(broker, topic, group_id) as consumer:
        first, second = await take(consumer, 2)
        fault = broker.on(ACKNOWLEDGE, Close(), times=1)
        with pytest.raises(AcknowledgementFailed, match="session has ended"):
            await first.accept()
        assert fault.hits == 1
        with pytest.raises(AcknowledgementFailed, match="not held"):
            second.accept()
        again = await take(consumer, 2)
        assert [record.delivery_count for record in again] == [2, 2]
        for record in again:
            await record.accept()


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
    ids=lambda code: code.name,
)
async def test_another_session_is_opened(
    broker: Broker, topic: str, group_id: str, code: ErrorCode
) -> None:
    await fill(broker.bootstrap_servers, topic, numbered(1))
    async with member(broker, topic, group_id) as consumer:
        [record] = await take(consumer, 1)
        fault = broker.on(FETCH, Answer(code), times=2)
        [again] = await take(consumer, 1)
        assert again.delivery_count == 2
        with pytest.raises(AcknowledgementFailed, match="not held"):
            record.accept()
        await again.accept()
    assert fault.hits == 2
    opening = [
        seen.message.share_session_epoch
        for seen in broker.requests.of(FETCH)
        if any(topic.partitions for topic in seen.message.topics)  # type: ignore[attr-defined]
    ]
    assert set(opening) == {0}


async def test_records_are_read_from_a_new_leader(
    broker: Broker, topic: str, group_id: str
) -> None:
    await fill(broker.bootstrap_servers, topic, numbered(3))
    async with member(broker, topic, group_id) as consumer:
        first, _ = await take(consumer, 2)
        await first.accept()
        broker.move_leader(topic, 0, broker.leader(topic, 0) % 3 + 1)
        seen: set[bytes | None] = set()
        with anyio.fail_after(WITHIN_S):
            while seen < {*numbered(3, start=1)}:
                if seen >= {b"00001", b"00002"} and b"00003" not in seen:
                    await fill(broker.bootstrap_servers, topic, [b"00003"])
                for record in await take(consumer, 1):
                    seen.add(record.value)
                    record.accept()
        assert first.value not in seen


async def test_a_topic_that_is_created_again_does_not_disturb_others(
    broker: Broker, topic: str, group_id: str
) -> None:
    """The broker refuses whole requests for the old topic, which is assigned until a heartbeat."""
    await broker.create_topic("other")
    broker.move_leader("other", 0, broker.leader(topic, 0))
    await fill(broker.bootstrap_servers, topic, numbered(1))
    async with member(broker, topic, group_id) as consumer:
        consumer.subscribe([topic, "other"])
        [record] = await take(consumer, 1)
        record.accept()
        with anyio.fail_after(WITHIN_S):
            while len(consumer.assignment()) < 2:
                await consumer.getmany(timeout_ms=POLL_MS)
        broker.on(ApiKey.SHARE_GROUP_HEARTBEAT, Drop())
        await broker.delete_topic("other")
        await broker.create_topic("other")
        await fill(broker.bootstrap_servers, topic, numbered(1, start=1))
        [record] = await take(consumer, 1)
        await record.accept()


@pytest.mark.parametrize("mode", ["batch_optimized", "record_limit"])
async def test_a_broker_that_refuses_to_fetch_does_not_hold_up_others(
    broker: Broker, group_id: str, mode: Literal["batch_optimized", "record_limit"]
) -> None:
    await broker.create_topic("wide", partitions=3)
    for partition in range(3):
        await fill(broker.bootstrap_servers, "wide", numbered(1, start=partition), partition)
    refused = Answer(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
    broker.on(FETCH, refused, node=broker.leader("wide", 0))
    async with member(broker, "wide", group_id, share_acquire_mode=mode) as consumer:
        assert {record.partition for record in await take(consumer, 2)} == {1, 2}


async def test_epochs_of_a_session_have_no_gaps(broker: Broker, topic: str, group_id: str) -> None:
    await fill(broker.bootstrap_servers, topic, numbered(5))
    async with member(broker, topic, group_id) as consumer:
        for record in await take(consumer, 5):
            await record.accept()
        await fill(broker.bootstrap_servers, topic, numbered(5))
        for record in await take(consumer, 5):
            record.accept()
    epochs = [
        seen.message.share_session_epoch  # type: ignore[attr-defined]
        for seen in broker.requests
        if seen.message.api_key in {FETCH, ACKNOWLEDGE}
    ]
    assert epochs == [*range(len(epochs) - 1), -1]


async def test_an_error_of_one_partition_fails_its_acknowledgements_alone(
    broker: Broker, topic: str, group_id: str
) -> None:
    await fill(broker.bootstrap_servers, topic, numbered(1))
    async with member(broker, topic, group_id) as consumer:
        [record] = await take(consumer, 1)
        broker.on(ACKNOWLEDGE, refuse_partitions, times=1)
        with pytest.raises(AcknowledgementFailed, match="INVALID_RECORD_STATE"):
            await record.accept()


async def test_an_unknown_error_of_a_partition_passes(
    broker: Broker, topic: str, group_id: str
) -> None:
    await fill(broker.bootstrap_servers, topic, numbered(1))
    fault = broker.on(FETCH, fail_partitions, times=2)
    async with member(broker, topic, group_id) as consumer:
        [record] = await take(consumer, 1)
        await record.accept()
    assert fault.hits == 2


@pytest.mark.parametrize(
    "code", [ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID], ids=lambda c: c.name
)
async def test_errors_of_static_membership_are_raised(
    broker: Broker, topic: str, group_id: str, code: ErrorCode
) -> None:
    """A share group has no static members, so that no coordinator returns them."""
    await fill(broker.bootstrap_servers, topic, numbered(1))
    broker.on(ApiKey.SHARE_GROUP_HEARTBEAT, Answer(code), times=1)
    async with member(broker, topic, group_id) as consumer:
        with anyio.fail_after(WITHIN_S), pytest.raises(KafkaError, match=code.name):
            await consumer.getone()
        [record] = await take(consumer, 1)
        await record.accept()


async def test_a_group_that_is_not_permitted_raises(
    broker: Broker, topic: str, group_id: str
) -> None:
    broker.on(ApiKey.SHARE_GROUP_HEARTBEAT, Answer(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    async with member(broker, topic, group_id) as consumer:
        with anyio.fail_after(WITHIN_S), pytest.raises(AuthorizationFailed):
            await consumer.getone()


async def test_a_cluster_without_share_groups_raises(topic: str, group_id: str) -> None:
    async with Broker(as_of="4.0") as old:
        await old.create_topic(topic)
        async with member(old, topic, group_id) as consumer:
            with anyio.fail_after(WITHIN_S), pytest.raises(UnsupportedVersion, match=r"Kafka 4\.2"):
                await consumer.getone()


async def test_renewals_alone_fail_on_kafka_4_1(topic: str, group_id: str) -> None:
    """The broker would end the session, with the locks of all other records."""
    async with Broker(
        as_of="4.1",
        group_share_assignment_interval_ms=0,
        group_share_min_record_lock_duration_ms=1_000,
    ) as old:
        await old.create_topic(topic)
        async with Admin(bootstrap_servers=old.bootstrap_servers) as admin:
            await admin.update_features({"share.version": 1})
            group = ConfigResource(ConfigResourceType.GROUP, group_id)
            configs = {
                "share.auto.offset.reset": "earliest",
                "share.record.lock.duration.ms": "2000",
            }
            await admin.incremental_alter_configs({group: configs})
        await fill(old.bootstrap_servers, topic, numbered(2))
        async with member(old, topic, group_id, share_renewal_limit_ms=60_000) as consumer:
            first, second = await take(consumer, 2)
            with pytest.raises(AcknowledgementFailed, match=r"needs Kafka 4\.2"):
                first.renew()
            await first.accept()
            await anyio.sleep(1.3)  # automatic renewals are due after 1 s
            await second.accept()
        versions = {seen.version for seen in old.requests.of(ACKNOWLEDGE)}
        assert versions == {1}


async def test_a_commit_returns_the_partitions_without_a_response(
    broker: Broker, group_id: str
) -> None:
    """One partition is confirmed, the leader of the other does not respond."""
    await broker.create_topic("two", partitions=3)
    for partition in range(3):
        await fill(broker.bootstrap_servers, "two", numbered(1), partition)
    options = {"close_timeout_ms": 300, "request_timeout_ms": 5_000}
    async with member(broker, "two", group_id, **options) as consumer:
        for record in await take(consumer, 3):
            record.accept()
        silent = broker.leader("two", 0)
        broker.on(ACKNOWLEDGE, Drop(), node=silent)
        results = await consumer.commit(timeout_ms=1_000)
        assert results.keys() == consumer.assignment()
        failed = {tp for tp, error in results.items() if error is not None}
        assert TopicPartition("two", 0) in failed
        assert failed < results.keys()
        assert all(isinstance(results[tp], RequestTimedOut) for tp in failed)


async def test_closing_ends_at_its_deadline(broker: Broker, topic: str, group_id: str) -> None:
    await fill(broker.bootstrap_servers, topic, numbered(1))
    consumer = member(broker, topic, group_id, close_timeout_ms=300)
    await consumer.start()
    [record] = await take(consumer, 1)
    record.accept()
    broker.on(ACKNOWLEDGE, Close())
    with anyio.fail_after(2.0):
        await consumer.stop()


@pytest.mark.parametrize("fault", [Close(), Drop()], ids=lambda fault: type(fault).__name__)
async def test_acknowledgements_fail_at_the_deadline_of_closing(
    broker: Broker, topic: str, group_id: str, fault: Close | Drop
) -> None:
    await fill(broker.bootstrap_servers, topic, numbered(2))
    results: list[tuple[Sequence[int], AcknowledgementFailed | None]] = []
    consumer = member(broker, topic, group_id, close_timeout_ms=300)
    consumer.set_acknowledgement_commit_callback(lambda _, *result: results.append(result))
    await consumer.start()
    first, second = await take(consumer, 2)
    broker.on(ACKNOWLEDGE, fault)

    async def accept() -> None:
        with pytest.raises(AcknowledgementFailed):
            await first.accept()

    with anyio.fail_after(WITHIN_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(accept)
            await anyio.sleep(0.05)
            await consumer.stop()
    [(offsets, failure)] = results
    assert offsets == [0]
    assert failure is not None
    with pytest.raises(AcknowledgementFailed, match="not held"):
        second.accept()


async def test_a_broker_that_does_not_respond_leaves_time_to_leave_the_group(
    broker: Broker, topic: str, group_id: str
) -> None:
    await fill(broker.bootstrap_servers, topic, numbered(1))
    consumer = member(broker, topic, group_id, close_timeout_ms=2_000)
    await consumer.start()
    await take(consumer, 1)
    broker.on(ACKNOWLEDGE, Drop())
    with anyio.fail_after(WITHIN_S):
        await consumer.stop()
    epochs = [
        seen.message.member_epoch  # type: ignore[attr-defined]
        for seen in broker.requests.of(ApiKey.SHARE_GROUP_HEARTBEAT)
    ]
    assert epochs[-1] == -1


async def test_a_corrupt_batch_can_be_rejected_and_those_behind_it_are_read(
    broker: Broker, topic: str, group_id: str
) -> None:
    """As docs/share-groups.md recommends."""
    await fill(broker.bootstrap_servers, topic, numbered(3))
    await fill(broker.bootstrap_servers, topic, numbered(2))
    damage = broker.on(FETCH, Corrupt(records=True))
    async with member(broker, topic, group_id) as consumer:
        with pytest.raises(CorruptRecord) as raised:
            await take(consumer, 1)
        damage.remove()
        error = raised.value
        assert error.offset == 0
        assert error.next_offset is not None
        for offset in range(error.next_offset):
            await consumer.acknowledge(topic, 0, offset, AcknowledgeType.REJECT)
        records = await take(consumer, 5 - error.next_offset)
        behind = range(error.next_offset, 5)
        assert [(each.offset, each.delivery_count) for each in records] == [(o, 1) for o in behind]


async def test_an_error_is_raised_for_the_corrupt_batches_of_each_partition(
    broker: Broker, group_id: str
) -> None:
    """Brokers lead two partitions each, so one response has two corrupt batches."""
    await broker.create_topic("pairs", 6)
    async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for partition in range(6):
            await producer.send_and_wait("pairs", b"job", partition=partition)
    broker.on(FETCH, Corrupt(records=True))
    held: list[ShareRecord] = []
    async with member(broker, "pairs", group_id, **PATIENT) as consumer:
        with anyio.fail_after(WITHIN_S):
            while len(held) < 6:
                with pytest.raises(CorruptRecord) as raised:
                    await consumer.getone()
                held += consumer.corrupt_records(raised.value)
        for record in held:
            await record.reject()
    places = [(record.partition, record.delivery_count) for record in held]
    assert sorted(places) == [(partition, 1) for partition in range(6)]


async def test_corrupt_batches_of_a_topic_not_read_any_more_are_released(
    broker: Broker, topic: str, group_id: str
) -> None:
    await broker.create_topic("pairs", 6)
    group = ConfigResource(ConfigResourceType.GROUP, group_id)
    async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        lock = {"share.record.lock.duration.ms": str(round(2_000 * WITHIN_S))}
        await admin.incremental_alter_configs({group: lock})
    async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for partition in range(6):
            await producer.send_and_wait("pairs", b"job", partition=partition)
    damage = broker.on(FETCH, Corrupt(records=True))
    async with (
        member(broker, "pairs", group_id, **PATIENT) as consumer,
        member(broker, "pairs", group_id, **PATIENT) as other,
    ):
        with pytest.raises(CorruptRecord), anyio.fail_after(WITHIN_S):
            await consumer.getone()
        damage.remove()
        consumer.subscribe(topic)
        assert len(await take(other, 5)) == 5  # not the one whose error was raised


async def test_commit_returns_a_result_that_comes_while_other_tasks_run(
    broker: Broker, topic: str, group_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(broker.bootstrap_servers, topic, numbered(1))
    reported = anyio.Event()
    async with member(broker, topic, group_id) as consumer:
        consumer.set_acknowledgement_commit_callback(lambda *_: reported.set())
        [record] = await take(consumer, 1)
        broker.on(ACKNOWLEDGE, refuse_partitions, times=1)
        monkeypatch.setattr(consumer._running, "checkpoint", reported.wait)
        record.accept()
        with anyio.fail_after(WITHIN_S):
            [error] = (await consumer.commit()).values()
        assert isinstance(error, AcknowledgementFailed)
