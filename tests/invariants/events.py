"""Events of a run as the users of the clients see them.

A history is a list of events in the order in which they happened. Several processes write one each,
as JSON lines, and `merged` puts them together.

Each record has a value of its own: `make_value(producer, number, payload)`. A record that is sent
again (an application's retry, repeated work) gets another number; its payload may be the same."""

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
"""Of a commit: acknowledged; surely not carried out; nobody knows."""

Ending = Literal["committed", "aborted", "unknown", "fenced"]
"""Of a transaction. "unknown": committed or aborted, as a whole; "fenced": as good as aborted."""

CANCELLED = "Cancelled"
"""The error of a call that was cancelled."""


class RecordIdentity(NamedTuple):
    """Producer, number and payload encoded in a record's value."""

    producer: str
    number: int
    payload: bytes


def make_value(producer: str, number: int, payload: bytes = b"") -> bytes:
    """The value of a producer's record; no two have the same number."""
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
    """`at` is in seconds on the run's clock, `client` the name of who saw it ("" for the world)."""

    at: float
    client: str


# --- clients and their calls ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Opened(Event):
    """A client was made; `options` as its configuration has them, `kind` "producer", "consumer"."""

    kind: str
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Closed(Event):
    """A client was left in good order; `error` is what leaving raised. `cancelled`: a cancellation
    ended what it was used for."""

    error: str | None = None
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Crashed(Event):
    """A client ended without closing: its process or host died."""


@dataclass(frozen=True, slots=True)
class Called(Event):
    """A call began. It may take `limit_s` seconds; None: it waits for data, as `async for` does.

    `task` identifies the calling task: its records count as processed when it calls again.
    """

    call: int
    name: str
    limit_s: float | None
    task: str = ""


@dataclass(frozen=True, slots=True)
class Returned(Event):
    """A call ended. `error` is the class of what it raised, `typed` whether that is of the kinds
    that callers may count on: `KafkaError`, a cancellation, or the application's own."""

    call: int
    error: str | None = None
    typed: bool = True
    text: str = ""


# --- sending -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sending(Event):
    """Records are about to be handed over, in this order: one, or several in one call.

    `send` is a number of the client's own, `partition` what the application asked for,
    `transaction` the one that was open. `limit_s` is that of the handing over.
    """

    send: int
    topic: str
    values: tuple[bytes, ...]
    partition: int | None = None
    transaction: int | None = None
    limit_s: float | None = None


@dataclass(frozen=True, slots=True)
class HandedOver(Event):
    """The call returned: the client has the records, and owes an outcome of each within `limit_s`
    seconds, counted from now."""

    send: int
    limit_s: float | None = None


@dataclass(frozen=True, slots=True)
class Acknowledged(Event):
    """Records of a send were acknowledged, at these offsets (-1: not returned).

    `awaited_at` is since when the application waited for it; None if it did not.
    """

    send: int
    topic: str
    partition: int
    records: tuple[tuple[int, bytes], ...]
    awaited_at: float | None = None


@dataclass(frozen=True, slots=True)
class Failed(Event):
    """Records of a send failed, before or after they were handed over.

    `may_be_written`: the log may hold them, as the error says or the call cannot know.
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
    """The client is closed, and deliveries that the application held have no outcome."""

    send: int
    values: tuple[bytes, ...]


# --- transactions --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Began(Event):
    """A transaction began; `transaction` is a number of the client's own."""

    transaction: int


@dataclass(frozen=True, slots=True)
class OffsetsSent(Event):
    """`send_offsets_to_transaction` was called: offsets of a group, and a transaction."""

    transaction: int
    group: str
    offsets: Offsets


@dataclass(frozen=True, slots=True)
class EndAsked(Event):
    """A transaction is about to be ended: before this nobody may see it as committed."""

    transaction: int
    commit: bool


@dataclass(frozen=True, slots=True)
class Ended(Event):
    """End of a transaction as far as its producer knows."""

    transaction: int
    outcome: Ending


# --- reading -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Subscribed(Event):
    """A consumer reads topics from now on, as a member of its group if it has one."""

    topics: tuple[str, ...]
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class AssignedByHand(Event):
    """A consumer reads exactly these partitions from now on."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class Unsubscribed(Event):
    """A consumer reads nothing from now on."""


@dataclass(frozen=True, slots=True)
class Assigned(Event):
    """The listener hears of partitions that came."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class Revoked(Event):
    """The listener hears of partitions that go; until its end they may be committed."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class Lost(Event):
    """The listener hears of partitions that are gone."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class CallbackEnded(Event):
    """A method of the listener returned, or was cancelled."""

    name: str


@dataclass(frozen=True, slots=True)
class Polled(Event):
    """The application was given records of a partition; reading goes on at `next_offset`."""

    topic: str
    partition: int
    records: tuple[tuple[int, bytes], ...]
    next_offset: int
    task: str = ""


@dataclass(frozen=True, slots=True)
class Sought(Event):
    """The application moved the position: to an offset, or to "beginning", "end", "committed"."""

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
    """The application commits these offsets; None: all that it was given."""

    call: int
    offsets: Offsets | None


@dataclass(frozen=True, slots=True)
class Committed(Event):
    """Outcome of a commit."""

    call: int
    outcome: Outcome


# --- the world -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicMade(Event):
    """A topic was made, or one of the same name made again, or it has more partitions now."""

    topic: str
    partitions: int


@dataclass(frozen=True, slots=True)
class TopicDeleted(Event):
    topic: str


@dataclass(frozen=True, slots=True)
class Fault(Event):
    """Something was broken on purpose, for those who read the history."""

    text: str


@dataclass(frozen=True, slots=True)
class Healed(Event):
    """From now on nothing is broken any more."""


@dataclass(frozen=True, slots=True)
class Settled(Event):
    """These groups have come to rest: nothing is broken, and no rebalance is under way."""

    groups: tuple[str, ...]


# --- to and from JSON ----------------------------------------------------------------------------


class _Kinds:
    by_name: ClassVar[dict[str, type[Event]]] = {}


def kinds() -> dict[str, type[Event]]:
    """Every kind of event by its name."""
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
    """An event as one line of JSON."""
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
}


def from_line(line: str) -> Event:
    """The event of a line of JSON."""
    fields = json.loads(line)
    kind = kinds()[fields.pop("event")]
    for name, value in fields.items():
        if name in _BACK:
            fields[name] = _BACK[name](value)
        elif name == "partitions" and isinstance(value, list):
            fields[name] = _partitions(value)
    return kind(**fields)


def from_lines(lines: Iterable[str]) -> Iterator[Event]:
    """The events of JSON lines. A last line without its end (its writer was killed) is left out."""
    for line in lines:
        if line.endswith("\n"):
            yield from_line(line)


def merged(histories: Iterable[Sequence[Event]]) -> list[Event]:
    """One history of several that were written at once, with the same clock."""
    return sorted((event for history in histories for event in history), key=lambda each: each.at)
