"""Inter-broker requests of releases before KRaft, sent to a pair of nodes by a test.

Each check takes a `Pair`, two nodes of a cluster that is thrown away afterwards: a broker trusts
any sender that knows the epoch of its controller. The same checks hold for real Kafka and for the
embedded broker."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio

from aiokafkawire.records.batch import iter_batches
from aiokafkawire.runtime import Address, RealRuntime
from aiokafkawire.wire import ErrorCode, Request
from aiokafkawire.wire.messages import controlled_shutdown, create_topics, list_offsets, metadata
from aiokafkawire.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aiokafkawire.wire.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
)
from aiokafkawire.wire.messages.stop_replica import StopReplicaPartitionV0, StopReplicaRequest
from aiokafkawire.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
)
from tests.broker.raw_client import RawClient, batch, only, produce_request

WITHIN_S = 20.0
POLL_INTERVAL_S = 0.02

EPOCH = 1
"""The controller epoch of a new cluster."""

NEW = 0
"""The leader epoch of a new partition."""

STRANGER = 77
"""A node id that does not exist."""

DEBUG_REPLICA = -2
LATEST = -1


@dataclass(frozen=True)
class Pair:
    """Two nodes by id, and the controller's id."""

    addresses: Mapping[int, Address]
    controller: int

    @classmethod
    async def of(cls, addresses: Mapping[int, Address]) -> Pair:
        """Connect to the pair at these addresses, once both know the same controller."""
        asked = metadata.MetadataRequest(topics=[])
        with anyio.fail_after(WITHIN_S):
            while True:
                seen = [await _ask(address, asked, 1) for address in addresses.values()]
                [controller, *others] = {answer.controller_id for answer in seen}
                if controller in addresses and not others:
                    return cls(addresses, controller)
                await anyio.sleep(POLL_INTERVAL_S)

    @property
    def other(self) -> int:
        """The node that is not the controller."""
        [node] = set(self.addresses) - {self.controller}
        return node

    async def ask(self, node: int, message: Request[Any], version: int) -> Any:
        """Send one request on its own connection."""
        return await _ask(self.addresses[node], message, version)

    async def topic(self, *replicas: int) -> str:
        """Create a topic with one partition, led by the first of the nodes; both nodes know it."""
        name = f"topic-{uuid.uuid4().hex[:8]}"
        assignment = create_topics.CreatableReplicaAssignment(
            partition_index=0, broker_ids=list(replicas)
        )
        made = create_topics.CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[assignment],
            configs=[],
        )
        request = create_topics.CreateTopicsRequest(topics=[made], timeout_ms=5_000)
        answer = await self.ask(self.controller, request, 1)
        assert answer.topics[0].error_code == ErrorCode.NONE, answer
        for node in self.addresses:
            await self.until_led(node, name, replicas[0])
        return name

    async def seen(self, node: int, topic: str) -> tuple[int, int]:
        """Return the error and the leader of the topic's partition in a node's metadata."""
        asked = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=topic)])
        [described] = (await self.ask(node, asked, 1)).topics
        if not described.partitions:
            return described.error_code, -1
        [partition] = described.partitions
        return partition.error_code, partition.leader_id

    async def until_led(self, node: int, topic: str, leader: int) -> None:
        """Wait until a node's metadata names that leader."""
        with anyio.fail_after(WITHIN_S):
            while True:
                if await self.seen(node, topic) == (ErrorCode.NONE, leader):
                    return
                await anyio.sleep(POLL_INTERVAL_S)

    async def produce(self, node: int, topic: str, value: bytes = b"v") -> int:
        """Return the error code of producing a record to the topic's partition."""
        request = produce_request(topic, 0, batch(value, magic=1))
        code: int = only(await self.ask(node, request, 2)).error_code
        return code

    async def fetch(self, node: int, topic: str, replica_id: int = -1) -> Any:
        """Return a node's response to a fetch from the start of the topic's partition."""
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100_000)
        request = FetchRequest(
            replica_id=replica_id,
            max_wait_ms=0,
            min_bytes=0,
            topics=[FetchTopic(topic=topic, partitions=[wanted])],
        )
        return only(await self.ask(node, request, 3))

    async def end_offset(self, node: int, topic: str, replica_id: int = -1) -> tuple[int, int]:
        """Return the error and the end offset that a node returns for the topic's partition."""
        asked = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=LATEST)
        request = list_offsets.ListOffsetsRequest(
            replica_id=replica_id,
            topics=[list_offsets.ListOffsetsTopic(name=topic, partitions=[asked])],
        )
        described = only(await self.ask(node, request, 1))
        return described.error_code, described.offset

    def leader_and_isr(
        self,
        topic: str,
        leader: int,
        *,
        leader_epoch: int = NEW + 1,
        replicas: list[int] | None = None,
        controller_epoch: int = EPOCH,
    ) -> LeaderAndIsrRequest:
        nodes = list(self.addresses) if replicas is None else replicas
        state = LeaderAndIsrPartitionState(
            topic_name=topic,
            partition_index=0,
            controller_epoch=controller_epoch,
            leader=leader,
            leader_epoch=leader_epoch,
            isr=nodes,
            partition_epoch=leader_epoch,
            replicas=nodes,
        )
        address = self.addresses[leader]
        live = LeaderAndIsrLiveLeader(broker_id=leader, host_name=address.host, port=address.port)
        return LeaderAndIsrRequest(
            controller_id=self.controller,
            controller_epoch=controller_epoch,
            ungrouped_partition_states=[state],
            live_leaders=[live],
        )

    def stop_replica(self, topic: str, *, controller_epoch: int = EPOCH) -> StopReplicaRequest:
        return StopReplicaRequest(
            controller_id=self.controller,
            controller_epoch=controller_epoch,
            delete_partitions=True,
            ungrouped_partitions=[StopReplicaPartitionV0(topic_name=topic, partition_index=0)],
        )

    def update_metadata(
        self, live: Mapping[int, Address], *, controller_epoch: int = EPOCH
    ) -> UpdateMetadataRequest:
        """Live brokers in the layouts of versions 0 and 1 alike, without partitions."""
        brokers = [
            UpdateMetadataBroker(
                id=node,
                v0_host=address.host,
                v0_port=address.port,
                endpoints=[
                    UpdateMetadataEndpoint(
                        port=address.port, host=address.host, security_protocol=0
                    )
                ],
            )
            for node, address in live.items()
        ]
        return UpdateMetadataRequest(
            controller_id=self.controller, controller_epoch=controller_epoch, live_brokers=brokers
        )


