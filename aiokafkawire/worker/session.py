"""A running worker: its clients and tasks."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import anyio

from aiokafkawire.admin import Admin
from aiokafkawire.config import WorkerConfig
from aiokafkawire.consumer import Consumer, RebalanceListener
from aiokafkawire.errors import ClientClosed, CommitFailed, KafkaError
from aiokafkawire.logs import count_partitions, log_fields
from aiokafkawire.producer import Producer
from aiokafkawire.records import Record, Records
from aiokafkawire.runtime import (
    NEVER,
    AutoResetEvent,
    Runtime,
    Session,
    Supervisor,
    checkpoint,
    with_runtime,
)
from aiokafkawire.types import TopicPartition
from aiokafkawire.worker.executor import Executor, HandlerFailed
from aiokafkawire.worker.failed_records import (
    FailedRecordWriter,
    RetryTopic,
    ensure_topics,
    retry_topics,
)
from aiokafkawire.worker.handlers import Handler, WorkerRecord
from aiokafkawire.worker.health_server import HealthServer
from aiokafkawire.worker.letters import read_retry_state
from aiokafkawire.worker.outcomes import DeadLetter
from aiokafkawire.worker.retry_policy import RetryPolicy
from aiokafkawire.worker.scheduler import PartitionWork, Scheduler, WorkItem

__all__ = ("ClientOptionSets", "WorkerSession")

logger = logging.getLogger("aiokafkawire.worker")

POLL_TIMEOUT_MS = 1_000
"""Timeout of one call for records."""


def _reject(record: WorkerRecord[Any, Any]) -> None:
    raise DeadLetter("no handler: its topic has none any more, or another program wrote it")


NO_HANDLER = Handler(
    function=_reject,
    topics=(),
    order_by=None,
    decode_key=None,
    decode_value=None,
    timeout_s=None,
    retries=RetryPolicy(),
)
"""Handler of records in retry topics that belong to no handler."""


class ClientOptionSets:
    """Keyword arguments of the clients of a worker.

    Attributes:
        common: Options of all clients.
        consumer: Options of the consumer alone.
        producer: Options of the producer alone.
    """

    def __init__(
        self,
        common: Mapping[str, Any],
        consumer: Mapping[str, Any],
        producer: Mapping[str, Any],
    ) -> None:
        self.common = common
        self.consumer = consumer
        self.producer = producer

    def make_consumer(self, config: WorkerConfig) -> Consumer:
        """Return the consumer of a worker."""
        return Consumer(
            **{
                "auto_offset_reset": "earliest",
                "partition_assignment_strategy": ["cooperative-sticky"],
                **self.common,
                **self.consumer,
                "group_id": config.group_id,
                "enable_auto_commit": False,
                "rebalance_callback_timeout_ms": config.drain_timeout_ms
                + config.default_api_timeout_ms,
            }
        )

    def make_producer(self) -> Producer:
        """Return the producer of retries and dead letters."""
        return Producer(**{**self.common, **self.producer})

    def make_admin(self) -> Admin:
        """Return an admin client."""
        return Admin(**self.common)


class WorkerSession(Session, RebalanceListener):
    """The clients, the scheduler and the tasks of a running worker.

    Attributes:
        ended: Set when the worker failed or is to stop.
        failure: Why it failed: an exception of a handler or of Kafka.
    """

    def __init__(
        self,
        config: WorkerConfig,
        options: ClientOptionSets,
        handlers: Sequence[Handler],
        runtime: Runtime,
        supervisor: Supervisor,
    ) -> None:
        self.config = config
        self.runtime = runtime
        self.ended = anyio.Event()
        self.failure: BaseException | None = None
        self.has_been_assigned = False
        self.health_server: HealthServer | None = None
        self.scheduler = Scheduler(
            max_records=config.max_buffered_records, max_bytes=config.max_buffered_bytes
        )
        self.consumer = with_runtime(options.make_consumer(config), runtime)
        self.producer = with_runtime(options.make_producer(), runtime)
        self._options = options
        self._supervisor = supervisor
        self._fields = supervisor.fields
        self._writer = FailedRecordWriter(config, self.producer, runtime.clock, self._fields)
        self.executor = Executor(
            self.scheduler,
            self._writer,
            runtime,
            threads=config.threads,
            stop_on_failure=config.on_exhausted == "stop",
            fields=self._fields,
        )
        self._handlers = {topic: handler for handler in handlers for topic in handler.topics}
        self._retry_topics: dict[str, RetryTopic] = retry_topics(config.group, handlers)
        self._executors = 0
        self._idle: list[AutoResetEvent] = []
        self._item_ended = AutoResetEvent()
        self._waits_for_handlers = True
        self.polled_at = runtime.clock.now()
        self._due_changed = AutoResetEvent()
        self._next_due: float | None = None
        self._commit_lock = anyio.Lock()

    # --- start and stop ---

    async def start(self) -> None:
        """Create topics, start the clients and the tasks."""
        writes_letters = self.config.on_exhausted == "dead_letter"
        if self.config.create_topics:
            letters = [self.config.dead_letters] if writes_letters else []
            admin = with_runtime(self._options.make_admin(), self.runtime)
            async with admin:
                await ensure_topics(admin, [*self._retry_topics, *letters])
        self.consumer.subscribe([*self._handlers, *self._retry_topics], listener=self)
        await self.producer.start()
        try:
            await self.consumer.start()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.producer.stop()
            raise
        self._poll_task = self._supervisor.spawn(self._poll, name="poll")
        self._supervisor.spawn(self._release_due, name="release due records")
        self._supervisor.spawn(self._commit_periodically, name="commit")

    async def close(self, drain_deadline: float) -> None:
        """Finish running handlers up to a deadline, commit, and close the clients."""
        logger.info(
            "Group %s: worker stops after its running handlers, at most %g s",
            self.config.group_id,
            max(0.0, drain_deadline - self.runtime.clock.now()),
            extra=log_fields(self._fields),
        )
        self._poll_task.cancel()
        await self._poll_task.wait()
        assigned = [work.tp for work in self.scheduler.partitions]
        await self._drain(assigned, drain_deadline)
        await self._commit(assigned)
        self.scheduler.remove(assigned)
        try:
            await self.consumer.stop()
        finally:
            try:
                await self.producer.stop()
            finally:
                if self.health_server is not None:
                    await self.health_server.aclose()

    def end(self, failure: BaseException | None = None) -> None:
        """Let the worker stop."""
        if self.failure is None:
            self.failure = failure
        self.ended.set()

    def on_task_failed(self, failure: KafkaError) -> None:
        self.end(failure)

    def on_tasks_cancelled(self, error: ClientClosed) -> None:
        self.end(error)

    # --- fetching ---

    async def _poll(self) -> None:
        try:
            while True:
                self._update_pauses()
                batches = await self.consumer.getmany(timeout_ms=POLL_TIMEOUT_MS)
                self.polled_at = self.runtime.clock.now()
                for tp, records in batches.items():
                    self._add(tp, records)
                if batches:
                    self._check_due()
                    self._wake_executors()
        except Exception as error:
            self.end(error)

    def _update_pauses(self) -> None:
        pauses = self.scheduler.update_pauses()
        if pauses.pause:
            self.consumer.pause(*pauses.pause)
        if pauses.resume:
            self.consumer.resume(*pauses.resume)

    def _add(self, tp: TopicPartition, batch: Records) -> None:
        """Add the records of a batch to the scheduler."""
        work, records = self.scheduler.partition(tp), list(batch)
        work.offsets.add(records)
        retry = self._retry_topics.get(tp.topic)
        if retry is not None:
            for record in records:
                self.scheduler.add(self._delayed_item(record, work, retry))
            return
        handler = self._handlers[tp.topic]
        for key, group in handler.group(records):
            self.scheduler.add(WorkItem(group, work, handler, key))

    def _delayed_item(self, record: Record, work: PartitionWork, retry: RetryTopic) -> WorkItem:
        """Return the item of a record of a retry topic."""
        clock = self.runtime.clock
        try:
            state = read_retry_state(record)
            handler = self._handlers[state.origin.topic]
        except (ValueError, KeyError):
            return WorkItem([record], work, NO_HANDLER)
        # The order of a partition is lost here, and that of keys is kept within the topic.
        key = None if handler.order_by == "partition" else handler.ordering_key(record)
        item = WorkItem([record], work, handler, key)
        item.tier = state.tier
        item.earlier_attempts = state.attempts
        item.first_failure_ms = state.first_failure_ms
        # Clocks differ between hosts, so the delay is bounded by that of the topic.
        wait_ms = min(state.not_before_ms - clock.wall_ms(), retry.delay_ms)
        item.due = clock.now() + max(0, wait_ms) / 1_000
        return item

    # --- processing ---

    def _wake_executors(self) -> None:
        """Let as many executors run as there are ready items."""
        for _ in range(self.scheduler.ready):
            if self._idle:
                self._idle.pop().set()
            elif self._executors < self.config.concurrency and self._supervisor.is_running:
                self._executors += 1
                self._supervisor.spawn(self._execute, name=f"executor {self._executors}")
            else:
                return

    async def _execute(self) -> None:
        """Process ready items, one at a time."""
        scheduler, executor, now = self.scheduler, self.executor, self.runtime.clock.now
        wake = AutoResetEvent()
        while True:
            item = scheduler.take(now())
            if item is None:
                self._idle.append(wake)
                await wake.wait()
                continue
            try:
                await executor.run(item)
            except HandlerFailed as failed:
                scheduler.drain([work.tp for work in scheduler.partitions])
                scheduler.retry(item, NEVER)
                self.end(failed.__cause__)
            self._item_ended.set()
            self._check_due()
            if scheduler.may_resume(item):
                self._update_pauses()
            await checkpoint()

    def _check_due(self) -> None:
        """Let `_release_due` know if the next delayed record is another one."""
        if self.scheduler.next_due != self._next_due:
            self._due_changed.set()

    async def _release_due(self) -> None:
        """Wake executors when delayed records are due."""
        while True:
            self._next_due = self.scheduler.next_due
            await self._due_changed.wait(NEVER if self._next_due is None else self._next_due)
            self.scheduler.release_due(self.runtime.clock.now())
            self._wake_executors()

    # --- rebalances ---

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Prepare for the records of new partitions."""
        self.has_been_assigned = True
        for tp in partitions:
            self.scheduler.partition(tp)

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Finish the running records of partitions, commit, and fence the partitions."""
        deadline = self.runtime.clock.now() + self.config.drain_timeout_ms / 1_000
        await self._drain(partitions, deadline)
        await self._commit(partitions)
        self.scheduler.remove(partitions)

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Fence partitions that another member may own already."""
        self.scheduler.remove(partitions)

    async def _drain(self, partitions: Collection[TopicPartition], deadline: float) -> None:
        self.scheduler.drain(partitions)
        while self._waits_for_handlers and not self.scheduler.is_drained(partitions):
            if not await self._item_ended.wait(deadline):
                logger.warning(
                    "Group %s: handlers of %s still run after the drain timeout; their records are"
                    " delivered again",
                    self.config.group_id,
                    count_partitions(partitions),
                    extra=log_fields(self._fields),
                )
                return

    def stop_waiting(self) -> None:
        """Wait no longer for running handlers."""
        self._waits_for_handlers = False
        self._item_ended.set()

    # --- commits ---

    async def _commit_periodically(self) -> None:
        clock, interval_s = self.runtime.clock, self.config.commit_interval_ms / 1_000
        while True:
            await clock.sleep_until(clock.now() + interval_s)
            await self._commit()

    async def _commit(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Commit the offsets of finished records; failures are logged, and repeated later."""
        async with self._commit_lock:
            offsets = self.scheduler.offsets_to_commit(partitions)
            if not offsets:
                return
            try:
                await self.consumer.commit(offsets)
            except KafkaError as error:
                self.executor.counters.commit_failures += 1
                logger.log(
                    logging.INFO if isinstance(error, CommitFailed) else logging.WARNING,
                    "Group %s: commit of %s failed: %s",
                    self.config.group_id,
                    count_partitions(offsets),
                    error,
                    extra=log_fields(self._fields, error=error),
                )
            else:
                self.scheduler.mark_committed(offsets)
