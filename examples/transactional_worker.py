"""Two workers that read orders and write invoices: exactly one per order, despite failures."""

from __future__ import annotations

import random

import anyio

from aiokafkawire import Broker, Consumer, Producer
from aiokafkawire.errors import CommitFailed, TransactionFailed

ORDERS = 1_000


class PrinterJammed(Exception):
    """An error of the application while it writes an invoice."""


def invoice(order: bytes) -> bytes:
    if random.random() < 0.005:
        raise PrinterJammed
    return b"invoice for " + order


async def work(name: str, bootstrap_servers: str) -> None:
    async with (
        Consumer(
            "orders",
            bootstrap_servers=bootstrap_servers,
            group_id="billing",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            max_poll_records=50,
        ) as consumer,
        Producer(
            bootstrap_servers=bootstrap_servers, transactional_id=f"billing-{name}"
        ) as producer,
    ):
        while True:
            # Call it between transactions: a rebalance then never interrupts one.
            batches = await consumer.getmany(timeout_ms=1_000)
            if not batches:
                continue
            try:
                async with producer.transaction():
                    for batch in batches.values():
                        for order in batch:
                            await producer.send(
                                "invoices", invoice(order.value or b""), key=order.key
                            )
                    await producer.send_offsets_to_transaction(consumer)
            except (TransactionFailed, CommitFailed, PrinterJammed) as error:
                print(f"{name}: aborted, back to the committed offsets: {error!r}")
                await consumer.seek_to_committed()


async def count_invoices(bootstrap_servers: str, finished: anyio.Event) -> None:
    seen: list[bytes | None] = []
    async with Consumer(
        "invoices",
        bootstrap_servers=bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        while len(seen) < ORDERS:
            for batch in (await consumer.getmany(timeout_ms=1_000)).values():
                seen.extend(batch.values())
    print(f"{len(seen)} invoices for {len(set(seen))} orders")
    finished.set()


async def main() -> None:
    async with Broker(nodes=3) as broker:
        servers = broker.bootstrap_servers
        await broker.create_topic("orders", partitions=6)
        await broker.create_topic("invoices", partitions=6)
        async with Producer(bootstrap_servers=servers) as producer:
            for number in range(ORDERS):
                await producer.send("orders", value=b"order %d" % number, key=b"%d" % number)
        finished = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work, "ann", servers)
            tasks.start_soon(work, "bob", servers)
            tasks.start_soon(count_invoices, servers, finished)
            await finished.wait()
            tasks.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(main)
