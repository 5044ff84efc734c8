"""Our own clients against the broker as each release: produce, consume, and run a group."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from aiokafkawire import Consumer, Producer, TopicPartition
from aiokafkawire.broker import Broker
from aiokafkawire.errors import InvalidOption, KafkaError, UnsupportedVersion
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.messages.api_versions import ApiVersionsRequest

from .raw_client import RawClient, connected

pytestmark = pytest.mark.slow

# Without ApiVersions a release is recognized by waiting; the tests configure it instead.
PINS: Mapping[str, dict[str, Any]] = {
    "0.8.0": {"api_version": "0.8.0"},
    "0.8.1": {"api_version": "0.8.1"},
    "0.8.2": {"api_version": "0.8.2"},
    "0.9": {"api_version": "0.9"},
}
WITH_IDEMPOTENCE = ("0.11", "1.1", "2.4", "2.8", "3.9", "4.0", "4.1", "4.3")
WITH_TIMESTAMPS = ("0.10.0", "0.10", *WITH_IDEMPOTENCE)
WITH_GROUPS = ("0.9", *WITH_TIMESTAMPS)
ALL = ("0.8.0", "0.8.1", "0.8.2", *WITH_GROUPS)
TIMEOUT_S = 30


def options(broker: Broker, as_of: str) -> dict[str, Any]:
    return {"bootstrap_servers": broker.bootstrap_servers, **PINS.get(as_of, {})}


async def produce(broker: Broker, as_of: str, *values: bytes, **more: Any) -> None:
    acks = {} if as_of in WITH_IDEMPOTENCE else {"acks": 1}
    time_ms = 1_000 if as_of in WITH_TIMESTAMPS else None
    async with Producer(**options(broker, as_of), **acks, **more) as producer:
        for value in values:
            await producer.send("t", value=value, key=value, timestamp_ms=time_ms)
        await producer.flush()


async def read(consumer: Consumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    while len(found) < count:
        for records in (await consumer.getmany(timeout_ms=1_000)).values():
            found += records.values()
    return found


@pytest.mark.parametrize("as_of", ALL)
@pytest.mark.parametrize("compression", ["none", "gzip"])
async def test_what_is_produced_is_read(as_of: str, compression: str) -> None:
    async with Broker(nodes=2, as_of=as_of) as broker:
        await broker.create_topic("t", partitions=3)
        values = [b"%d" % number for number in range(20)]
        with anyio.fail_after(TIMEOUT_S):
            await produce(broker, as_of, *values, compression_type=compression)
            consumer = Consumer(
                **options(broker, as_of), auto_offset_reset="earliest", fetch_max_wait_ms=50
            )
            async with consumer:
                consumer.assign([TopicPartition("t", index) for index in range(3)])
                assert sorted(await read(consumer, 20), key=lambda v: int(v or b"")) == values


@pytest.mark.parametrize("as_of", WITH_GROUPS)
async def test_a_group_shares_commits_and_resumes(as_of: str) -> None:
    async with Broker(nodes=2, as_of=as_of) as broker:
        await broker.create_topic("t", partitions=2)
        group = {
            **options(broker, as_of),
            "group_id": "g",
            "auto_offset_reset": "earliest",
            "session_timeout_ms": 10_000,
            "heartbeat_interval_ms": 50,
            "fetch_max_wait_ms": 50,
        }
        with anyio.fail_after(TIMEOUT_S):
            await produce(broker, as_of, *(b"%d" % number for number in range(10)))
            async with Consumer("t", **group) as first:
                assert len(await read(first, 10)) == 10
                await first.commit()
                async with Consumer("t", **group) as second:
                    while len(first.assignment()) != 1 or len(second.assignment()) != 1:
                        await first.getmany(timeout_ms=20)
                        await second.getmany(timeout_ms=20)
                    assert first.assignment() != second.assignment()
                    await produce(broker, as_of, *(b"%d" % number for number in range(10)))
                    shared: list[bytes | None] = []
                    while len(shared) < 10:
                        for each in (first, second):
                            for records in (await each.getmany(timeout_ms=20)).values():
                                shared += records.values()
            await produce(broker, as_of, b"last")
            async with Consumer("t", **group) as third:
                assert await read(third, 1) == [b"last"]


@pytest.mark.parametrize("as_of", ["0.8.0", "0.8.1", "0.8.2"])
async def test_offsets_before_there_were_groups(as_of: str) -> None:
    tp = TopicPartition("t", 0)
    async with Broker(as_of=as_of) as broker:
        await broker.create_topic("t")
        with anyio.fail_after(TIMEOUT_S):
            refused = pytest.raises(UnsupportedVersion)
            may = contextlib.nullcontext() if as_of == "0.8.2" else refused
            consumer = Consumer(**options(broker, as_of), group_id="g", enable_auto_commit=False)
            async with consumer:
                consumer.assign([tp])
                with may:
                    await consumer.commit({tp: 3})
                if as_of == "0.8.2":
                    found = (await consumer.committed(tp))[tp]
                    assert found is not None
                    assert found.offset == 3


@pytest.mark.parametrize("as_of", ["0.8.0", "0.8.2"])
async def test_there_is_no_group_to_join_in_0_8(as_of: str) -> None:
    async with Broker(as_of=as_of) as broker:
        await broker.create_topic("t")
        consumer = Consumer("t", **options(broker, as_of), group_id="g")
        with anyio.fail_after(TIMEOUT_S), pytest.raises(KafkaError):
            async with consumer:
                await consumer.getone()
        assert broker.requests.of(ApiKey.JOIN_GROUP) == []


@pytest.mark.parametrize("as_of", ["0.8.0", "0.8.1", "0.8.2"])
async def test_an_old_release_is_found_out(as_of: str) -> None:
    async with Broker(as_of=as_of) as broker:
        await broker.create_topic("t")
        with anyio.fail_after(TIMEOUT_S):
            async with Producer(
                bootstrap_servers=broker.bootstrap_servers, acks=1, linger_ms=0
            ) as producer:
                receipt = await producer.send_and_wait("t", value=b"v")
    assert receipt.offset == 0
    assert {seen.version for seen in broker.requests.of(ApiKey.PRODUCE)} == {0}


@pytest.mark.parametrize(
    ("as_of", "version", "fetch"),
    [("0.10", 2, 3), ("1.1", 5, 7), ("2.8", 9, 12), ("3.9", 11, 17), ("4.3", 13, 18)],
)
async def test_the_newest_version_of_the_release_is_spoken(
    as_of: str, version: int, fetch: int
) -> None:
    async with Broker(as_of=as_of) as broker:
        await broker.create_topic("t")
        with anyio.fail_after(TIMEOUT_S):
            await produce(broker, as_of, b"v")
            consumer = Consumer(**options(broker, as_of), auto_offset_reset="earliest")
            async with consumer:
                consumer.assign([TopicPartition("t", 0)])
                await consumer.getone()
        assert {seen.version for seen in broker.requests.of(ApiKey.PRODUCE)} == {version}
        assert fetch in {seen.version for seen in broker.requests.of(ApiKey.FETCH)}


async def test_nodes_are_upgraded_one_by_one() -> None:
    async with Broker(nodes=2, as_of="2.3") as broker:
        for upgraded in ((1,), (1, 2)):
            await broker.restart(upgraded[-1], as_of="2.8")
            async with connected(broker, 1) as first, connected(broker, 2) as second:
                produce = [await highest(client, ApiKey.PRODUCE) for client in (first, second)]
            assert produce == [9, 9 if upgraded == (1, 2) else 7]
        await broker.restart(1)
        async with connected(broker, 1) as client:
            assert await highest(client, ApiKey.PRODUCE) == 9, "it stays what it was"


async def test_a_release_that_there_is_not_stops_no_node() -> None:
    async with Broker(as_of="2.3") as broker:
        with pytest.raises(InvalidOption, match="as_of"):
            await broker.restart(1, as_of="5.0")
        assert broker.live_nodes == (1,)


async def highest(client: RawClient, api_key: ApiKey) -> int:
    """Return the highest version of an API that a node advertises."""
    response = await client.call(ApiVersionsRequest(), 0)
    return next(key.max_version for key in response.api_keys if key.api_key == api_key)
