"""Contents and requests of the brokers, and leftovers of the clients.

None instead of a collection says that nothing is known of it (requests, at a real Kafka).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tests.invariants.events import Offsets, Partitions

Fate = Literal["none", "committed", "aborted", "open"]
"""Of a record's transaction; "none": it was not sent in one."""


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record of data as the log has it."""

    offset: int
    value: bytes
    fate: Fate = "none"
    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1


@dataclass(frozen=True, slots=True)
class Log:
    """Contents of a partition at the end, in the order of offsets; control records are left out.

    `incarnation` counts from 0 how often the topic was deleted and made again before. `whole`:
    nothing was deleted by retention; otherwise what is before `start_offset` is gone. `misdated`:
    where batches begin that claim another newest time than their records have.
    """

    topic: str
    partition: int
    records: tuple[LogRecord, ...]
    start_offset: int = 0
    end_offset: int = 0
    incarnation: int = 0
    misdated: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """One OffsetCommit as a coordinator took it up, or (`producer_id` >= 0) a TxnOffsetCommit.

    `errors` are the codes of its offsets, in their order; None if it was not carried out.
    `connected_at` is the time of its connection's first request. `put_off`: it was to ask again
    later, elsewhere or there. `done_at`: when it had been carried out, if that was not at once.
    `crowded`: its node took up another request in the very moment, as one that was stopped does
    when it goes on: who sent them may be gone."""

    at: float
    client: str
    group: str
    member: str
    generation: int
    offsets: Offsets
    errors: tuple[int, ...] | None
    node: int = 0
    connection: int = 0
    connected_at: float = 0.0
    producer_id: int = -1
    put_off: bool = False
    done_at: float = 0.0
    crowded: bool = False


@dataclass(frozen=True, slots=True)
class Assignment:
    """Response of a coordinator to SyncGroup. `received`: a later request on the connection proves
    that the response arrived."""

    at: float
    client: str
    group: str
    member: str
    generation: int
    partitions: Partitions
    cooperative: bool = False
    received: bool = True


@dataclass(frozen=True, slots=True)
class GenerationAssigned:
    """Assignment of each member, as sent by the leader of a generation."""

    at: float
    group: str
    generation: int
    members: tuple[tuple[str, Partitions], ...]


@dataclass(frozen=True, slots=True)
class PositionLost:
    """A fetch was answered by OFFSET_OUT_OF_RANGE (or a diverging epoch, told as that), or that the
    topic is unknown or another one: the reader's position may be no more."""

    at: float
    client: str
    topic: str
    partition: int
    code: int = 1


@dataclass(frozen=True, slots=True)
class Refusal:
    """A broker refused what only a mistake of the client's can have made wrong, as long as nothing
    is broken."""

    at: float
    client: str
    api: str
    code: int


@dataclass(frozen=True, slots=True)
class Peak:
    """The most that a client held of something with a configured limit."""

    client: str
    what: str
    value: int
    limit: int


@dataclass(frozen=True, slots=True)
class Observed:
    """All of it. `committed` is what groups have at the end, by group, topic and partition;
    `members` are those that are not static: the group, and the client's id. `joined` is when a
    client got its first JoinGroup response, which has its member id.

    `left_behind` are tasks, sockets, timers after everything was closed; `unreadable` what brokers
    were sent and could not read; `refusals` what they took for a mistake; `crashes` what escaped
    from tasks to nobody; `log_lines` and `reprs` what was written for people.
    """

    logs: tuple[Log, ...] = ()
    committed: dict[str, Offsets] | None = None
    commits: tuple[CommitRequest, ...] | None = None
    assignments: tuple[Assignment, ...] | None = None
    generations: tuple[GenerationAssigned, ...] | None = None
    members: tuple[tuple[str, str], ...] | None = None
    joined: tuple[tuple[str, float], ...] = ()
    positions_lost: tuple[PositionLost, ...] | None = None
    left_behind: tuple[str, ...] | None = None
    peaks: tuple[Peak, ...] | None = None
    refusals: tuple[Refusal, ...] | None = None
    unreadable: tuple[str, ...] | None = None
    crashes: tuple[str, ...] | None = None
    log_lines: tuple[str, ...] | None = None
    reprs: tuple[str, ...] | None = None
    ended_at: float | None = None
