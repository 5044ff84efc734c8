"""Handwritten histories for tests of the checker, one event a second."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiokafkawire.types import TopicPartition
from verify.invariants import events
from verify.invariants.checker import Guarantees, judge
from verify.invariants.observed import Log, LogRecord, Observed

PRODUCER = {"idempotent": True, "required_acks": -1, "max_in_flight_requests_per_connection": 5}
CONSUMER = {
    "group_id": "g",
    "auto_offset_reset": "earliest",
    "enable_auto_commit": True,
    "max_poll_interval_ms": 60_000,
    "session_timeout_ms": 10_000,
}
T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


def v(number: int, producer: str = "p") -> bytes:
    """Return the value of a producer's record."""
    return events.make_value(producer, number)


def log(
    *values: bytes | tuple[bytes, Any] | None,
    partition: int = 0,
    topic: str = "t",
    start: int = 0,
    incarnation: int = 0,
) -> Log:
    """Build a log of these values from `start` on.

    None is an offset without a record; a pair adds the outcome of the record's transaction.
    """
    records = []
    for offset, value in enumerate(values, start):
        if isinstance(value, tuple):
            records.append(LogRecord(offset, value[0], value[1]))
        elif value is not None:
            records.append(LogRecord(offset, value))
    end = start + len(values)
    return Log(topic, partition, tuple(records), start, end, incarnation)


class HistoryBuilder:
    """Builds a history; each event is one second after the one before."""

    def __init__(self) -> None:
        self.history: list[events.Event] = []
        self.time = 0.0
        self._sends: dict[bytes, int] = {}
        self._calls = 0

    def add(self, kind: Any, client: str, *values: Any, **named: Any) -> Any:
        self.time += 1.0
        event = kind(self.time, client, *values, **named)
        self.history.append(event)
        return event

    def made(self, topic: str = "t", partitions: int = 1) -> None:
        self.add(events.TopicCreated, "", topic, partitions)

    def deleted(self, topic: str = "t") -> None:
        self.add(events.TopicDeleted, "", topic)

    # --- producers ---

    def producer(self, name: str = "p", **options: Any) -> None:
        self.add(events.Opened, name, "producer", {"client_id": name, **PRODUCER, **options})

    def sending(
        self, *values: bytes, client: str = "p", topic: str = "t", transaction: int | None = None
    ) -> int:
        send = len(self._sends) + 1
        self._sends.update(dict.fromkeys(values, send))
        self.add(events.Sending, client, send, topic, values, None, transaction, 60.0)
        return send

    def handed(self, value: bytes, client: str = "p") -> None:
        self.add(events.RecordsBuffered, client, self._sends[value], 120.0)

    def send(self, *values: bytes, client: str = "p", **named: Any) -> None:
        self.sending(*values, client=client, **named)
        self.handed(values[0], client)

    def acknowledge(
        self, offset: int, value: bytes, client: str = "p", tp: TopicPartition = T0
    ) -> None:
        send = self._sends[value]
        self.add(events.Acknowledged, client, send, tp.topic, tp.partition, ((offset, value),))

    def fail(
        self, value: bytes, error: str = "DeliveryTimedOut", unknown: bool = False, **named: Any
    ) -> None:
        client = named.pop("client", "p")
        self.add(events.Failed, client, self._sends[value], (value,), error, unknown, **named)

    def sent(self, *values: bytes, client: str = "p", first: int = 0) -> None:
        """Add records that are acknowledged one by one, at successive offsets."""
        for offset, value in enumerate(values, first):
            self.send(value, client=client)
            self.acknowledge(offset, value, client)

    # --- transactions ---

    def began(self, number: int, client: str = "p") -> None:
        self.add(events.TransactionBegan, client, number)

    def offsets_sent(self, number: int, offset: int, client: str = "p", group: str = "g") -> None:
        self.add(events.OffsetsSent, client, number, group, ((T0, offset),))

    def end_txn_requested(self, number: int, commit: bool = True, client: str = "p") -> None:
        self.add(events.EndTxnRequested, client, number, commit)

    def ended(self, number: int, outcome: Any = "committed", client: str = "p") -> None:
        self.add(events.TransactionEnded, client, number, outcome)

    # --- consumers ---

    def consumer(self, name: str = "c", *, topics: Sequence[str] = ("t",), **options: Any) -> None:
        self.add(events.Opened, name, "consumer", {"client_id": name, **CONSUMER, **options})
        if topics:
            self.add(events.Subscribed, name, tuple(topics))

    def assigned(self, *partitions: TopicPartition, client: str = "c") -> None:
        self.add(events.Assigned, client, partitions)

    def revoked(self, *partitions: TopicPartition, client: str = "c") -> None:
        self.add(events.Revoked, client, partitions)

    def lost(self, *partitions: TopicPartition, client: str = "c") -> None:
        self.add(events.Lost, client, partitions)

    def call(
        self, name: str, limit_s: float | None = None, *, client: str = "c", task: str = "1"
    ) -> int:
        self._calls += 1
        self.add(events.Called, client, self._calls, name, limit_s, task)
        return self._calls

    def returned(
        self, call: int, error: str | None = None, client: str = "c", **named: Any
    ) -> None:
        self.add(events.Returned, client, call, error, **named)

    def polled(
        self,
        *records: tuple[int, bytes],
        client: str = "c",
        tp: TopicPartition = T0,
        following: int | None = None,
        task: str = "1",
    ) -> None:
        """Add a call that returns records."""
        call = self.call("getmany", 10.0, client=client, task=task)
        end = records[-1][0] + 1 if following is None else following
        self.add(events.Polled, client, tp.topic, tp.partition, records, end, task)
        self.returned(call, client=client)

    def sought(self, to: int | str, tp: TopicPartition = T0, client: str = "c") -> None:
        self.add(events.PositionSought, client, (tp,), to)

    def commit(
        self, offset: int | None, outcome: Any = "ok", client: str = "c", tp: TopicPartition = T0
    ) -> None:
        call = self.call("commit", 60.0, client=client, task="1" if offset is None else "")
        given = None if offset is None else ((tp, offset),)
        self.add(events.Committing, client, call, given)
        self.add(events.Committed, client, call, outcome)
        self.returned(call, client=client)

    def closed(self, client: str = "c", error: str | None = None, cancelled: bool = False) -> None:
        self.add(events.Closed, client, error, cancelled)

    # --- what is found ---

    def found(self, *logs: Log, **rest: Any) -> list[tuple[int, str]]:
        """Return the violations as (invariant, text).

        `guarantees` are fields of `Guarantees`; the rest are fields of `Observed`.
        """
        guarantees = Guarantees(**rest.pop("guarantees", {}))
        check_result = judge(self.history, Observed(logs=logs, **rest), guarantees)
        return [(each.invariant, each.text) for each in check_result.violations]

    def not_checked(self, *logs: Log, **rest: Any) -> dict[int, str]:
        guarantees = Guarantees(**rest.pop("guarantees", {}))
        return judge(self.history, Observed(logs=logs, **rest), guarantees).not_checked
