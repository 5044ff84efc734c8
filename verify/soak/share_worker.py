"""A member of a share group in a process of its own, which reports its actions as JSON lines.

    python -m verify.soak.share_worker BOOTSTRAP TOPIC GROUP MODE

MODE is `implicit` or `explicit`. Lines: `delivered` (spans of each delivery count), `accepting`
(spans that are about to be accepted), `accepted` and `failed` (spans with a result). `at` is as in
`verify.soak.group_worker`. SIGTERM makes it leave the group and end.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from aiokafkawire import AcknowledgementFailed, ShareConsumer, ShareRecord, TopicPartition
from verify.soak.group_worker import POLL_MS, emit

RELEASE_TIMEOUT_MS = 5_000
"""Limit of a request: a broker that dies without a word must not hold the records for long."""


def spans(offsets: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Return runs of consecutive offsets as [partition, first, end] each."""
    found: list[list[int]] = []
    for partition, offset in sorted(offsets):
        if found and found[-1][0] == partition and found[-1][2] == offset:
            found[-1][2] += 1
        else:
            found.append([partition, offset, offset + 1])
    return found


def places(records: Iterable[ShareRecord]) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for record in records]


def emit_delivered(records: Sequence[ShareRecord]) -> None:
    by_count: dict[int, list[ShareRecord]] = defaultdict(list)
    for record in records:
        by_count[record.delivery_count].append(record)
    emit("delivered", counts={count: spans(places(some)) for count, some in by_count.items()})


def on_result(
    tp: TopicPartition, offsets: Sequence[int], error: AcknowledgementFailed | None
) -> None:
    found = spans((tp.partition, offset) for offset in offsets)
    if error is None:
        emit("accepted", spans=found)
    else:
        emit("failed", spans=found, error=str(error))


def accept(records: Iterable[ShareRecord]) -> None:
    """Accept what is still held; other records are delivered again."""
    for record in records:
        try:
            record.accept()
        except AcknowledgementFailed as error:
            emit("failed", spans=spans(places([record])), error=str(error))


async def work(servers: str, topic: str, group: str, mode: Any) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    consumer = ShareConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        share_acknowledgement_mode=mode,
        fetch_max_wait_ms=100,
        request_timeout_ms=RELEASE_TIMEOUT_MS,
    )
    consumer.set_acknowledgement_callback(on_result)
    async with consumer:
        emit("entered")
        while not stop.is_set():
            found = await consumer.getmany(timeout_ms=POLL_MS)
            records = [record for some in found.values() for record in some]
            if not records:
                continue
            emit_delivered(records)
            # The work on the records.
            await asyncio.sleep(0.01)
            emit("accepting", spans=spans(places(records)))
            if mode == "explicit":
                accept(records)
    emit("left")


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
