"""Runs the handlers of records, one record at a time in each executor task."""

from __future__ import annotations

import contextlib
import contextvars
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import anyio

from aiokafkawire.errors import DeserializationFailed, KafkaError
from aiokafkawire.hooks import NO_HOOKS, HookFunctions, Processing
from aiokafkawire.logs import log_fields
from aiokafkawire.records import Record
from aiokafkawire.runtime import NEVER, Runtime, is_failure_of_callback
from aiokafkawire.worker.acknowledger import Acknowledger
from aiokafkawire.worker.circuit_breaker import BreakerState, CircuitBreaker
from aiokafkawire.worker.counters import Counters
from aiokafkawire.worker.failed_records import FailedRecordWriter
from aiokafkawire.worker.failure_log import log_failed_attempt, log_failed_write
from aiokafkawire.worker.handlers import RecordHandler, WorkerRecord, call_in_context
from aiokafkawire.worker.outcomes import DeadLetter, Drop, FailedAt
from aiokafkawire.worker.outputs import AttemptOutput, UncommittedRecord
from aiokafkawire.worker.partition_work import BatchFailure, PartitionWork, UnwrittenCopy, WorkItem
from aiokafkawire.worker.process_observer import ProcessObserver
from aiokafkawire.worker.results import RecordResult, WorkerResults, record_results
from aiokafkawire.worker.retry_policy import (
    DropRecord,
    FailedAttempt,
    RetryInPlace,
    RetryLater,
    SplitBatch,
    WriteDeadLetter,
    decide,
)
from aiokafkawire.worker.scheduler import Scheduler
from aiokafkawire.worker.waiting import note_wait

__all__ = ("Executor", "HandlerTimedOut")

logger = logging.getLogger("aiokafkawire.worker")

T = TypeVar("T")

MAX_RECORDS_PER_RUN = 256
"""Records of an item that are processed before items of other partitions, and other tasks, run."""

MAX_RUN_S = 0.1
"""Time after which a run ends before its next record, where handlers wait for long."""

WRITE_BACKOFF_S = 1.0
"""Delay before a failed write of a retry or dead letter is repeated."""


class HandlerTimedOut(TimeoutError):
    """An attempt took longer than `timeout_ms` of its handler."""


class Postponed(Exception):
    """A pause began while the attempt waited for a thread."""


class HandlerFailed(Exception):
    """The worker stops because a record has no attempts left; the cause is the last exception."""


