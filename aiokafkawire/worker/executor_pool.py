"""The tasks that process ready items."""

from __future__ import annotations

from collections.abc import Callable, Collection

from aiokafkawire.runtime import NEVER, AutoResetEvent, Clock, Supervisor, checkpoint, current_task
from aiokafkawire.types import TopicPartition
from aiokafkawire.worker.executor import MAX_RECORDS_PER_RUN, Executor, HandlerFailed
from aiokafkawire.worker.failure_log import log_exit
from aiokafkawire.worker.scheduler import Scheduler

__all__ = ("ExecutorPool",)

EXECUTORS_PER_WAKE = 2


class ExecutorPool:
    """Starts executor tasks as they are needed, and wakes them when items are ready.

    Args:
        scheduler: Gives the items.
        executor: Processes an item.
        supervisor: Runs the tasks.
        clock: Says which delayed items are due.
        concurrency: Maximum number of tasks.
        on_failure: Called with the exception of a handler that stops the worker.
        resume: Called when partitions may be resumed.

    Attributes:
        drain_deadline: Deadline of the `drain` that runs; None if none does.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        supervisor: Supervisor,
        clock: Clock,
        *,
        concurrency: int,
        on_failure: Callable[[BaseException | None], None],
        resume: Callable[[], None],
    ) -> None:
        self._scheduler = scheduler
        self.executor = executor
        self._supervisor = supervisor
        self._clock = clock
        self._concurrency = concurrency
        self._on_failure = on_failure
        self._resume = resume
        self._tasks = 0
        self._running: set[object] = set()  # the tasks
        self._idle: list[AutoResetEvent] = []
        self._next_due: float | None = None
        self._due_changed = AutoResetEvent()
        self._item_ended = AutoResetEvent()
        self._waits_for_handlers = True
        self.drain_deadline: float | None = None

    def start(self) -> None:
        """Start the task that wakes executors for delayed items."""
        self._supervisor.spawn(self._release_due, name="release due records")

    def wake(self) -> None:
        """Let executors run if items are ready."""
        self._check_due()
        self._wake_executors()

    def _wake_executors(self) -> None:
        """Wake up to two executors; each of them wakes two more while items are ready.

        So all of them run within a few passes of the event loop if handlers wait, and few if they
        do not.
        """
        for _ in range(min(EXECUTORS_PER_WAKE, self._scheduler.count_ready(EXECUTORS_PER_WAKE))):
            if self._idle:
                self._idle.pop().set()
            elif self._tasks < self._concurrency and self._supervisor.is_running:
                self._tasks += 1
                self._supervisor.spawn(self._execute, name=f"executor {self._tasks}")
            else:
                return

    async def drain(self, partitions: Collection[TopicPartition], deadline: float) -> bool:
        """Start no more records of partitions, and wait for those that run.

        Returns:
            False if records still run at the deadline, or after `stop_waiting`.
        """
        self._scheduler.drain(partitions)
        self.drain_deadline = deadline
        try:
            while not self._scheduler.is_drained(partitions):
                if not self._waits_for_handlers or not await self._item_ended.wait(deadline):
                    break
        finally:
            self.drain_deadline = None
        return self._scheduler.is_drained(partitions)

    async def wait_for_ended_item(self, deadline: float) -> None:
        """Wait until an executor has ended or delayed an item; for one task at a time."""
        await self._item_ended.wait(deadline)

    def stop_waiting(self) -> None:
        """Let `drain` wait no longer for running handlers."""
        self._waits_for_handlers = False
        self._item_ended.set()

    def is_executor(self, task: object) -> bool:
        """Return whether a task runs handlers."""
        return task in self._running

    async def _execute(self) -> None:
        """Process ready items, one at a time."""
        task = current_task()
        self._running.add(task)
        try:
            await self._execute_items()
        finally:
            self._running.discard(task)

    async def _execute_items(self) -> None:
        scheduler, executor, now = self._scheduler, self.executor, self._clock.now
        wake = AutoResetEvent()
        left = MAX_RECORDS_PER_RUN
        while True:
            item = scheduler.take(now())
            if item is None:
                self._idle.append(wake)
                await wake.wait()
                left = MAX_RECORDS_PER_RUN
                continue
            if left == MAX_RECORDS_PER_RUN:
                self._wake_executors()
            before = item.index
            try:
                await executor.run(item)
            except (HandlerFailed, SystemExit) as failed:
                # The record stays unfinished, so that it is not committed. `sys.exit` in a handler
                # would end the event loop at once.
                scheduler.drain([work.tp for work in scheduler.partitions])
                if isinstance(failed, SystemExit):
                    log_exit(item, failed, self._supervisor.fields)
                scheduler.abandon(item)
                self._on_failure(failed if isinstance(failed, SystemExit) else failed.__cause__)
            except BaseException:
                scheduler.abandon(item)
                self._item_ended.set()
                raise
            self._item_ended.set()
            if item.partition.is_fenced:
                self._wake_executors()  # records of the next assignment may have waited for it
            if scheduler.breaker is not None:
                scheduler.breaker.on_ended(item)
                self.wake()  # a pause may be over
            self._check_due()
            if scheduler.may_resume(item):
                self._resume()
            left -= max(1, item.index - before)
            if left <= 0:
                await checkpoint()
                left = MAX_RECORDS_PER_RUN

    def _check_due(self) -> None:
        """Let `_release_due` know if the next delayed item is another one."""
        if self._scheduler.next_due != self._next_due:
            self._due_changed.set()

    async def _release_due(self) -> None:
        """Wake executors when delayed items are due."""
        while True:
            self._next_due = self._scheduler.next_due
            await self._due_changed.wait(NEVER if self._next_due is None else self._next_due)
            self.release_due(self._clock.now())

    def release_due(self, now: float) -> None:
        """Let the delayed items run that are due at `now`."""
        self._scheduler.release_due(now)
        self.wake()
