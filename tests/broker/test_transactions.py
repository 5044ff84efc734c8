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
from aiokafkawire.wire.messages import delete_groups, list_offsets, offset_delete

from .raw_client import RawClient, connected, only
from .transactional_client import (
    CLASSIC,
    NEWEST,
    TransactionalClient,
    a_topic,
    committed,
    fetched,
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


async def test_readers_of_committed_records_find_no_others_by_their_time(client: RawClient) -> None:
    producer = TransactionalClient(client)
    await begun(producer, b"a")
    asked = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=0)
    request = list_offsets.ListOffsetsRequest(
        replica_id=-1,
        isolation_level=1,
        topics=[list_offsets.ListOffsetsTopic(name="t", partitions=[asked])],
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
    (deleted,) = (
        await client.call(delete_groups.DeleteGroupsRequest(groups_names=["g"]), 2)
    ).results
    assert deleted.error_code == E.NONE
    topic = offset_delete.OffsetDeleteRequestTopic(
        name="t", partitions=[offset_delete.OffsetDeleteRequestPartition(partition_index=0)]
    )
    request = offset_delete.OffsetDeleteRequest(group_id="h", topics=[topic])
    assert (await client.call(request, 0)).error_code == E.NONE
    assert await producer.end(commit=True) == E.NONE
    for group in ("g", "h"):
        assert await committed(client, group) == (E.NONE, -1)
