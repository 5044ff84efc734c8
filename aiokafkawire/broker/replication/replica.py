"""One replica: what a node has of a partition, and the part that it plays. A machine.

A node leads a partition or follows its leader as the controller tells it (LeaderAndIsr). A leader
knows from the fetches of its followers how far they are: what all in-sync replicas (the ISR) have
is before the high watermark, and only that is for consumers. A follower's log has to be a beginning
of its leader's, so it first cuts off what may not be: all after the high watermark, or since
KIP-101 all after the end of the epoch that both know, which since KIP-595 the answer to a fetch
tells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiokafkawire.broker.cluster_state import NO_LEADER, Partition
from aiokafkawire.broker.replication.messages import Assignment
from aiokafkawire.records.batch import iter_batches
from aiokafkawire.runtime.transitions import transition
from aiokafkawire.wire import Buffer

__all__ = (
    "TRANSITIONS",
    "Appended",
    "BecomeFollower",
    "BecomeLeader",
    "Diverged",
    "EpochEnded",
    "Event",
    "Fetched",
    "Following",
    "IsrRecorded",
    "Leading",
    "LogFound",
    "Offline",
    "OutOfRange",
    "Outside",
    "Position",
    "Received",
    "Replica",
    "State",
    "Stop",
    "TimePassed",
    "Truncating",
)

UNKNOWN = -1
"""An epoch or an offset that is not known."""

Isr = tuple[int, ...]


# --- what happens --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BecomeLeader:
    """The controller says that this node leads."""

    told: Assignment


@dataclass(frozen=True, slots=True)
class BecomeFollower:
    """The controller says that another node leads."""

    told: Assignment


@dataclass(frozen=True, slots=True)
class Stop:
    """The controller says that the node shall not follow any more."""


@dataclass(frozen=True, slots=True)
class Appended:
    """The leader wrote to its log."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A follower asked the leader for what comes from `offset` on: it has all before."""

    follower: int
    offset: int


@dataclass(frozen=True, slots=True)
class TimePassed:
    """A follower that was not at the leader's end for longer than `lag_s` is too slow."""

    lag_s: float


@dataclass(frozen=True, slots=True)
class IsrRecorded:
    """The ISR that the leader asked for is in force."""

    isr: Isr


@dataclass(frozen=True, slots=True)
class EpochEnded:
    """The leader says where its log ends the epoch it was asked for, -1 when it cannot tell.

    `epoch` is the newest up to that one which the leader's log has, -1 if it does not say.
    """

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Received:
    """What the leader gave of its log, and how far that goes.

    Handling it raises `CorruptRecords` for what was damaged on its way; nothing is written then.
    """

    records: Buffer
    high_watermark: int
    start_offset: int = UNKNOWN


@dataclass(frozen=True, slots=True)
class Diverged:
    """The leader's log ends an epoch before what was fetched last: both part there (KIP-595)."""

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """The leader has no such offset as this node asked for."""


@dataclass(frozen=True, slots=True)
class LogFound:
    """The end of the leader's log, or if that was known already, the start."""

    offset: int


Event = (
    BecomeLeader
    | BecomeFollower
    | Stop
    | Appended
    | Fetched
    | TimePassed
    | IsrRecorded
    | EpochEnded
    | Received
    | Diverged
    | OutOfRange
    | LogFound
)


# --- what a replica is ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Offline:
    """It has a log, and takes no part."""


@dataclass(frozen=True, slots=True)
class Truncating:
    """It shall follow, and has to learn where the leader's log ends an epoch that is its own."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Following:
    """Its log is a beginning of the leader's, and it fetches what is missing."""


@dataclass(frozen=True, slots=True)
class Outside:
    """Its end is not within the leader's log: it needs the end of that, and then the start."""

    end_known: bool = False


@dataclass(slots=True)
class Position:
    """How far a follower is, as its leader sees it. Times are on the clock of the node."""

    offset: int = UNKNOWN
    caught_up_at: float = -math.inf
    fetched_at: float = -math.inf
    end_seen: int = UNKNOWN


@dataclass(frozen=True, slots=True)
class Leading:
    """It takes what producers send; `followers` are all other replicas.

    `began_at` is where its log ended when it began to lead.
    """

    followers: Mapping[int, Position]
    began_at: int = 0


State = Offline | Truncating | Following | Outside | Leading


