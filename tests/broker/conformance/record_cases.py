"""Cases about records: produce, fetch and list offsets."""

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
from tests.broker.conformance.cases import (
    ALONE,
    COMPACTED,
    LED,
    NO_SUCH_ID,
    NOWHERE,
    SMALL,
    WRITTEN,
    ConformanceClient,
    conformance_case,
)
from tests.broker.raw_client import batch, produce_request

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
DEBUG_REPLICA = -2
YEAR_2100_MS = 4_102_444_800_000

# --- produce -------------------------------------------------------------------------------------


@conformance_case(ApiKey.PRODUCE)
async def produce(to: ConformanceClient) -> None:
    for acks in (1, -1):
        await to.request(produce_request(LED, 0, batch(b"v", magic=to.magic), acks=acks))


@conformance_case(ApiKey.PRODUCE)
async def produce_to_an_unknown_topic(to: ConformanceClient) -> None:
    await to.request(produce_request(NOWHERE, 0, batch(b"v", magic=to.magic)))
    await to.request(produce_request(LED, 9, batch(b"v", magic=to.magic)))


@conformance_case(ApiKey.PRODUCE)
async def produce_at_a_follower(to: ConformanceClient) -> None:
    await to.request(produce_request(LED, 1, batch(b"v", magic=to.magic)), hide={"currentLeader"})


@conformance_case(ApiKey.PRODUCE)
async def produce_at_a_node_without_a_replica(to: ConformanceClient) -> None:
    await to.request(produce_request(ALONE, 0, batch(b"v", magic=to.magic)), hide={"currentLeader"})


@conformance_case(ApiKey.PRODUCE)
async def produce_a_corrupt_batch(to: ConformanceClient) -> None:
    damaged = bytearray(batch(b"value", magic=to.magic))
    damaged[-3] ^= 1
    await to.request(produce_request(LED, 0, bytes(damaged)))


@conformance_case(ApiKey.PRODUCE)
async def produce_with_invalid_acks(to: ConformanceClient) -> None:
    for acks in (2, -2):
        request = produce_request(LED, 0, batch(b"v", magic=to.magic), acks=acks)
        request.timeout_ms = 100
        await to.request(request)


@conformance_case(ApiKey.PRODUCE)
async def produce_a_too_large_batch(to: ConformanceClient) -> None:
    await to.request(produce_request(SMALL, 0, batch(b"v" * 1_000, magic=to.magic)))


@conformance_case(ApiKey.PRODUCE)
async def produce_more_than_the_default_limit(to: ConformanceClient) -> None:
    # Between the limits for timestamps before 2.5 and since.
    await to.request(produce_request(LED, 0, batch(b"v" * 1_020_000, magic=to.magic)))


@conformance_case(ApiKey.PRODUCE)
async def produce_with_acks_0_and_an_error(to: ConformanceClient) -> None:
    body = produce_request(NOWHERE, 0, batch(b"v", magic=to.magic), acks=0)
    await to.request_without_response(body)


@conformance_case(ApiKey.PRODUCE)
async def produce_without_a_key_to_a_compacted_topic(to: ConformanceClient) -> None:
    await to.request(produce_request(COMPACTED, 0, without_keys(to.magic)), hide={"recordErrors"})


@conformance_case(ApiKey.PRODUCE)
async def produce_an_empty_batch(to: ConformanceClient) -> None:
    await to.request(produce_request(LED, 0, b""))


@conformance_case(ApiKey.PRODUCE, 3)
async def produce_an_older_format(to: ConformanceClient) -> None:
    await to.request(produce_request(LED, 0, batch(b"v", magic=1)))


@conformance_case(ApiKey.PRODUCE, 3)
async def produce_two_batches(to: ConformanceClient) -> None:
    await to.request(produce_request(LED, 0, batch(b"v") + batch(b"w")))


@conformance_case(ApiKey.PRODUCE, 2, this_version_only=True)
async def produce_of_version_2(to: ConformanceClient) -> None:
    await to.request(produce_request(LED, 0, batch(b"v", magic=1)), 2)


@conformance_case(ApiKey.PRODUCE, 2)
async def produce_a_future_timestamp(to: ConformanceClient) -> None:
    late = batch(b"v", magic=to.magic, timestamp_ms=YEAR_2100_MS)
    await to.request(produce_request(LED, 0, late))


@conformance_case(ApiKey.PRODUCE, 3)
async def produce_out_of_sequence(to: ConformanceClient) -> None:
    mine = await to.new_producer_id()
    for sequence in (0, 0, 7):
        records = batch(b"v", producer_id=mine, producer_epoch=0, base_sequence=sequence)
        await to.request(produce_request(LED, 0, records))


@conformance_case(ApiKey.PRODUCE, 3)
async def produce_with_an_unknown_producer_id(to: ConformanceClient) -> None:
    records = batch(b"v", producer_id=987_654, producer_epoch=0, base_sequence=7)
    await to.request(produce_request(LED, 0, records))


@conformance_case(ApiKey.PRODUCE, 3)
async def produce_zstandard_too_early(to: ConformanceClient) -> None:
    await to.request(produce_request(LED, 0, batch(b"v", compression=4)), 3)


@conformance_case(ApiKey.PRODUCE, 13)
async def produce_to_an_unknown_topic_id(to: ConformanceClient) -> None:
    await to.request(produce_request("", 0, batch(b"v"), topic_id=NO_SUCH_ID), 13)


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


@conformance_case(ApiKey.FETCH)
async def fetch_all(to: ConformanceClient) -> None:
    await to.request(fetched())
    await to.request(fetched(offset=1))
    await to.request(fetched(offset=3))


