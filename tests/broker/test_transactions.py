"""Transactions over the wire, in the protocols before and since KIP-890."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.broker.files import Files
from aiokafkawire.broker.transactions import transaction_coordinator
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.delete_groups import DeleteGroupsRequest
from aiokafkawire.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from aiokafkawire.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

from .raw_client import RawClient, connected, only
from .transactional_client import (
    CLASSIC,
    NEWEST,
    TransactionalClient,
    a_topic,
    committed,
    fetched,
    latest,
    values,
)

E = ErrorCode

PROTOCOLS = pytest.mark.parametrize("versions", [CLASSIC, NEWEST], ids=["classic", "newest"])


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker() as broker:
        await a_topic(broker)
        yield broker


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[RawClient]:
    async with connected(broker) as client:
        yield client


async def begun(producer: TransactionalClient, *values: bytes) -> None:
    """Write a transaction with these records."""
    if producer.me.epoch < 0:
        assert await producer.init() == E.NONE
    if producer.versions is CLASSIC:
        assert await producer.add(0) == E.NONE
    for value in values:
        assert (await producer.produce(value)).error_code == E.NONE


@PROTOCOLS
async def test_what_is_committed_is_read(client: RawClient, versions: dict[str, int]) -> None:
    producer = TransactionalClient(client, versions=versions)
    await begun(producer, b"a", b"b")
    before = await fetched(client)
    assert (values(before), before.last_stable_offset, before.high_watermark) == ([], 0, 2)
    assert values(await fetched(client, isolated=False)) == [b"a", b"b"]
    assert await latest(client, isolated=True) == 0
    assert await latest(client, isolated=False) == 2
    assert await producer.end(commit=True) == E.NONE
    after = await fetched(client)
    assert (values(after), after.last_stable_offset, after.high_watermark) == ([b"a", b"b"], 3, 3)
    assert after.aborted_transactions == []
    assert await latest(client, isolated=True) == 3


@PROTOCOLS
async def test_aborted_transactions_are_returned(
    client: RawClient, versions: dict[str, int]
) -> None:
    producer = TransactionalClient(client, versions=versions)
    await begun(producer, b"a")
    assert await producer.end(commit=False) == E.NONE
    await begun(producer, b"b")
    assert await producer.end(commit=True) == E.NONE
    answer = await fetched(client)
    (aborted,) = answer.aborted_transactions
    assert (aborted.producer_id, aborted.first_offset) == (producer.me.producer_id, 0)
    assert values(answer) == [b"a", b"b"]
    assert (await fetched(client, isolated=False)).aborted_transactions is None
    assert (await fetched(client, 2)).aborted_transactions == []


@PROTOCOLS
async def test_offsets_count_once_they_are_committed(
    client: RawClient, versions: dict[str, int]
) -> None:
    producer = TransactionalClient(client, versions=versions)
    await producer.init()
    for offset, commit, then in ((5, False, -1), (7, True, 7), (9, False, 7)):
        if versions is CLASSIC:
            assert await producer.add_offsets("g") == E.NONE
        assert await producer.commit_offsets("g", offset) == E.NONE
        assert await committed(client, "g", stable=True) == (E.UNSTABLE_OFFSET_COMMIT, -1)
        assert (await committed(client, "g"))[0] == E.NONE
        assert await producer.end(commit=commit) == E.NONE
        assert await committed(client, "g", stable=True) == (E.NONE, then)


@PROTOCOLS
async def test_a_newer_producer_fences_the_older(
    client: RawClient, versions: dict[str, int]
) -> None:
    older, newer = (TransactionalClient(client, versions=versions) for _ in range(2))
    await begun(older, b"lost")
    assert await newer.init() == E.CONCURRENT_TRANSACTIONS
    assert await newer.init() == E.NONE
    assert newer.me.epoch == older.me.epoch + 2
    assert (await older.produce(b"late")).error_code == E.INVALID_PRODUCER_EPOCH
    assert await older.add(1) == E.PRODUCER_FENCED
    assert await older.add_offsets("g") == E.PRODUCER_FENCED
    assert await older.commit_offsets("g", 1) == E.INVALID_PRODUCER_EPOCH
    for commit in (True, False):
        assert await older.end(commit=commit) == E.PRODUCER_FENCED
    assert await older.init(expected=older.me) == E.PRODUCER_FENCED
    await begun(newer, b"kept")
    assert await newer.end(commit=True) == E.NONE
    answer = await fetched(client)
    assert [each.first_offset for each in answer.aborted_transactions] == [0]
    assert values(answer) == [b"lost", b"kept"]


@PROTOCOLS
async def test_transactions_survive_the_broker(tmp_path: Path, versions: dict[str, int]) -> None:
    async with Broker(data_dir=tmp_path) as broker, connected(broker) as client:
        await a_topic(broker)
        producer = TransactionalClient(client, versions=versions)
        await begun(producer, b"a")
        assert versions is NEWEST or await producer.add_offsets("g") == E.NONE
        assert await producer.commit_offsets("g", 5) == E.NONE
    async with Broker(data_dir=tmp_path) as broker, connected(broker) as client:
        assert values(await fetched(client)) == []
        assert await committed(client, "g", stable=True) == (E.UNSTABLE_OFFSET_COMMIT, -1)
        producer.client = client
        assert (await producer.produce(b"b")).error_code == E.NONE
        assert await producer.end(commit=True) == E.NONE
        assert values(await fetched(client)) == [b"a", b"b"]
    async with Broker(data_dir=tmp_path) as broker, connected(broker) as client:
        assert values(await fetched(client)) == [b"a", b"b"]
        assert await committed(client, "g", stable=True) == (E.NONE, 5)


@PROTOCOLS
async def test_an_answer_that_was_lost_is_given_again(
    client: RawClient, versions: dict[str, int]
) -> None:
    producer = TransactionalClient(client, versions=versions)
    await begun(producer, b"a")
    me = producer.me
    assert await producer.end(commit=True) == E.NONE
    after, producer.me = producer.me, me
    assert await producer.end(commit=True) == E.NONE
    assert producer.me == after
    producer.me = me
    assert await producer.end(commit=False) == E.INVALID_TXN_STATE
    assert (await fetched(client)).high_watermark == 2


async def test_readers_of_committed_records_find_no_others_by_their_time(client: RawClient) -> None:
    producer = TransactionalClient(client)
    await begun(producer, b"a")
    asked = ListOffsetsPartition(partition_index=0, timestamp=0)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=1,
        topics=[ListOffsetsTopic(name="t", partitions=[asked])],
    )
    assert only(await client.call(request, 5)).offset == -1
    await producer.end(commit=True)
    assert only(await client.call(request, 5)).offset == 0


async def test_markers_are_written_when_the_store_takes_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transaction_coordinator, "STORE_RETRY_S", 0.01)
    # The marker is stored, but the state that says so is not.
    outcomes = iter([None, OSError(errno.ENOSPC, "no space left")])

    async with (
        Broker(data_dir=tmp_path, transaction_marker_delay_ms=50) as broker,
        connected(broker) as client,
    ):
        await a_topic(broker)
        producer = TransactionalClient(client)
        await begun(producer, b"a")
        assert await producer.end(commit=True) == E.NONE
        write = Files.write

        def once_full(*args: Any) -> int:
            error = next(outcomes, None)
            if error is not None:
                raise error
            return write(*args)

        monkeypatch.setattr(Files, "write", once_full)
        assert values(await fetched(client, max_wait_ms=5_000)) == [b"a"]
        while await producer.end(commit=True) != E.NONE:
            await anyio.lowlevel.checkpoint()
        assert broker.end_offset("t", 0) == 2, "the marker is written once"
    assert "no space left" in caplog.text


async def test_a_deleted_group_gets_no_offsets(client: RawClient) -> None:
    producer = TransactionalClient(client)
    await producer.init()
    for group in ("g", "h"):
        await producer.add_offsets(group)
        assert await producer.commit_offsets(group, 5) == E.NONE
    (deleted,) = (await client.call(DeleteGroupsRequest(groups_names=["g"]), 2)).results
    assert deleted.error_code == E.NONE
    topic = OffsetDeleteRequestTopic(
        name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)]
    )
    request = OffsetDeleteRequest(group_id="h", topics=[topic])
    assert (await client.call(request, 0)).error_code == E.NONE
    assert await producer.end(commit=True) == E.NONE
    for group in ("g", "h"):
        assert await committed(client, group) == (E.NONE, -1)
