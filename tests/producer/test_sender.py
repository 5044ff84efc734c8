"""Background work: producer id, metadata, compression of large batches."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import anyio
import pytest

from aiokafkawire.broker import Answer, Broker, Corrupt, Drop
from aiokafkawire.config import COMPRESSION_LEVELS, ProducerConfig, make_config
from aiokafkawire.errors import BrokerError, DeliveryTimedOut, DeliveryUnknown, UnsupportedVersion
from aiokafkawire.producer import Producer
from aiokafkawire.producer.batch_future import BatchFailed
from aiokafkawire.producer.sender import Sender, make_accumulator_config
from aiokafkawire.producer.sequences import MAX_EPOCH
from aiokafkawire.records import BatchBuilder, iter_batches
from aiokafkawire.runtime import TaskHandle
from aiokafkawire.types import ProducerIdAndEpoch
from aiokafkawire.wire import ApiKey, Buffer, ErrorCode, Response
from aiokafkawire.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from tests.producer.conftest import HASTY, produced
from tests.producer.short_timeouts import delivery_timeout
from tests.producer.stored_values import stored

New = Callable[..., Producer]


def without_producer_ids(broker: Broker) -> None:
    """Limit the broker to the API versions of Kafka 0.10.2."""
    known = {ApiKey.PRODUCE: 2, ApiKey.METADATA: 2, ApiKey.API_VERSIONS: 0, ApiKey.FETCH: 3}
    response = ApiVersionsResponse(
        error_code=0,
        api_keys=[
            ApiVersion(api_key=key, min_version=0, max_version=v) for key, v in known.items()
        ],
    )
    broker.on(ApiKey.API_VERSIONS, lambda _: response)


async def test_batches_have_sequence_numbers(broker: Broker, new_producer: New):
    async with new_producer() as producer:
        for _ in range(3):
            await producer.send_and_wait("t", b"v", partition=0)
    batches = [b for seen in broker.requests.of(ApiKey.PRODUCE) for b in produced(seen)]
    assert [batch.base_sequence for batch in batches] == [0, 1, 2]
    assert {batch.producer_epoch for batch in batches} == {0}
    assert len({batch.producer_id for batch in batches}) == 1
    assert batches[0].producer_id >= 0


def failed_batches() -> list[int]:
    """Return the outcomes of failed batches that are still in memory."""
    gc.collect()
    return [id(each) for each in gc.get_objects() if type(each) is BatchFailed]


async def test_a_failed_batch_is_not_kept(broker: Broker, new_producer: New):
    """Its error may hold a long chain of causes."""
    before = failed_batches()
    async with new_producer() as producer:
        broker.on(ApiKey.PRODUCE, Answer(ErrorCode.INVALID_RECORD), times=1)
        with pytest.raises(BrokerError, match="INVALID_RECORD"):
            await producer.send_and_wait("t", b"v", partition=0)
        await producer.send_and_wait("t", b"v", partition=0)
        assert set(failed_batches()) <= set(before)


@pytest.mark.parametrize("acks", [0, 1])
async def test_acks_below_all_disable_idempotence(broker: Broker, new_producer: New, acks: int):
    async with new_producer(acks=acks) as producer:
        await producer.send_and_wait("t", b"v", partition=0)
        seen = await broker.wait_for_request(ApiKey.PRODUCE)
    assert seen.message.acks == acks
    assert [batch.producer_id for batch in produced(seen)] == [-1]
    assert broker.requests.of(ApiKey.INIT_PRODUCER_ID) == []


async def test_a_broker_without_producer_ids_disables_default_idempotence(
    broker: Broker, new_producer: New, caplog: pytest.LogCaptureFixture
):
    without_producer_ids(broker)
    with caplog.at_level(logging.WARNING, "aiokafkawire.producer"):
        async with new_producer() as producer:
            await producer.send_and_wait("t", b"v", partition=0)
    assert len([r for r in caplog.records if "idempotence is disabled" in r.message]) == 1
    seen = await broker.wait_for_request(ApiKey.PRODUCE)
    assert seen.version == 2
    assert [batch.magic for batch in produced(seen)] == [1]


async def test_a_broker_without_producer_ids_fails_explicit_idempotence(
    broker: Broker, new_producer: New
):
    without_producer_ids(broker)
    async with new_producer(enable_idempotence=True) as producer:
        with pytest.raises(UnsupportedVersion, match="InitProducerId"):
            await producer.send_and_wait("t", b"v", partition=0)


async def test_a_refused_producer_id_fails_the_producer(broker: Broker, new_producer: New):
    broker.on(ApiKey.INIT_PRODUCER_ID, Answer(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    async with new_producer() as producer:
        with pytest.raises(BrokerError, match="CLUSTER_AUTHORIZATION_FAILED"):
            await producer.send_and_wait("t", b"v", partition=0)


def watch_offloading(producer: Producer) -> list[object]:
    """Return a list that collects the functions that run in other threads from now on."""
    runtime = producer._lifecycle.session.runtime
    offloaded = []
    through = runtime.offload

    async def offload(function):
        offloaded.append(function)
        return await through(function)

    runtime.offload = offload
    return offloaded


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd", "snappy"])
async def test_large_batches_are_compressed_in_another_thread(
    broker: Broker, new_producer: New, codec: str
):
    values = [b"%06d" % number * 1_000 for number in range(40)]
    async with new_producer(batch_size_bytes=200_000, compression_type=codec) as producer:
        offloaded = watch_offloading(producer)
        await producer.send_many("t", values, partition=0)
        await producer.flush()
    assert offloaded
    assert await stored(broker, "t") == values


async def test_a_record_larger_than_a_batch_is_compressed_in_another_thread(
    broker: Broker, new_producer: New
):
    value = b"%06d" % 7 * 50_000
    async with new_producer(batch_size_bytes=16_384, compression_type="gzip") as producer:
        offloaded = watch_offloading(producer)
        await producer.send_and_wait("t", value, partition=0)
        assert len(offloaded) == 1
        await producer.send_and_wait("t", b"small", partition=0)
        assert len(offloaded) == 1
    assert await stored(broker, "t") == [value, b"small"]


async def test_a_recreated_topic_is_written_from_offset_zero(broker: Broker, new_producer: New):
    async with new_producer() as producer:
        for value in (b"1", b"2"):
            await producer.send_and_wait("t", value, partition=0)
        await broker.delete_topic("t")
        await broker.create_topic("t", partitions=1, replication_factor=3)
        assert (await producer.send_and_wait("t", b"3", partition=0)).offset == 0
        assert (await producer.send_and_wait("t", b"4", partition=0)).offset == 1
    assert await stored(broker, "t") == [b"3", b"4"]


async def test_without_topic_ids_a_topic_that_disappeared_counts_as_recreated(
    anyio_backend: object,
):
    async with Broker(nodes=1, as_of="2.7", auto_create_topics=False) as broker:
        await broker.create_topic("t", partitions=1)
        async with Producer(bootstrap_servers=broker.bootstrap_servers, **HASTY) as producer:
            for value in (b"1", b"2"):
                await producer.send_and_wait("t", value)
            await broker.delete_topic("t")
            cluster = producer._lifecycle.session.cluster
            cluster.request_update()
            with anyio.fail_after(20):
                while "t" in cluster.metadata.topics:
                    await cluster.wait_update(cluster.metadata.version, anyio.current_time() + 20)
            delivery = await producer.send("t", b"3")
            await broker.create_topic("t", partitions=1)
            assert (await delivery).offset == 0
            assert producer.metrics()["epochs_raised_total"] == 1
            assert (await producer.send_and_wait("t", b"4")).offset == 1
        assert await stored(broker, "t") == [b"3", b"4"]


async def test_an_idle_topic_is_removed_from_the_metadata(broker: Broker, new_producer: New):
    async with new_producer() as producer:
        await producer.send_and_wait("t", b"1", partition=0)
        session = producer._lifecycle.session
        session.sender.accumulator.topics["t"].last_used_at -= 1_000
        for _ in range(2):
            session.cluster.request_update()
            deadline = anyio.current_time() + 20
            assert await session.cluster.wait_update(session.cluster.metadata.version, deadline)
        assert not session.cluster.metadata.topics
        assert producer.metrics()["topics_in_use"] == 0
        # It is used again at once, without another look-up.
        assert (await producer.send_nowait("t", b"2", partition=0)).offset == 1
        assert set(session.cluster.metadata.topics) == {"t"}
        assert producer.metrics()["epochs_raised_total"] == 0
    assert await stored(broker, "t") == [b"1", b"2"]


async def test_a_bug_in_a_task_fails_the_producer_with_its_error(
    broker: Broker, new_producer: New, caplog: pytest.LogCaptureFixture
):
    async with new_producer() as producer:
        await producer.send_and_wait("t", b"v")
        accumulator = producer._lifecycle.session.sender.accumulator

        def broken(*_: object, **__: object) -> None:
            raise ArithmeticError("a defect")

        accumulator.drain = broken
        with pytest.raises(Exception, match="a defect"):
            await producer.send_and_wait("t", b"v")
        with pytest.raises(Exception, match="producer is broken"):
            await producer.send("t", b"v")


@pytest.mark.slow
async def test_after_the_last_epoch_there_is_a_new_producer_id(broker: Broker, new_producer: New):
    async with new_producer(request_timeout_ms=300) as producer:
        await producer.send_and_wait("t", b"1", partition=0)
        producer_id_state = producer._lifecycle.session.sender.accumulator.producer_id_state
        first = producer_id_state.current.producer_id
        producer_id_state.current = ProducerIdAndEpoch(first, MAX_EPOCH)
        await producer.send_and_wait("t", b"2", partition=0)
        fault = broker.on(ApiKey.PRODUCE, Drop())
        with delivery_timeout(producer, 200), pytest.raises(DeliveryUnknown):
            await producer.send_and_wait("t", b"3", partition=0)
        fault.remove()
        await producer.send_and_wait("t", b"4", partition=0)
        assert producer_id_state.current.producer_id != first
    assert await stored(broker, "t") == [b"1", b"2", b"4"]


@pytest.mark.slow
async def test_an_expired_record_has_the_connection_error(broker: Broker, new_producer: New):
    async with new_producer(request_timeout_ms=100, delivery_timeout_ms=300) as producer:
        await producer.partitions_for("t")
        for node in (1, 2, 3):
            await broker.kill(node)
        with pytest.raises(DeliveryTimedOut, match=r"the last error: .*127\.0\.0\.1") as caught:
            await producer.send_and_wait("t", b"v", partition=0)
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("codec", sorted(COMPRESSION_LEVELS))
def test_every_allowed_compression_level_works(codec: str):
    low, high = COMPRESSION_LEVELS[codec]
    for level in (low, high):
        config = make_config(
            ProducerConfig,
            {"bootstrap_servers": "b", "compression_type": codec, "compression_level": level},
        )
        accumulator_config = make_accumulator_config(config)
        builder = BatchBuilder(accumulator_config.compression, accumulator_config.compression_level)
        builder.append(0, None, b"value" * 100)
        (view,) = iter_batches(b"".join(builder.close().encode()))
        assert view.columns().value(0) == b"value" * 100


@pytest.mark.parametrize(("refusals", "warned"), [(2, False), (6, True)])
async def test_a_loading_coordinator_is_a_warning_only_when_it_lasts(
    broker: Broker,
    new_producer: New,
    caplog: pytest.LogCaptureFixture,
    refusals: int,
    warned: bool,
):
    loading = Answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    broker.on(ApiKey.INIT_PRODUCER_ID, loading, times=refusals)
    with caplog.at_level(logging.WARNING):
        async with new_producer(retry_backoff_ms=1, retry_backoff_max_ms=2) as producer:
            assert (await producer.send_and_wait("t", b"v", partition=0)).offset == 0
    assert ("COORDINATOR_LOAD_IN_PROGRESS" in caplog.text) is warned


async def test_closing_without_a_producer_id_logs_nothing(
    broker: Broker, new_producer: New, caplog: pytest.LogCaptureFixture
):
    broker.on(ApiKey.INIT_PRODUCER_ID, Drop())
    with caplog.at_level(logging.WARNING):
        async with new_producer():
            await broker.wait_for_request(ApiKey.INIT_PRODUCER_ID)
    assert caplog.text == ""


async def test_the_task_of_a_removed_broker_ends(broker: Broker, new_producer: New):
    def tasks(sender: Sender) -> list[TaskHandle]:
        return [task for task in sender.supervisor._tasks if task.name == "send to broker 2"]

    async with new_producer(metadata_max_age_ms=20) as producer:
        sender = producer._lifecycle.session.sender
        for partition in range(3):
            await producer.send_and_wait("t", b"1", partition=partition)
        assert tasks(sender)
        await broker.kill(2)
        for task in tasks(sender):
            with anyio.fail_after(20):
                await task.wait()
        assert tasks(sender) == []
        assert sorted(sender.broker_senders) == [1, 3]
        # A restarted broker has tasks again.
        await broker.restart(2)
        broker.move_leader("t", 0, 2)
        for partition in range(3):
            await producer.send_and_wait("t", b"2", partition=partition)
        assert sorted(sender.broker_senders) == [1, 2, 3]
    assert [broker.end_offset("t", partition) for partition in range(3)] == [2, 2, 2]


class WithoutPartitions(Corrupt):
    """Metadata of topics without partitions."""

    def response(self, response: Response) -> Response:
        metadata: Any = response
        topics = [replace(each, partitions=[]) for each in metadata.topics]
        return replace(metadata, topics=topics)

    def frame(self, buffers: list[Buffer]) -> list[Buffer]:
        return buffers


@pytest.mark.parametrize("key", [None, b"k"])
async def test_a_topic_keeps_its_partitions_when_metadata_has_none(
    broker: Broker, new_producer: New, key: bytes | None
):
    async with new_producer(metadata_max_age_ms=100) as producer:
        await producer.send_and_wait("t", b"1", key)
        asked = len(broker.requests.of(ApiKey.METADATA))
        fault = broker.on(ApiKey.METADATA, WithoutPartitions())
        with anyio.fail_after(30):
            await broker.wait_for_request(ApiKey.METADATA, count=asked + 2)
            delivery = await producer.send("t", b"2", key)
            fault.remove()
            await delivery
