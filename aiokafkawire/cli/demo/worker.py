"""One worker of the demo, a process: `python -m aiokafkawire.cli.demo.worker`.

Counts the words of its assigned partitions, and stores the counts together with the offsets of the
counted records; see `results`. Ends when stdin closes.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Collection
from pathlib import Path

import anyio
import anyio.to_thread

from aiokafkawire.cli.demo.children import cancel_at_end_of_stdin, send_event
from aiokafkawire.cli.demo.inputs import count_words
from aiokafkawire.cli.demo.results import Results, Tally
from aiokafkawire.cli.run_loop import BACKENDS
from aiokafkawire.consumer import Consumer, RebalanceListener
from aiokafkawire.errors import CommitFailed
from aiokafkawire.records import Records
from aiokafkawire.types import TopicPartition

__all__ = ("WordCounter", "main", "make_tally", "work")

SESSION_TIMEOUT_MS = 6_000
HEARTBEAT_INTERVAL_MS = 1_000
MAX_POLL_RECORDS = 5_000
FETCH_MIN_BYTES = 64 * 1024
FETCH_MAX_WAIT_MS = 100
POLL_MS = 500
CLOSE_TIMEOUT_MS = 5_000


class WordCounter(RebalanceListener):
    """Counts the records of a consumer; the rebalance listener of the consumer."""

    def __init__(self, consumer: Consumer, results: Results) -> None:
        self._consumer = consumer
        self._results = results
        self._positions: dict[TopicPartition, int] = {}

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Seek to the positions in the results, regardless of committed offsets."""
        await self._find(partitions)
        send_event(
            "assigned",
            partitions=sorted(tp.partition for tp in self._positions),
            positions=_by_number(self._positions),
        )

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Do nothing: all delivered records are already counted and stored."""
        for tp in partitions:
            self._positions.pop(tp, None)
        send_event("revoked")

    async def run(self) -> None:
        """Count until cancelled."""
        while True:
            given = await self._consumer.getmany(timeout_ms=POLL_MS, max_records=MAX_POLL_RECORDS)
            if given:
                await self._count(given)

    async def _count(self, given: dict[TopicPartition, Records]) -> None:
        tallies = [
            make_tally(records, self._positions[tp]) for tp, records in given.items() if records
        ]
        late = set(await anyio.to_thread.run_sync(self._results.add, tallies))
        for tp, records in given.items():
            self._positions[tp] = records.next_offset
        if late:
            send_event("late", partitions=sorted(late))
            await self._find([tp for tp in given if tp.partition in late])
        counted = {tp: self._positions[tp] for tp in given if tp.partition not in late}
        send_event(
            "counted",
            records=sum(len(tally.lines) for tally in tallies if tally.partition not in late),
            positions=_by_number(counted),
        )
        try:
            await self._consumer.commit(counted)
        except CommitFailed:
            # For Kafka's tools only: the results store their own offsets.
            send_event("uncommitted")

    async def _find(self, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:
            position = await anyio.to_thread.run_sync(self._results.position, tp.partition)
            self._positions[tp] = position
            self._consumer.seek(tp, position)


def make_tally(records: Records, first_offset: int) -> Tally:
    """Count the records of one partition that were fetched from `first_offset`."""
    return Tally(
        partition=records.partition,
        first_offset=first_offset,
        next_offset=records.next_offset,
        lines=array("I", map(int, filter(None, records.keys()))),
        words=count_words(value or b"" for value in records.values()),
    )


def _by_number(positions: dict[TopicPartition, int]) -> dict[int, int]:
    return {tp.partition: position for tp, position in positions.items()}


async def work(servers: str, topic: str, path: Path) -> None:
    """Run a worker until stdin closes."""
    results = Results(path)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(cancel_at_end_of_stdin, group.cancel_scope)
            await _count(servers, topic, results)
    finally:
        results.close()


async def _count(servers: str, topic: str, results: Results) -> None:
    async with Consumer(
        bootstrap_servers=servers,
        client_id="aiokafkawire-demo",
        group_id=topic,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
        fetch_min_bytes=FETCH_MIN_BYTES,
        fetch_max_wait_ms=FETCH_MAX_WAIT_MS,
        close_timeout_ms=CLOSE_TIMEOUT_MS,
    ) as consumer:
        counter = WordCounter(consumer, results)
        consumer.subscribe([topic], listener=counter)
        await counter.run()


def main(servers: str, topic: str, path: str, backend: str) -> None:
    library, options = BACKENDS[backend]
    anyio.run(work, servers, topic, Path(path), backend=library, backend_options=options)


if __name__ == "__main__":
    main(*sys.argv[1:])
