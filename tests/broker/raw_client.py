"""Requests to the embedded broker over a real socket, without a client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from aiokafkawire.broker import Broker
from aiokafkawire.records import BatchBuilder
from aiokafkawire.runtime import RealRuntime, Transport
from aiokafkawire.wire import APIS, ApiKey, Request, Response
from aiokafkawire.wire.frame import FrameReader
from aiokafkawire.wire.header import decode_response, encode_request
from aiokafkawire.wire.messages import metadata, produce

CALL_TIMEOUT_S = 30


class RawClient:
    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._reader = FrameReader(2**30)
        self._frames: list[memoryview] = []
        self._correlation_id = 0

    async def send(self, message: Request[Any], version: int) -> int:
        self._correlation_id += 1
        await self.transport.send(encode_request(message, version, self._correlation_id, "raw"))
        return self._correlation_id

    async def frame(self) -> memoryview | None:
        """Return the next frame, None when the broker closed the connection."""
        with anyio.fail_after(CALL_TIMEOUT_S):
            while not self._frames:
                try:
                    count = await self.transport.receive_into(self._reader.get_buffer())
                except OSError:
                    return None
                if not count:
                    return None
                self._frames += self._reader.buffer_updated(count)
        return self._frames.pop(0)

    async def receive(self, api_key: int, version: int) -> tuple[int, Any]:
        frame = await self.frame()
        assert frame is not None, "the broker closed the connection"
        cls: type[Response] = APIS[ApiKey(api_key)].response
        return decode_response(cls, version, frame)

    async def call(self, message: Request[Any], version: int) -> Any:
        sent = await self.send(message, version)
        received, response = await self.receive(message.api_key, version)
        assert received == sent
        return response

    async def closed(self) -> bool:
        """Return whether the broker closes the connection without another response."""
        return await self.frame() is None


@asynccontextmanager
async def connected(broker: Broker, node: int | None = None) -> AsyncIterator[RawClient]:
    address = broker.nodes[broker.live_nodes[0] if node is None else node]
    transport = await RealRuntime().connect(address)
    try:
        yield RawClient(transport)
    finally:
        await transport.aclose()


def batch(
    *values: bytes | None,
    magic: int = 2,
    timestamp_ms: int = 1_000,
    compression: int = 0,
    **fields: Any,
) -> bytes:
    """Return one batch (or message set) with these values."""
    builder = BatchBuilder(compression, max_bytes=2**24)
    for index, value in enumerate(values):
        builder.append(timestamp_ms + index, b"k%d" % index, value)
    return b"".join(bytes(part) for part in builder.close().encode(magic=magic, **fields))


def produce_request(
    topic: str, partition: int, records: bytes | None, *, acks: int = -1, **topic_fields: Any
) -> produce.ProduceRequest:
    return produce.ProduceRequest(
        acks=acks,
        timeout_ms=1_000,
        topic_data=[
            produce.TopicProduceData(
                name=topic,
                partition_data=[produce.PartitionProduceData(index=partition, records=records)],
                **topic_fields,
            )
        ],
    )


def only(response: produce.ProduceResponse) -> Any:
    """Return the only partition of a Produce, Fetch or ListOffsets response."""
    topics = response.responses if hasattr(response, "responses") else response.topics
    (topic,) = topics
    (partition,) = (
        topic.partition_responses if hasattr(topic, "partition_responses") else topic.partitions
    )
    return partition


def build_update_metadata_request(*names: str, create: bool = False) -> metadata.MetadataRequest:
    return metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=create,
    )
