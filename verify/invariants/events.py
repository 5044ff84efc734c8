"""Events of a run as the users of the clients see them.

A history is a list of events in order. With several processes each writes its own as JSON lines,
and `merged` combines them.

Each record has a unique value: `make_value(producer, number, payload)`. A record that is sent again
(an application's retry, repeated work) gets another number; its payload may be the same.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from aiokafkawire.types import TopicPartition

Partitions = tuple[TopicPartition, ...]
Offsets = tuple[tuple[TopicPartition, int], ...]

Outcome = Literal["ok", "failed", "unknown"]
"""Outcome of a commit: acknowledged, certainly not stored, or unknown."""

Ending = Literal["committed", "aborted", "unknown", "fenced"]
"""Outcome of a transaction. "unknown": committed or aborted completely; "fenced": like aborted."""

CANCELLED = "Cancelled"
"""Error name of a cancelled call."""


class RecordIdentity(NamedTuple):
    """Producer, number and payload encoded in a record's value."""

    producer: str
    number: int
    payload: bytes


def make_value(producer: str, number: int, payload: bytes = b"") -> bytes:
    """Return the value of a producer's record; each number is used once."""
    return b"%s-%d|%s" % (producer.encode(), number, payload)


def parse_value(value: bytes) -> RecordIdentity | None:
    """Parse a record's value; None if no recorded producer can have made it."""
    head, found, payload = value.partition(b"|")
    producer, dash, number = head.rpartition(b"-")
    if not found or not dash or not number.isdigit():
        return None
    return RecordIdentity(producer.decode("utf-8", "replace"), int(number), payload)


@dataclass(frozen=True, slots=True)
class Event:
    """`at` is in seconds on the run's clock, `client` the client's name ("" for the cluster)."""

    at: float
    client: str


# --- clients and their calls ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Opened(Event):
    """A client was created. `options` are those of its configuration, `kind` is "producer" or
    "consumer"."""

    kind: str
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Closed(Event):
    """A client was closed in good order. `error` is the error that closing raised; `cancelled`: it
    was closed because of a cancellation."""

    error: str | None = None
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Crashed(Event):
    """A client ended without closing: its process or host died."""


@dataclass(frozen=True, slots=True)
class Called(Event):
    """A call began. Its limit is `limit_s` seconds; None: it waits for data, as `async for` does.

    `task` identifies the calling task: its records count as processed when it calls again.
    """

    call: int
    name: str
    limit_s: float | None
    task: str = ""


@dataclass(frozen=True, slots=True)
class Returned(Event):
    """A call ended. `error` is the class of its error; `typed`: that is a documented kind
    (`KafkaError`, a cancellation, or the application's own error)."""

    call: int
    error: str | None = None
    typed: bool = True
    text: str = ""


# --- sending -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sending(Event):
    """Records will be handed over in this order: one, or several in one call.

    `send` is a number of the client, `partition` the one that the application chose, `transaction`
    the open one. `limit_s` is the limit of the hand-over.
    """

    send: int
    topic: str
    values: tuple[bytes, ...]
    partition: int | None = None
    transaction: int | None = None
    limit_s: float | None = None


@dataclass(frozen=True, slots=True)
class RecordsBuffered(Event):
    """The call returned: the client has the records, and owes their outcome within `limit_s`
    seconds from now."""

    send: int
    limit_s: float | None = None


@dataclass(frozen=True, slots=True)
class Acknowledged(Event):
    """Records of a send were acknowledged with these offsets (-1: not returned).

    `awaited_at` is the time since when the application awaited it; None if it did not.
    """

    send: int
    topic: str
    partition: int
    records: tuple[tuple[int, bytes], ...]
    awaited_at: float | None = None


@dataclass(frozen=True, slots=True)
class Failed(Event):
    """Records of a send failed, before or after the hand-over.

    `may_be_written`: the log may contain them, by the error or because the call cannot know.
    """

    send: int
    values: tuple[bytes, ...]
    error: str
    may_be_written: bool
    typed: bool = True
    text: str = ""
    awaited_at: float | None = None


@dataclass(frozen=True, slots=True)
class OutcomeMissing(Event):
    """The client is closed, but deliveries of the application have no outcome."""

    send: int
    values: tuple[bytes, ...]


# --- transactions --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TransactionBegan(Event):
    """A transaction began; `transaction` is a number of the client."""

    transaction: int


@dataclass(frozen=True, slots=True)
class OffsetsSent(Event):
    """`send_offsets_to_transaction` was called with offsets of a group."""

    transaction: int
    group: str
    offsets: Offsets


@dataclass(frozen=True, slots=True)
class EndTxnRequested(Event):
    """EndTxn will be sent: before this no consumer may see the transaction as committed."""

    transaction: int
    commit: bool


@dataclass(frozen=True, slots=True)
class TransactionEnded(Event):
    """End of a transaction as far as its producer knows."""

    transaction: int
    outcome: Ending


