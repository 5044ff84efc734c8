"""Orders by HTTP, with msgspec's structs as values of records, and a worker that bills them.

`uvicorn app:app` runs it; `KAFKA_BOOTSTRAP_SERVERS` names the brokers.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import msgspec
from litestar import Litestar, get, post
from litestar.datastructures import State
from litestar.exceptions import HTTPException

from aiokafkawire import KafkaError, Producer, Worker
from aiokafkawire.worker import WorkerRecord


class Order(msgspec.Struct):
    id: str
    customer: str
    total: Annotated[int, msgspec.Meta(ge=0)]


class Bills:
    """Totals by customer. A service would keep them in a database."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}
        self.billed: set[str] = set()

    async def bill(self, record: WorkerRecord[str, Order]) -> None:
        """Bill an order once: a record may be delivered again."""
        order = record.value
        if order.id not in self.billed:
            self.billed.add(order.id)
            self.totals[order.customer] = self.totals.get(order.customer, 0) + order.total


@asynccontextmanager
async def lifespan(app: Litestar) -> AsyncIterator[None]:
    servers = os.environ["KAFKA_BOOTSTRAP_SERVERS"]
    app.state.bills = Bills()
    worker = Worker(bootstrap_servers=servers, group_id="billing")
    worker.on("orders", order_by="key", key=str, value=Order)(app.state.bills.bill)
    async with (
        Producer(
            bootstrap_servers=servers,
            key_serializer=str,
            value_serializer=Order,
            max_block_ms=3_000,
            delivery_timeout_ms=10_000,
            request_timeout_ms=4_000,
        ) as app.state.producer,
        worker,
    ):
        yield


@post("/orders")
async def create_order(data: Order, state: State) -> dict[str, int]:
    producer: Producer[str, Order] = state.producer
    try:
        metadata = await producer.send_and_wait("orders", data, key=data.customer)
    except KafkaError as error:
        raise HTTPException(
            status_code=503 if error.retriable else 500, detail=str(error)
        ) from error
    return {"partition": metadata.partition, "offset": metadata.offset}


@get("/customers/{customer:str}")
async def show_total(customer: str, state: State) -> dict[str, int]:
    return {"total": state.bills.totals.get(customer, 0)}


app = Litestar([create_order, show_total], lifespan=[lifespan])
