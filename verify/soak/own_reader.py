"""Contents of the brokers, read with aiokafkawire, to compare with another client."""

from __future__ import annotations

from functools import partial
from typing import Literal

import anyio

from aiokafkawire import Consumer, TopicPartition

READ_TIMEOUT_SECONDS = 120.0


def records(
    servers: str, topic: str, partitions: int, *, committed: bool = False
) -> dict[int, list[tuple[int, bytes]]]:
    """Return (offset, value) of each record of each partition up to its current end: all, or
    those that a `read_committed` consumer sees."""
    return anyio.run(
        partial(
            _records,
            servers,
            [TopicPartition(topic, number) for number in range(partitions)],
            "read_committed" if committed else "read_uncommitted",
        )
    )


async def _records(
    servers: str,
    tps: list[TopicPartition],
    isolation_level: Literal["read_committed", "read_uncommitted"],
) -> dict[int, list[tuple[int, bytes]]]:
    found: dict[int, list[tuple[int, bytes]]] = {}
    async with Consumer(
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        isolation_level=isolation_level,
    ) as consumer:
        consumer.assign(*tps)
        ends = await consumer.end_offsets(*tps)
        with anyio.fail_after(READ_TIMEOUT_SECONDS):
            while {tp: await consumer.position(tp) for tp in tps} != ends:
                for tp, batch in (await consumer.getmany(timeout_ms=200)).items():
                    entries = [(record.offset, bytes(record.value or b"")) for record in batch]
                    found.setdefault(tp.partition, []).extend(entries)
    return found
