"""A running worker of a share group."""

from __future__ import annotations

from aiokafkawire.errors import CorruptRecord
from aiokafkawire.worker.acknowledger import Acknowledger, HeldRecordTracker
from aiokafkawire.worker.offset_tracker import OffsetTracker
from aiokafkawire.worker.session import POLL_TIMEOUT_MS, WorkerSession

__all__ = ("ShareWorkerSession",)


class ShareWorkerSession(WorkerSession):
    """The clients, the scheduler and the tasks of a worker of a share group (KIP-932).

    It takes at most as many records as handlers may run, so that each runs at once and its lock is
    renewed from then on. Nothing is paused or revoked: records stay locked for the worker until it
    acknowledges them.
    """

    def _make_committer(self) -> Acknowledger:
        return Acknowledger(
            self.clients.share_consumer,
            self.runtime.clock,
            self._supervisor.fields,
            rejects=self.config.on_exhausted == "reject",
        )

    def _make_tracker(self) -> OffsetTracker:
        assert isinstance(self.committer, Acknowledger)
        return HeldRecordTracker(self.committer)

    async def _subscribe(self) -> None:
        """Create the dead letter topic if it is missing, and subscribe."""
        if self.config.create_topics and self.config.on_exhausted == "dead_letter":
            async with self.clients.make_admin() as admin:
                await admin.ensure_topics([self.config.dead_letters])
        self.clients.share_consumer.subscribe(self._intake.topics)

    async def _poll(self) -> None:
        consumer, clock = self.clients.share_consumer, self.runtime.clock
        breaker = self.scheduler.breaker
        try:
            while True:
                self.polled_at = clock.now()
                if consumer.assignment():
                    self.has_been_assigned = True
                room = self.config.concurrency - self.scheduler.unfinished
                # A fetch must not acquire more, as their locks would not be renewed.
                can_take = room >= consumer.config.max_poll_records or (
                    room > 0 and consumer.metrics()["buffered_records"] > 0
                )
                if not can_take or (breaker is not None and not breaker.can_start):
                    await self._pool.wait_for_ended_item(clock.now() + POLL_TIMEOUT_MS / 1_000)
                    continue
                try:
                    batches = await consumer.getmany(timeout_ms=POLL_TIMEOUT_MS, max_records=room)
                except CorruptRecord as error:
                    if self.config.on_exhausted == "stop":
                        raise
                    self._intake.add_corrupt(consumer.corrupt_records(error), error)
                    self._pool.wake()
                    continue
                for tp, records in batches.items():
                    self._intake.add(tp, records)
                if batches:
                    self._pool.wake()
        except Exception as error:
            self.end(error)

    async def _stop_clients(self) -> None:
        try:
            await super()._stop_clients()
        except CorruptRecord:
            # Its records are not acknowledged, so that another worker gets them.
            if self.config.on_exhausted == "stop":
                raise

    def _update_pauses(self) -> None:
        """Pause nothing: records are taken only if their handlers can run."""
