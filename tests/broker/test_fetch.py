"""Fetch over real sockets: limits, waiting, old formats, leaders."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import anyio
import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.records.batch import iter_batches
from aiokafkawire.wire import ZERO_UUID, ApiKey, ErrorCode
from aiokafkawire.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

from .raw_client import (
    RawClient,
    batch,
    build_update_metadata_request,
    connected,
    only,
    produce_request,
)

E = ErrorCode


def request(
    offset: int,
    *,
    max_bytes: int = 1_000_000,
    partition_max_bytes: int = 1_000_000,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    partitions: tuple[int, ...] = (0,),
    topic_id: UUID = ZERO_UUID,
    fields: dict[str, Any] | None = None,
    **more: Any,
) -> FetchRequest:
    asked = [
        FetchPartition(
            partition=p,
            fetch_offset=offset,
            partition_max_bytes=partition_max_bytes,
            **(fields or {}),
        )
        for p in partitions
    ]
    topic = FetchTopic(
        topic="" if topic_id != ZERO_UUID else "t", topic_id=topic_id, partitions=asked
    )
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, topics=[topic], **more
    )


async def fetched(client: RawClient, offset: int, version: int = 12, **fields: Any) -> Any:
    return await client.call(request(offset, **fields), version)


def values(data: Any) -> list[bytes | None]:
    return [
        columns.value(index)
        for view in iter_batches(data)
        for columns in [view.columns()]
        for index in range(len(columns))
    ]


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(nodes=2) as broker:
        await broker.create_topic("t", partitions=3)
        yield broker


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[RawClient]:
    for partition in range(3):
        broker.move_leader("t", partition, 1)
    async with connected(broker, 1) as client:
        yield client


async def produce(client: RawClient, *given: bytes, partition: int = 0, **fields: Any) -> int:
    """Produce one batch; return its size."""
    records = batch(*given, **fields)
    version = 2 if fields.get("magic", 2) < 2 else 9
    answer = only(await client.call(produce_request("t", partition, records), version))
    assert answer.error_code == E.NONE
    return len(records)


async def test_what_was_produced_comes_back(client: RawClient) -> None:
    await produce(client, b"a", b"b")
    await produce(client, b"c")
    answer = only(await fetched(client, 0))
    assert values(answer.records) == [b"a", b"b", b"c"]
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (3, 3, 0)
    # A fetch returns a whole batch, whichever of its offsets was requested.
    assert values(only(await fetched(client, 1)).records) == [b"a", b"b", b"c"]
    assert values(only(await fetched(client, 2)).records) == [b"c"]
    assert only(await fetched(client, 3)).records == b""


@pytest.mark.parametrize(
    ("offset", "fields", "code"),
    [
        (4, {}, E.OFFSET_OUT_OF_RANGE),
        (-1, {}, E.OFFSET_OUT_OF_RANGE),
        (0, {"partitions": (9,)}, E.UNKNOWN_TOPIC_OR_PARTITION),
        (0, {"fields": {"current_leader_epoch": 0}}, E.FENCED_LEADER_EPOCH),
        (0, {"fields": {"current_leader_epoch": 5}}, E.UNKNOWN_LEADER_EPOCH),
        (0, {"fields": {"current_leader_epoch": 1}}, E.NONE),
    ],
)
async def test_what_cannot_be_read_is_refused_at_once(
    broker: Broker, offset: int, fields: dict[str, Any], code: ErrorCode
) -> None:
    old = broker.leader("t", 0)
    broker.move_leader("t", 0, 3 - old)
    async with connected(broker, 3 - old) as client:
        await produce(client, b"a", b"b", b"c")
        with anyio.fail_after(20):
            answer = only(await fetched(client, offset, max_wait_ms=60_000, **fields))
    assert answer.error_code == code


async def test_offsets_before_the_start_are_gone(broker: Broker, client: RawClient) -> None:
    await produce(client, b"a", b"b")
    broker.delete_records("t", 0, 1)
    assert only(await fetched(client, 0)).error_code == E.OFFSET_OUT_OF_RANGE
    assert only(await fetched(client, 1)).log_start_offset == 1


async def test_topics_by_id(broker: Broker, client: RawClient) -> None:
    await produce(client, b"a")
    topic_id = (await client.call(build_update_metadata_request("t"), 12)).topics[0].topic_id
    response = await fetched(client, 0, 13, topic_id=topic_id)
    assert response.responses[0].topic_id == topic_id
    assert values(only(response).records) == [b"a"]
    assert only(await fetched(client, 0, 13, topic_id=UUID(int=3))).error_code == E.UNKNOWN_TOPIC_ID


async def test_the_first_batch_is_whole_whatever_the_limits(client: RawClient) -> None:
    first = await produce(client, b"a" * 500)
    await produce(client, b"b" * 500)
    for limits in ({"max_bytes": 1}, {"partition_max_bytes": 1}):
        answer = only(await fetched(client, 0, **limits))
        assert len(answer.records) == first


async def test_a_later_partition_is_left_out_when_it_does_not_fit(client: RawClient) -> None:
    size = await produce(client, b"a" * 500)
    await produce(client, b"b" * 500, partition=1)
    response = await fetched(client, 0, partitions=(0, 1), max_bytes=size + 50)
    sizes = [len(p.records) for p in response.responses[0].partitions]
    assert sizes == [size, 0]


async def test_a_second_batch_may_be_cut(client: RawClient) -> None:
    first = await produce(client, b"a" * 500)
    await produce(client, b"b" * 500)
    answer = only(await fetched(client, 0, partition_max_bytes=first + 100))
    assert len(answer.records) == first + 100
    assert values(answer.records) == [b"a" * 500]


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_the_oldest_versions_cut_the_first_message(client: RawClient, version: int) -> None:
    await produce(client, b"a" * 500, magic=1 if version == 2 else 0)
    answer = only(await fetched(client, 0, version, partition_max_bytes=100))
    assert len(answer.records) == 100
    assert list(iter_batches(answer.records)) == []
    whole = only(await fetched(client, 0, version))
    assert values(whole.records) == [b"a" * 500]


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2)])
@pytest.mark.parametrize("compression", [0, 1])
async def test_old_versions_get_the_format_they_know(
    client: RawClient, version: int, magic: int, compression: int
) -> None:
    await produce(client, b"a", b"b", compression=compression)
    await produce(client, b"c")
    data = only(await fetched(client, 0, version)).records
    assert {view.magic for view in iter_batches(data)} == {magic}
    assert values(data) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("version", [0, 2, 3])
async def test_an_old_client_gets_through_a_large_batch_in_small_steps(
    client: RawClient, version: int
) -> None:
    await produce(client, *(b"%03d" % i * 20 for i in range(20)))
    offset, seen = 0, []
    for _ in range(50):
        data = only(await fetched(client, offset, version, partition_max_bytes=250)).records
        views = list(iter_batches(data))
        if not views:
            break
        seen += values(data)
        offset = views[-1].next_offset
    assert seen == [b"%03d" % i * 20 for i in range(20)]


async def test_zstd_needs_version_10(client: RawClient) -> None:
    await produce(client, b"a" * 100, compression=4)
    for version in (3, 9):
        answer = only(await fetched(client, 0, version))
        assert answer.error_code == E.UNSUPPORTED_COMPRESSION_TYPE
    assert values(only(await fetched(client, 0, 10)).records) == [b"a" * 100]


async def test_a_fetch_waits_for_records(broker: Broker, client: RawClient) -> None:
    await client.send(request(0, max_wait_ms=60_000), 12)
    await broker.wait_for_request(ApiKey.FETCH)
    async with connected(broker, 1) as other:
        await produce(other, b"a")
    _, response = await client.receive(ApiKey.FETCH, 12)
    assert values(only(response).records) == [b"a"]


async def test_a_fetch_waits_for_min_bytes_over_all_partitions(
    broker: Broker, client: RawClient
) -> None:
    await client.send(request(0, max_wait_ms=60_000, min_bytes=300, partitions=(0, 1)), 12)
    await broker.wait_for_request(ApiKey.FETCH)
    async with connected(broker, 1) as other:
        await produce(other, b"a" * 150)
        await produce(other, b"b" * 150, partition=1)
    _, response = await client.receive(ApiKey.FETCH, 12)
    assert [bool(len(p.records)) for p in response.responses[0].partitions] == [True, True]


async def test_a_fetch_gives_up_after_max_wait(client: RawClient) -> None:
    answer = only(await fetched(client, 0, max_wait_ms=20))
    assert (answer.error_code, bytes(answer.records)) == (E.NONE, b"")


async def test_a_waiting_fetch_hears_of_a_new_leader(broker: Broker, client: RawClient) -> None:
    topic = (await client.call(build_update_metadata_request("t"), 12)).topics[0]
    epoch = topic.partitions[0].leader_epoch
    for version, known, code in (
        (10, -1, E.NOT_LEADER_OR_FOLLOWER),
        (16, epoch + 2, E.FENCED_LEADER_EPOCH),
    ):
        topic_id = topic.topic_id if version >= 13 else ZERO_UUID
        broker.requests.clear()
        fields = {"current_leader_epoch": known}
        asked = request(0, max_wait_ms=60_000, topic_id=topic_id, fields=fields)
        await client.send(asked, version)
        await broker.wait_for_request(ApiKey.FETCH)
        broker.move_leader("t", 0, 2)
        _, response = await client.receive(ApiKey.FETCH, version)
        assert only(response).error_code == code
        broker.move_leader("t", 0, 1)
    hint = only(response).current_leader
    assert (hint.leader_id, hint.leader_epoch) == (2, epoch + 3)
    assert [node.node_id for node in response.node_endpoints] == [2]


async def test_a_waiting_fetch_hears_that_its_topic_is_gone(
    broker: Broker, client: RawClient
) -> None:
    await client.send(request(0, max_wait_ms=60_000), 12)
    await broker.wait_for_request(ApiKey.FETCH)
    await broker.delete_topic("t")
    _, response = await client.receive(ApiKey.FETCH, 12)
    assert only(response).error_code == E.UNKNOWN_TOPIC_OR_PARTITION


async def test_requests_of_a_connection_are_answered_in_order(
    broker: Broker, client: RawClient
) -> None:
    first = await client.send(request(0, max_wait_ms=50), 12)
    second = await client.send(build_update_metadata_request(), 12)
    assert (await client.receive(ApiKey.FETCH, 12))[0] == first
    assert (await client.receive(ApiKey.METADATA, 12))[0] == second


async def test_a_client_that_leaves_ends_its_wait(broker: Broker) -> None:
    async with connected(broker, broker.leader("t", 0)) as client:
        await client.send(request(0, max_wait_ms=2**31 - 1), 12)
        await broker.wait_for_request(ApiKey.FETCH)
    state = broker._running
    partition = state.cluster.topics["t"].partitions[0]
    with anyio.fail_after(20):
        while len(partition.on_change):
            await anyio.lowlevel.checkpoint()
    assert len(partition.on_change) == 0


async def test_fetch_reports_a_diverging_log(broker: Broker) -> None:
    old = broker.leader("t", 0)
    async with connected(broker, old) as client:
        await produce(client, b"a", b"b")
    broker.move_leader("t", 0, 3 - old)
    async with connected(broker, 3 - old) as client:
        await produce(client, b"c")

        async def asked(offset: int, epoch: int) -> Any:
            return only(await fetched(client, offset, fields={"last_fetched_epoch": epoch}))

        for offset, epoch in ((2, 0), (3, 1), (0, 0)):
            assert (await asked(offset, epoch)).diverging_epoch.epoch == -1
        parted = (await asked(3, 0)).diverging_epoch
        assert (parted.epoch, parted.end_offset) == (0, 2)
        assert (await asked(3, 2)).error_code == E.OFFSET_OUT_OF_RANGE


async def test_truncation_is_reported_before_offset_out_of_range(
    broker: Broker,
) -> None:
    async with connected(broker, broker.leader("t", 0)) as client:
        await produce(client, b"a")
        await produce(client, b"b", b"c")
        broker.truncate("t", 0, 1)
        await produce(client, b"B")
        answer = only(await fetched(client, 3, fields={"last_fetched_epoch": 0}))
        assert (answer.error_code, answer.records) == (E.NONE, b"")
        assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 1)
        assert only(await fetched(client, 3)).error_code == E.OFFSET_OUT_OF_RANGE
        assert values(only(await fetched(client, 1)).records) == [b"B"]