# --- reading -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Subscribed(Event):
    """A consumer subscribed to topics, as a member of its group if it has one."""

    topics: tuple[str, ...]
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionsAssignedManually(Event):
    """A consumer was assigned exactly these partitions."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class Unsubscribed(Event):
    """A consumer unsubscribed."""


@dataclass(frozen=True, slots=True)
class Assigned(Event):
    """on_partitions_assigned was called."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class Revoked(Event):
    """on_partitions_revoked was called; until it returns the partitions may be committed."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class Lost(Event):
    """on_partitions_lost was called."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class CallbackEnded(Event):
    """A method of the listener returned, or was cancelled."""

    name: str


@dataclass(frozen=True, slots=True)
class Polled(Event):
    """The application was given records of a partition; the next position is `next_offset`."""

    topic: str
    partition: int
    records: tuple[tuple[int, bytes], ...]
    next_offset: int
    task: str = ""


@dataclass(frozen=True, slots=True)
class PositionSought(Event):
    """The application sought to an offset, or to "beginning", "end" or "committed"."""

    partitions: Partitions
    to: int | str


@dataclass(frozen=True, slots=True)
class Paused(Event):
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class Resumed(Event):
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class Committing(Event):
    """The application commits these offsets; None: the offsets after all given records."""

    call: int
    offsets: Offsets | None


@dataclass(frozen=True, slots=True)
class Committed(Event):
    """Outcome of a commit."""

    call: int
    outcome: Outcome


# --- share groups --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShareReceived(Event):
    """The application was given records of a share group, with the delivery count of each."""

    topic: str
    partition: int
    records: tuple[tuple[int, bytes], ...]
    counts: tuple[int, ...]
    task: str = ""


@dataclass(frozen=True, slots=True)
class ShareDecided(Event):
    """The application decided about records: "accept", "release", "reject" or "renew".

    `owed`: the client must report the result of each of these offsets. In the implicit mode a
    decision is the next call of the task, and the client may not have sent it before it ends.
    """

    topic: str
    partition: int
    acknowledged: tuple[int, ...]
    decision: str
    owed: bool = False


@dataclass(frozen=True, slots=True)
class ShareReported(Event):
    """The client reported the result of acknowledgements; `error` is None if they succeeded.

    `decision` is empty if the report does not name it, as the acknowledgement callback does.
    """

    topic: str
    partition: int
    acknowledged: tuple[int, ...]
    error: str | None = None
    decision: str = ""


# --- topics and faults ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicCreated(Event):
    """A topic was created or recreated, or its partitions were increased."""

    topic: str
    partitions: int


@dataclass(frozen=True, slots=True)
class TopicDeleted(Event):
    topic: str


@dataclass(frozen=True, slots=True)
class Fault(Event):
    """A fault was injected; the text is for readers of the history."""

    text: str


@dataclass(frozen=True, slots=True)
class FaultsHealed(Event):
    """All faults have ended."""


@dataclass(frozen=True, slots=True)
class GroupsStable(Event):
    """These groups are stable: no fault, and no rebalance in progress."""

    groups: tuple[str, ...]


# --- to and from JSON ----------------------------------------------------------------------------


class _Kinds:
    by_name: ClassVar[dict[str, type[Event]]] = {}


def kinds() -> dict[str, type[Event]]:
    """Kinds of events by name."""
    if not _Kinds.by_name:
        _Kinds.by_name.update({kind.__name__: kind for kind in Event.__subclasses__()})
    return _Kinds.by_name


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def to_line(event: Event) -> str:
    """Return an event as one line of JSON."""
    fields = {field.name: _plain(getattr(event, field.name)) for field in dataclasses.fields(event)}
    return json.dumps({"event": type(event).__name__, **fields}, separators=(",", ":"))


def _values(plain: Sequence[str]) -> tuple[bytes, ...]:
    return tuple(value.encode("latin-1") for value in plain)


def _records(plain: Sequence[Sequence[Any]]) -> tuple[tuple[int, bytes], ...]:
    return tuple((offset, value.encode("latin-1")) for offset, value in plain)


def _partitions(plain: Sequence[Sequence[Any]]) -> Partitions:
    return tuple(TopicPartition(topic, number) for topic, number in plain)


def _offsets(plain: Sequence[Sequence[Any]] | None) -> Offsets | None:
    if plain is None:
        return None
    return tuple((TopicPartition(*partition), offset) for partition, offset in plain)


_BACK: dict[str, Any] = {
    "values": _values,
    "records": _records,
    "offsets": _offsets,
    "topics": tuple,
    "groups": tuple,
    "counts": tuple,
    "acknowledged": tuple,
}


def from_line(line: str) -> Event:
    """Return the event of a line of JSON."""
    fields = json.loads(line)
    kind = kinds()[fields.pop("event")]
    for name, value in fields.items():
        if name in _BACK:
            fields[name] = _BACK[name](value)
        elif name == "partitions" and isinstance(value, list):
            fields[name] = _partitions(value)
    return kind(**fields)


def from_lines(lines: Iterable[str]) -> Iterator[Event]:
    """Return the events of JSON lines, without an incomplete last line (its writer was killed)."""
    for line in lines:
        if line.endswith("\n"):
            yield from_line(line)


def merged(histories: Iterable[Sequence[Event]]) -> list[Event]:
    """Merge histories that were written concurrently with one clock."""
    return sorted((event for history in histories for event in history), key=lambda each: each.at)