@conformance_case(ApiKey.FETCH)
async def fetch_out_of_range(to: ConformanceClient) -> None:
    await to.request(fetched(offset=4))
    await to.request(fetched(offset=-5))


@conformance_case(ApiKey.FETCH)
async def fetch_an_unknown_topic(to: ConformanceClient) -> None:
    await to.request(fetched(NOWHERE))
    await to.request(fetched(partition=9))


@conformance_case(ApiKey.FETCH)
async def fetch_below_the_message_size(to: ConformanceClient) -> None:
    await to.request(fetched(max_bytes=10))


@conformance_case(ApiKey.FETCH)
async def fetch_at_a_follower(to: ConformanceClient) -> None:
    await to.request(fetched(LED, 1), hide={"currentLeader", "highWatermark", "lastStableOffset"})


@conformance_case(ApiKey.FETCH)
async def fetch_at_a_node_without_a_replica(to: ConformanceClient) -> None:
    await to.request(fetched(ALONE), hide={"currentLeader"})


@conformance_case(ApiKey.FETCH)
async def fetch_as_a_debug_consumer(to: ConformanceClient) -> None:
    for topic, partition in ((WRITTEN, 0), (LED, 1), (ALONE, 0)):
        await to.request(
            fetched(topic, partition, replica_id=DEBUG_REPLICA), hide={"currentLeader"}
        )


@conformance_case(ApiKey.FETCH, 15)
async def fetch_as_a_debug_consumer_with_replica_state(to: ConformanceClient) -> None:
    asked = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=WRITTEN)])
    [description] = (await to.request_unrecorded(asked)).topics
    state = fetch.FetchReplicaState(replica_id=DEBUG_REPLICA)
    await to.request(fetched("", topic_id=description.topic_id, replica_state=state), 15)


@conformance_case(ApiKey.FETCH, 0, this_version_only=True)
async def fetch_of_version_0(to: ConformanceClient) -> None:
    await to.request(fetched(), 0)


@conformance_case(ApiKey.FETCH, 2, this_version_only=True)
async def fetch_of_version_2(to: ConformanceClient) -> None:
    await to.request(fetched(offset=1), 2)


@conformance_case(ApiKey.FETCH, 4)
async def fetch_read_committed(to: ConformanceClient) -> None:
    await to.request(fetched(isolation_level=1))


@conformance_case(ApiKey.FETCH, 7)
async def fetch_in_an_unknown_session(to: ConformanceClient) -> None:
    await to.request(fetched(session_id=12_345, session_epoch=1))


@conformance_case(ApiKey.FETCH, 9)
async def fetch_with_another_leader_epoch(to: ConformanceClient) -> None:
    await to.request(fetched(epoch=99), hide={"currentLeader"})


@conformance_case(ApiKey.FETCH, 13)
async def fetch_an_unknown_topic_id(to: ConformanceClient) -> None:
    await to.request(fetched("", topic_id=NO_SUCH_ID), 13)


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


@conformance_case(ApiKey.LIST_OFFSETS, 0, this_version_only=True)
async def list_offsets_of_version_0(to: ConformanceClient) -> None:
    for timestamp in (LATEST, EARLIEST, 1_000, -9):
        await to.request(offsets_of(timestamp, most=5), 0)
    await to.request(offsets_of(LATEST), 0)
    await to.request(offsets_of(LATEST, most=0), 0)


@conformance_case(ApiKey.LIST_OFFSETS, 1)
async def list_offsets_by_timestamp(to: ConformanceClient) -> None:
    for timestamp in (LATEST, EARLIEST, 0, 1_001, YEAR_2100_MS):
        await to.request(offsets_of(timestamp))


@conformance_case(ApiKey.LIST_OFFSETS)
async def list_offsets_of_an_unknown_topic(to: ConformanceClient) -> None:
    await to.request(offsets_of(LATEST, NOWHERE))
    await to.request(offsets_of(LATEST, partition=9))


@conformance_case(ApiKey.LIST_OFFSETS)
async def list_offsets_at_a_follower(to: ConformanceClient) -> None:
    await to.request(offsets_of(LATEST, LED, 1))


@conformance_case(ApiKey.LIST_OFFSETS)
async def list_offsets_as_a_debug_consumer(to: ConformanceClient) -> None:
    for topic, partition in ((WRITTEN, 0), (LED, 1), (ALONE, 0)):
        await to.request(offsets_of(LATEST, topic, partition, replica_id=DEBUG_REPLICA))


@conformance_case(ApiKey.LIST_OFFSETS, 4)
async def list_offsets_with_another_leader_epoch(to: ConformanceClient) -> None:
    await to.request(offsets_of(LATEST, epoch=99))


@conformance_case(ApiKey.LIST_OFFSETS, 7)
async def list_offsets_of_special_timestamps(to: ConformanceClient) -> None:
    for timestamp in (MAX_TIMESTAMP, -4, -5, -9):
        await to.request(offsets_of(timestamp))


@conformance_case(ApiKey.OFFSET_FOR_LEADER_EPOCH)
async def epoch_end_offsets(to: ConformanceClient) -> None:
    for epoch, partition in ((0, 0), (5, 0), (0, 9)):
        asked = offset_for_leader_epoch.OffsetForLeaderPartition(
            partition=partition, leader_epoch=epoch
        )
        topic = offset_for_leader_epoch.OffsetForLeaderTopic(topic=WRITTEN, partitions=[asked])
        request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic])
        await to.request(request)
