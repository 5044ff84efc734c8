"""Offsets of transactions name topics by id, where the coordinator supports it."""

from __future__ import annotations

import pytest

from aiokafkawire.broker import Answer, Broker
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import CommitFailed, TransactionFailed
from aiokafkawire.producer import Producer
from aiokafkawire.types import GroupMetadata, TopicPartition
from aiokafkawire.wire import ApiKey, ErrorCode
from tests.producer.transactions.conftest import QUICK

pytestmark = pytest.mark.slow

TP = TopicPartition("t", 0)
COMMIT, METADATA = ApiKey.TXN_OFFSET_COMMIT, ApiKey.METADATA


def versions(broker: Broker) -> list[int]:
    return [seen.version for seen in broker.requests if seen.api_key == COMMIT]


async def committed(broker: Broker) -> int | None:
    async with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="g") as consumer:
        consumer.assign(TP)
        found = (await consumer.committed(TP))[TP]
        return None if found is None else found.offset


@pytest.mark.parametrize(
    ("as_of", "version", "asked"), [("2.8", 3, False), ("4.3", 5, False), ("4.4", 6, True)]
)
async def test_topic_ids_are_fetched_once_where_they_are_sent(
    as_of: str, version: int, asked: bool
) -> None:
    async with Broker(nodes=3, as_of=as_of) as broker:
        await broker.create_topic("t")
        async with Producer(bootstrap_servers=broker.bootstrap_servers, **QUICK) as producer:
            for offset in (3, 4):
                async with producer.transaction():
                    await producer.send_offsets_to_transaction({TP: offset}, GroupMetadata("g"))
            topics = [
                [topic.name for topic in seen.message.topics or ()]
                for seen in broker.requests
                if seen.api_key == METADATA
            ]
        assert versions(broker) == [version, version]
        assert topics.count(["t"]) == asked
        assert await committed(broker) == 4


@pytest.mark.parametrize("topic", ["gone", "t"])
async def test_a_topic_without_an_id_is_named(topic: str) -> None:
    """Without automatic creation, the coordinator reports the missing topic."""
    async with Broker(as_of="4.4", auto_create_topics=False) as broker:
        await broker.create_topic("t")
        options = QUICK | {"max_block_ms": 500, "request_timeout_ms": 400}
        async with Producer(bootstrap_servers=broker.bootstrap_servers, **options) as producer:
            await producer.begin_transaction()
            offsets = {TopicPartition(topic, 0): 3, TP: 4}
            if topic == "t":
                await producer.send_offsets_to_transaction(offsets, GroupMetadata("g"))
                assert versions(broker) == [6]
            else:
                with pytest.raises(Exception, match="UNKNOWN_TOPIC_OR_PARTITION"):
                    await producer.send_offsets_to_transaction(offsets, GroupMetadata("g"))
                assert set(versions(broker)) == {5}


async def test_a_recreated_topic_gets_its_new_id() -> None:
    async with (
        Broker(as_of="4.4", auto_create_topics=False) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers, **QUICK) as producer,
    ):
        await broker.create_topic("t")
        async with producer.transaction():
            await producer.send_offsets_to_transaction({TP: 3}, GroupMetadata("g"))
        await broker.delete_topic("t")
        await broker.create_topic("t")
        async with producer.transaction():
            await producer.send_offsets_to_transaction({TP: 5}, GroupMetadata("g"))
        codes = [
            seen.response.topics[0].partitions[0].error_code
            for seen in broker.requests
            if seen.api_key == COMMIT and seen.response is not None
        ]
        assert (codes[0], codes[1], codes[-1]) == (
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.NONE,
        )
        assert await committed(broker) == 5


@pytest.mark.parametrize("code", [ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.STALE_MEMBER_EPOCH])
async def test_an_outdated_membership_fails_the_transaction(code: ErrorCode) -> None:
    async with (
        Broker(as_of="4.4") as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers, **QUICK) as producer,
    ):
        await broker.create_topic("t")
        broker.on(COMMIT, Answer(code), times=1)
        await producer.begin_transaction()
        with pytest.raises(TransactionFailed, match="membership is outdated") as failed:
            await producer.send_offsets_to_transaction({TP: 5}, GroupMetadata("g", 3, "nobody"))
        cause = failed.value.__cause__
        assert isinstance(cause, CommitFailed)
        assert code.name in str(cause)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_offsets_to_transaction({TP: 6}, GroupMetadata("g"))
        assert await committed(broker) == 6
