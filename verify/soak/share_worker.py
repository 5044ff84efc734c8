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


class Acceptances:
    """Reports the results of acceptances. The consumer also reports those of its own releases."""

    def __init__(self) -> None:
        self._waiting: set[tuple[int, int]] = set()

    def begin(self, records: Sequence[ShareRecord]) -> None:
        found = places(records)
        self._waiting.update(found)
        emit("accepting", spans=spans(found))

    def on_result(
        self, tp: TopicPartition, offsets: Sequence[int], error: AcknowledgementFailed | None
    ) -> None:
        found = self._waiting.intersection((tp.partition, offset) for offset in offsets)
        self._waiting -= found
        if error is None:
            emit("accepted", spans=spans(found))
        else:
            emit("failed", spans=spans(found), error=str(error))

    def accept(self, records: Sequence[ShareRecord]) -> None:
        """Accept what is still held; other records are delivered again."""
        for record in records:
            try:
                record.accept()
            except AcknowledgementFailed as error:
                tp = TopicPartition(record.topic, record.partition)
                self.on_result(tp, [record.offset], error)


async def work(servers: str, topic: str, group: str, mode: Any) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    consumer = ShareConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        share_acknowledgement_mode=mode,
        fetch_max_wait_ms=100,
    )
    acceptances = Acceptances()
    consumer.set_acknowledgement_commit_callback(acceptances.on_result)
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
            acceptances.begin(records)
            if mode == "explicit":
                acceptances.accept(records)
    emit("left")


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