async def _ask(address: Address, message: Request[Any], version: int) -> Any:
    async with _connect(address) as client:
        return await client.call(message, version)


@asynccontextmanager
async def _connect(address: Address) -> AsyncIterator[RawClient]:
    transport = await RealRuntime().connect(address)
    try:
        yield RawClient(transport)
    finally:
        await transport.aclose()


# --- what touches nothing but a topic of its own -------------------------------------------------


async def a_controller_of_before_is_refused(pair: Pair) -> None:
    topic = await pair.topic(1, 2)
    before = EPOCH - 1
    for message in (
        pair.leader_and_isr(topic, 2, controller_epoch=before),
        pair.stop_replica(topic, controller_epoch=before),
        pair.update_metadata({}, controller_epoch=before),
    ):
        answer = await pair.ask(1, message, 0)
        assert answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH, answer
    assert await pair.produce(1, topic) == ErrorCode.NONE
    assert await pair.seen(1, topic) == (ErrorCode.NONE, 1)


async def leader_and_isr_of_an_epoch_that_is_not_new_is_refused(pair: Pair) -> None:
    topic = await pair.topic(1, 2)
    answer = await pair.ask(1, pair.leader_and_isr(topic, 2, leader_epoch=NEW), 0)
    assert answer.error_code == ErrorCode.NONE
    [described] = answer.partition_errors
    assert (described.topic_name, described.partition_index) == (topic, 0)
    assert described.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert await pair.produce(1, topic) == ErrorCode.NONE


async def leader_and_isr_without_the_receiver_is_refused(pair: Pair) -> None:
    topic = await pair.topic(1, 2)
    answer = await pair.ask(1, pair.leader_and_isr(topic, 2, replicas=[2]), 0)
    assert answer.error_code == ErrorCode.NONE
    [described] = answer.partition_errors
    assert described.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await pair.produce(1, topic) == ErrorCode.NONE


async def leader_and_isr_takes_the_lead_away(pair: Pair) -> None:
    topic = await pair.topic(1, 2)
    assert await pair.produce(1, topic) == ErrorCode.NONE
    answer = await pair.ask(1, pair.leader_and_isr(topic, 2), 0)
    assert answer.error_code == ErrorCode.NONE
    assert [described.error_code for described in answer.partition_errors] == [ErrorCode.NONE]
    assert await pair.produce(1, topic) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await pair.seen(1, topic) == (ErrorCode.NONE, 1), "metadata come by UpdateMetadata alone"


async def leader_and_isr_gives_the_lead(pair: Pair) -> None:
    topic = await pair.topic(1, 2)
    assert await pair.produce(2, topic) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    answer = await pair.ask(2, pair.leader_and_isr(topic, 2), 0)
    assert [described.error_code for described in answer.partition_errors] == [ErrorCode.NONE]
    # The other node does not follow it, so acks=all would wait.
    request = produce_request(topic, 0, batch(b"v", magic=1), acks=1)
    assert only(await pair.ask(2, request, 2)).error_code == ErrorCode.NONE
    assert await pair.seen(2, topic) == (ErrorCode.NONE, 1)


