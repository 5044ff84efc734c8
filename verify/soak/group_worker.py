"""A member of a group in a process of its own, which reports its actions as JSON lines.

    python -m verify.soak.group_worker BOOTSTRAP TOPIC GROUP STRATEGY SESSION_MS

`at` is the system's monotonic clock in seconds, the same for all processes. Lines: `owns` (the
partitions, when they change), `revoked` and `lost`, `read` (spans that are processed), `committing`
and `committed` or `refused`. SIGTERM makes it leave the group and end.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Collection
from typing import Any

from aiokafkawire import Consumer, KafkaError, TopicPartition
from aiokafkawire.consumer import RebalanceListener
from aiokafkawire.errors import CommitFailed

POLL_MS = 100


def emit(what: str, **facts: Any) -> None:
    print(json.dumps({"at": time.monotonic(), "what": what, **facts}), flush=True)


def numbers(partitions: Collection[TopicPartition]) -> list[int]:
    return sorted(partition.partition for partition in partitions)


class Listener(RebalanceListener):
    """Emits assigned, revoked and lost partitions; with the cooperative protocol only the
    changes."""

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        emit("assigned", partitions=numbers(partitions))

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        emit("revoked", partitions=numbers(partitions))

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        emit("lost", partitions=numbers(partitions))


async def commit(consumer: Consumer, ends: dict[TopicPartition, int]) -> None:
    places = [[tp.partition, offset] for tp, offset in ends.items()]
    emit("committing", places=places)
    try:
        await consumer.commit(ends)
    except CommitFailed:
        # Records of revoked partitions are delivered again, elsewhere.
        emit("refused", places=places)
    except KafkaError as error:
        if not error.retriable:
            raise
        emit("in doubt", places=places, error=str(error))
    else:
        emit("committed", places=places)


async def work(servers: str, topic: str, group: str, strategy: str, session_ms: str) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    consumer = Consumer(
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=int(session_ms),
        heartbeat_interval_ms=max(int(session_ms) // 10, 100),
        partition_assignment_strategy=[strategy],
        fetch_max_wait_ms=100,
    )
    consumer.subscribe([topic], listener=Listener())
    async with consumer:
        emit("entered")
        owned: list[int] = []
        while not stop.is_set():
            found = await consumer.getmany(timeout_ms=POLL_MS)
            if (now := numbers(list(consumer.assignment()))) != owned:
                owned = now
                emit("owns", partitions=owned)
            if found:
                spans = [[tp.partition, r.first_offset, r.next_offset] for tp, r in found.items()]
                emit("read", spans=spans)
                await commit(consumer, {tp: r.next_offset for tp, r in found.items()})
    emit("left")


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
