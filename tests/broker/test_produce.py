"""Produce over real sockets: accepted and rejected batches."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.records.batch import iter_batches
from aiokafkawire.wire import ErrorCode

from .raw_client import RawClient, batch, connected, only, produce_request

E = ErrorCode


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(nodes=2, max_message_bytes=10_000) as broker:
        await broker.create_topic("t", partitions=2)
        yield broker


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[RawClient]:
    async with connected(broker, broker.leader("t", 0)) as client:
        yield client


async def produced(client: RawClient, records: bytes | None, version: int = 9, **f: Any) -> Any:
    return only(await client.call(produce_request("t", 0, records, **f), version))


async def test_offsets_are_given_in_order(client: RawClient) -> None:
    assert (await produced(client, batch(b"a", b"b"))).base_offset == 0
    answer = await produced(client, batch(b"c"))
    assert (answer.base_offset, answer.log_append_time_ms, answer.log_start_offset) == (2, -1, 0)


def changed(records: bytes, position: int) -> bytes:
    return records[:position] + bytes([records[position] ^ 1]) + records[position + 1 :]


def resealed(records: bytes, position: int, value: bytes) -> bytes:
    """Change bytes in a batch, and correct the checksum."""
    import crc32c

    data = bytearray(records)
    data[position : position + len(value)] = value
    data[17:21] = crc32c.crc32c(data[21:]).to_bytes(4, "big")
    return bytes(data)


GOOD = batch(b"a", b"b")


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (changed(GOOD, -1 % len(GOOD)), E.CORRUPT_MESSAGE),
        (GOOD[:-1], E.INVALID_RECORD),
        (b"\x00" * 100, E.CORRUPT_MESSAGE),
        (GOOD + GOOD, E.INVALID_RECORD),
        (b"", E.INVALID_RECORD),
        (None, E.INVALID_RECORD),
        (batch(b"old", magic=1), E.INVALID_RECORD),
        (resealed(GOOD, 57, b"\x00\x00\x00\x07"), E.INVALID_RECORD),
        (resealed(GOOD, 57, b"\x7f\xff\xff\xff"), E.INVALID_RECORD),
        (resealed(GOOD, 23, b"\x00\x00\x00\x09"), E.INVALID_RECORD),
        (batch(b"x", control=True), E.INVALID_RECORD),
        (batch(b"v" * 20_000), E.MESSAGE_TOO_LARGE),
        (batch(b"v", timestamp_ms=2**50), E.INVALID_TIMESTAMP),
        (
            batch(b"v", transactional=True, producer_id=1, producer_epoch=0, base_sequence=0),
            E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        (batch(b"v", producer_id=1), E.INVALID_RECORD),
    ],
)
async def test_bad_batches_are_refused(
    broker: Broker, client: RawClient, records: bytes | None, code: ErrorCode
) -> None:
    answer = await produced(client, records)
    assert (answer.error_code, answer.base_offset) == (code, -1)
    assert broker.end_offset("t", 0) == 0


async def test_unknown_places_are_refused(client: RawClient) -> None:
    for topic, partition in (("nowhere", 0), ("t", 2), ("t", -1)):
        answer = only(await client.call(produce_request(topic, partition, GOOD), 9))
        assert answer.error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    by_id = produce_request("", 0, GOOD, topic_id=UUID(int=7))
    assert only(await client.call(by_id, 13)).error_code == E.UNKNOWN_TOPIC_ID
    odd = produce_request("t", 0, GOOD, acks=2)
    assert only(await client.call(odd, 9)).error_code == E.INVALID_REQUIRED_ACKS


async def test_a_follower_names_the_leader(broker: Broker) -> None:
    leader = broker.leader("t", 0)
    async with connected(broker, 3 - leader) as client:
        request = produce_request("t", 0, GOOD)
        assert only(await client.call(request, 9)).error_code == E.NOT_LEADER_OR_FOLLOWER
        response = await client.call(request, 10)
    assert only(response).current_leader.leader_id == leader
    assert only(response).current_leader.leader_epoch == 0
    (endpoint,) = response.node_endpoints
    assert (endpoint.node_id, endpoint.port) == (leader, broker.nodes[leader].port)


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1)])
async def test_old_message_sets_are_kept(
    broker: Broker, client: RawClient, version: int, magic: int
) -> None:
    answer = await produced(client, batch(b"a", b"b", magic=magic), version)
    assert (answer.error_code, answer.base_offset) == (E.NONE, 0)
    compressed = batch(b"c", b"d", magic=magic, compression=1)
    assert (await produced(client, compressed, version)).base_offset == 2
    assert broker.end_offset("t", 0) == 4
    # The version defines what a producer may expect of the broker, not the other way round.
    assert (await produced(client, GOOD, version)).error_code == E.NONE


async def test_zstd_needs_version_7(client: RawClient) -> None:
    zstd = batch(b"a" * 100, compression=4)
    assert (await produced(client, zstd, 6)).error_code == E.UNSUPPORTED_COMPRESSION_TYPE
    assert (await produced(client, zstd, 7)).error_code == E.NONE


async def test_a_batch_sent_twice_is_stored_once(broker: Broker, client: RawClient) -> None:
    identity = {"producer_id": 5, "producer_epoch": 0}
    await produced(client, GOOD)
    for _ in range(2):
        answer = await produced(client, batch(b"x", b"y", base_sequence=0, **identity))
        assert (answer.error_code, answer.base_offset) == (E.NONE, 2)
    gap = await produced(client, batch(b"z", base_sequence=3, **identity))
    assert gap.error_code == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert "expected 2" in gap.error_message
    bumped = batch(b"z", producer_id=5, producer_epoch=1, base_sequence=0)
    assert (await produced(client, bumped)).error_code == E.NONE
    late = await produced(client, batch(b"z", base_sequence=2, **identity))
    assert late.error_code == E.INVALID_PRODUCER_EPOCH
    assert broker.end_offset("t", 0) == 5


async def test_acks_0_has_no_answer_and_an_error_closes(broker: Broker, client: RawClient) -> None:
    await client.send(produce_request("t", 0, GOOD, acks=0), 9)
    # The next bytes are the response to the next request.
    assert (await produced(client, GOOD)).base_offset == 2
    await client.send(produce_request("t", 9, GOOD, acks=0), 9)
    assert await client.closed()
    assert broker.end_offset("t", 0) == 4


async def test_a_transaction_that_was_not_begun(client: RawClient) -> None:
    fields = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
    request = produce_request("t", 0, batch(b"v", transactional=True, **fields))
    request.transactional_id = "tx"
    assert only(await client.call(request, 9)).error_code == E.INVALID_PRODUCER_ID_MAPPING
    request.transactional_id = None
    code = only(await client.call(request, 9)).error_code
    assert code == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


async def test_a_late_timestamp_is_pointed_out(client: RawClient) -> None:
    answer = await produced(client, batch(b"v", timestamp_ms=2**50))
    assert [error.batch_index for error in answer.record_errors] == [0]


async def test_too_few_replicas_in_sync(broker: Broker) -> None:
    await broker.create_topic("two", configs={"min.insync.replicas": "2"})
    await broker.create_topic("one", replication_factor=1, configs={"min.insync.replicas": "2"})
    dead = 3 - broker.leader("one", 0)
    broker.move_leader("two", 0, 3 - dead)
    await broker.kill(dead)
    async with connected(broker) as client:
        answer = only(await client.call(produce_request("two", 0, GOOD), 9))
        assert answer.error_code == E.NOT_ENOUGH_REPLICAS
        answer = only(await client.call(produce_request("two", 0, GOOD, acks=1), 9))
        assert answer.error_code == E.NONE
        # A topic cannot require more replicas than it has.
        answer = only(await client.call(produce_request("one", 0, GOOD), 9))
        assert answer.error_code == E.NONE


async def test_log_append_time_replaces_the_records_own(broker: Broker) -> None:
    await broker.create_topic("lat", configs={"message.timestamp.type": "LogAppendTime"})
    async with connected(broker, broker.leader("lat", 0)) as client:
        answer = only(await client.call(produce_request("lat", 0, GOOD), 9))
    assert answer.log_append_time_ms > 1_500_000_000_000


async def test_a_compacted_topic_wants_keys(broker: Broker) -> None:
    from aiokafkawire.records import BatchBuilder

    builder = BatchBuilder()
    builder.append(1, b"k", b"v")
    builder.append(1, None, b"v")
    keyless = b"".join(bytes(part) for part in builder.close().encode())
    await broker.create_topic("c", configs={"cleanup.policy": "compact"})
    async with connected(broker, broker.leader("c", 0)) as client:
        answer = only(await client.call(produce_request("c", 0, keyless), 9))
    assert answer.error_code == E.INVALID_RECORD
    assert [e.batch_index for e in answer.record_errors] == [1]


async def test_batches_carry_the_leader_epoch(broker: Broker, client: RawClient) -> None:
    await produced(client, GOOD)
    other = 3 - broker.leader("t", 0)
    broker.move_leader("t", 0, other)
    async with connected(broker, other) as second:
        await produced(second, GOOD)
        from .test_fetch import fetched

        data = only(await fetched(second, 0)).records
    assert [view.partition_leader_epoch for view in iter_batches(data)] == [0, 1]