@dataclass(slots=True, eq=False)
class Replica(Partition):
    """A partition as one node has it.

    The leader, its epoch, the ISR and the replicas are those that the controller told the node; the
    ISR also what the node as leader made of it. `by_epoch`: how a follower cuts its log off;
    `on_fetch`: it need not ask where before it fetches.
    `min_in_sync`: with fewer replicas in sync than that the high watermark stands (KIP-966).
    """

    node_id: int = NO_LEADER
    by_epoch: bool = True
    on_fetch: bool = False
    state: State = field(default_factory=Offline)
    watermark: int = 0
    min_in_sync: int = 0

    @property
    def high_watermark(self) -> int:
        return self.watermark

    @property
    def is_high_watermark_current(self) -> bool:
        return not isinstance(self.state, Leading) or self.watermark >= self.state.began_at

    def count_replicas_at(self, offset: int) -> int:
        """How many replicas have all before an offset; of the others if the node leads."""
        have = int(self.log.end_offset >= offset)
        if isinstance(self.state, Leading):
            have += sum(each.offset >= offset for each in self.state.followers.values())
        return have

    def on_append(self) -> None:
        self.handle(Appended(), 0.0)

    def takes(self, kind: type[Event]) -> bool:
        """Whether such an event means something to it now."""
        return (type(self.state), kind) in TRANSITIONS

    def handle(self, event: Event, now: float) -> Isr | None:
        """Go on. Gives the ISR that a leader wants, which has to be recorded before it is one."""
        return transition(TRANSITIONS, self.state, event)(self, event, now)

    def raise_watermark(self, offset: int) -> None:
        """Let consumers have what comes before an offset; it never goes back."""
        if offset > self.watermark:
            self.watermark = offset
            self.on_change.notify()

    def cut(self, offset: int) -> None:
        """Cut the log off at an offset."""
        self.log.truncate(offset)
        end = self.log.end_offset
        self.watermark = min(self.watermark, end)
        if isinstance(self.state, Leading):
            for position in self.state.followers.values():
                position.offset = min(position.offset, end)


# --- transitions ---------------------------------------------------------------------------------


def _take(replica: Replica, told: Assignment) -> None:
    replica.leader, replica.leader_epoch = told.leader, told.leader_epoch
    replica.isr, replica.replicas = list(told.isr), list(told.replicas)


def _lead(replica: Replica, event: BecomeLeader, now: float) -> None:
    state, told = replica.state, event.told
    before = state if isinstance(state, Leading) else Leading({}, replica.log.end_offset)
    _take(replica, told)
    followers = {
        node: before.followers.get(node)
        or Position(caught_up_at=now if node in told.isr else -math.inf)
        for node in told.replicas
        if node != replica.node_id
    }
    replica.state = Leading(followers, before.began_at)
    _advance(replica)
    # Whoever waits here may have to hear that the epoch is another one.
    replica.on_change.notify()


def _follow(replica: Replica, event: BecomeFollower, now: float) -> None:
    _take(replica, event.told)
    epoch = replica.log.latest_epoch
    if epoch == UNKNOWN or not replica.by_epoch:
        replica.cut(replica.watermark)
        replica.state = Following()
    else:
        replica.state = Following() if replica.on_fetch else Truncating(epoch)
    replica.on_change.notify()


def _follow_on(replica: Replica, event: BecomeFollower, now: float) -> None:
    """Before KIP-101 a node that follows the same leader in a new epoch goes on as it was."""
    if replica.by_epoch or event.told.leader != replica.leader:
        _follow(replica, event, now)
    else:
        _take(replica, event.told)


def _stop(replica: Replica, event: Stop, now: float) -> None:
    replica.state = Offline()


def _stay(replica: Replica, event: Stop, now: float) -> None:
    """A leader is told of its end by another's LeaderAndIsr, or has its log deleted."""


def _advance(replica: Replica, event: Appended | None = None, now: float = 0.0) -> None:
    """Raise the high watermark to what every in-sync replica has."""
    state = replica.state
    assert isinstance(state, Leading)
    if len(replica.isr) < min(replica.min_in_sync, len(replica.replicas)):
        return
    ends = [state.followers[node].offset for node in replica.isr if node in state.followers]
    replica.raise_watermark(min([replica.log.end_offset, *ends]))


def _append(replica: Replica, event: Appended, now: float) -> None:
    _advance(replica)
    # Followers wait for what is written, consumers for the high watermark.
    replica.on_change.notify()


def _note(replica: Replica, event: Fetched, now: float) -> Isr | None:
    state = replica.state
    assert isinstance(state, Leading)
    position = state.followers.get(event.follower)
    if position is None:
        return None
    end = replica.log.end_offset
    if event.offset >= end:
        position.caught_up_at = now
    elif event.offset >= position.end_seen:
        position.caught_up_at = max(position.caught_up_at, position.fetched_at)
    position.offset, position.fetched_at, position.end_seen = event.offset, now, end
    _advance(replica)
    # Who waits for acknowledgements of a number of replicas counts them.
    replica.on_change.notify()
    # The high watermark of the leader before may have been as far as where this one began.
    if event.follower in replica.isr or event.offset < max(replica.watermark, state.began_at):
        return None
    grown = {*replica.isr, event.follower}
    return tuple(node for node in replica.replicas if node in grown)


