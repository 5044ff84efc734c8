"""Questions about records: writing, reading, and finding them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from aiokafkawire.records import BatchBuilder
from aiokafkawire.wire import ZERO_UUID, ApiKey, Request
from aiokafkawire.wire.messages import (
    fetch,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
)
from tests.broker.conformance.questions import (
    ALONE,
    COMPACTED,
    LED,
    NO_SUCH_ID,
    NOWHERE,
    SMALL,
    WRITTEN,
    Interview,
    question,
)
from tests.broker.raw_client import batch, produce_request

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
DEBUG_REPLICA = -2
YEAR_2100_MS = 4_102_444_800_000

# --- produce -------------------------------------------------------------------------------------


@question(ApiKey.PRODUCE)
async def produce(to: Interview) -> None:
    for acks in (1, -1):
        await to.ask(produce_request(LED, 0, batch(b"v", magic=to.magic), acks=acks))


@question(ApiKey.PRODUCE)
async def produce_to_what_there_is_not(to: Interview) -> None:
    await to.ask(produce_request(NOWHERE, 0, batch(b"v", magic=to.magic)))
    await to.ask(produce_request(LED, 9, batch(b"v", magic=to.magic)))


@question(ApiKey.PRODUCE)
async def produce_at_a_follower(to: Interview) -> None:
    await to.ask(produce_request(LED, 1, batch(b"v", magic=to.magic)), hide={"currentLeader"})


@question(ApiKey.PRODUCE)
async def produce_at_a_node_without_a_replica(to: Interview) -> None:
    await to.ask(produce_request(ALONE, 0, batch(b"v", magic=to.magic)), hide={"currentLeader"})


@question(ApiKey.PRODUCE)
async def produce_what_was_damaged(to: Interview) -> None:
    damaged = bytearray(batch(b"value", magic=to.magic))
    damaged[-3] ^= 1
    await to.ask(produce_request(LED, 0, bytes(damaged)))


@question(ApiKey.PRODUCE)
async def produce_with_acks_that_there_are_not(to: Interview) -> None:
    for acks in (2, -2):
        request = produce_request(LED, 0, batch(b"v", magic=to.magic), acks=acks)
        request.timeout_ms = 100
        await to.ask(request)


@question(ApiKey.PRODUCE)
async def produce_what_is_too_large(to: Interview) -> None:
    await to.ask(produce_request(SMALL, 0, batch(b"v" * 1_000, magic=to.magic)))


@question(ApiKey.PRODUCE)
async def produce_more_than_the_default_allows(to: Interview) -> None:
    # Between the limits of the times before 2.5 and after.
    await to.ask(produce_request(LED, 0, batch(b"v" * 1_020_000, magic=to.magic)))


@question(ApiKey.PRODUCE)
async def produce_without_acks_and_fail(to: Interview) -> None:
    body = produce_request(NOWHERE, 0, batch(b"v", magic=to.magic), acks=0)
    await to.ask_without_answer(body)


@question(ApiKey.PRODUCE)
async def produce_without_a_key(to: Interview) -> None:
    await to.ask(produce_request(COMPACTED, 0, without_keys(to.magic)), hide={"recordErrors"})


@question(ApiKey.PRODUCE)
async def produce_nothing(to: Interview) -> None:
    await to.ask(produce_request(LED, 0, b""))


@question(ApiKey.PRODUCE, 3)
async def produce_a_format_of_before(to: Interview) -> None:
    await to.ask(produce_request(LED, 0, batch(b"v", magic=1)))


@question(ApiKey.PRODUCE, 3)
async def produce_two_batches(to: Interview) -> None:
    await to.ask(produce_request(LED, 0, batch(b"v") + batch(b"w")))


@question(ApiKey.PRODUCE, 2, exactly=True)
async def produce_of_version_2(to: Interview) -> None:
    await to.ask(produce_request(LED, 0, batch(b"v", magic=1)), 2)


@question(ApiKey.PRODUCE, 2)
async def produce_what_is_of_the_future(to: Interview) -> None:
    late = batch(b"v", magic=to.magic, timestamp_ms=YEAR_2100_MS)
    await to.ask(produce_request(LED, 0, late))


@question(ApiKey.PRODUCE, 3)
async def produce_out_of_sequence(to: Interview) -> None:
    mine = await to.new_producer_id()
    for sequence in (0, 0, 7):
        records = batch(b"v", producer_id=mine, producer_epoch=0, base_sequence=sequence)
        await to.ask(produce_request(LED, 0, records))


@question(ApiKey.PRODUCE, 3)
async def produce_as_nobody(to: Interview) -> None:
    records = batch(b"v", producer_id=987_654, producer_epoch=0, base_sequence=7)
    await to.ask(produce_request(LED, 0, records))


@question(ApiKey.PRODUCE, 3)
async def produce_zstandard_too_early(to: Interview) -> None:
    await to.ask(produce_request(LED, 0, batch(b"v", compression=4)), 3)


@question(ApiKey.PRODUCE, 13)
async def produce_to_an_id_that_nobody_has(to: Interview) -> None:
    await to.ask(produce_request("", 0, batch(b"v"), topic_id=NO_SUCH_ID), 13)


def without_keys(magic: int) -> bytes:
    builder = BatchBuilder(0, max_bytes=1_000)
    builder.append(1_000, None, b"v")
    return b"".join(map(bytes, builder.close().encode(magic=magic)))


# --- fetch ---------------------------------------------------------------------------------------


def fetched(
    topic: str = WRITTEN,
    partition: int = 0,
    offset: int = 0,
    *,
    max_bytes: int = 100_000,
    topic_id: UUID = ZERO_UUID,
    epoch: int = -1,
    **fields: Any,
) -> Request[Any]:
    wanted = fetch.FetchPartition(
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=max_bytes,
        current_leader_epoch=epoch,
    )
    asked = fetch.FetchTopic(topic=topic, topic_id=topic_id, partitions=[wanted])
    return fetch.FetchRequest(max_wait_ms=0, min_bytes=0, topics=[asked], **fields)


@question(ApiKey.FETCH)
async def fetch_all(to: Interview) -> None:
    await to.ask(fetched())
    await to.ask(fetched(offset=1))
    await to.ask(fetched(offset=3))


@question(ApiKey.FETCH)
async def fetch_out_of_range(to: Interview) -> None:
    await to.ask(fetched(offset=4))
    await to.ask(fetched(offset=-5))


@question(ApiKey.FETCH)
async def fetch_what_there_is_not(to: Interview) -> None:
    await to.ask(fetched(NOWHERE))
    await to.ask(fetched(partition=9))


@question(ApiKey.FETCH)
async def fetch_less_than_a_message(to: Interview) -> None:
    await to.ask(fetched(max_bytes=10))


@question(ApiKey.FETCH)
async def fetch_at_a_follower(to: Interview) -> None:
    await to.ask(fetched(LED, 1), hide={"currentLeader", "highWatermark", "lastStableOffset"})


@question(ApiKey.FETCH)
async def fetch_at_a_node_without_a_replica(to: Interview) -> None:
    await to.ask(fetched(ALONE), hide={"currentLeader"})


@question(ApiKey.FETCH)
async def fetch_as_a_debug_consumer(to: Interview) -> None:
    for topic, partition in ((WRITTEN, 0), (LED, 1), (ALONE, 0)):
        await to.ask(fetched(topic, partition, replica_id=DEBUG_REPLICA), hide={"currentLeader"})


@question(ApiKey.FETCH, 15)
async def fetch_as_a_debug_consumer_of_today(to: Interview) -> None:
    asked = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=WRITTEN)])
    [description] = (await to.look(asked)).topics
    state = fetch.FetchReplicaState(replica_id=DEBUG_REPLICA)
    await to.ask(fetched("", topic_id=description.topic_id, replica_state=state), 15)


@question(ApiKey.FETCH, 0, exactly=True)
async def fetch_of_version_0(to: Interview) -> None:
    await to.ask(fetched(), 0)


@question(ApiKey.FETCH, 2, exactly=True)
async def fetch_of_version_2(to: Interview) -> None:
    await to.ask(fetched(offset=1), 2)


@question(ApiKey.FETCH, 4)
async def fetch_what_is_committed(to: Interview) -> None:
    await to.ask(fetched(isolation_level=1))


@question(ApiKey.FETCH, 7)
async def fetch_in_a_session_that_there_is_not(to: Interview) -> None:
    await to.ask(fetched(session_id=12_345, session_epoch=1))


@question(ApiKey.FETCH, 9)
async def fetch_of_another_epoch(to: Interview) -> None:
    await to.ask(fetched(epoch=99), hide={"currentLeader"})


@question(ApiKey.FETCH, 13)
async def fetch_an_id_that_nobody_has(to: Interview) -> None:
    await to.ask(fetched("", topic_id=NO_SUCH_ID), 13)


# --- offsets of times ----------------------------------------------------------------------------


def offsets_of(
    timestamp: int,
    topic: str = WRITTEN,
    partition: int = 0,
    *,
    most: int = 1,
    epoch: int = -1,
    replica_id: int = -1,
) -> Request[Any]:
    asked = list_offsets.ListOffsetsPartition(
        partition_index=partition,
        timestamp=timestamp,
        max_num_offsets=most,
        current_leader_epoch=epoch,
    )
    named = list_offsets.ListOffsetsTopic(name=topic, partitions=[asked])
    return list_offsets.ListOffsetsRequest(replica_id=replica_id, topics=[named])


@question(ApiKey.LIST_OFFSETS, 0, exactly=True)
async def list_offsets_of_version_0(to: Interview) -> None:
    for timestamp in (LATEST, EARLIEST, 1_000, -9):
        await to.ask(offsets_of(timestamp, most=5), 0)
    await to.ask(offsets_of(LATEST), 0)
    await to.ask(offsets_of(LATEST, most=0), 0)


@question(ApiKey.LIST_OFFSETS, 1)
async def list_offsets_of_times(to: Interview) -> None:
    for timestamp in (LATEST, EARLIEST, 0, 1_001, YEAR_2100_MS):
        await to.ask(offsets_of(timestamp))


@question(ApiKey.LIST_OFFSETS)
async def list_offsets_of_what_there_is_not(to: Interview) -> None:
    await to.ask(offsets_of(LATEST, NOWHERE))
    await to.ask(offsets_of(LATEST, partition=9))


@question(ApiKey.LIST_OFFSETS)
async def list_offsets_at_a_follower(to: Interview) -> None:
    await to.ask(offsets_of(LATEST, LED, 1))


@question(ApiKey.LIST_OFFSETS)
async def list_offsets_as_a_debug_consumer(to: Interview) -> None:
    for topic, partition in ((WRITTEN, 0), (LED, 1), (ALONE, 0)):
        await to.ask(offsets_of(LATEST, topic, partition, replica_id=DEBUG_REPLICA))


@question(ApiKey.LIST_OFFSETS, 4)
async def list_offsets_of_another_epoch(to: Interview) -> None:
    await to.ask(offsets_of(LATEST, epoch=99))


@question(ApiKey.LIST_OFFSETS, 7)
async def list_offsets_of_special_times(to: Interview) -> None:
    for timestamp in (MAX_TIMESTAMP, -4, -5, -9):
        await to.ask(offsets_of(timestamp))


@question(ApiKey.OFFSET_FOR_LEADER_EPOCH)
async def the_ends_of_epochs(to: Interview) -> None:
    for epoch, partition in ((0, 0), (5, 0), (0, 9)):
        asked = offset_for_leader_epoch.OffsetForLeaderPartition(
            partition=partition, leader_epoch=epoch
        )
        topic = offset_for_leader_epoch.OffsetForLeaderTopic(topic=WRITTEN, partitions=[asked])
        request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic])
        await to.ask(request)
