"""A transactional producer made of single raw requests."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from aiokafkawire.broker import Broker
from aiokafkawire.records.batch import iter_batches
from aiokafkawire.types import ProducerIdAndEpoch
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    fetch,
    init_producer_id,
    offset_fetch,
    txn_offset_commit,
)
from aiokafkawire.wire.primitives import ZERO_UUID

from .raw_client import RawClient, batch, only, produce_request

CLASSIC = {"init": 4, "add": 3, "add_offsets": 3, "produce": 9, "commit_offsets": 3, "end": 3}
NEWEST = {"init": 5, "add": 3, "add_offsets": 4, "produce": 12, "commit_offsets": 5, "end": 5}


class TransactionalClient:
    """`me` is its producer id and epoch; `sequence` counts records per partition in the epoch."""

    def __init__(
        self, client: RawClient, name: str = "tx", versions: dict[str, int] | None = None
    ) -> None:
        self.client = client
        self.name = name
        self.versions = versions or CLASSIC
        self.me = ProducerIdAndEpoch(-1, -1)
        self.sequences: dict[tuple[str, int], int] = {}
        self.timestamp_ms = 1_000

    async def init(
        self, *, timeout_ms: int = 60_000, expected: ProducerIdAndEpoch | None = None
    ) -> int:
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=timeout_ms
        )
        if expected is not None:
            request.producer_id, request.producer_epoch = expected.producer_id, expected.epoch
        answer = await self.client.call(request, self.versions["init"])
        if not answer.error_code:
            self.become(answer.producer_id, answer.producer_epoch)
        return int(answer.error_code)

    def become(self, producer_id: int, epoch: int) -> None:
        me = ProducerIdAndEpoch(producer_id, epoch)
        if me != self.me:
            self.sequences = {}
        self.me = me

    async def add(self, *partitions: int, topic: str = "t") -> int:
        topics = [
            add_partitions_to_txn.AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))
        ]
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.me.producer_id,
            v3_and_below_producer_epoch=self.me.epoch,
            v3_and_below_topics=topics,
        )
        answer = await self.client.call(request, self.versions["add"])
        (found,) = answer.results_by_topic_v3_and_below
        codes = {each.partition_error_code for each in found.results_by_partition}
        assert len(codes) == 1, codes
        return int(codes.pop())

    async def produce(
        self, *values: bytes, topic: str = "t", partition: int = 0, client: RawClient | None = None
    ) -> Any:
        sequence = self.sequences.get((topic, partition), 0)
        records = batch(
            *values,
            timestamp_ms=self.timestamp_ms,
            transactional=True,
            producer_id=self.me.producer_id,
            producer_epoch=self.me.epoch,
            base_sequence=sequence,
        )
        request = produce_request(topic, partition, records)
        request.transactional_id = self.name
        answer = only(await (client or self.client).call(request, self.versions["produce"]))
        if not answer.error_code:
            self.sequences[topic, partition] = sequence + len(values)
        return answer

    async def add_offsets(self, group: str) -> int:
        request = add_offsets_to_txn.AddOffsetsToTxnRequest(
            transactional_id=self.name,
            producer_id=self.me.producer_id,
            producer_epoch=self.me.epoch,
            group_id=group,
        )
        return int((await self.client.call(request, self.versions["add_offsets"])).error_code)

    async def commit_offsets(
        self, group: str, offset: int, *, topic_id: UUID = ZERO_UUID, **member: Any
    ) -> int:
        asked = txn_offset_commit.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata="note"
        )
        topic = txn_offset_commit.TxnOffsetCommitRequestTopic(
            name="t", topic_id=topic_id, partitions=[asked]
        )
        request = txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.me.producer_id,
            producer_epoch=self.me.epoch,
            topics=[topic],
            **member,
        )
        answer = await self.client.call(request, self.versions["commit_offsets"])
        return int(only(answer).error_code)

    async def end(self, *, commit: bool) -> int:
        request = end_txn.EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.me.producer_id,
            producer_epoch=self.me.epoch,
            committed=commit,
        )
        answer = await self.client.call(request, self.versions["end"])
        if not answer.error_code and self.versions["end"] >= 5:
            self.become(answer.producer_id, answer.producer_epoch)
        return int(answer.error_code)


async def committed(client: RawClient, group: str, *, stable: bool = False) -> tuple[int, int]:
    """Return the error code and offset of OffsetFetch for the first partition."""
    topic = offset_fetch.OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    asked = offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=[topic])
    request = offset_fetch.OffsetFetchRequest(groups=[asked], require_stable=stable)
    (answer,) = (await client.call(request, 8)).groups
    assert answer.error_code == ErrorCode.NONE
    found = answer.topics[0].partitions[0]
    return found.error_code, found.committed_offset


async def fetched(
    client: RawClient,
    offset: int = 0,
    *,
    isolated: bool = True,
    topic: str = "t",
    partition: int = 0,
    max_wait_ms: int = 0,
) -> Any:
    asked = fetch.FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=2**20
    )
    request = fetch.FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        isolation_level=int(isolated),
        topics=[fetch.FetchTopic(topic=topic, partitions=[asked])],
    )
    return only(await client.call(request, 11))


def values(answer: Any) -> list[bytes | None]:
    """Return the values of the data records in a Fetch response; markers have none."""
    return [
        view.columns().value(index)
        for view in iter_batches(answer.records)
        if not view.is_control
        for index in range(view.count)
    ]


async def a_topic(broker: Broker, partitions: int = 2) -> None:
    await broker.create_topic("t", partitions=partitions)
