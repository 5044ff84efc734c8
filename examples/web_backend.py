"""One producer for the lifetime of a web application.

The application is plain ASGI, so any server runs it: `app = App("localhost:9092")` in a module, and
`uvicorn module:app`. Here it is called directly, with an embedded broker behind it. With a
framework the code is shorter: see docs/recipes/fastapi.md and docs/recipes/django.md.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import anyio

from aiokafkawire import Broker, KafkaError, Producer

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MAX_BODY_BYTES = 1024 * 1024
"""Default of `max_request_size_bytes`; the producer rejects a larger body."""


class App:
    """POST a body to /orders: status 201 means that Kafka has acknowledged it.

    GET /health/live sends no request to Kafka, GET /health/ready asks the leaders of the topic.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.producer: Producer | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.lifespan(receive, send)
            return
        status, answer = 200, {}
        try:
            match scope["method"], scope["path"]:
                case "POST", "/orders":
                    status, answer = 201, await self.create_order(receive)
                case "GET", "/health/live":
                    pass
                case "GET", "/health/ready":
                    answer = await self.ready()
                case _:
                    status = 404
        except KafkaError as error:
            status, answer = 503 if error.retriable else 500, {"error": str(error)}
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    async def lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        async with Producer(
            bootstrap_servers=self.bootstrap_servers,
            connect_on_start=False,  # the service may start before Kafka
            max_block_ms=3_000,
            request_timeout_ms=4_000,
            delivery_timeout_ms=10_000,
            close_timeout_ms=10_000,
        ) as self.producer:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def create_order(self, receive: Receive) -> dict[str, Any]:
        assert self.producer is not None
        order, more = b"", True
        while more and len(order) <= MAX_BODY_BYTES:
            message = await receive()
            order += message.get("body", b"")
            more = message.get("more_body", False)
        metadata = await self.producer.send_and_wait("orders", value=order)
        return {"partition": metadata.partition, "offset": metadata.offset}

    async def ready(self) -> dict[str, Any]:
        assert self.producer is not None
        result = await self.producer.ping(timeout_ms=1_000, topic="orders")
        return {"brokers": len(result.brokers)}


async def main() -> None:
    async with Broker() as broker, anyio.create_task_group() as server:
        app = App(broker.bootstrap_servers)
        to_app, events = anyio.create_memory_object_stream[Message](1)
        from_app, sent = anyio.create_memory_object_stream[Message](1)
        with to_app, events, from_app, sent:
            server.start_soon(app, {"type": "lifespan"}, events.receive, from_app.send)
            await to_app.send({"type": "lifespan.startup"})
            print((await sent.receive())["type"])

            async def body() -> Message:
                return {"type": "http.request", "body": b'{"book": 1}'}

            async def show(message: Message) -> None:
                print(message.get("status", message.get("body")))

            for method, path in (("POST", "/orders"), ("GET", "/health/ready")):
                await app({"type": "http", "method": method, "path": path}, body, show)
            await to_app.send({"type": "lifespan.shutdown"})
            print((await sent.receive())["type"])


if __name__ == "__main__":
    anyio.run(main)
