"""A feed: messages come in by HTTP, and every browser gets all of them from a topic.

Each process reads the topic once and passes its records to the browsers that are connected to it.
`uvicorn app:app` runs it; `KAFKA_BOOTSTRAP_SERVERS` names the brokers.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypedDict

import anyio
from anyio.streams.memory import MemoryObjectSendStream
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from aiokafkawire import Consumer, KafkaError, Producer, Record

Watchers = set[MemoryObjectSendStream[Record]]


class State(TypedDict):
    producer: Producer
    watchers: Watchers


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[State]:
    servers = os.environ["KAFKA_BOOTSTRAP_SERVERS"]
    watchers: Watchers = set()
    async with (
        Producer(
            bootstrap_servers=servers, max_block_ms=3_000, delivery_timeout_ms=10_000,
            request_timeout_ms=4_000,
        ) as producer,
        Consumer("feed", bootstrap_servers=servers) as consumer,
        anyio.create_task_group() as tasks,
    ):  # fmt: skip
        tasks.start_soon(broadcast, consumer, watchers)
        yield {"producer": producer, "watchers": watchers}
        tasks.cancel_scope.cancel()


async def broadcast(consumer: Consumer, watchers: Watchers) -> None:
    async for record in consumer:
        for watcher in [*watchers]:
            try:
                watcher.send_nowait(record)
            except anyio.WouldBlock:
                # It reads too slowly. Its stream ends, and the browser connects again.
                watchers.discard(watcher)
                watcher.close()
            except anyio.BrokenResourceError:
                watchers.discard(watcher)


async def post(request: Request) -> Response:
    try:
        await request.state.producer.send_and_wait("feed", await request.body())
    except KafkaError as error:
        return PlainTextResponse(str(error), status_code=503 if error.retriable else 500)
    return Response(status_code=201)


async def feed(request: Request) -> Response:
    """Stream the records of the topic as server-sent events."""
    watcher, records = anyio.create_memory_object_stream[Record](100)
    request.state.watchers.add(watcher)

    async def events() -> AsyncIterator[bytes]:
        try:
            yield b": connected\n\n"
            async for record in records:
                yield b"id: %d-%d\n" % (record.partition, record.offset)
                for line in (record.value or b"").splitlines():
                    yield b"data: " + line + b"\n"
                yield b"\n"
        finally:
            request.state.watchers.discard(watcher)

    return StreamingResponse(events(), media_type="text/event-stream")


app = Starlette(
    routes=[Route("/feed", post, methods=["POST"]), Route("/feed", feed)], lifespan=lifespan
)
