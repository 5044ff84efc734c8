"""Contents and requests of the brokers, and leftovers of the clients.

None instead of a collection: not known (for example requests to a real Kafka).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from verify.invariants.events import Offsets, Partitions

Fate = Literal["none", "committed", "aborted", "open"]
"""Outcome of a record's transaction; "none": it is not transactional."""


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One data record of a log."""

    offset: int
    value: bytes
    fate: Fate = "none"
    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1


@dataclass(frozen=True, slots=True)
class Log:
    """Contents of a partition at the end, in the order of offsets, without control records.

    `incarnation` counts from 0 how often the topic was recreated before. `whole`: retention deleted
    nothing; otherwise records before `start_offset` are gone. `misdated`: base offsets of batches
    with a wrong maximum timestamp.
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
    """One OffsetCommit handled by a coordinator, or (`producer_id` >= 0) a TxnOffsetCommit.

    `errors` are the error codes in the order of the offsets; None if it was not handled.
    `connected_at` is the time of its connection's first request. `retriable_error`: the error is
    retriable. `done_at`: when it was handled, if that was later. `in_backlog`: the node handled
    another request at the same moment, as a resumed node does with its backlog; the sender may be
    gone.
    """

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
    retriable_error: bool = False
    done_at: float = 0.0
    in_backlog: bool = False


@dataclass(frozen=True, slots=True)
class Assignment:
    """Response of a coordinator to SyncGroup, or to a heartbeat of the consumer protocol, whose
    member epoch is the generation. `received`: a later request on the connection proves
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
class MemberRemoved:
    """A coordinator has removed a member, the member joined again, or its classic group became a
    consumer group during or soon after a rebalance (`by_conversion`): the coordinator does not know
    what the member owns."""

    at: float
    client: str
    group: str
    by_conversion: bool = False


@dataclass(frozen=True, slots=True)
class SharedPartition:
    """A coordinator gave a partition to two members at once."""

    at: float
    group: str
    partition: int
    clients: tuple[str, str]


@dataclass(frozen=True, slots=True)
class PositionLost:
    """A fetch returned OFFSET_OUT_OF_RANGE (or a diverging epoch), or an unknown or other topic:
    the reader's position may be lost."""

    at: float
    client: str
    topic: str
    partition: int
    code: int = 1


@dataclass(frozen=True, slots=True)
class RejectedRequest:
    """A broker rejected a request with an error that without faults only a faulty client causes."""

    at: float
    client: str
    api: str
    code: int


@dataclass(frozen=True, slots=True)
class ShareAcquired:
    """A member of a share group acquired records, from `first` to `last`.

    `limit` is the delivery count limit of the group. `loaded` is a number of the share partition in
    memory: a leader that loads it again knows no locks of the one before.
    """

    at: float
    client: str
    group: str
    topic: str
    partition: int
    first: int
    last: int
    delivery_count: int
    limit: int
    loaded: int


@dataclass(frozen=True, slots=True)
class ShareLocksEnded:
    """Records from `first` to `last` left the state Acquired; `state` is the one that follows."""

    at: float
    group: str
    topic: str
    partition: int
    first: int
    last: int
    state: Literal["available", "acknowledged", "archived"]
    delivery_count: int


@dataclass(frozen=True, slots=True)
class Peak:
    """Highest use of something with a configured limit."""

    client: str
    what: str
    value: int
    limit: int


@dataclass(frozen=True, slots=True)
class Observed:
    """All observations.

    `committed` are the final offsets by group, topic and partition. `members` are the remaining
    dynamic members: the group, and the client id. `removed` are members that left or were removed,
    `shared` partitions that several members of a consumer group had. `joined` is the time of a
    client's first response to JoinGroup or ConsumerGroupHeartbeat: it is a member. `share_changes`
    are the changes of records of share groups, in their order. `left_behind`
    are tasks, sockets and timers after closing everything; `unreadable` requests that brokers could
    not read; `rejected_requests` requests rejected as faulty; `crashes` unhandled task failures;
    `log_lines` and `reprs` texts for people.
    """

    logs: tuple[Log, ...] = ()
    committed: dict[str, Offsets] | None = None
    commits: tuple[CommitRequest, ...] | None = None
    assignments: tuple[Assignment, ...] | None = None
    generations: tuple[GenerationAssigned, ...] | None = None
    members: tuple[tuple[str, str], ...] | None = None
    joined: tuple[tuple[str, float], ...] = ()
    removed: tuple[MemberRemoved, ...] | None = None
    shared: tuple[SharedPartition, ...] | None = None
    positions_lost: tuple[PositionLost, ...] | None = None
    share_changes: tuple[ShareAcquired | ShareLocksEnded, ...] | None = None
    left_behind: tuple[str, ...] | None = None
    peaks: tuple[Peak, ...] | None = None
    rejected_requests: tuple[RejectedRequest, ...] | None = None
    unreadable: tuple[str, ...] | None = None
    crashes: tuple[str, ...] | None = None
    log_lines: tuple[str, ...] | None = None
    reprs: tuple[str, ...] | None = None
    ended_at: float | None = None
