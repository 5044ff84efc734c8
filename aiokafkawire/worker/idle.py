"""Waits until a worker has nothing left to do."""

from __future__ import annotations

import logging

from aiokafkawire.errors import KafkaError
from aiokafkawire.worker.session import WorkerSession

__all__ = ("wait_until_idle",)

logger = logging.getLogger("aiokafkawire.worker")

MIN_PAUSE_S = 0.002
MAX_PAUSE_S = 0.25
"""Limits of the pause between two looks at a worker; it doubles while nothing changes."""


async def wait_until_idle(session: WorkerSession, *, timeout_s: float, skip_delays: bool) -> None:
    """Wait until all records are processed, or the worker has ended.

    Args:
        session: A running worker.
        timeout_s: Limit in seconds, without the time in which only delayed records are left.
        skip_delays: Do not wait for delayed records and batches; process the next one at once.

    Raises:
        TimeoutError: The worker is not idle at the limit.
    """
    await _IdleWait(session, timeout_s, skip_delays=skip_delays).run()


class _IdleWait:
    def __init__(self, session: WorkerSession, timeout_s: float, *, skip_delays: bool) -> None:
        self._session = session
        self._scheduler = session.scheduler
        self._clock = session.runtime.clock
        self._timeout_s = timeout_s
        self._deadline = self._clock.now() + timeout_s
        self._skip_delays = skip_delays
        self._is_exactly_once = session.config.is_exactly_once

    async def run(self) -> None:
        """Return when the worker is idle or has ended."""
        pause_s, before = MIN_PAUSE_S, None
        while not self._session.ended.is_set():
            if await self._has_caught_up():
                if self._scheduler.next_due is None:
                    return
                await self._pass_delay()
            counters = self._session.executor.counters
            present = (counters.processed, counters.failed, self._scheduler.unfinished)
            pause_s = min(2 * pause_s, MAX_PAUSE_S) if present == before else MIN_PAUSE_S
            before = present
            now = self._clock.now()
            if now >= self._deadline:
                raise TimeoutError(f"not idle after {self._timeout_s:g} s: {self._left()}")
            await self._clock.sleep_until(min(now + pause_s, self._deadline))

    async def _has_caught_up(self) -> bool:
        """Return whether all records were fetched, and none can run before its delay has passed."""
        if self._is_exactly_once and not self._scheduler.is_busy:
            await self._session.committer.commit()  # it writes retries
        if not self._is_quiet():
            return False
        consumer = self._session.clients.consumer
        assigned = consumer.assignment()
        # Nothing is fetched from these before a delayed record is done.
        full = {work.tp for work in self._scheduler.partitions if work.is_paused}
        if full and self._scheduler.next_due is None:
            return False
        try:
            ends = await consumer.end_offsets(*assigned) if assigned else {}
            for tp, end in ends.items():
                if tp in full:
                    continue
                if await consumer.position(tp) < end:
                    return False
        except KafkaError as error:  # a partition was revoked, or its topic deleted
            logger.info("Waiting for an idle worker: %s", error)
            return False
        return self._is_quiet() and consumer.assignment() == assigned

    def _is_quiet(self) -> bool:
        if not self._session.has_been_assigned or self._scheduler.is_busy:
            return False
        return not (self._is_exactly_once and self._scheduler.offsets_to_commit())

    async def _pass_delay(self) -> None:
        """Let the next delayed record, or the next batch, become due."""
        due, now = self._scheduler.next_due, self._clock.now()
        assert due is not None
        # A write that failed would fail again at once.
        if self._skip_delays and not any(self._scheduler.unwritten):
            self._session.release_due(due)
        elif due > now:
            self._deadline += due - now
            await self._clock.sleep_until(due)

    def _left(self) -> str:
        """Return what the worker has not done."""
        if not self._session.has_been_assigned:
            return "no partitions were assigned"
        partitions = [
            f"{work.tp} has {unfinished} unfinished {'record' if unfinished == 1 else 'records'},"
            f" {len(work.running)} running"
            for work in self._scheduler.partitions
            if (unfinished := work.count_unfinished())
        ]
        return "; ".join(partitions) or "a partition has records that were not fetched"
