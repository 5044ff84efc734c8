"""The ideas of the proposal, in what our clients ask: docs/protocol.md has the table."""

import itertools
from typing import Literal

import pytest

from aiokafkawire import Consumer, Producer, TopicPartition
from aiokafkawire.broker import Broker
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.messages.fetch import FetchReplicaState, FetchRequest
from aiokafkawire.wire.messages.produce import ProduceRequest


@pytest.mark.parametrize(("acks", "count"), [("all", -1), (1, 1), (0, 0)])
async def test_acknowledgements_have_a_count_and_a_timeout(
    acks: Literal["all"] | int, count: int, anyio_backend: object
) -> None:
    async with Broker() as broker:
        async with Producer(
            bootstrap_servers=broker.bootstrap_servers, acks=acks, request_timeout_ms=7_000
        ) as producer:
            await producer.send_and_wait("t", b"value")
        seen = await broker.wait_for_request(ApiKey.PRODUCE)
        assert isinstance(seen.message, ProduceRequest)
        assert (seen.message.acks, seen.message.timeout_ms) == (count, 7_000)


async def test_a_response_has_the_base_offset(anyio_backend: object) -> None:
    async with (
        Broker() as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        receipts = [await producer.send_and_wait("t", b"value") for _ in range(3)]
        assert [receipt.offset for receipt in receipts] == [0, 1, 2]


@pytest.mark.parametrize(("as_of", "replica_id"), [("2.8", -1), ("4.3", None)])
async def test_fetch_has_the_replica_id_and_waits(
    as_of: str, replica_id: int | None, anyio_backend: object
) -> None:
    async with Broker(as_of=as_of) as broker:
        await broker.create_topic("t")
        servers = broker.bootstrap_servers
        async with (
            Consumer(
                bootstrap_servers=servers, fetch_max_wait_ms=9_000, fetch_min_bytes=3
            ) as consumer,
            Producer(bootstrap_servers=servers) as producer,
        ):
            partition = TopicPartition("t", 0)
            consumer.assign([partition])
            consumer.seek(partition, 0)
            # Nobody asks but who reads; the broker holds the answer back until there is a record.
            assert await consumer.getmany(timeout_ms=1) == {}
            seen = await broker.wait_for_request(ApiKey.FETCH)
            await producer.send_and_wait("t", b"value")
            assert (await consumer.getone()).value == b"value"
        assert isinstance(seen.message, FetchRequest)
        assert (seen.message.max_wait_ms, seen.message.min_bytes) == (9_000, 3)
        # Before version 15 a consumer is replica -1, since then it leaves the state out.
        assert seen.message.replica_id == -1
        assert (seen.version >= 15) == (replica_id is None)
        assert seen.message.replica_state == FetchReplicaState()


async def test_a_request_names_its_client_its_key_and_its_version(anyio_backend: object) -> None:
    async with Broker() as broker:
        async with Producer(bootstrap_servers=broker.bootstrap_servers, client_id="me") as producer:
            await producer.send_and_wait("t", b"value")
        requests = list(broker.requests)
        assert {seen.client_id for seen in requests} == {"me"}
        assert {ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.PRODUCE} <= {
            seen.api_key for seen in requests
        }
        for seen in requests:
            assert seen.message.api_key == seen.api_key
            assert seen.message.min_version <= seen.version <= seen.message.max_version
        by_connection = itertools.groupby(
            sorted(requests, key=lambda seen: seen.connection), key=lambda seen: seen.connection
        )
        for _, of_one in by_connection:
            numbers = [seen.correlation_id for seen in of_one]
            assert len(set(numbers)) == len(numbers)
