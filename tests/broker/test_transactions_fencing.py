"""Fencing of producers: timeouts, newer producers, and the rules of each release."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID

import anyio
import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages import add_partitions_to_txn
from aiokafkawire.wire.messages.metadata import MetadataRequest

from .group_requests import join, sync
from .raw_client import RawClient, batch, connected, only, produce_request
from .transactional_client import (
    CLASSIC,
    NEWEST,
    TransactionalClient,
    a_topic,
    committed,
    fetched,
    values,
)

pytestmark = pytest.mark.slow

E = ErrorCode
ALL_TOPICS = MetadataRequest(topics=None)
OLDEST = dict.fromkeys(CLASSIC, 0) | {"produce": 3}


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(transaction_max_timeout_ms=60_000) as broker:
        await a_topic(broker)
        yield broker


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[RawClient]:
    async with connected(broker) as client:
        yield client


@pytest.mark.parametrize("versions", [CLASSIC, NEWEST], ids=["classic", "newest"])
async def test_an_abandoned_transaction_is_aborted(
    broker: Broker, client: RawClient, versions: dict[str, int]
) -> None:
    producer = TransactionalClient(client, versions=versions)
    assert await producer.init(timeout_ms=50) == E.NONE
    assert versions is NEWEST or await producer.add(0) == E.NONE
    await producer.produce(b"lost")
    # The marker wakes a reader that waits behind it.
    async with connected(broker) as reader:
        answer = await fetched(reader, max_wait_ms=5_000)
    assert [each.first_offset for each in answer.aborted_transactions] == [0]
    assert answer.last_stable_offset == 2
    assert (await producer.produce(b"late")).error_code == E.INVALID_PRODUCER_EPOCH
    if versions is CLASSIC:
        assert await producer.end(commit=True) == E.PRODUCER_FENCED
        assert await producer.init(expected=producer.me) == E.NONE
        assert await producer.add(0) == E.NONE
        assert (await producer.produce(b"kept")).error_code == E.NONE
        return
    assert await producer.end(commit=True) == E.INVALID_TXN_STATE
    assert await producer.end(commit=False) == E.NONE
    assert (await producer.produce(b"kept")).error_code == E.NONE


async def test_before_4_0_a_timed_out_producer_stays_fenced() -> None:
    async with Broker(as_of="3.9") as broker, connected(broker) as client:
        await a_topic(broker)
        producer = TransactionalClient(client)
        await producer.init(timeout_ms=50)
        await producer.add(0)
        await producer.produce(b"lost")
        await fetched(client, max_wait_ms=5_000)
        assert await producer.end(commit=False) == E.PRODUCER_FENCED
        assert await producer.init(expected=producer.me) == E.PRODUCER_FENCED


async def test_a_timeout_above_that_of_the_broker_is_rejected(client: RawClient) -> None:
    code = await TransactionalClient(client).init(timeout_ms=60_001)
    assert code == E.INVALID_TRANSACTION_TIMEOUT


async def test_an_empty_transactional_id_is_rejected(client: RawClient) -> None:
    nobody = TransactionalClient(client, "")
    assert await nobody.add(0) == await nobody.end(commit=True) == E.INVALID_REQUEST


async def test_oldest_versions_know_a_fenced_producer_by_its_epoch(client: RawClient) -> None:
    older, newer = (TransactionalClient(client, versions=OLDEST) for _ in range(2))
    await older.init()
    await newer.init()
    for answer in (older.add(0), older.add_offsets("g"), older.end(commit=True)):
        assert await answer == E.INVALID_PRODUCER_EPOCH
    again = TransactionalClient(client, versions={**OLDEST, "init": 3})
    assert await again.init(expected=older.me) == E.INVALID_PRODUCER_EPOCH


# --- what was added, and what not ----------------------------------------------------------------


async def test_all_partitions_are_added_or_none(client: RawClient) -> None:
    producer = TransactionalClient(client)
    await producer.init()
    request = add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="tx",
        v3_and_below_producer_id=producer.me.producer_id,
        v3_and_below_producer_epoch=producer.me.epoch,
        v3_and_below_topics=[
            add_partitions_to_txn.AddPartitionsToTxnTopic(name="t", partitions=[0, 9]),
            add_partitions_to_txn.AddPartitionsToTxnTopic(name="nowhere", partitions=[0]),
        ],
    )
    answer = await client.call(request, 3)
    assert [
        each.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    ] == [
        E.OPERATION_NOT_ATTEMPTED,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert await producer.end(commit=True) == E.INVALID_TXN_STATE


@pytest.mark.parametrize(
    ("as_of", "version", "code"),
    [
        ("0.11", 3, E.NONE),
        ("3.5", 9, E.NONE),
        ("3.6", 9, E.INVALID_TXN_STATE),
        ("3.9", 10, E.INVALID_TXN_STATE),
        ("3.9", 11, E.TRANSACTION_ABORTABLE),
        ("4.3", 11, E.TRANSACTION_ABORTABLE),
        ("4.3", 12, E.NONE),
    ],
)
async def test_a_write_to_what_was_not_added(as_of: str, version: int, code: ErrorCode) -> None:
    versions = {**OLDEST, "produce": version}
    async with Broker(as_of=as_of) as broker, connected(broker) as client:
        await a_topic(broker)
        producer = TransactionalClient(client, versions=versions)
        await producer.init()
        await producer.add(1)
        assert (await producer.produce(b"v")).error_code == code
        assert (await producer.produce(b"v", partition=1)).error_code == E.NONE


@pytest.mark.parametrize(
    ("as_of", "version", "code"),
    [
        ("0.11", 0, E.NONE),
        ("3.6", 3, E.INVALID_TXN_STATE),
        ("3.9", 4, E.TRANSACTION_ABORTABLE),
        ("4.3", 5, E.NONE),
    ],
)
async def test_offsets_of_a_group_that_was_not_added(
    as_of: str, version: int, code: ErrorCode
) -> None:
    versions = {**OLDEST, "commit_offsets": version}
    async with Broker(as_of=as_of) as broker, connected(broker) as client:
        await a_topic(broker)
        producer = TransactionalClient(client, versions=versions)
        await producer.init()
        assert await producer.commit_offsets("g", 1) == code


async def test_brokers_may_ask_what_was_added(client: RawClient) -> None:
    producer = TransactionalClient(client)
    await producer.init()
    await producer.add(0)
    only_verified = add_partitions_to_txn.AddPartitionsToTxnTransaction(
        transactional_id="tx",
        producer_id=producer.me.producer_id,
        producer_epoch=producer.me.epoch,
        verify_only=True,
        topics=[add_partitions_to_txn.AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )
    request = add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=[only_verified])
    for partition, version, code in (
        (0, 5, E.NONE),
        (1, 5, E.TRANSACTION_ABORTABLE),
        (1, 4, E.INVALID_TXN_STATE),
    ):
        only_verified.topics[0].partitions = [partition]
        ((topic,),) = (
            result.topic_results
            for result in (await client.call(request, version)).results_by_transaction
        )
        assert [each.partition_error_code for each in topic.results_by_partition] == [code]


@pytest.mark.parametrize(
    ("version", "produce", "commit"),
    [
        (CLASSIC, E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_LOAD_IN_PROGRESS),
        (NEWEST, E.CONCURRENT_TRANSACTIONS, E.CONCURRENT_TRANSACTIONS),
    ],
    ids=["classic", "newest"],
)
async def test_an_early_next_transaction_gets_concurrent_transactions(
    version: dict[str, int], produce: ErrorCode, commit: ErrorCode
) -> None:
    async with Broker(transaction_marker_delay_ms=300) as broker, connected(broker) as client:
        await a_topic(broker)
        producer = TransactionalClient(client, versions=version)
        await producer.init()
        await producer.add(0)
        await producer.produce(b"v")
        assert await producer.end(commit=True) == E.NONE
        assert await producer.add(1) == E.CONCURRENT_TRANSACTIONS
        assert (await producer.produce(b"v", partition=1)).error_code == produce
        assert await producer.commit_offsets("g", 1) == commit
        assert await producer.init() == E.CONCURRENT_TRANSACTIONS
        # Readers see it once the marker is written.
        assert values(await fetched(client, max_wait_ms=5_000)) == [b"v"]
        assert await producer.add(1) == E.NONE


async def test_a_producer_does_not_write_outside_of_its_transaction(client: RawClient) -> None:
    producer = TransactionalClient(client)
    await producer.init()
    await producer.add(0)
    await producer.produce(b"v")
    fields = {
        "producer_id": producer.me.producer_id,
        "producer_epoch": producer.me.epoch,
        "base_sequence": 1,
    }
    answer = only(await client.call(produce_request("t", 0, batch(b"w", **fields)), 9))
    assert answer.error_code == E.INVALID_TXN_STATE
    without = produce_request("t", 0, batch(b"w", transactional=True))
    without.transactional_id = "tx"
    assert only(await client.call(without, 9)).error_code == E.INVALID_RECORD


# --- members of a group --------------------------------------------------------------------------


async def joined(client: RawClient, instance_id: str | None = None) -> str:
    """Return the only member of a group, in its first generation."""
    request = join(instance_id=instance_id)
    answer = await client.call(request, 5)
    if answer.error_code == E.MEMBER_ID_REQUIRED:
        request.member_id = answer.member_id
        answer = await client.call(request, 5)
    assert answer.error_code == E.NONE
    return str(answer.member_id)


async def synced(client: RawClient, member_id: str) -> None:
    request = sync(member_id, **{member_id: b""})
    assert (await client.call(request, 3)).error_code == E.NONE


async def test_only_members_of_the_present_generation_commit_offsets(client: RawClient) -> None:
    member_id = await joined(client, "one")
    producer = TransactionalClient(client)
    await producer.init()
    await producer.add_offsets("g")
    # Also while the group waits for its leader: only the generation counts.
    assert (
        await producer.commit_offsets("g", 1, generation_id_or_member_epoch=1, member_id=member_id)
        == E.NONE
    )
    await synced(client, member_id)
    for member, code in (
        ({"generation_id_or_member_epoch": 1, "member_id": member_id}, E.NONE),
        ({"generation_id_or_member_epoch": 2, "member_id": member_id}, E.ILLEGAL_GENERATION),
        ({"generation_id_or_member_epoch": 1, "member_id": "nobody"}, E.UNKNOWN_MEMBER_ID),
        (
            {"generation_id_or_member_epoch": 1, "member_id": "nobody", "group_instance_id": "one"},
            E.FENCED_INSTANCE_ID,
        ),
        ({}, E.NONE),
    ):
        assert await producer.commit_offsets("g", 7, **member) == code
    assert (
        await producer.commit_offsets("h", 1, generation_id_or_member_epoch=3)
        == E.ILLEGAL_GENERATION
    )
    assert await producer.end(commit=True) == E.NONE
    assert await committed(client, "g") == (E.NONE, 7)


async def test_commit_metadata_is_limited_and_partitions_must_exist(client: RawClient) -> None:
    from aiokafkawire.wire.messages import txn_offset_commit as api

    producer = TransactionalClient(client)
    await producer.init()
    await producer.add_offsets("g")
    asked = [
        api.TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=1, committed_metadata=note
        )
        for index, note in ((0, "x" * 5_000), (1, "x"), (9, None))
    ]
    request = api.TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id="g",
        producer_id=producer.me.producer_id,
        producer_epoch=producer.me.epoch,
        topics=[api.TxnOffsetCommitRequestTopic(name="t", partitions=asked)],
    )
    (topic,) = (await client.call(request, 3)).topics
    assert [each.error_code for each in topic.partitions] == [
        E.OFFSET_METADATA_TOO_LARGE,
        E.NONE,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ]


@pytest.mark.parametrize(
    ("version", "code"), [(5, E.ILLEGAL_GENERATION), (6, E.GROUP_ID_NOT_FOUND)]
)
async def test_a_generation_of_an_unknown_group(client: RawClient, version: int, code: E) -> None:
    producer = TransactionalClient(client, versions=NEWEST | {"commit_offsets": version})
    await producer.init()
    (topic,) = (await client.call(ALL_TOPICS, 12)).topics
    member = {"generation_id_or_member_epoch": 3, "topic_id": topic.topic_id}
    assert await producer.commit_offsets("h", 1, **member) == code


async def test_offsets_of_topic_ids(client: RawClient) -> None:
    from aiokafkawire.wire.messages import txn_offset_commit as api

    producer = TransactionalClient(client, versions=NEWEST)
    await producer.init()
    (known,) = (await client.call(ALL_TOPICS, 12)).topics
    unknown = UUID(int=7)
    asked = [
        api.TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=4, committed_metadata=None
        )
        for index in (0, 9)
    ]
    request = api.TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id="g",
        producer_id=producer.me.producer_id,
        producer_epoch=producer.me.epoch,
        topics=[
            api.TxnOffsetCommitRequestTopic(topic_id=topic_id, partitions=asked)
            for topic_id in (known.topic_id, unknown)
        ],
    )
    answered = await client.call(request, 6)
    codes = {
        topic.topic_id: [each.error_code for each in topic.partitions] for topic in answered.topics
    }
    assert codes == {
        known.topic_id: [E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION],
        unknown: [E.UNKNOWN_TOPIC_ID, E.UNKNOWN_TOPIC_ID],
    }
    assert await producer.end(commit=True) == E.NONE
    assert await committed(client, "g") == (E.NONE, 4)


# --- nodes ---------------------------------------------------------------------------------------


async def test_another_node_coordinates_when_one_is_killed() -> None:
    async with Broker(nodes=3) as broker:
        await broker.create_topic("t", 1)
        first = broker.coordinator("tx")
        other = next(node for node in broker.live_nodes if node != first)
        async with connected(broker, other) as client:
            elsewhere = TransactionalClient(client)
            codes = [await elsewhere.init(), await elsewhere.add(0)]
            codes += [await elsewhere.add_offsets("g"), await elsewhere.end(commit=True)]
            assert set(codes) == {E.NOT_COORDINATOR}
        async with connected(broker, first) as client:
            producer = TransactionalClient(client)
            await producer.init()
            await producer.add(0)
        await broker.kill(first)
        assert broker.coordinator("tx") not in {first, -1}
        with anyio.fail_after(20):
            async with connected(broker, broker.coordinator("tx")) as client:
                producer.client = client
                async with connected(broker, broker.leader("t", 0)) as leader:
                    assert (await producer.produce(b"v", client=leader)).error_code == E.NONE
                    assert await producer.end(commit=True) == E.NONE
                    assert values(await fetched(leader)) == [b"v"]


async def test_a_commit_reaches_a_partition_when_it_has_a_leader_again() -> None:
    async with Broker(nodes=2) as broker:
        await broker.create_topic("t", 1, 1)
        leader = broker.leader("t", 0)
        name = next(n for n in map(str, range(100)) if broker.coordinator(n) != leader)
        async with connected(broker, broker.coordinator(name)) as client:
            producer = TransactionalClient(client, name)
            await producer.init()
            await producer.add(0)
            async with connected(broker, leader) as other:
                await producer.produce(b"v", client=other)
            await broker.kill(leader)
            assert await producer.end(commit=True) == E.NONE
            assert await producer.end(commit=True) == E.CONCURRENT_TRANSACTIONS
            await broker.restart(leader)
            async with connected(broker, leader) as other:
                assert values(await fetched(other, max_wait_ms=5_000)) == [b"v"]
            assert await producer.end(commit=True) == E.NONE


async def added(producer: TransactionalClient) -> None:
    """Add the partition once the whole ISR has the end of the previous transaction."""
    with anyio.fail_after(10):
        while (code := await producer.add(0)) == E.CONCURRENT_TRANSACTIONS:
            pass
    assert code == E.NONE


async def test_a_follower_that_comes_to_lead_knows_what_was_aborted() -> None:
    async with Broker(nodes=3, as_of="2.8", replicate=True) as broker:
        await broker.create_topic("t", 1, 3)
        first = broker.leader("t", 0)
        name = next(n for n in map(str, range(100)) if broker.coordinator(n) != first)
        async with connected(broker, broker.coordinator(name)) as client:
            producer = TransactionalClient(client, name)
            await producer.init()
            async with connected(broker, first) as leader:
                for value, commit in ((b"x", False), (b"a", True)):
                    await added(producer)
                    assert (await producer.produce(value, client=leader)).error_code == E.NONE
                    assert await producer.end(commit=commit) == E.NONE
                await added(producer)
                await producer.produce(b"b", client=leader)
            await broker.kill(first)
            assert broker.leader("t", 0) != first
            async with connected(broker, broker.leader("t", 0)) as leader:
                assert (await producer.produce(b"c", client=leader)).error_code == E.NONE
                before = await fetched(leader)
                assert await producer.end(commit=True) == E.NONE
                after = await fetched(leader, 4, max_wait_ms=5_000)
    assert [each.first_offset for each in before.aborted_transactions] == [0]
    assert (values(before), before.last_stable_offset) == ([b"x", b"a"], 4)
    assert (values(after), after.aborted_transactions) == ([b"b", b"c"], [])
