"""A shop: orders come in by HTTP, a worker bills them, and browsers watch the invoices.

`uvicorn app:app` runs it; `KAFKA_BOOTSTRAP_SERVERS` names the brokers.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import FrameType

import anyio
from anyio.streams.memory import MemoryObjectSendStream
from fastapi import FastAPI, HTTPException
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from aiokafkawire import Consumer, KafkaError, Producer, Worker
from aiokafkawire.worker import WorkerRecord


class Order(BaseModel):
    id: str
    customer: str
    total: int


class Invoice(BaseModel):
    order: str
    total: int


class Shop:
    """The state of the routes: one producer, and the browsers that watch."""

    producer: Producer[str, BaseModel]

    def __init__(self) -> None:
        self.watchers: set[MemoryObjectSendStream[Invoice]] = set()

    async def bill(self, record: WorkerRecord[str, Order]) -> None:
        """Write an invoice. If it fails, the worker tries the order again."""
        order = record.value
        invoice = Invoice(order=order.id, total=order.total)
        await self.producer.send_and_wait("invoices", invoice, key=order.customer)

    async def show_invoices(self, consumer: Consumer[bytes, Invoice]) -> None:
        """Give each new invoice to all watchers; one that does not read misses it."""
        async for record in consumer:
            if record.value is None:
                continue
            for watcher in [*self.watchers]:
                try:
                    watcher.send_nowait(record.value)
                except (anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
                    continue

    def end_streams(self) -> None:
        for watcher in self.watchers:
            watcher.close()


shop = Shop()


@contextmanager
def on_exit_signal(function: Callable[[], None]) -> Iterator[None]:
    """Call a function when SIGTERM or SIGINT comes, before uvicorn handles it.

    uvicorn ends the lifespan after all responses, so the lifespan itself cannot end streams.
    """
    if threading.current_thread() is not threading.main_thread():  # Starlette's TestClient
        yield
        return
    loop = asyncio.get_running_loop()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def handle(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(function)
        handler = handlers[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)

    for number in handlers:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    servers = os.environ["KAFKA_BOOTSTRAP_SERVERS"]
    worker = Worker(bootstrap_servers=servers, group_id="billing")
    worker.on("orders", order_by="key", key=str, value=Order)(shop.bill)
    async with (
        Producer(
            bootstrap_refused_timeout_ms=5_000,  # the start fails with the reason
            bootstrap_servers=servers,
            key_serializer=str,
            value_serializer=BaseModel,  # any model
            max_block_ms=3_000,
            delivery_timeout_ms=10_000,
            request_timeout_ms=4_000,
        ) as shop.producer,
        Consumer("invoices", bootstrap_servers=servers, value_deserializer=Invoice) as consumer,
        worker,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(shop.show_invoices, consumer)
        with on_exit_signal(shop.end_streams):
            yield
        tasks.cancel_scope.cancel()


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=201)
async def create_order(order: Order) -> dict[str, int]:
    try:
        metadata = await shop.producer.send_and_wait("orders", order, key=order.customer)
    except KafkaError as error:
        raise HTTPException(503 if error.retriable else 500, str(error)) from error
    return {"partition": metadata.partition, "offset": metadata.offset}


@app.get("/invoices")
async def watch_invoices() -> StreamingResponse:
    """Stream new invoices as server-sent events."""
    return StreamingResponse(events(), media_type="text/event-stream")


async def events() -> AsyncIterator[str]:
    watcher, invoices = anyio.create_memory_object_stream[Invoice](100)
    shop.watchers.add(watcher)
    try:
        yield ": connected\n\n"
        async for invoice in invoices:
            yield f"data: {invoice.model_dump_json()}\n\n"
    finally:
        shop.watchers.discard(watcher)


@app.get("/health/ready")
async def ready() -> dict[str, float]:
    try:
        result = await shop.producer.ping(timeout_ms=1_000)
    except KafkaError as error:
        raise HTTPException(503, str(error)) from error
    return {"latency_ms": result.latency_ms}