async def stop_replica_deletes(pair: Pair) -> None:
    topic = await pair.topic(1)
    assert await pair.produce(1, topic) == ErrorCode.NONE
    assert await pair.end_offset(1, topic, DEBUG_REPLICA) == (ErrorCode.NONE, 1)
    answer = await pair.ask(1, pair.stop_replica(topic), 0)
    assert answer.error_code == ErrorCode.NONE
    [described] = answer.partition_errors
    assert (described.topic_name, described.partition_index) == (topic, 0)
    assert described.error_code == ErrorCode.NONE
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await pair.produce(1, topic) == unknown
    assert (await pair.fetch(1, topic)).error_code == unknown
    gone = ErrorCode.REPLICA_NOT_AVAILABLE
    assert (await pair.fetch(1, topic, DEBUG_REPLICA)).error_code == gone
    assert (await pair.end_offset(1, topic))[0] == unknown
    assert (await pair.end_offset(1, topic, DEBUG_REPLICA))[0] == gone
    assert await pair.seen(1, topic) == (ErrorCode.NONE, 1)


async def a_debug_consumer_reads_from_a_follower(pair: Pair) -> None:
    topic = await pair.topic(1, 2)
    assert await pair.produce(1, topic, b"read me") == ErrorCode.NONE
    assert (await pair.fetch(2, topic)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await pair.end_offset(2, topic))[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await pair.end_offset(2, topic, DEBUG_REPLICA) == (ErrorCode.NONE, 1)
    with anyio.fail_after(WITHIN_S):
        # A follower learns the high watermark with its next fetch.
        while not (given := await pair.fetch(2, topic, DEBUG_REPLICA)).records:
            assert given.error_code == ErrorCode.NONE
            await anyio.sleep(POLL_INTERVAL_S)
    assert given.high_watermark == 1
    [message] = iter_batches(given.records)
    assert message.columns().value(0) == b"read me"


# --- what a node does not get over ---------------------------------------------------------------


async def update_metadata_replaces_who_lives(pair: Pair, version: int) -> None:
    here, gone = await pair.topic(1, 2), await pair.topic(2, 1)
    live = {1: pair.addresses[1], STRANGER: Address("127.0.0.1", 9)}
    answer = await pair.ask(1, pair.update_metadata(live), version)
    assert answer.error_code == ErrorCode.NONE
    described = await pair.ask(1, metadata.MetadataRequest(topics=[]), 1)
    assert {node.node_id: Address(node.host, node.port) for node in described.brokers} == live
    assert await pair.seen(1, here) == (ErrorCode.NONE, 1)
    assert await pair.seen(1, gone) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    # The other node got no request.
    described = await pair.ask(2, metadata.MetadataRequest(topics=[]), 1)
    assert {node.node_id for node in described.brokers} == set(pair.addresses)
    assert await pair.seen(2, gone) == (ErrorCode.NONE, 2)
    assert await pair.produce(2, gone) == ErrorCode.NONE


async def controlled_shutdown_moves_the_lead(pair: Pair) -> None:
    controller, other = pair.controller, pair.other
    single, double = await pair.topic(other), await pair.topic(other, controller)

    async def shut_down(node: int, asked: int) -> Any:
        return await pair.ask(
            asked, controlled_shutdown.ControlledShutdownRequest(broker_id=node), 1
        )

    answer = await shut_down(other, asked=other)
    assert answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH, "it is not the controller"
    answer = await shut_down(STRANGER, asked=controller)
    assert answer.error_code == ErrorCode.BROKER_NOT_AVAILABLE
    assert answer.remaining_partitions == []
    assert await pair.seen(controller, double) == (ErrorCode.NONE, other)

    answer = await shut_down(other, asked=controller)
    assert answer.error_code == ErrorCode.NONE
    # A partition without another replica is not awaited.
    assert answer.remaining_partitions == []
    await pair.until_led(controller, double, controller)
    assert await pair.seen(controller, single) == (ErrorCode.NONE, other)

    answer = await shut_down(controller, asked=controller)
    assert answer.error_code == ErrorCode.NONE
    remaining = {(each.topic_name, each.partition_index) for each in answer.remaining_partitions}
    assert (double, 0) in remaining, "nobody is left to lead it"
    assert (single, 0) not in remaining


ON_ONE_PAIR = [
    a_controller_of_before_is_refused,
    leader_and_isr_of_an_epoch_that_is_not_new_is_refused,
    leader_and_isr_without_the_receiver_is_refused,
    leader_and_isr_takes_the_lead_away,
    leader_and_isr_gives_the_lead,
    stop_replica_deletes,
    a_debug_consumer_reads_from_a_follower,
]
"""Checks that can run one after another on the same pair."""
