"""Member epochs of a consumer group in TxnOffsetCommit (KIP-1251, KIP-1319)."""

from __future__ import annotations

import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.wire import ErrorCode
from tests.broker.consumer_group.test_broker import heartbeat
from tests.broker.raw_client import connected
from tests.broker.transactional_client import NEWEST, TransactionalClient

E = ErrorCode


@pytest.mark.parametrize(
    ("as_of", "version", "older", "stale"),
    [
        ("4.2", 5, E.ILLEGAL_GENERATION, E.ILLEGAL_GENERATION),
        ("4.3", 5, E.NONE, E.ILLEGAL_GENERATION),
        ("4.4", 5, E.NONE, E.ILLEGAL_GENERATION),
        ("4.4", 6, E.NONE, E.STALE_MEMBER_EPOCH),
    ],
)
async def test_epochs_of_members(as_of: str, version: int, older: ErrorCode, stale: E) -> None:
    async with Broker(as_of=as_of) as broker, connected(broker) as client:
        await broker.create_topic("t", partitions=3)
        first = await client.call(heartbeat("m1", 0), 1)
        if not first.assignment.topic_partitions:
            first = await client.call(heartbeat("m1", first.member_epoch), 1)
        [owned] = first.assignment.topic_partitions
        assert 0 in owned.partitions
        producer = TransactionalClient(client, versions=NEWEST | {"commit_offsets": version})
        await producer.init()

        async def commit(epoch: int, member_id: str = "m1") -> int:
            member = {"generation_id_or_member_epoch": epoch, "member_id": member_id}
            return await producer.commit_offsets("g", 4, topic_id=owned.topic_id, **member)

        epoch = first.member_epoch
        assert await commit(epoch) == E.NONE
        assert await commit(epoch + 1) == stale
        assert await commit(epoch, "nobody") == E.UNKNOWN_MEMBER_ID
        # Another topic raises the epoch of the member, which keeps its partitions.
        await broker.create_topic("u")
        wider = heartbeat("m1", epoch, subscribed_topic_names=["t", "u"])
        answer = await client.call(wider, 1)
        while answer.member_epoch == epoch:
            answer = await client.call(heartbeat("m1", epoch), 1)
        assert await commit(epoch) == older
        assert await commit(epoch - 1) == (older if older else stale)