def _shrink(replica: Replica, event: TimePassed, now: float) -> Isr | None:
    state = replica.state
    assert isinstance(state, Leading)
    slow = {
        node
        for node, position in state.followers.items()
        if position.caught_up_at < now - event.lag_s
    }
    kept = tuple(node for node in replica.isr if node not in slow)
    return None if len(kept) == len(replica.isr) else kept


def _adopt(replica: Replica, event: IsrRecorded, now: float) -> None:
    replica.isr = list(event.isr)
    _advance(replica)
    replica.on_change.notify()


def _truncate(replica: Replica, event: EpochEnded, now: float) -> None:
    """Cut the log off where it parts from the leader's (KIP-101, KIP-279)."""
    state = replica.state
    assert isinstance(state, Truncating)
    log = replica.log
    if event.end_offset == UNKNOWN:
        replica.cut(replica.watermark)
    elif event.epoch in {UNKNOWN, state.epoch}:
        replica.cut(event.end_offset)
    else:
        own = log.end_offset_for_epoch(event.epoch, replica.leader_epoch)
        if own is not None and own[0] < event.epoch and own[0] != UNKNOWN:
            # The leader has an epoch that is not known here: ask for the one before it.
            replica.cut(own[1])
            replica.state = Truncating(own[0])
            return
        replica.cut(event.end_offset if own is None else min(own[1], event.end_offset))
    replica.state = Following()


def _part(replica: Replica, event: Diverged, now: float) -> None:
    """Cut the log off where it parts from the leader's; the next fetch tells if it was enough."""
    own = replica.log.end_offset_for_epoch(event.epoch, replica.leader_epoch)
    if own is None:
        replica.cut(event.end_offset)
    elif own[0] == event.epoch:
        replica.cut(min(own[1], event.end_offset))
    else:
        # The leader has an epoch that is not known here.
        replica.cut(own[1])


def _extend(replica: Replica, event: Received, now: float) -> None:
    log = replica.log
    views = list(iter_batches(event.records))
    for view in views:
        view.check_crc()
    for view in views:
        if view.base_offset >= log.end_offset:
            log.append(bytes(view.buffer), view)
    log.delete_before(event.start_offset)
    replica.raise_watermark(min(event.high_watermark, log.end_offset))
    # Debug consumers and others who wait for the log's end.
    replica.on_change.notify()


def _leave_range(replica: Replica, event: OutOfRange, now: float) -> None:
    replica.state = Outside()


def _return(replica: Replica, event: LogFound, now: float) -> None:
    """Cut off what the leader does not have, or begin anew at the leader's start."""
    state, log = replica.state, replica.log
    assert isinstance(state, Outside)
    if state.end_known:
        log.truncate_fully_and_start_at(event.offset)
        replica.watermark = event.offset
        replica.state = Following()
    elif event.offset < log.end_offset:
        replica.cut(event.offset)
        replica.state = Following()
    else:
        replica.state = Outside(end_known=True)


TRANSITIONS: Mapping[
    tuple[type[State], type[Event]], Callable[[Replica, Any, float], Isr | None]
] = {
    (Offline, BecomeLeader): _lead,
    (Offline, BecomeFollower): _follow,
    (Offline, Stop): _stop,
    (Leading, BecomeLeader): _lead,
    (Leading, BecomeFollower): _follow,
    (Leading, Stop): _stay,
    (Leading, Appended): _append,
    (Leading, Fetched): _note,
    (Leading, TimePassed): _shrink,
    (Leading, IsrRecorded): _adopt,
    (Truncating, BecomeLeader): _lead,
    (Truncating, BecomeFollower): _follow,
    (Truncating, Stop): _stop,
    (Truncating, EpochEnded): _truncate,
    (Following, BecomeLeader): _lead,
    (Following, BecomeFollower): _follow_on,
    (Following, Stop): _stop,
    (Following, Received): _extend,
    (Following, Diverged): _part,
    (Following, OutOfRange): _leave_range,
    (Outside, BecomeLeader): _lead,
    (Outside, BecomeFollower): _follow,
    (Outside, Stop): _stop,
    (Outside, LogFound): _return,
}
"""What each state makes of each event; a pair that is not here cannot be."""
