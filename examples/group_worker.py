"""A group of two workers that commit the offsets of processed records."""

from __future__ import annotations

import anyio

from aiokafkawire import Broker, Consumer, Producer

ORDERS = 1_000


async def work(name: str, bootstrap_servers: str, done: list[bytes], finished: anyio.Event) -> None:
    async with Consumer(
        "orders",
        bootstrap_servers=bootstrap_servers,
        group_id="billing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        async for batch in consumer.batches():
            done.extend(record.value or b"" for record in batch)
            await consumer.commit(batch)
            print(f"{name}: {batch.topic_partition} up to offset {batch.last_offset}")
            if len(done) >= ORDERS:
                finished.set()


async def main() -> None:
    async with Broker(nodes=3) as broker:
        await broker.create_topic("orders", partitions=6)
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(ORDERS):
                await producer.send("orders", value=b"order %d" % number, key=b"%d" % number)
        done: list[bytes] = []
        finished = anyio.Event()
        async with anyio.create_task_group() as workers:
            for name in ("ann", "bob"):
                workers.start_soon(work, name, broker.bootstrap_servers, done, finished)
            await finished.wait()
            workers.cancel_scope.cancel()
        print(f"{len(set(done))} orders billed")


if __name__ == "__main__":
    anyio.run(main)
