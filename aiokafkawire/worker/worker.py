"""`Worker`: the public interface."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, Unpack

import anyio

from aiokafkawire.config import ClientConfig, WorkerConfig, WorkerOptions, make_config
from aiokafkawire.connection import parse_api_version
from aiokafkawire.errors import ClientClosed, IllegalState, InvalidOption, KafkaError
from aiokafkawire.logs import log_fields
from aiokafkawire.runtime import (
    AT_ONCE,
    NEVER,
    Address,
    BaseClient,
    Runtime,
    Supervisor,
    client_label,
    current_task,
)
from aiokafkawire.runtime.client_state import ClientState
from aiokafkawire.runtime.supervisor import get_loop_caller
from aiokafkawire.serialization import DeserializerArgument
from aiokafkawire.types import require_timeout
from aiokafkawire.worker.batch_policy import BatchPolicy
from aiokafkawire.worker.client_options import ClientOptionSets
from aiokafkawire.worker.failed_records import retry_topics
from aiokafkawire.worker.failure_log import log_failed_start
from aiokafkawire.worker.handler_checks import (
    check_arguments,
    check_function,
    check_share,
    deserializer_of,
    positive_s,
)
from aiokafkawire.worker.handlers import OrderBy, RecordHandler
from aiokafkawire.worker.health import WorkerHealth, check_health, health_page
from aiokafkawire.worker.health_server import HealthServer, format_metrics
from aiokafkawire.worker.idle import wait_until_idle
from aiokafkawire.worker.letters import retry_topic_delay
from aiokafkawire.worker.metrics import collect_metrics, worker_metrics
from aiokafkawire.worker.results import WorkerResults
from aiokafkawire.worker.retry_policy import RetryPolicy
from aiokafkawire.worker.session import WorkerSession
from aiokafkawire.worker.share_session import ShareWorkerSession

__all__ = ("Worker",)

_Function = TypeVar("_Function", bound=Callable[..., Any])

SIGNALS = (signal.SIGTERM, signal.SIGINT)

CANCELLED_EXIT = 128
"""A process that ends because of a signal has the exit code 128 plus the number of the signal."""


class StoppedWhileStarting(ClientClosed):
    """`request_stop` was called before the worker had started."""


class Worker(BaseClient[WorkerSession]):
    """Processes the records of topics as a member of a consumer group.

    ::

        worker = Worker(bootstrap_servers="localhost:9092", group_id="billing")

        @worker.on("orders", order_by="key", value=Order, retries=RetryPolicy(attempts=5))
        async def bill(record):
            await charge(record.value)

        worker.run_forever()

    A record is done when its handler has returned. If the handler raises, the record is tried again
    as its `RetryPolicy` says; a record that still fails is written to a dead letter topic, and is
    done once all in-sync replicas have it. The worker commits the offset of the oldest record that
    is not done: after a crash no record is skipped, and some are processed again.

    Handlers run concurrently, up to `concurrency`. Those of the same partition (the default) or key
    run one after the other. When a partition is revoked, running handlers may finish for
    `drain_timeout_ms`; their results are ignored if they take longer.

    Attributes:
        health_address: Address of the health server; None before the start or without a
            `health_port`.
    """

    def __init__(
        self,
        *,
        consumer_options: Mapping[str, Any] | None = None,
        producer_options: Mapping[str, Any] | None = None,
        **options: Unpack[WorkerOptions],
    ) -> None:
        """Check the arguments. `run`, `start` or `async with` connects.

        Args:
            consumer_options: More options of the worker's `Consumer`. Its defaults differ in
                `auto_offset_reset="earliest"`, so that no record is skipped, and in
                `partition_assignment_strategy=["cooperative-sticky"]`.
            producer_options: More options of the `Producer` of retries and dead letters.
            **options: Options of `WorkerConfig`, which
                `help(aiokafkawire.config.WorkerOptions)` describes.

        Raises:
            InvalidOption: An option is unknown or invalid.
        """
        self.config = make_config(WorkerConfig, options)
        parse_api_version(self.config.api_version)
        if retry_topic_delay(self.config.group, self.config.dead_letters) is not None:
            raise InvalidOption(
                f"dead_letter_topic {self.config.dead_letters!r} is named like a retry topic, whose"
                " records the worker would process"
            )
        common = {field.name for field in dataclasses.fields(ClientConfig)}
        self._arguments = {
            "consumer_options": consumer_options,
            "producer_options": producer_options,
            **options,
        }
        self._option_sets = ClientOptionSets(
            {name: value for name, value in options.items() if name in common},
            {} if consumer_options is None else consumer_options,
            {} if producer_options is None else producer_options,
        )
        # Wrong options are errors of the constructor.
        if self.config.is_share:
            self._option_sets.make_share_consumer(self.config)
        else:
            self._option_sets.make_consumer(self.config)
        self._option_sets.make_producer(self.config)
        super().__init__(
            "worker",
            client_label("Worker", self.config, self.config.group_id),
            log_prefix=f"worker of group {self.config.group_id}",
            fields=log_fields(client_id=self.config.client_id, group=self.config.group_id),
            hooks=self.config.hooks,
        )
        self._handlers: list[RecordHandler] = []
        self.health_address: Address | None = None
        self._start_scope: anyio.CancelScope | None = None
        self._results: WorkerResults | None = None  # of `run_until_idle`

    def on(
        self,
        *topics: str,
        order_by: OrderBy = "partition",
        key: DeserializerArgument[Any] | None = None,
        value: DeserializerArgument[Any] | None = None,
        retries: RetryPolicy | None = None,
        timeout_ms: float | None = None,
        batch: BatchPolicy | None = None,
    ) -> Callable[[_Function], _Function]:
        """Register the decorated function as the handler of topics.

        The function gets a `WorkerRecord` or, with `batch`, a list of them. It may be async; other
        functions run in threads. It may raise `Retry`, `Drop` or `DeadLetter` to decide what
        happens to the record.

        Args:
            *topics: Names of topics.
            order_by: `"partition"` or `"key"`: records with the same one are processed one after
                the other, in the order of the log. None for any order. A function of the `Record`
                returns what orders it, or None. Records with the key None have no order by key.
            key: Deserializer of keys, as `value`.
            value: Deserializer of values: None or `bytes`, `str`, `dict`, `list`, a pydantic
                model, a msgspec Struct or a dataclass (all from JSON), or a function of the bytes,
                async or not. A record that cannot be deserialized becomes a dead letter.
            retries: What happens after a failure. Defaults to `RetryPolicy()`.
            timeout_ms: Limit of one attempt in milliseconds. A function in a thread is not
                stopped: the attempt ends when it returns.
            batch: The function gets lists of records of a partition, up to these limits. If it
                raises, the whole batch is tried again in place; after the last attempt, its records
                are tried one by one. With `FailedAt(index)` the records before are done.

        Raises:
            IllegalState: The worker was started.
            TypeError: An argument, or the function, has the wrong type.
            ValueError: A topic has a handler already, a name is invalid, or a share group does not
                allow an argument.
        """
        check_arguments(topics, order_by, retries, batch)
        if batch is not None:
            self._check_batch(batch, order_by)
        if self.config.is_share:
            check_share(order_by, retries, batch)
        handler_options: dict[str, Any] = {
            "topics": topics,
            "order_by": order_by,
            "decode_key": deserializer_of("key", key),
            "decode_value": deserializer_of("value", value),
            "timeout_s": None if timeout_ms is None else positive_s(timeout_ms),
            "retries": RetryPolicy() if retries is None else retries,
            "batch": batch,
        }

        def register(function: _Function) -> _Function:
            check_function(function, order_by)
            self._add_handler(RecordHandler(function=function, **handler_options))
            return function

        return register

    def _check_batch(self, batch: BatchPolicy, order_by: OrderBy) -> None:
        if order_by not in ("partition", None):
            raise ValueError("a batch has many keys: its order_by is 'partition' or None")
        if batch.max_records > self.config.max_buffered_records:
            raise ValueError(
                f"max_records ({batch.max_records}) of a batch must not exceed"
                f" max_buffered_records ({self.config.max_buffered_records})"
            )

    def _add_handler(self, handler: RecordHandler) -> None:
        if self._lifecycle.session is not None:
            raise IllegalState("the worker runs: register handlers before it starts")
        taken = {topic for other in self._handlers for topic in other.topics}
        for topic in handler.topics:
            if topic in taken:
                raise ValueError(f"topic {topic!r} has a handler already")
        self._handlers.append(handler)

    def copy(self, **options: Any) -> Worker:
        """Return a worker that is not started, with the same handlers.

        For tests of a worker that a module of an application creates, and that runs once.

        Args:
            **options: Arguments of `Worker` that differ, such as `bootstrap_servers`.

        Raises:
            InvalidOption: An option is unknown or invalid.
        """
        copied = Worker(**{**self._arguments, **options})
        copied._handlers = list(self._handlers)
        copied._custom_runtime = self._custom_runtime
        return copied

    # --- start and stop ---

    async def run(self) -> None:
        """Process records until `request_stop`, or until the worker fails.

        If the call is cancelled, running handlers are cancelled too, and their records are
        delivered again. A second is left to commit and leave the group.

        Raises:
            KafkaError: The consumer failed permanently, or a start failed. Or a handler has called
                `sys.exit`; `__cause__` is its `SystemExit`.
            Exception: With `on_exhausted="stop"`, the last exception of a handler.
        """
        try:
            async with self:
                await self._lifecycle.require_session().ended.wait()
        except StoppedWhileStarting:
            return

    async def run_until_idle(
        self, *, timeout_ms: float = 30_000, skip_delays: bool = True
    ) -> WorkerResults:
        """Process all records, also those of retry topics, and return what happened to them.

        For tests. Starts the worker, and stops it when no records are left. All results are kept
        in memory.

        Args:
            timeout_ms: Limit in milliseconds, without the time in which delays pass.
            skip_delays: Do not wait for delays of retries: if nothing else is left, the record
                that is due next is tried at once. If False, delays pass, also in virtual time.

        Raises:
            TimeoutError: Records are left at the limit; the text names their partitions. Running
                handlers are cancelled.
            ClientClosed: The worker runs or has run. Use a `copy`.
            IllegalState: It is a worker of a share group.
            KafkaError: See `run`.
        """
        require_timeout("timeout_ms", timeout_ms)
        if self.config.is_share:
            raise IllegalState(
                "run_until_idle: other members may hold records of a share group; in tests, call"
                " it on worker.copy(group_type='consumer')"
            )
        results = self._results = WorkerResults()
        async with self:
            session = self._lifecycle.require_session()
            try:
                await wait_until_idle(
                    session, timeout_s=timeout_ms / 1_000, skip_delays=skip_delays
                )
            except TimeoutError:
                self.cancel_handlers()
                raise
        return results

    def run_forever(
        self,
        *,
        backend: Literal["asyncio", "trio"] = "asyncio",
        backend_options: dict[str, Any] | None = None,
    ) -> None:
        """Run an event loop with the worker, until SIGTERM or SIGINT. For the main thread.

        The first signal stops the worker as `stop` does. A second one cancels running handlers, and
        leaves a second to commit and leave the group.

        Args:
            backend: Library of the event loop.
            backend_options: Options of `anyio.run`, such as `{"use_uvloop": True}`.

        Raises:
            SystemExit: A second signal came; the code is 128 plus its number. Or a handler has
                called `sys.exit`; the code is that of the call. Or the start failed, for the reason
                in the log; the code is 1.
            KafkaError: See `run`.
        """
        options = backend_options
        try:
            number = anyio.run(self._run_with_signals, backend=backend, backend_options=options)
        except (KafkaError, OSError) as error:
            if isinstance(error.__cause__, SystemExit):
                raise error.__cause__ from None
            if self._lifecycle.state is not ClientState.NEW:
                raise
            raise SystemExit(log_failed_start(error, self._lifecycle.supervisor)) from error
        if number is not None:
            raise SystemExit(CANCELLED_EXIT + number)

    async def _run_with_signals(self) -> int | None:
        """Run until a signal; return the number of the signal that cancelled the handlers."""
        cancelled_by: int | None = None
        failure: BaseException | None = None

        async def watch() -> None:
            nonlocal cancelled_by
            with anyio.open_signal_receiver(*SIGNALS) as signals:
                await anext(signals)
                self.request_stop()
                async for number in signals:
                    cancelled_by = number
                    if self._lifecycle.session is not None:
                        self._lifecycle.session.shorten_close()

        async with anyio.create_task_group() as group:
            group.start_soon(watch)
            try:
                await self.run()
            except Exception as error:
                failure = error
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return cancelled_by

    def request_stop(self) -> None:
        """Let `run` return after running handlers have finished; may be called again.

        While the worker is connecting, `start` ends with `ClientClosed`, and `run` returns.
        """
        session = self._lifecycle.session
        if session is not None:
            # A handler that runs in a thread may call this.
            self._call_in_loop(session.end)
        elif self._start_scope is not None:
            self._start_scope.cancel()

    def cancel_handlers(self) -> None:
        """Let a worker that stops wait no longer for running handlers."""
        self.request_stop()
        if (session := self._lifecycle.session) is not None:
            session.stop_waiting()

    async def start(self) -> None:
        """Connect and start to process records, as entering `async with` does.

        With `connect_on_start=False` it returns at once, and the worker connects in the background.

        Raises:
            IllegalState: No handler is registered.
            OSError: The health server cannot listen on its address.
            NoBrokerAvailable: No broker answered within `default_api_timeout_ms`.
            PartialFailure: The dead letter topic or a retry topic cannot be created.
            ClientClosed: `request_stop` was called meanwhile.
        """
        if not self._handlers:
            raise IllegalState("the worker has no handler: decorate a function with @worker.on(…)")
        written = {self.config.dead_letters, *retry_topics(self.config.group, self._handlers)}
        for handler in self._handlers:
            if both := written.intersection(handler.topics):
                raise IllegalState(
                    f"{handler.name} reads {', '.join(both)}, where this worker writes failed"
                    " records: use a worker with another group_id or dead_letter_topic"
                )
        with anyio.CancelScope() as self._start_scope:
            await super().start()
        if self._start_scope.cancelled_caught:
            raise StoppedWhileStarting("the worker was stopped while it was starting")
        if self._start_scope.cancel_called:  # too late to interrupt the start
            self.request_stop()

    async def stop(self) -> None:
        """Finish running handlers for up to `drain_timeout_ms`, commit and leave the group.

        What follows the handlers takes at most `close_timeout_ms`, also if no broker responds.

        Raises:
            IllegalState: A handler calls `stop`, and would wait for itself.
            Exception: The failure of the worker; see `run`.
        """
        session = self._lifecycle.open_session
        if session is not None and session.is_executor(current_task()):
            raise IllegalState("stop() waits for this handler: call request_stop() in handlers")
        await super().stop()

    async def _start(self, runtime: Runtime, supervisor: Supervisor) -> WorkerSession:
        self._call_in_loop = get_loop_caller()
        make_session = ShareWorkerSession if self.config.is_share else WorkerSession
        session = make_session(self.config, self._option_sets, self._handlers, runtime, supervisor)
        session.executor.results = self._results
        if self.config.health_port is not None:
            self.health_address = await self._serve_health(session, runtime, supervisor)
        try:
            await session.start()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await session.close_health_server()
            raise
        return session

    async def _serve_health(
        self, session: WorkerSession, runtime: Runtime, supervisor: Supervisor
    ) -> Address:
        assert self.config.health_port is not None
        pages = {
            "/livez": lambda: health_page(check_health(session), "is_alive"),
            "/readyz": lambda: health_page(check_health(session), "is_ready"),
            "/metrics": lambda: format_metrics(collect_metrics(session)),
        }
        session.health_server = HealthServer(runtime, supervisor, pages)
        return await session.health_server.start(self.config.health_host, self.config.health_port)

    async def _close(self, body_error: BaseException | None) -> Exception | None:
        self._lifecycle.check_loop()
        session = self._lifecycle.session
        if session is None:
            await self._lifecycle.stop(_close_at_once, NEVER)
            return None
        session.end()
        is_cancelled = body_error is not None and not isinstance(body_error, Exception)
        if is_cancelled:
            session.shorten_close()
        drain_s = 0.0 if is_cancelled else self.config.drain_timeout_ms / 1_000
        drain_deadline = session.runtime.clock.now() + drain_s

        async def close(session: WorkerSession) -> None:
            await session.close(drain_deadline)

        await self._lifecycle.stop(close, drain_deadline + self.config.close_timeout_ms / 1_000)
        failure = session.failure or self._lifecycle.take_unreported_failure()
        if failure is None or isinstance(failure, Exception):
            return failure
        # A handler's exception that would end the caller's task, or the program.
        wrapped = KafkaError(f"the worker stopped because a handler raised {failure!r:.200}")
        wrapped.__cause__ = failure
        return wrapped

    # --- state ---

    def health(self) -> WorkerHealth:
        """Return whether the worker makes progress and is ready.

        Before the start and after the end the worker is neither alive nor ready.
        """
        session = self._lifecycle.open_session
        if session is None:
            return WorkerHealth(
                is_alive=False,
                is_ready=False,
                reasons=(str(self),),
                running=0,
                delayed=0,
                oldest_attempt_s=0.0,
            )
        return check_health(session)

    def metrics(self) -> dict[str, int | float]:
        """Return counters and gauges of the worker by name.

        Raises:
            ClientClosed: The worker is not running.
        """
        return worker_metrics(self._lifecycle.require_session())


async def _close_at_once(session: WorkerSession) -> None:
    await session.close(AT_ONCE)
