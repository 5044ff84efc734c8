"""A running worker: its clients and tasks."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress

import anyio

from aiokafkawire.config import WorkerConfig
from aiokafkawire.consumer import RebalanceListener
from aiokafkawire.errors import ClientClosed, CommitFailed, KafkaError, ProducerFenced
from aiokafkawire.logs import count_partitions, log_fields
from aiokafkawire.runtime import NEVER, CloseDeadline, Runtime, Session, Supervisor
from aiokafkawire.types import TopicPartition
from aiokafkawire.worker.acknowledger import Acknowledger
from aiokafkawire.worker.circuit_breaker import CircuitBreaker
from aiokafkawire.worker.client_options import ClientOptionSets
from aiokafkawire.worker.clients import WorkerClients
from aiokafkawire.worker.committer import Committer
from aiokafkawire.worker.executor import Executor
from aiokafkawire.worker.executor_pool import ExecutorPool
from aiokafkawire.worker.failed_records import (
    FailedRecordWriter,
    retry_topics,
)
from aiokafkawire.worker.handlers import RecordHandler
from aiokafkawire.worker.health_server import HealthServer
from aiokafkawire.worker.intake import RecordIntake
from aiokafkawire.worker.offset_tracker import OffsetTracker
from aiokafkawire.worker.outputs import UncommittedRecord
from aiokafkawire.worker.partition_work import PartitionWork, describe_running
from aiokafkawire.worker.scheduler import Scheduler
from aiokafkawire.worker.transaction_committer import TransactionCommitter

__all__ = ("WorkerSession",)

logger = logging.getLogger("aiokafkawire.worker")

POLL_TIMEOUT_MS = 1_000
"""Timeout of one call for records."""

CANCELLED_CLOSE_S = 1.0
"""Time of `close` after a second signal or a cancellation: to commit and leave the group."""

CONNECT_BACKOFF_S = 1.0
"""Delay after a failed attempt to connect in the background."""


class WorkerSession(Session, RebalanceListener):
    """The clients, the scheduler and the tasks of a running worker.

    Attributes:
        ended: Set when the worker failed or is to stop.
        failure: Why it failed: an exception of a handler or of Kafka.
        stop_deadline: Limits all stages of `close`.
    """

    def __init__(
        self,
        config: WorkerConfig,
        options: ClientOptionSets,
        handlers: Sequence[RecordHandler],
        runtime: Runtime,
        supervisor: Supervisor,
    ) -> None:
        self.config = config
        self.runtime = runtime
        self.ended = anyio.Event()
        self.failure: BaseException | None = None
        self.stop_deadline = CloseDeadline()
        self.has_been_assigned = False
        self.health_server: HealthServer | None = None
        self.clients = WorkerClients(config, options, runtime)
        self._supervisor = supervisor
        limit, pause_s = config.pause_after_failures, config.pause_ms / 1_000
        self.scheduler = Scheduler(
            breaker=None if limit is None else CircuitBreaker(limit, pause_s),
            max_records=config.max_buffered_records,
            max_bytes=config.max_buffered_bytes,
            retry_topics=retry_topics(config.group, handlers),
            commits_finished=config.commit_finished_records,
            make_tracker=self._make_tracker,
        )
        fields = supervisor.fields
        writer = FailedRecordWriter(config, self.clients.producer, runtime.clock, fields)
        self.committer = self._make_committer()
        executor = Executor(
            self.scheduler,
            writer,
            runtime,
            threads=config.threads,
            stop_on_failure=config.on_exhausted == "stop",
            max_output_bytes=self.clients.max_output_bytes,
            acknowledger=self.committer if isinstance(self.committer, Acknowledger) else None,
            fields=fields,
            hooks=supervisor.hooks,
        )
        self._intake = RecordIntake(config.group, handlers, self.scheduler, runtime.clock)
        self._pool = ExecutorPool(
            self.scheduler,
            executor,
            supervisor,
            runtime.clock,
            concurrency=config.concurrency,
            on_failure=self.end,
            resume=self._update_pauses,
        )
        self.polled_at = runtime.clock.now()

    def _make_tracker(self) -> OffsetTracker:
        return OffsetTracker()

    def _make_committer(self) -> Committer | Acknowledger:
        clients, clock, fields = self.clients, self.runtime.clock, self._supervisor.fields
        if not self.config.is_exactly_once:
            return Committer(clients.consumer, self.scheduler, clock, fields)
        return TransactionCommitter(
            clients.consumer,
            self.scheduler,
            clock,
            fields,
            producer=clients.producer,
            refuse=self._on_output_refused,
        )

    # --- start and stop ---

    @property
    def executor(self) -> Executor:
        """The executor, which counts records and attempts."""
        return self._pool.executor

    async def start(self) -> None:
        """Start the clients and the tasks, and create topics.

        Without `connect_on_start`, return at once and connect in the background.
        """
        try:
            await self.clients.start()
            if self.config.connect_on_start:
                await self._subscribe()
                poll = self._supervisor.spawn(self._poll, name="poll")
            else:
                poll = self._supervisor.spawn(self._connect, name="connect")
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._stop_clients()
            raise
        self._pool.start()
        interval_s = self.config.commit_interval_ms / 1_000
        commit = self._supervisor.spawn(
            self.committer.commit_periodically, interval_s, name="commit"
        )
        self._tasks = poll, commit

    async def _subscribe(self) -> None:
        """Create the topics that are missing, and subscribe."""
        if self.config.is_exactly_once:
            await self.clients.require_group_metadata(next(iter(self._intake.topics)))
        if self.config.create_topics:
            writes_letters = self.config.on_exhausted == "dead_letter"
            letters = [self.config.dead_letters] if writes_letters else []
            if names := [*self._intake.retry_topics, *letters]:
                async with self.clients.make_admin() as admin:
                    await admin.ensure_topics(names)
        self._intake.add_existing_topics(await self.clients.consumer.topics())
        self.clients.consumer.subscribe(self._intake.topics, listener=self)

    async def _connect(self) -> None:
        """Subscribe when a broker can be reached, and poll."""
        while True:
            self.polled_at = self.runtime.clock.now()
            try:
                await self._subscribe()
                break
            except KafkaError as error:
                if not error.retriable:
                    self.end(error)
                    return
                logger.warning(
                    "Group %s: worker cannot connect; next try in %g s: %s",
                    self.config.group_id,
                    CONNECT_BACKOFF_S,
                    error,
                    extra=log_fields(self._supervisor.fields, error=error),
                )
            await self.runtime.clock.sleep_until(self.runtime.clock.now() + CONNECT_BACKOFF_S)
        await self._poll()

    async def close(self, drain_deadline: float) -> None:
        """Finish running handlers up to a deadline, commit, and close the clients.

        What follows the handlers takes at most `close_timeout_ms` altogether.
        """
        clock, stop = self.runtime.clock, self.stop_deadline
        poll, commit = self._tasks
        now, running = clock.now(), describe_running(self.scheduler.partitions)
        close_s = self.config.close_timeout_ms / 1_000
        self._close_by(drain_deadline + close_s)
        drain_s = max(0.0, drain_deadline - now)
        logger.info(
            "Group %s: worker stops: %s",
            self.config.group_id,
            f"waiting up to {drain_s:.1f} s for {running}" if running else "no handler runs",
            extra=dict(self._supervisor.fields),
        )
        try:
            poll.cancel()
            with stop.scope(NEVER):
                await poll.wait()
            assigned = [work.tp for work in self.scheduler.partitions]
            await self._drain(assigned, drain_deadline)
            self._close_by(clock.now() + close_s)
            await self._commit_last(assigned)
            # The consumer would wait for a commit that another task waits for.
            commit.cancel()
            with stop.scope(NEVER):
                await commit.wait()
        except anyio.get_cancelled_exc_class():
            self.shorten_close()
            raise
        finally:
            self.executor.abandon_threads()
            self.scheduler.remove([work.tp for work in self.scheduler.partitions])
            with anyio.CancelScope(shield=True):
                await self._stop_clients()

    async def _commit_last(self, partitions: Collection[TopicPartition]) -> None:
        """Commit, for half of the time that is left: the group is left in the other half."""
        started = self.runtime.clock.now()
        limit = started + (self.stop_deadline.at - started) / 2
        with self.stop_deadline.scope(limit) as scope:
            await self.committer.commit(partitions)
        if scope.cancelled_caught:
            logger.warning(
                "Group %s: no response to the last commit of %s within %.1f s; records since the"
                " committed offsets may be delivered again",
                self.config.group_id,
                count_partitions(partitions),
                self.runtime.clock.now() - started,
                extra=dict(self._supervisor.fields),
            )

    def shorten_close(self) -> None:
        """Let `close`, also one that runs, take at most `CANCELLED_CLOSE_S` from now on.

        No handlers are waited for: the time after them would be over.
        """
        self._close_by(self.runtime.clock.now() + CANCELLED_CLOSE_S)
        self.stop_waiting()

    def _close_by(self, deadline: float) -> None:
        self.stop_deadline.end_by(deadline)
        self.clients.close_by(self.stop_deadline.at)

    @property
    def close_waits_for(self) -> str:
        """Noun for the log: whom `close` waits for now."""
        if self._pool.drain_deadline is None:
            return super().close_waits_for
        return describe_running(self.scheduler.partitions) or super().close_waits_for

    @property
    def close_waits_until(self) -> float:
        """When this wait ends."""
        drain_deadline = self._pool.drain_deadline
        return self.stop_deadline.at if drain_deadline is None else drain_deadline

    async def _stop_clients(self) -> None:
        try:
            await self.clients.stop()
        finally:
            await self.close_health_server()

    async def close_health_server(self) -> None:
        """Stop to answer probes."""
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
        self.executor.abandon_threads()
        self.clients.abort(error)

    def is_executor(self, task: object) -> bool:
        """Return whether a task runs handlers."""
        return self._pool.is_executor(task)

    # --- fetching ---

    async def _poll(self) -> None:
        try:
            while True:
                self._update_pauses()
                if self._producer_failure is not None:
                    await self._replace_producer(self._producer_failure)
                batches = await self.clients.consumer.getmany(timeout_ms=POLL_TIMEOUT_MS)
                self.polled_at = self.runtime.clock.now()
                went_back: dict[TopicPartition, int] = {}
                for tp, records in batches.items():
                    if not self._intake.add(tp, records):
                        went_back[tp] = records[0].offset
                if batches:
                    self._pool.wake()
                else:
                    self._skip_markers()
                if went_back:
                    await self._read_again(went_back)
        except Exception as error:
            self.end(error)

    async def _read_again(self, went_back: Mapping[TopicPartition, int]) -> None:
        """Read partitions again whose topics were created again, or whose logs were truncated.

        A truncated log still has the unfinished records before the new ones.

        Args:
            went_back: First offsets of the new records, which are delivered again.
        """
        assert isinstance(self.committer, Committer)
        # A transaction may have output of these records, so its outcome must be known first.
        is_committing = self.committer.is_committing
        for tp, first in went_back.items():
            work = self.scheduler.partition(tp)
            start = first if is_committing else self._restart(work, first)
            self.clients.consumer.seek(tp, start)
        if is_committing:
            await self.committer.wait_until_idle()

    def _restart(self, work: PartitionWork, first: int) -> int:
        """Fence the work of a partition whose offsets went back; return where to read again."""
        start = min(first, work.first_uncommitted)
        logger.warning(
            "%s: offsets went back to %d; reading again from %d, and the results of running"
            " handlers are ignored",
            work.tp,
            first,
            start,
            extra=log_fields(self._supervisor.fields, tp=work.tp, offset=start),
        )
        assert work.offsets.first is not None
        self.scheduler.replace(work).offsets.first = min(start, work.offsets.first)
        return start

    def _skip_markers(self) -> None:
        """Let commits pass transaction markers behind the last record, so that no lag remains."""
        # `on_partitions_lost` has handled what was lost.
        with suppress(CommitFailed):
            positions = self.clients.consumer.positions()
            for work in self.scheduler.partitions:
                if work.tp in positions:
                    work.skip_to(positions[work.tp])

    # --- transactions ---

    def _on_output_refused(
        self, work: PartitionWork, finished: UncommittedRecord, error: KafkaError
    ) -> None:
        if self.config.on_exhausted == "stop" and finished.failed is None:
            self.end(error)
        else:
            self.executor.replace_refused(work, finished, error)

    @property
    def _producer_failure(self) -> KafkaError | None:
        committer = self.committer
        return committer.producer_failure if isinstance(committer, TransactionCommitter) else None

    async def _replace_producer(self, failure: KafkaError) -> None:
        """Read again from the committed offsets, with a new producer.

        It is not known here what the coordinator did with the last transaction of a fenced
        producer. The group coordinator returns the offsets after that transaction has ended.

        Raises:
            KafkaError: The failure, if a new producer would fail in the same way.
        """
        if self.clients.has_fixed_transactional_id or not isinstance(failure, ProducerFenced):
            raise failure
        logger.warning(
            "Group %s: transactions are fenced; reading again from the committed offsets: %s",
            self.config.group_id,
            failure,
            extra=log_fields(self._supervisor.fields, error=failure),
        )
        self._skip_markers()  # so that `first` is known of partitions without records
        for work in list(self.scheduler.partitions):
            self.scheduler.replace(work).offsets.first = work.offsets.first
        with suppress(KafkaError):
            await self.clients.producer.stop()
        producer = self.clients.replace_producer()
        await self._repeat(producer.start)
        await self._repeat(self._seek_to_committed)
        assert isinstance(self.committer, TransactionCommitter)
        self.committer.producer, self.committer.producer_failure = producer, None

    async def _seek_to_committed(self) -> None:
        """Read again from the committed offsets, or from the first offset that was read.

        Where nothing is committed, `auto_offset_reset="latest"` would skip the records since.
        """
        consumer = self.clients.consumer
        await consumer.seek_to_committed()
        works = {work.tp: work for work in self.scheduler.partitions}
        committed = await consumer.committed(*works) if works else {}
        for tp, work in works.items():
            first = work.offsets.first
            if committed.get(tp) is None and first is not None and tp in consumer.assignment():
                consumer.seek(tp, first)

    async def _repeat(self, call: Callable[[], Awaitable[None]]) -> None:
        """Make a call that succeeds when brokers can be reached."""
        while True:
            self.polled_at = self.runtime.clock.now()
            try:
                await call()
            except KafkaError as error:
                if not error.retriable:
                    raise
                logger.warning(
                    "Group %s: transactions cannot be restarted; next try in %g s: %s",
                    self.config.group_id,
                    CONNECT_BACKOFF_S,
                    error,
                    extra=log_fields(self._supervisor.fields, error=error),
                )
            else:
                return
            await self.runtime.clock.sleep_until(self.runtime.clock.now() + CONNECT_BACKOFF_S)

    def _update_pauses(self) -> None:
        changed = self.scheduler.update_pauses()
        self._pool.wake()  # batches that cannot grow
        if not changed.pause and not changed.resume:
            return
        # Partitions may be lost before the listener is called.
        consumer = self.clients.consumer
        owned = consumer.assignment()
        consumer.pause(*owned.intersection(changed.pause))
        consumer.resume(*owned.intersection(changed.resume))

    # --- rebalances ---

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Prepare for the records of new partitions."""
        self.has_been_assigned = True
        # A callback of the revocation may have been cancelled.
        self.scheduler.remove(partitions)
        for tp in partitions:
            self.scheduler.partition(tp)
        assert isinstance(self.committer, Committer)
        await self.committer.restore(partitions)

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Finish the running records of partitions, commit, and fence the partitions."""
        deadline = self.runtime.clock.now() + self.config.drain_timeout_ms / 1_000
        try:
            await self._drain(partitions, deadline)
            await self.committer.commit(partitions)
        finally:
            self.scheduler.remove(partitions)

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Fence partitions that another member may own already."""
        self.scheduler.remove(partitions)

    async def _drain(self, partitions: Collection[TopicPartition], deadline: float) -> None:
        started = self.runtime.clock.now()
        if await self._pool.drain(partitions, deadline):
            return
        drained = set(partitions)
        logger.warning(
            "Group %s: %s did not end within %.1f s; the records are delivered again",
            self.config.group_id,
            describe_running(work for work in self.scheduler.partitions if work.tp in drained),
            self.runtime.clock.now() - started,
            extra=dict(self._supervisor.fields),
        )

    def release_due(self, now: float) -> None:
        """Let the delayed records run that are due at `now`."""
        self._pool.release_due(now)

    def stop_waiting(self) -> None:
        """Wait no longer for running handlers."""
        self._pool.stop_waiting()
