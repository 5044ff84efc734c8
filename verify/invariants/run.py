"""A history and its observations, indexed for the checks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from aiokafkawire.types import TopicPartition
from verify.invariants.check_result import Guarantees
from verify.invariants.events import (
    Acknowledged,
    Closed,
    Crashed,
    Event,
    Failed,
    FaultsHealed,
    Opened,
    OutcomeMissing,
    RecordsBuffered,
    Sending,
    TopicCreated,
    TopicDeleted,
)
from verify.invariants.observed import Log, LogRecord, Observed

__all__ = ("Client", "Run", "Sent")

E = TypeVar("E", bound=Event)

NOT_YET = 2**62
"""Place in a history of an event that did not happen."""

ASKING_S = 1.0
"""Time for a metadata request."""


@dataclass(slots=True)
class Client:
    """Facts about a client.

    `ended_at` is the time at which it was closed or crashed, None if neither; `cancelled`: it was
    closed because of a cancellation.
    """

    name: str
    kind: str
    options: dict[str, Any]
    opened: Opened
    ended_at: float | None = None
    crashed: bool = False
    cancelled: bool = False

    @property
    def group(self) -> str | None:
        return self.options.get("group_id")

    @property
    def secure(self) -> bool:
        """True if connections begin with TLS or SASL."""
        return self.options.get("security_protocol", "PLAINTEXT") != "PLAINTEXT"

    @property
    def read_committed(self) -> bool:
        return self.options.get("isolation_level") == "read_committed"

    @property
    def transactional(self) -> bool:
        return self.options.get("transactional_id") is not None

    @property
    def idempotent(self) -> bool:
        return bool(self.options.get("idempotent"))

    @property
    def learns_of_topics_within_s(self) -> float:
        """Time in which the next metadata request shows that a topic was recreated."""
        return ASKING_S + self.seconds("metadata_max_age_ms")

    def seconds(self, option: str, default_ms: float = 0.0) -> float:
        """Return an option given in milliseconds, in seconds."""
        found = self.options.get(option)
        return (default_ms if found is None else found) / 1_000


@dataclass(slots=True)
class Sent:
    """One sent record.

    `began` and `over` are places in the history: the start of the call, and the first place at
    which the hand-over is certainly over.
    """

    value: bytes
    client: str
    sending: Sending
    index: int
    began: int
    over: int = NOT_YET
    handed_at: float | None = None
    acknowledged: Acknowledged | None = None
    offset: int = -1
    failed: Failed | None = None
    limit_s: float | None = None


@dataclass(slots=True)
class _Sends:
    by_value: dict[bytes, Sent] = field(default_factory=dict)
    by_call: dict[tuple[str, int], list[Sent]] = field(default_factory=dict)
    outcomes_missing: list[OutcomeMissing] = field(default_factory=list)
    repeated: list[Sending] = field(default_factory=list)


class Run:
    """Indexes of one run; each is built by one pass at first use."""

    def __init__(
        self, history: Sequence[Event], observed: Observed, guarantees: Guarantees
    ) -> None:
        self.history = history
        self.observed = observed
        self.guarantees = guarantees

    @cached_property
    def kinds(self) -> dict[type[Event], list[tuple[int, Any]]]:
        """Events of each kind, with their places."""
        found: dict[type[Event], list[tuple[int, Any]]] = defaultdict(list)
        for place, event in enumerate(self.history):
            found[type(event)].append((place, event))
        return found

    def of(self, kind: type[E]) -> Iterator[E]:
        """Yield the events of one kind, in order."""
        for _, event in self.kinds.get(kind, ()):
            yield event

    @cached_property
    def by_client(self) -> dict[str, list[Event]]:
        """Events of each client, in order."""
        found: dict[str, list[Event]] = defaultdict(list)
        for event in self.history:
            found[event.client].append(event)
        return found

    @cached_property
    def clients(self) -> dict[str, Client]:
        """Clients by name."""
        found: dict[str, Client] = {}
        for event in self.of(Opened):
            found[event.client] = Client(event.client, event.kind, event.options, event)
        for ended in [*self.of(Closed), *self.of(Crashed)]:
            client = found.get(ended.client)
            if client is not None and client.ended_at is None:
                client.ended_at = ended.at
                client.crashed = isinstance(ended, Crashed)
                client.cancelled = isinstance(ended, Closed) and ended.cancelled
        return found

    @cached_property
    def ended_at(self) -> float:
        """End of the run."""
        if self.observed.ended_at is not None:
            return self.observed.ended_at
        return self.history[-1].at if self.history else 0.0

    @cached_property
    def healed_at(self) -> float | None:
        """End of the last fault; None if unknown."""
        healed = [event.at for event in self.of(FaultsHealed)]
        return healed[-1] if healed else None

    # --- topics ---

    @cached_property
    def partitions(self) -> dict[str, int]:
        """Return the final number of partitions per topic."""
        found: dict[str, int] = {}
        for event in self.history:
            if type(event) is TopicCreated:
                found[event.topic] = event.partitions
            elif type(event) is TopicDeleted:
                found.pop(event.topic, None)
        return found

    @cached_property
    def made_at(self) -> dict[str, list[float]]:
        """Creation times of each topic's incarnations."""
        found: dict[str, list[float]] = {}
        gone: set[str] = set()
        for event in self.history:
            if type(event) is TopicDeleted:
                gone.add(event.topic)
            elif type(event) is TopicCreated and (event.topic in gone or event.topic not in found):
                found.setdefault(event.topic, []).append(event.at)
                gone.discard(event.topic)
        return found

    @cached_property
    def deleted_at(self) -> dict[str, list[float]]:
        """Deletion times of each topic's incarnations; the last one may still exist."""
        found: dict[str, list[float]] = defaultdict(list)
        for event in self.history:
            if type(event) is TopicDeleted:
                found[event.topic].append(event.at)
        return found

    @cached_property
    def logs(self) -> dict[TopicPartition, list[Log]]:
        """Logs of each partition, the oldest incarnation first."""
        found: dict[TopicPartition, list[Log]] = defaultdict(list)
        for log in sorted(self.observed.logs, key=lambda log: log.incarnation):
            found[TopicPartition(log.topic, log.partition)].append(log)
        return found

    @cached_property
    def stored(self) -> dict[bytes, list[tuple[Log, LogRecord]]]:
        """Return the places at which each value is stored."""
        found: dict[bytes, list[tuple[Log, LogRecord]]] = {}
        for log in self.observed.logs:
            for record in log.records:
                places = found.get(record.value)
                if places is None:
                    found[record.value] = [(log, record)]
                else:
                    places.append((log, record))
        return found

    # --- sends ---

    @cached_property
    def _sends(self) -> _Sends:
        sends = _Sends()
        for place, event in enumerate(self.history):
            if type(event) is Sending:
                self._began(sends, place, event)
            elif type(event) is RecordsBuffered:
                for sent in sends.by_call.get((event.client, event.send), ()):
                    sent.over, sent.handed_at = place, event.at
                    sent.limit_s = event.limit_s
            elif type(event) is Acknowledged:
                for offset, value in event.records:
                    sent = sends.by_value.get(value)
                    if sent is not None:
                        sent.acknowledged, sent.offset = event, offset
                        sent.over = min(sent.over, place)
            elif type(event) is Failed:
                for value in event.values:
                    sent = sends.by_value.get(value)
                    if sent is not None:
                        sent.failed = event
                        sent.over = min(sent.over, place)
            elif type(event) is OutcomeMissing:
                sends.outcomes_missing.append(event)
        return sends

    @staticmethod
    def _began(sends: _Sends, place: int, event: Sending) -> None:
        records = []
        for index, value in enumerate(event.values):
            if value in sends.by_value:
                sends.repeated.append(event)
                continue
            sent = Sent(value, event.client, event, index, place)
            sends.by_value[value] = sent
            records.append(sent)
        sends.by_call[event.client, event.send] = records

    @property
    def sent(self) -> dict[bytes, Sent]:
        """Every sent record by its value."""
        return self._sends.by_value

    @property
    def outcomes_missing(self) -> list[OutcomeMissing]:
        """Deliveries without an outcome after their client was closed."""
        return self._sends.outcomes_missing

    @property
    def repeated(self) -> list[Sending]:
        """Sends of a value that another record has already: an error of the scenario."""
        return self._sends.repeated

    @cached_property
    def by_client_id(self) -> dict[str, Client | None]:
        """Clients by client id; None for an id that several have."""
        found: dict[str, Client | None] = {}
        for client in self.clients.values():
            client_id = str(client.options.get("client_id", client.name))
            found[client_id] = None if client_id in found else client
        return found
