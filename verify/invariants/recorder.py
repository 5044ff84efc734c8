"""Writes down what applications do with their clients, without changing what they see.

::

    recorder = Recorder(now)
    producer = recorder.producer(Producer(client_id="p1", …), "p1")
    async with producer:
        delivery = await producer.send("t", producer.value())
        await delivery
    consumer = recorder.consumer(Consumer("t", client_id="c1", …), "c1")

The wrappers have the methods of what they wrap. Give each client its name as `client_id` too:
requests seen by brokers are attributed by it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from aiokafkawire.errors import KafkaError, ProducerFenced, TransactionFailed
from aiokafkawire.producer.transactions.end_detached import end_on_runtime
from aiokafkawire.runtime import Runtime, current_task
from verify.invariants.events import (
    CANCELLED,
    Called,
    Closed,
    Crashed,
    Ending,
    EndTxnRequested,
    Event,
    Fault,
    FaultsHealed,
    GroupsStable,
    Opened,
    Returned,
    TopicCreated,
    TopicDeleted,
    TransactionEnded,
)
from verify.invariants.observed import Peak

if TYPE_CHECKING:
    from aiokafkawire import Consumer, Producer, ShareConsumer
    from aiokafkawire.producer import DetachedTransaction
    from verify.invariants.recorded_consumer import RecordedConsumer
    from verify.invariants.recorded_producer import RecordedProducer
    from verify.invariants.recorded_share_consumer import RecordedShareConsumer

__all__ = ("Call", "Journal", "OwnError", "Recorder", "error_name", "typed")

MAX_TEXT = 200
"""Recorded characters of an error's text."""


class OwnError(Exception):
    """Raised by the application itself, in a listener or in the body of a transaction."""


def error_name(error: BaseException) -> str:
    """Return the class name of an error, with one name for cancellations on every backend."""
    return type(error).__name__ if isinstance(error, Exception) else CANCELLED


def typed(error: BaseException) -> bool:
    """Return whether callers may expect this kind of error."""
    return not isinstance(error, Exception) or isinstance(error, KafkaError | OwnError)


def _nothing() -> None:
    pass


class Call:
    """Number of a call in progress."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class Journal:
    """Writer for one client's wrapper: the recorder, its name, and its own numbers."""

    def __init__(self, recorder: Recorder, client: str) -> None:
        self.recorder = recorder
        self.client = client
        self.calls = 0
        self.look: Callable[[], None] = _nothing
        self.closed: Callable[[], None] = _nothing
        self._tasks: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self._task_count = 0

    def now(self) -> float:
        return self.recorder.now()

    def note(self, kind: Callable[..., Event], *values: Any, **named: Any) -> None:
        """Record an event of this client, now."""
        self.recorder.note(kind(self.recorder.now(), self.client, *values, **named))

    @property
    def has_crashed(self) -> bool:
        return self.client in self.recorder.crashed_clients

    def task(self) -> str:
        """Return a number for the running task that is equal in every run."""
        task: Any = current_task()
        name = self._tasks.get(task)
        if name is None:
            self._task_count += 1
            name = self._tasks[task] = str(self._task_count)
        return name

    @contextmanager
    def call(self, name: str, limit_s: float | None, task: str = "") -> Iterator[Call]:
        """Record the start and the end of a call."""
        self.calls += 1
        call = Call(self.calls)
        self.note(Called, call.number, name, limit_s, task)
        try:
            yield call
        except BaseException as error:
            text = str(error)[:MAX_TEXT] if isinstance(error, Exception) else ""
            ended = isinstance(error, StopAsyncIteration)
            self.note(
                Returned,
                call.number,
                None if ended else error_name(error),
                ended or typed(error),
                text,
            )
            raise
        self.note(Returned, call.number)


