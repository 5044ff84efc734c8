"""Measurements by HTTP, many at a time, acknowledged when Kafka has them.

`python app.py` runs it; `KAFKA_BOOTSTRAP_SERVERS` names the brokers.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

from aiohttp import web

from aiokafkawire import KafkaError, Producer

PRODUCER = web.AppKey("producer", Producer[str, dict[str, float]])


async def run_producer(app: web.Application) -> AsyncIterator[None]:
    async with Producer(
        bootstrap_servers=os.environ["KAFKA_BOOTSTRAP_SERVERS"],
        key_serializer=str,
        value_serializer=dict,
        connect_on_start=False,  # the service may start before Kafka
        max_block_ms=3_000,
        delivery_timeout_ms=10_000,
        request_timeout_ms=4_000,
    ) as app[PRODUCER]:
        yield


async def measure(request: web.Request) -> web.Response:
    """Write the measurements of one sensor, and respond when all are acknowledged.

    After an error some of them may be stored.
    """
    sensor = request.match_info["sensor"]
    measurements = await request.json()
    producer = request.app[PRODUCER]
    try:
        deliveries = await producer.send_many(
            "measurements", measurements, keys=[sensor] * len(measurements)
        )
        offsets = [(await delivery).offset for delivery in deliveries]
    except KafkaError as error:
        raise web.HTTPServiceUnavailable(text=str(error)) from error
    return web.json_response({"offsets": offsets}, status=201)


async def ready(request: web.Request) -> web.Response:
    try:
        result = await request.app[PRODUCER].ping(timeout_ms=1_000)
    except KafkaError as error:
        raise web.HTTPServiceUnavailable(text=str(error)) from error
    return web.json_response({"latency_ms": result.latency_ms})


def make_app() -> web.Application:
    app = web.Application()
    app.cleanup_ctx.append(run_producer)
    app.add_routes([web.post("/sensors/{sensor}", measure), web.get("/health/ready", ready)])
    return app


if __name__ == "__main__":
    web.run_app(make_app(), host="127.0.0.1", port=8080)
