"""Reads the records of a partition from a broker, without a consumer."""

from __future__ import annotations

from aiokafkawire.broker import Broker
from aiokafkawire.cluster import Cluster, ToNode
from aiokafkawire.config import ClientConfig
from aiokafkawire.records import decode_fetch
from aiokafkawire.runtime import RealRuntime, Supervisor
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

MAX_BYTES = 1 << 26
TIMEOUT_S = 30.0
LAST_WITH_TOPIC_NAMES = 12


async def stored(broker: Broker, topic: str, partition: int = 0) -> list[bytes | None]:
    """Return the values of the records in one partition."""
    runtime, supervisor = RealRuntime(), Supervisor("reader")
    await supervisor.start()
    try:
        cluster = Cluster(
            ClientConfig(bootstrap_servers=broker.bootstrap_servers), runtime, supervisor
        )
        deadline = runtime.clock.now() + TIMEOUT_S
        await cluster.start(deadline)
        await cluster.topic_metadata(topic, deadline)
        return await _read(cluster, TopicPartition(topic, partition), broker, deadline)
    finally:
        await supervisor.stop()


async def _read(
    cluster: Cluster, tp: TopicPartition, broker: Broker, deadline: float
) -> list[bytes | None]:
    values: list[bytes | None] = []
    offset, end = 0, broker.end_offset(*tp)
    while offset < end:
        wanted = FetchPartition(
            partition=tp.partition, fetch_offset=offset, partition_max_bytes=MAX_BYTES
        )
        response = await cluster.request(
            FetchRequest(
                replica_id=-1,
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=MAX_BYTES,
                topics=[FetchTopic(topic=tp.topic, partitions=[wanted])],
            ),
            to=ToNode(broker.leader(*tp)),
            deadline=deadline,
            max_version=LAST_WITH_TOPIC_NAMES,
        )
        partition_response = response.responses[0].partitions[0]
        assert partition_response.error_code == 0
        for found in decode_fetch(*tp, partition_response.records, offset):
            values += [record.value for record in found]
            offset = found.next_offset
    return values
