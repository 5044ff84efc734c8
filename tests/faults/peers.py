"""Peers that are no broker, and a scripted hostile broker."""

from __future__ import annotations

import struct
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.abc
from anyio.streams.buffered import BufferedByteReceiveStream

from aiokafkawire.records import BatchBuilder
from aiokafkawire.wire import APIS, ApiKey, Request, Response, decode
from aiokafkawire.wire.header import RequestHeader, decode_request_header, encode_response
from aiokafkawire.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from aiokafkawire.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
)
from aiokafkawire.wire.messages.init_producer_id import InitProducerIdResponse
from aiokafkawire.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from aiokafkawire.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aiokafkawire.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

TOPIC = "topic"
TOPIC_ID = uuid.UUID(int=7)
HOST = "127.0.0.1"

# Later versions name topics by id only.
HIGHEST = {ApiKey.FETCH: 12, ApiKey.PRODUCE: 11}

Answer = Response | bytes | None
Handler = Callable[[RequestHeader, Any], Answer]


@asynccontextmanager
async def listening(
    handler: Callable[[anyio.abc.SocketStream], Any],
) -> AsyncIterator[str]:
    """Serve connections until the block ends; yields `host:port`."""
    async with await anyio.create_tcp_listener(local_host=HOST) as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with anyio.create_task_group() as group:
            group.start_soon(listener.serve, _tolerant(handler))
            yield f"{HOST}:{port}"
            group.cancel_scope.cancel()


def _tolerant(
    handler: Callable[[anyio.abc.SocketStream], Any],
) -> Callable[[anyio.abc.SocketStream], Any]:
    async def handle(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            try:
                await handler(stream)
            except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError):
                return  # the client has disconnected

    return handle


async def silent(stream: anyio.abc.SocketStream) -> None:
    """Read and never respond."""
    while True:
        await stream.receive()


async def http(stream: anyio.abc.SocketStream) -> None:
    """Answer as a web server does to a request that it cannot read."""
    await stream.receive()
    await stream.send(
        b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\nConnection: close\r\n"
        b"Content-Length: 15\r\n\r\n400 Bad Request"
    )


async def tls(stream: anyio.abc.SocketStream) -> None:
    """Answer as a TLS server does to a client without TLS: with a fatal alert."""
    await stream.receive()
    await stream.send(b"\x15\x03\x03\x00\x02\x02\x46")


async def closing(stream: anyio.abc.SocketStream) -> None:
    """Close each connection after the first request."""
    await stream.receive()


def batch(values: Sequence[bytes], base_offset: int = 0, compression: int = 0) -> bytes:
    """Return a batch of records as a broker stores it."""
    builder = BatchBuilder(compression, None, 2**30)
    for value in values:
        builder.append(1_700_000_000_000, None, value)
    return b"".join(map(bytes, builder.close().encode(2, base_offset=base_offset)))


@dataclass
class ScriptedBroker:
    """A node with one topic of one partition. `answers` go before what a broker would say.

    A handler gives a response, raw bytes to send in its place, or None to say nothing.
    `batches` is the log: the first offset of each batch, and its bytes.
    """

    port: int = 0
    answers: dict[ApiKey, Handler] = field(default_factory=dict)
    batches: dict[int, bytes] = field(default_factory=dict)
    end_offset: int = 0
    seen: list[tuple[ApiKey, Request[Any]]] = field(default_factory=list)

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self.port}"

    async def converse(self, stream: anyio.abc.SocketStream) -> None:
        reader = BufferedByteReceiveStream(stream)
        while True:
            (size,) = struct.unpack(">i", await reader.receive_exactly(4))
            frame = memoryview(await reader.receive_exactly(size))
            header = decode_request_header(frame)
            cls = APIS[header.api_key].request
            message = decode(cls, header.api_version, frame[header.header_size :])
            self.seen.append((header.api_key, message))
            handler = self.answers.get(header.api_key) or self.defaults[header.api_key]
            answer = handler(header, message)
            if isinstance(answer, Response):
                answer = self.frame(header, answer)
            if answer is not None:
                await stream.send(answer)

    @staticmethod
    def frame(
        header: RequestHeader, response: Response, correlation_id: int | None = None
    ) -> bytes:
        """Return a response as sent over the wire."""
        number = header.correlation_id if correlation_id is None else correlation_id
        return b"".join(map(bytes, encode_response(response, header.api_version, number)))

    @property
    def defaults(self) -> dict[ApiKey, Handler]:
        return {
            ApiKey.API_VERSIONS: self.api_versions,
            ApiKey.METADATA: self.metadata,
            ApiKey.INIT_PRODUCER_ID: self.init_producer_id,
            ApiKey.PRODUCE: self.produce,
            ApiKey.LIST_OFFSETS: self.list_offsets,
            ApiKey.FETCH: self.fetch,
        }

    def api_versions(self, header: RequestHeader, message: object) -> ApiVersionsResponse:
        rows = [
            ApiVersion(
                api_key=key,
                min_version=APIS[key].min_version,
                max_version=HIGHEST.get(key, APIS[key].max_stable_version),
            )
            for key in self.defaults
        ]
        return ApiVersionsResponse(error_code=0, api_keys=rows)

    def metadata(self, header: RequestHeader, message: object) -> MetadataResponse:
        partition = MetadataResponsePartition(
            error_code=0,
            partition_index=0,
            leader_id=1,
            leader_epoch=0,
            replica_nodes=[1],
            isr_nodes=[1],
        )
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host=HOST, port=self.port)],
            cluster_id="scripted",
            controller_id=1,
            topics=[
                MetadataResponseTopic(
                    error_code=0, name=TOPIC, topic_id=TOPIC_ID, partitions=[partition]
                )
            ],
        )

    def init_producer_id(self, header: RequestHeader, message: object) -> InitProducerIdResponse:
        return InitProducerIdResponse(error_code=0, producer_id=1, producer_epoch=0)

    def produce(self, header: RequestHeader, message: object) -> ProduceResponse:
        done = PartitionProduceResponse(index=0, error_code=0, base_offset=self.end_offset)
        self.end_offset += 1
        return ProduceResponse(
            responses=[TopicProduceResponse(name=TOPIC, partition_responses=[done])]
        )

    def list_offsets(self, header: RequestHeader, message: ListOffsetsRequest) -> Response:
        asked = message.topics[0].partitions[0]
        found = ListOffsetsPartitionResponse(
            partition_index=0,
            error_code=0,
            offset=0 if asked.timestamp == -2 else self.end_offset,
            leader_epoch=0,
        )
        return ListOffsetsResponse(
            topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=[found])]
        )

    def fetch(self, header: RequestHeader, message: FetchRequest) -> FetchResponse:
        if not message.topics:
            return FetchResponse(responses=[])
        offset = message.topics[0].partitions[0].fetch_offset
        base = max((start for start in self.batches if start <= offset), default=-1)
        return self.fetched(b"" if offset >= self.end_offset else self.batches.get(base, b""))

    def fetched(self, records: bytes, error_code: int = 0) -> FetchResponse:
        data = FetchPartitionData(
            partition_index=0,
            error_code=error_code,
            high_watermark=self.end_offset,
            last_stable_offset=self.end_offset,
            log_start_offset=0,
            records=records,
        )
        return FetchResponse(responses=[FetchableTopicResponse(topic=TOPIC, partitions=[data])])


@asynccontextmanager
async def scripted() -> AsyncIterator[ScriptedBroker]:
    """Run a scripted broker."""
    broker = ScriptedBroker()
    async with listening(broker.converse) as address:
        broker.port = int(address.rpartition(":")[2])
        yield broker