class Executor:
    """Processes records that the scheduler hands out.

    Args:
        stop_on_failure: Whether a record without attempts left stops the worker.
        max_output_bytes: Limit of the records that handlers send in transactions; None without
            transactions.
        acknowledger: Acknowledges the records of a share group; None in a consumer group.

    Attributes:
        results: Collects what happens to records, for tests; None to collect nothing.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        writer: FailedRecordWriter,
        runtime: Runtime,
        *,
        threads: int,
        stop_on_failure: bool,
        max_output_bytes: int | None,
        acknowledger: Acknowledger | None = None,
        fields: Mapping[str, object],
        hooks: HookFunctions = NO_HOOKS,
    ) -> None:
        self.counters = Counters()
        self.results: WorkerResults | None = None
        self._scheduler = scheduler
        self._breaker = scheduler.breaker
        self._writer = writer
        self._runtime = runtime
        self._free_threads = anyio.Semaphore(threads)
        self._threads = runtime.threads("handler", threads)
        self._thread_scopes: dict[int, anyio.CancelScope] = {}
        self._stop_on_failure = stop_on_failure
        self._max_output_bytes = max_output_bytes
        self._acknowledger = acknowledger
        self._fields = fields
        self._observer = ProcessObserver.of(hooks)
        self._is_plain = self._observer is None and max_output_bytes is None

    def run(self, item: WorkItem) -> Awaitable[None]:
        """Process the records of a running item, until it has ended, yields or is delayed.

        Raises:
            HandlerFailed: A record has no attempts left, and the worker is to stop.
        """
        # If handlers of other records of the partition wait, this one probably does, too.
        item.needs_checks = len(item.partition.running) > 1
        run = self._run(item)
        return run if item.needs_checks else note_wait(run, item, self._runtime.clock.now)

    async def _run(self, item: WorkItem) -> None:
        # mutation: record-without-lock-processed
        if self._acknowledger is not None and not self._acknowledger.is_held(item.record):
            self._scheduler.finish_records(item)  # its acknowledgement fails: it is delivered again
            return
        unwritten = item.failures.unwritten
        if unwritten is not None and not await self._write(item, unwritten.decision):
            return
        if item.handler.batch is not None or not self._is_plain:
            await self._run_batches(item)
        else:
            await self._run_records(item)

    async def _run_records(self, item: WorkItem) -> None:
        """Process the records of an item one by one.

        Without failures, and until a handler waits, only the index of the item changes.
        """
        now, handler, breaker = self._runtime.clock.now, item.handler, self._breaker
        is_plain, function, counters = handler.is_plain, handler.function, self.counters
        item.started = now()
        until = item.started + MAX_RUN_S
        uses_results = breaker is not None or self.results is not None
        if not is_plain or uses_results or not item.is_undisturbed:
            item.needs_checks = True
        for record in item.next_records(self._run_limit()):
            try:
                if is_plain:
                    given: WorkerRecord[Any, Any] = WorkerRecord()
                    given._item, given._output, given.record = item, None, record
                    given.key, given.value = record.key, record.value
                    given.attempt = item.failures.total_attempts + 1 if item.needs_checks else 1
                    await function(given)
                else:
                    await self._within_limits(item, partial(self._process, item, record))
            except Postponed:
                break
            except BaseException as error:
                if not is_failure_of_callback(error):
                    raise
                item.needs_checks = True
                if not await self._on_failure(item, error):
                    return
            else:
                counters.processed += 1
                if not item.needs_checks:
                    item.index += 1
                    continue
                if breaker is not None:
                    self._on_success(breaker, item)
                if self.results is not None:
                    self.results.processed += record_results(item, is_processed=True)
                if not self._scheduler.finish_records(item):
                    return
            item.started = now()
            if item.started >= until or (breaker is not None and not breaker.can_start):
                break
        if item.index < item.end:
            self._scheduler.requeue(item)
        else:
            self._scheduler.finish_records(item, 0)

    async def _run_batches(self, item: WorkItem) -> None:
        """Process the records of an item together, or one by one after `SplitBatch`.

        Records of a handler of one record are batches of one here.
        """
        observer, now = self._observer, self._runtime.clock.now
        until = now() + MAX_RUN_S
        for _ in range(self._run_limit()):
            item.started = now()
            if item.started >= until:
                break
            is_split = item.handler.batch is None or item.batch_failure is not None
            number = 1 if is_split else item.remaining
            try:
                if observer is None:
                    is_next_ready = await self._run_batch(item, number)
                else:
                    with observer.observe(item, number) as attempt:
                        is_next_ready = await self._run_batch(item, number, attempt)
            except Postponed:
                break
            if not is_next_ready:
                return
            if self._breaker is not None and not self._breaker.can_start:
                break
        self._scheduler.requeue(item)

    async def _run_batch(
        self, item: WorkItem, number: int, attempt: Processing | None = None
    ) -> bool:
        """Process records together; return whether the next record is to run now."""
        failure: BaseException | None = None
        output = None if self._max_output_bytes is None else AttemptOutput(self._max_output_bytes)
        is_batch = item.handler.batch is not None
        process: Callable[[], Awaitable[int]] = partial(self._process_one, item, output)
        if is_batch:
            process = partial(self._process_batch, item, number, output)
        try:
            done = await self._within_limits(item, process)
        except Postponed:
            raise
        except FailedAt as failed:
            # mutation: failed-record-of-batch-counts-as-done
            done, number = failed.index if is_batch else 0, 1
            failure = failed.__cause__ or failed
        except BaseException as error:
            if not is_failure_of_callback(error):
                raise
            done, failure = 0, error
        if attempt is not None:
            attempt.error = failure
        if done:
            self.counters.processed += done
            if self._breaker is not None:
                self._on_success(self._breaker, item)
            if self.results is not None:
                self.results.processed += record_results(item, number=done, is_processed=True)
            if output is not None:
                self._keep_output(item, output, done)
            if not self._scheduler.finish_records(item, done):
                return False
        return failure is None or await self._on_failure(item, failure, number)

    def _run_limit(self) -> int:
        """Return how many records a running item may process: one as a probe."""
        if self._breaker is None or self._breaker.state is BreakerState.CLOSED:
            return MAX_RECORDS_PER_RUN
        return 1

    async def _within_limits(self, item: WorkItem, process: Callable[[], Awaitable[T]]) -> T:
        """Make an attempt within the limits of threads and time."""
        if item.handler.is_async:
            return await self._within_time(item, process)
        async with self._free_threads:
            if self._breaker is not None and not self._breaker.can_continue(item):
                raise Postponed
            item.started = self._runtime.clock.now()
            return await self._within_time(item, process)

    async def _within_time(self, item: WorkItem, process: Callable[[], Awaitable[T]]) -> T:
        handler = item.handler
        # mutation: handler-without-time-limit
        limit_s = NEVER if handler.timeout_s is None else handler.timeout_s
        with anyio.CancelScope(deadline=item.started + limit_s):
            return await process()
        # mutation: timed-out-record-counts-as-done
        raise HandlerTimedOut(f"{handler.name} took longer than {limit_s:g} s")

    async def _process(
        self, item: WorkItem, record: Record, output: AttemptOutput | None = None
    ) -> None:
        await self._call(item.handler, await self._decode(item, record, output), output)

    async def _process_one(self, item: WorkItem, output: AttemptOutput | None) -> int:
        """Process the first unfinished record; return how many records are done."""
        await self._process(item, item.record, output)
        return 1

    async def _process_batch(
        self, item: WorkItem, number: int, output: AttemptOutput | None
    ) -> int:
        """Process records, up to the first that cannot be decoded; return their number."""
        batch: list[WorkerRecord[Any, Any]] = []
        for record in item.records[item.index : item.index + number]:
            try:
                batch.append(await self._decode(item, record, output))
            except DeserializationFailed as error:
                if not batch:
                    raise FailedAt(0) from error
                break
        try:
            await self._call(item.handler, batch, output)
        except FailedAt as failed:
            if failed.index >= len(batch):
                raise ValueError(f"{failed}, but it has {len(batch)} records") from failed
            raise
        # mutation: undecodable-record-counts-as-done
        return len(batch)

    async def _decode(
        self, item: WorkItem, record: Record, output: AttemptOutput | None
    ) -> WorkerRecord[Any, Any]:
        try:
            return await item.handler.decode(item, record, output)
        except Exception as error:
            # Not with the error's text, which may have the value.
            raise DeserializationFailed(
                f"the record cannot be deserialized: {type(error).__name__}", record=record
            ) from error

    async def _call(
        self, handler: RecordHandler, argument: object, output: AttemptOutput | None
    ) -> None:
        """Call the function of a handler with a record or a batch, which may send output."""
        try:
            await self._call_function(handler, argument)
        finally:
            if output is not None:
                output.close()

    async def _call_function(self, handler: RecordHandler, argument: object) -> None:
        if handler.is_async:
            await handler.function(argument)
            return
        call = partial(call_in_context, contextvars.copy_context(), handler.function, argument)
        # A record whose function still runs in a thread must not run again meanwhile.
        scope = anyio.CancelScope(shield=True)
        self._thread_scopes[id(scope)] = scope
        try:
            with scope:
                result, error = await self._threads.run(call)
        finally:
            del self._thread_scopes[id(scope)]
        if error is not None:
            raise error
        # A function that wraps a coroutine function, as many decorators do.
        if inspect.isawaitable(result):
            result = await result
        if inspect.isgenerator(result) or inspect.isasyncgen(result):
            raise TypeError(f"{handler.name} returned a generator, whose code did not run")

    def abandon_threads(self) -> None:
        """Let cancelled attempts end while their functions still run in threads."""
        for scope in self._thread_scopes.values():
            scope.shield = False

    # --- failures ---

    async def _on_failure(self, item: WorkItem, error: BaseException, number: int = 1) -> bool:
        """Carry out what the policy decides; return whether the next record is to run now.

        Args:
            item: Its first unfinished records failed.
            error: Exception of the attempt.
            number: Number of records that failed together.
        """
        clock = self._runtime.clock
        self.counters.failed += 1
        if self._breaker is not None:
            self._count_failure(self._breaker, item, error)
        if item.partition.is_fenced:  # the next owner decides about the record
            self._scheduler.retry(item, 0.0)
            return False
        failures, now_ms = item.own_failures(), clock.wall_ms()
        failures.attempts += 1
        failures.error = error
        if failures.first_failure_ms is None:
            failures.first_failure_ms = now_ms
        age_ms = now_ms - failures.first_failure_ms
        draw = self._runtime.rng.random()
        decision = decide(
            item.handler.retries,
            FailedAttempt(error, failures.attempts, failures.tier, age_ms, draw, number),
        )
        log_failed_attempt(item, decision, number, self._fields, self._writer.log_limit)
        match decision:
            case RetryInPlace(delay_s):
                self.counters.retried += 1
                if self.results is not None:
                    self.results.retried += record_results(item, number=number)
                self._scheduler.retry(item, clock.now() + delay_s)
                return False
            case DropRecord(reason):
                self.counters.dropped += 1
                if self.results is not None:
                    self.results.dropped += record_results(item, reason=reason)
                return self._scheduler.finish_records(item)
            case SplitBatch():
                item.batch_failure = BatchFailure(failures.attempts, failures.first_failure_ms)
                item.forget_failures()
                if item.partition.is_active:
                    return True
                self._scheduler.retry(item, 0.0)
                return False
            case WriteDeadLetter() if self._stop_on_failure:
                raise HandlerFailed from error
            case WriteDeadLetter() if self._acknowledger is not None and self._acknowledger.rejects:
                self._acknowledger.reject(item.record)
                return self._finish_copied(item, decision)
            case RetryLater() | WriteDeadLetter():
                return await self._write(item, decision)

    def _on_success(self, breaker: CircuitBreaker, item: WorkItem) -> None:
        if breaker.on_success(item):
            logger.info("Handlers are no longer paused", extra=dict(self._fields))

    def _count_failure(self, breaker: CircuitBreaker, item: WorkItem, error: BaseException) -> None:
        if isinstance(error, DeserializationFailed):
            return  # the handler was not called
        if isinstance(error, Drop | DeadLetter):
            self._on_success(breaker, item)
            return
        now = self._runtime.clock.now()
        if not breaker.on_failure(item, error, now):
            return
        with contextlib.suppress(Exception):  # the text of an exception may raise
            logger.warning(
                "Handlers are paused for %g s after %d failures in a row: %r",
                breaker.due - now,
                breaker.failures,
                error,
                extra=log_fields(self._fields, error=error),
            )

    def _keep_output(self, item: WorkItem, output: AttemptOutput, number: int) -> None:
        """Keep what an attempt has sent for the first unfinished records of an item."""
        attempts = item.failures.total_attempts + 1
        for record in item.records[item.index : item.index + number]:
            if records := output.of(record):
                origin = self._writer.origin_of(item, record)
                finished = UncommittedRecord(record, origin, attempts, tuple(records))
                item.partition.add_output(finished)

    async def _write(self, item: WorkItem, decision: RetryLater | WriteDeadLetter) -> bool:
        """Write a copy of the failed record; return whether the next record is to run now."""
        if self._max_output_bytes is not None:
            item.partition.add_output(self._writer.copy(item, decision))
            return self._finish_copied(item, decision)
        item.started = self._runtime.clock.now()
        if item.failures.unwritten is None:
            item.failures.unwritten = UnwrittenCopy(decision, item.started)
        try:
            # mutation: failed-record-done-without-copy
            await self._writer.write(item, decision)
        except Exception as error:
            now = self._runtime.clock.now()
            self.counters.write_failures += 1
            log_failed_write(item, error, WRITE_BACKOFF_S, self._fields)
            # mutation: unwritten-dead-letter-counts-as-done
            self._scheduler.retry(item, now + WRITE_BACKOFF_S)
            return False
        return self._finish_copied(item, decision)

    def _finish_copied(self, item: WorkItem, decision: RetryLater | WriteDeadLetter) -> bool:
        if isinstance(decision, RetryLater):
            self.counters.delayed += 1
            if self.results is not None:
                self.results.delayed += record_results(item)
        else:
            self.counters.dead += 1
            if self.results is not None:
                self.results.dead += record_results(item, reason=decision.reason)
        return self._scheduler.finish_records(item)

    def replace_refused(
        self, work: PartitionWork, finished: UncommittedRecord, error: KafkaError
    ) -> None:
        """Make a dead letter of a finished record whose output brokers refuse."""
        record = finished.record
        logger.error(
            "%s offset %d: its output is refused: %s",
            work.tp,
            record.offset,
            error,
            extra=log_fields(self._fields, error=error, tp=work.tp, offset=record.offset),
        )
        letter = self._writer.refused(finished, error)
        work.add_output(letter)
        self.counters.write_failures += 1
        if finished.failed is not None:
            return
        self.counters.dead += 1
        if self.results is not None and letter.failed is not None:
            result = RecordResult(
                record, finished.origin, finished.attempts, error, letter.failed.reason
            )
            self.results.dead.append(result)
