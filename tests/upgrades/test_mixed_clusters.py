"""Clusters whose nodes have different releases, as during an upgrade."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from aiokafkawire.broker import Answer, ApiKey, Broker, ErrorCode, SeenRequest
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import UnsupportedVersion
from aiokafkawire.producer import Producer
from aiokafkawire.records import iter_batches
from aiokafkawire.types import TopicPartition

from .load import IMPATIENT, SETUP

pytestmark = pytest.mark.slow

WITHIN_S = 40.0
TOPIC = "orders"
NEWER, OLDER = 1, 2
"""The nodes of a mixed cluster."""

PAIRS = [
    pytest.param("0.10.0", "0.9", marks=pytest.mark.slow),
    ("0.11", "0.10.2"),
    ("2.8", "0.10"),
    ("4.0", "2.8"),
    ("4.3", "3.9"),
]
"""A newer release, and an older one that can be upgraded to it."""

MAGIC = {"0.9": 0, "0.10": 1, "0.10.0": 1, "0.10.2": 1}
"""Record format sent to a release; 2 for the others."""


@asynccontextmanager
async def mixed(newer: str, older: str) -> AsyncIterator[Broker]:
    """Start a node of each release. Both have replicas of the topic: node 1 leads partition 0,
    node 2 partition 1."""
    async with Broker(nodes=2, as_of=older, group_min_session_timeout_ms=500) as broker:
        await broker.create_topic(TOPIC, partitions=2, replication_factor=2)
        await broker.restart(NEWER, as_of=newer)
        broker.move_leader(TOPIC, 0, NEWER)
        broker.move_leader(TOPIC, 1, OLDER)
        yield broker


def options(broker: Broker, older: str) -> dict[str, Any]:
    more = SETUP if older == "0.9" else {}
    return {"bootstrap_servers": broker.bootstrap_servers, **IMPATIENT, **more}


def magics(seen: SeenRequest) -> set[int]:
    """Return the formats of the records in a Produce request."""
    message: Any = seen.message
    return {
        batch.magic
        for topic in message.topic_data
        for data in topic.partition_data
        for batch in iter_batches(data.records)
    }


@pytest.mark.parametrize(("newer", "older"), PAIRS, ids=lambda pair: pair)
async def test_each_node_is_spoken_to_in_its_own_versions(newer: str, older: str) -> None:
    async with mixed(newer, older) as broker:
        with anyio.fail_after(WITHIN_S):
            async with Producer(**options(broker, older)) as producer:
                for partition in (0, 1):
                    await producer.send_and_wait(TOPIC, b"%d" % partition, partition=partition)
            reader = Consumer(**options(broker, older), auto_offset_reset="earliest")
            async with reader as consumer:
                consumer.assign([TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)])
                found = {}
                while len(found) < 2:
                    record = await consumer.getone()
                    found[record.partition] = record.value
        assert found == {0: b"0", 1: b"1"}
        for api in (ApiKey.PRODUCE, ApiKey.FETCH):
            (new,) = {seen.version for seen in broker.requests.of(api, node=NEWER)}
            (old,) = {seen.version for seen in broker.requests.of(api, node=OLDER)}
            # Produce versions after 3.9 are for transactions, which all nodes must support.
            assert new > old or (api is ApiKey.PRODUCE and older == "3.9")
        for node, release in ((NEWER, newer), (OLDER, older)):
            (seen,) = broker.requests.of(ApiKey.PRODUCE, node=node)
            assert magics(seen) == {MAGIC.get(release, 2)}


@pytest.mark.parametrize(("newer", "older"), PAIRS, ids=lambda pair: pair)
async def test_a_group_goes_on_when_its_coordinator_is_of_another_release(
    newer: str, older: str
) -> None:
    async with mixed(newer, older) as broker:
        await broker.restart(OLDER)
        assert broker.coordinator("group") == NEWER
        found: list[bytes | None] = []
        async with (
            Producer(**options(broker, older)) as producer,
            Consumer(
                TOPIC,
                **options(broker, older),
                group_id="group",
                auto_offset_reset="earliest",
                session_timeout_ms=5_000,
                heartbeat_interval_ms=50,
            ) as consumer,
        ):
            with anyio.fail_after(WITHIN_S):
                for number in range(4):
                    await producer.send_and_wait(TOPIC, b"%d" % number, partition=number % 2)
                    found.append((await consumer.getone()).value)
                    await consumer.commit()
                    if number == 1:
                        await broker.restart(NEWER)
                        assert broker.coordinator("group") == OLDER
        assert found == [b"0", b"1", b"2", b"3"]
        commits = {seen.node_id: seen.version for seen in broker.requests.of(ApiKey.OFFSET_COMMIT)}
        assert commits.keys() == {NEWER, OLDER}
        assert commits[NEWER] >= commits[OLDER]


async def test_what_any_node_may_answer_is_asked_of_one_that_can() -> None:
    async with mixed("0.11", "0.10") as broker:
        for _ in range(8):
            # Idempotence is requested: it fails where there are no producer ids.
            async with Producer(**options(broker, ""), enable_idempotence=True) as producer:
                with anyio.fail_after(WITHIN_S):
                    await producer.send_and_wait(TOPIC, b"value", partition=0)
        assert {seen.node_id for seen in broker.requests.of(ApiKey.INIT_PRODUCER_ID)} == {NEWER}


async def test_a_request_that_no_node_supports_fails_after_all_were_tried() -> None:
    async with mixed("0.10", "0.10") as broker:
        producer = Producer(**options(broker, ""), enable_idempotence=True)
        with anyio.fail_after(WITHIN_S), pytest.raises(UnsupportedVersion, match="InitProducerId"):
            async with producer:
                await producer.send_and_wait(TOPIC, b"value", partition=0)


# --- a leader that is older than the one before -----------------------------------------------


@asynccontextmanager
async def led_by_an_older_one(**more: Any) -> AsyncIterator[tuple[Broker, Producer]]:
    """A producer whose next batch is rejected by the newer leader; then an older one leads."""

    def move(seen: SeenRequest) -> Answer:
        if broker.leader(TOPIC, 0) == NEWER:
            broker.move_leader(TOPIC, 0, OLDER)
        # So the newer one certainly did not write it.
        return Answer(ErrorCode.LEADER_NOT_AVAILABLE)

    async with (
        mixed("2.8", "2.8") as broker,
        Producer(**options(broker, ""), **more) as producer,
    ):
        await producer.send_and_wait(TOPIC, b"first", partition=0)
        await broker.restart(OLDER, as_of="0.10")
        broker.on(ApiKey.PRODUCE, move, node=NEWER)
        yield broker, producer


async def test_a_batch_for_a_newer_leader_is_encoded_again_for_an_older_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with led_by_an_older_one() as (broker, producer):
        with caplog.at_level(logging.WARNING, "aiokafkawire.producer"):
            with anyio.fail_after(WITHIN_S):
                receipt = await producer.send_and_wait(TOPIC, b"second", partition=0)
                assert receipt.offset == 1
                await producer.send_and_wait(TOPIC, b"third", partition=0)
        produced = [
            (seen.node_id, seen.version, *magics(seen))
            for seen in broker.requests.of(ApiKey.PRODUCE)
        ]
        assert produced[:2] == [(NEWER, 9, 2), (NEWER, 9, 2)]
        assert produced[-2:] == [(OLDER, 2, 1), (OLDER, 2, 1)]
        assert set(produced) == {*produced[:1], *produced[-1:]}
        assert broker.end_offset(TOPIC, 0) == 3
    (line,) = [message for message in caplog.messages if "idempotence" in message]
    assert "idempotence is disabled" in line


@pytest.mark.parametrize(
    ("record", "more", "missing"),
    [
        ({"headers": [("name", b"value")]}, {}, "headers"),
        ({}, {"compression_type": "zstd"}, "zstd"),
        ({}, {"enable_idempotence": True}, "producer id"),
    ],
    ids=["headers", "zstd", "idempotence"],
)
async def test_what_an_older_leader_cannot_keep_fails_with_the_reason(
    record: dict[str, Any], more: dict[str, Any], missing: str
) -> None:
    async with led_by_an_older_one(**more) as (broker, producer):
        with anyio.fail_after(WITHIN_S), pytest.raises(UnsupportedVersion, match=missing) as caught:
            await producer.send_and_wait(TOPIC, b"second", partition=0, **record)
        assert (caught.value.topic, caught.value.partition) == (TOPIC, 0)
        assert broker.end_offset(TOPIC, 0) == 1
        broker.clear_faults()
        await broker.restart(OLDER, as_of="2.8")
        with anyio.fail_after(WITHIN_S):
            receipt = await producer.send_and_wait(TOPIC, b"third", partition=0, **record)
        assert receipt.offset == 1