class Recorder:
    """Collects a history. `now` returns seconds on the run's clock.

    With `write`, each event is passed on at once and `history` stays empty: a process that may be
    killed writes to a file. `reprs` are those of the clients and their options.
    """

    def __init__(
        self, now: Callable[[], float], write: Callable[[Event], None] | None = None
    ) -> None:
        self.now = now
        self.history: list[Event] = []
        self.reprs: dict[str, None] = {}
        self.crashed_clients: set[str] = set()
        self._write = write
        self._most_held: dict[str, tuple[int, int]] = {}
        self._kept: dict[str, int] = {}
        self._holds: dict[str, Callable[[], dict[str, int | float]]] = {}
        self._detached: dict[str, tuple[Journal, int]] = {}

    def note(self, event: Event) -> None:
        """Append an event."""
        if self._write is None:
            self.history.append(event)
        else:
            self._write(event)

    def producer(self, producer: Producer, name: str) -> RecordedProducer:
        """Wrap a producer; `name` must be unique."""
        from verify.invariants.recorded_producer import RecordedProducer

        self.opened(name, "producer", producer)
        journal = self.journal(name)
        journal.look = partial(self._look, name, producer)
        journal.closed = partial(self._closed, name)
        return RecordedProducer(producer, journal)

    def _look(self, name: str, producer: Producer) -> None:
        """Record the buffer use of a producer if it is the highest so far."""
        # A closed producer has no `metrics`.
        metrics = self._holds[name] = producer._running().sender.metrics
        held = metrics()["buffer_used_bytes"]
        if held > self._most_held.get(name, (0, 0))[0]:
            self._most_held[name] = (int(held), producer.config.buffer_memory_bytes)

    def _closed(self, name: str) -> None:
        """Record the buffer use of a closed producer."""
        if name in self._holds:
            self._kept[name] = int(self._holds[name]()["buffer_used_bytes"])

    @property
    def peaks(self) -> tuple[Peak, ...]:
        """Return the highest buffer use of each producer after a hand-over, and after closing."""
        most = [(name, "bytes of records", *held) for name, held in self._most_held.items()]
        kept = [(name, "bytes of records after closing", n, 0) for name, n in self._kept.items()]
        return tuple(Peak(*each) for each in (*most, *kept))

    def consumer(self, consumer: Consumer, name: str) -> RecordedConsumer:
        """Wrap a consumer; `name` must be unique."""
        from verify.invariants.recorded_consumer import RecordedConsumer

        self.opened(name, "consumer", consumer)
        return RecordedConsumer(consumer, self.journal(name))

    def share_consumer(self, consumer: ShareConsumer, name: str) -> RecordedShareConsumer:
        """Wrap a share consumer; `name` must be unique."""
        from verify.invariants.recorded_share_consumer import RecordedShareConsumer

        self.opened(name, "share consumer", consumer)
        return RecordedShareConsumer(consumer, self.journal(name))

    def journal(self, name: str) -> Journal:
        """Return a journal for a client's own calls: `with journal.call("name", limit_s)`."""
        return Journal(self, name)

    def opened(self, name: str, kind: str, client: Any) -> None:
        """Record a new client, with the options of its `config`."""
        config = client.config
        options = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
        for derived in ("idempotent", "required_acks", "effective_session_timeout_ms"):
            if hasattr(config, derived):
                options[derived] = getattr(config, derived)
        strategy = options.get("partition_assignment_strategy")
        if strategy is not None:
            options["partition_assignment_strategy"] = tuple(map(str, strategy))
        self.reprs |= {repr(client): None, repr(config): None}
        self.note(Opened(self.now(), name, kind, options))

    def detached(self, detached: DetachedTransaction, journal: Journal, number: int) -> None:
        """Record that a producer detached its transaction."""
        self._detached[detached.to_json()] = (journal, number)

    async def end_detached_transaction(
        self,
        detached: DetachedTransaction,
        *,
        commit: bool,
        runtime: Runtime | None = None,
        **options: Any,
    ) -> None:
        """Call `end_detached_transaction` and record its end for the producer that detached it."""
        journal, number = self._detached[detached.to_json()]
        limit = options.get("default_api_timeout_ms", 60_000) / 1_000
        journal.note(EndTxnRequested, number, commit)
        outcome: Ending = "unknown"
        try:
            with journal.call("end_detached_transaction", limit):
                await end_on_runtime(runtime, detached, commit=commit, **options)
            outcome = "committed" if commit else "aborted"
        except ProducerFenced:
            # An earlier call may have ended it.
            raise
        except TransactionFailed:
            outcome = "aborted"
            raise
        finally:
            journal.note(TransactionEnded, number, outcome)

    def crashed(self, name: str) -> None:
        """Record that a client ended without closing, with its process or host."""
        self.crashed_clients.add(name)
        self.note(Crashed(self.now(), name))

    def closed(self, name: str) -> None:
        """Record that a client ended in good order; `stop` does this itself."""
        self.note(Closed(self.now(), name))

    # --- the world ---

    def fault(self, text: str) -> None:
        self.note(Fault(self.now(), "", text))

    def healed(self) -> None:
        self.note(FaultsHealed(self.now(), ""))

    def settled(self, *groups: str) -> None:
        """Record that these groups are stable: each partition has an owner."""
        self.note(GroupsStable(self.now(), "", groups))

    def topic_created(self, topic: str, partitions: int) -> None:
        """A topic now exists with this number of partitions (created, recreated or grown)."""
        self.note(TopicCreated(self.now(), "", topic, partitions))

    def topic_deleted(self, topic: str) -> None:
        self.note(TopicDeleted(self.now(), "", topic))
