"""State machine of one replica: a node's log of a partition, as leader or follower.

The controller assigns the role (LeaderAndIsr). A leader tracks the fetch offsets of its followers.
Records that all in-sync replicas have are below the high watermark, and only those are visible to
consumers. A follower first truncates its log to a prefix of the leader's: to the high watermark,
since KIP-101 to the end of the last common epoch, which since KIP-595 the Fetch response contains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiokafkawire.broker.replication.controller_commands import LeaderAndIsr
from aiokafkawire.broker.topics import NO_LEADER, Partition
from aiokafkawire.records.batch import iter_batches
from aiokafkawire.runtime.state_machine import transition
from aiokafkawire.wire import Buffer

__all__ = (
    "TRANSITIONS",
    "BecomeFollower",
    "BecomeLeader",
    "Diverged",
    "EpochEndReceived",
    "Event",
    "FetchOutOfRange",
    "FollowerFetched",
    "FollowerState",
    "Following",
    "IsrRecorded",
    "LagCheckDue",
    "LeaderOffsetFound",
    "Leading",
    "Offline",
    "RecordsAppended",
    "RecordsFetched",
    "Replica",
    "ResolvingOffset",
    "State",
    "StopFollowing",
    "Truncating",
)

UNKNOWN = -1
"""An unknown epoch or offset."""

Isr = tuple[int, ...]


# --- events --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BecomeLeader:
    """The controller made this node the leader."""

    assignment: LeaderAndIsr


@dataclass(frozen=True, slots=True)
class BecomeFollower:
    """The controller made another node the leader."""

    assignment: LeaderAndIsr


@dataclass(frozen=True, slots=True)
class StopFollowing:
    """The controller stopped the replica."""


@dataclass(frozen=True, slots=True)
class RecordsAppended:
    """The leader appended to its log."""


@dataclass(frozen=True, slots=True)
class FollowerFetched:
    """A follower fetched from `offset`, so it has all earlier records."""

    follower: int
    offset: int


@dataclass(frozen=True, slots=True)
class LagCheckDue:
    """Followers that did not catch up within `lag_s` are out of sync."""

    lag_s: float


@dataclass(frozen=True, slots=True)
class IsrRecorded:
    """The ISR that the leader requested applies."""

    isr: Isr


@dataclass(frozen=True, slots=True)
class EpochEndReceived:
    """The leader returned the end offset of an epoch, -1 if it is unknown.

    `epoch` is the largest epoch of the leader's log up to the requested one, -1 if not returned.
    """

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class RecordsFetched:
    """The leader returned records and its high watermark.

    Handling it raises `CorruptRecord` for damaged records, and writes nothing then.
    """

    records: Buffer
    high_watermark: int
    start_offset: int = UNKNOWN


@dataclass(frozen=True, slots=True)
class Diverged:
    """The leader's log diverges from the last fetched epoch and offset (KIP-595)."""

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class FetchOutOfRange:
    """The leader does not have the fetch offset."""


@dataclass(frozen=True, slots=True)
class LeaderOffsetFound:
    """The end of the leader's log, or its start if the end is already known."""

    offset: int


Event = (
    BecomeLeader
    | BecomeFollower
    | StopFollowing
    | RecordsAppended
    | FollowerFetched
    | LagCheckDue
    | IsrRecorded
    | EpochEndReceived
    | RecordsFetched
    | Diverged
    | FetchOutOfRange
    | LeaderOffsetFound
)


# --- states --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Offline:
    """The replica has a log but no role."""


@dataclass(frozen=True, slots=True)
class Truncating:
    """The follower needs the end offset of an epoch in the leader's log."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Following:
    """The log is a prefix of the leader's, and the follower fetches the rest."""


@dataclass(frozen=True, slots=True)
class ResolvingOffset:
    """The end is outside the leader's log: the follower needs its end and then its start."""

    end_known: bool = False


@dataclass(slots=True)
class FollowerState:
    """Progress of a follower, as its leader sees it. Times are on the node's clock."""

    offset: int = UNKNOWN
    caught_up_at: float = -math.inf
    fetched_at: float = -math.inf
    last_fetch_leader_end_offset: int = UNKNOWN


@dataclass(frozen=True, slots=True)
class Leading:
    """The leader; `followers` are all other replicas.

    `leader_epoch_start_offset` is the end of its log when it became leader.
    """

    followers: Mapping[int, FollowerState]
    leader_epoch_start_offset: int = 0


State = Offline | Truncating | Following | ResolvingOffset | Leading


@dataclass(slots=True, eq=False)
class Replica(Partition):
    """A node's view of a partition.

    Leader, epoch, ISR and replicas are those that the controller sent; as leader, the node also
    changes the ISR. `truncates_by_epoch` and `truncates_on_fetch` select how a follower truncates
    its log. With fewer in-sync replicas than `min_in_sync` the high watermark does not advance
    (KIP-966).
    """

    node_id: int = NO_LEADER
    truncates_by_epoch: bool = True
    truncates_on_fetch: bool = False
    state: State = field(default_factory=Offline)
    watermark: int = 0
    min_in_sync: int = 0

    @property
    def high_watermark(self) -> int:
        return self.watermark

    @property
    def is_high_watermark_current(self) -> bool:
        return (
            not isinstance(self.state, Leading)
            or self.watermark >= self.state.leader_epoch_start_offset
        )

    def count_replicas_at(self, offset: int) -> int:
        """Return the number of replicas with all records before an offset, as far as known."""
        have = int(self.log.end_offset >= offset)
        if isinstance(self.state, Leading):
            have += sum(each.offset >= offset for each in self.state.followers.values())
        return have

    def on_append(self) -> None:
        self.handle(RecordsAppended(), 0.0)

    def accepts(self, kind: type[Event]) -> bool:
        """Return True if the event applies in the current state."""
        return (type(self.state), kind) in TRANSITIONS

    def handle(self, event: Event, now: float) -> Isr | None:
        """Apply an event; return an ISR that the leader wants to be recorded."""
        return transition(TRANSITIONS, self.state, event)(self, event, now)

    def advance_high_watermark(self, offset: int) -> None:
        """Raise the high watermark; it never moves back."""
        if offset > self.watermark:
            self.watermark = offset
            self.on_change.notify()

    def truncate_to(self, offset: int) -> None:
        """Truncate the log to an offset."""
        self.log.truncate(offset)
        end = self.log.end_offset
        self.watermark = min(self.watermark, end)
        if isinstance(self.state, Leading):
            for position in self.state.followers.values():
                position.offset = min(position.offset, end)


# --- transitions ---------------------------------------------------------------------------------


def _apply_assignment(replica: Replica, assignment: LeaderAndIsr) -> None:
    replica.leader, replica.leader_epoch = assignment.leader, assignment.leader_epoch
    replica.isr, replica.replicas = list(assignment.isr), list(assignment.replicas)


def _become_leader(replica: Replica, event: BecomeLeader, now: float) -> None:
    state, assignment = replica.state, event.assignment
    before = state if isinstance(state, Leading) else Leading({}, replica.log.end_offset)
    _apply_assignment(replica, assignment)
    followers = {
        node: before.followers.get(node)
        or FollowerState(caught_up_at=now if node in assignment.isr else -math.inf)
        for node in assignment.replicas
        if node != replica.node_id
    }
    replica.state = Leading(followers, before.leader_epoch_start_offset)
    _maybe_advance_high_watermark(replica)
    # Requests that wait here must notice the new epoch.
    replica.on_change.notify()


def _become_follower(replica: Replica, event: BecomeFollower, now: float) -> None:
    _apply_assignment(replica, event.assignment)
    epoch = replica.log.latest_epoch
    if epoch == UNKNOWN or not replica.truncates_by_epoch:
        replica.truncate_to(replica.watermark)
        replica.state = Following()
    else:
        replica.state = Following() if replica.truncates_on_fetch else Truncating(epoch)
    replica.on_change.notify()


def _keep_following(replica: Replica, event: BecomeFollower, now: float) -> None:
    """Before KIP-101, keep following the same leader in a new epoch without truncation."""
    if replica.truncates_by_epoch or event.assignment.leader != replica.leader:
        _become_follower(replica, event, now)
    else:
        _apply_assignment(replica, event.assignment)


def _go_offline(replica: Replica, event: StopFollowing, now: float) -> None:
    replica.state = Offline()


def _keep_leading(replica: Replica, event: StopFollowing, now: float) -> None:
    """Ignore: a leader ends with another's LeaderAndIsr, or its log is deleted."""


def _maybe_advance_high_watermark(
    replica: Replica, event: RecordsAppended | None = None, now: float = 0.0
) -> None:
    """Raise the high watermark to the lowest end offset of the in-sync replicas."""
    state = replica.state
    assert isinstance(state, Leading)
    if len(replica.isr) < min(replica.min_in_sync, len(replica.replicas)):
        return
    ends = [state.followers[node].offset for node in replica.isr if node in state.followers]
    replica.advance_high_watermark(min([replica.log.end_offset, *ends]))


def _on_append(replica: Replica, event: RecordsAppended, now: float) -> None:
    _maybe_advance_high_watermark(replica)
    # Followers wait for new records, consumers for the high watermark.
    replica.on_change.notify()


def _on_follower_fetch(replica: Replica, event: FollowerFetched, now: float) -> Isr | None:
    state = replica.state
    assert isinstance(state, Leading)
    position = state.followers.get(event.follower)
    if position is None:
        return None
    end = replica.log.end_offset
    if event.offset >= end:
        position.caught_up_at = now
    elif event.offset >= position.last_fetch_leader_end_offset:
        position.caught_up_at = max(position.caught_up_at, position.fetched_at)
    position.offset, position.fetched_at, position.last_fetch_leader_end_offset = (
        event.offset,
        now,
        end,
    )
    _maybe_advance_high_watermark(replica)
    # Requests with acks above 1 count the replicas.
    replica.on_change.notify()
    # The previous leader's high watermark may have reached the start of this leader epoch.
    if event.follower in replica.isr or event.offset < max(
        replica.watermark, state.leader_epoch_start_offset
    ):
        return None
    new_isr = {*replica.isr, event.follower}
    return tuple(node for node in replica.replicas if node in new_isr)


def _maybe_shrink_isr(replica: Replica, event: LagCheckDue, now: float) -> Isr | None:
    state = replica.state
    assert isinstance(state, Leading)
    slow = {
        node
        for node, position in state.followers.items()
        if position.caught_up_at < now - event.lag_s
    }
    kept = tuple(node for node in replica.isr if node not in slow)
    return None if len(kept) == len(replica.isr) else kept


def _on_isr_recorded(replica: Replica, event: IsrRecorded, now: float) -> None:
    replica.isr = list(event.isr)
    _maybe_advance_high_watermark(replica)
    replica.on_change.notify()


def _truncate_to_epoch_end(replica: Replica, event: EpochEndReceived, now: float) -> None:
    """Truncate where the log diverges from the leader's (KIP-101, KIP-279)."""
    state = replica.state
    assert isinstance(state, Truncating)
    log = replica.log
    if event.end_offset == UNKNOWN:
        replica.truncate_to(replica.watermark)
    elif event.epoch in {UNKNOWN, state.epoch}:
        replica.truncate_to(event.end_offset)
    else:
        local = log.end_offset_for_epoch(event.epoch, replica.leader_epoch)
        if local is not None and local[0] < event.epoch and local[0] != UNKNOWN:
            # The leader has an epoch that this log lacks: ask for the previous one.
            replica.truncate_to(local[1])
            replica.state = Truncating(local[0])
            return
        replica.truncate_to(event.end_offset if local is None else min(local[1], event.end_offset))
    replica.state = Following()


def _truncate_diverging(replica: Replica, event: Diverged, now: float) -> None:
    """Truncate where the log diverges; the next fetch shows if that was enough."""
    local = replica.log.end_offset_for_epoch(event.epoch, replica.leader_epoch)
    if local is None:
        replica.truncate_to(event.end_offset)
    elif local[0] == event.epoch:
        replica.truncate_to(min(local[1], event.end_offset))
    else:
        # The leader has an epoch that this log lacks.
        replica.truncate_to(local[1])


def _append_fetched(replica: Replica, event: RecordsFetched, now: float) -> None:
    log = replica.log
    views = list(iter_batches(event.records))
    for view in views:
        view.check_crc()
    for view in views:
        if view.base_offset >= log.end_offset:
            log.append(bytes(view.buffer), view)
    log.delete_before(event.start_offset)
    replica.advance_high_watermark(min(event.high_watermark, log.end_offset))
    # Wake debugging consumers and others that wait for the end of the log.
    replica.on_change.notify()


def _on_out_of_range(replica: Replica, event: FetchOutOfRange, now: float) -> None:
    replica.state = ResolvingOffset()


def _on_leader_offset(replica: Replica, event: LeaderOffsetFound, now: float) -> None:
    """Truncate to the end of the leader's log, or restart at its start offset."""
    state, log = replica.state, replica.log
    assert isinstance(state, ResolvingOffset)
    if state.end_known:
        log.truncate_fully_and_start_at(event.offset)
        replica.watermark = event.offset
        replica.state = Following()
    elif event.offset < log.end_offset:
        replica.truncate_to(event.offset)
        replica.state = Following()
    else:
        replica.state = ResolvingOffset(end_known=True)


TRANSITIONS: Mapping[
    tuple[type[State], type[Event]], Callable[[Replica, Any, float], Isr | None]
] = {
    (Offline, BecomeLeader): _become_leader,
    (Offline, BecomeFollower): _become_follower,
    (Offline, StopFollowing): _go_offline,
    (Leading, BecomeLeader): _become_leader,
    (Leading, BecomeFollower): _become_follower,
    (Leading, StopFollowing): _keep_leading,
    (Leading, RecordsAppended): _on_append,
    (Leading, FollowerFetched): _on_follower_fetch,
    (Leading, LagCheckDue): _maybe_shrink_isr,
    (Leading, IsrRecorded): _on_isr_recorded,
    (Truncating, BecomeLeader): _become_leader,
    (Truncating, BecomeFollower): _become_follower,
    (Truncating, StopFollowing): _go_offline,
    (Truncating, EpochEndReceived): _truncate_to_epoch_end,
    (Following, BecomeLeader): _become_leader,
    (Following, BecomeFollower): _keep_following,
    (Following, StopFollowing): _go_offline,
    (Following, RecordsFetched): _append_fetched,
    (Following, Diverged): _truncate_diverging,
    (Following, FetchOutOfRange): _on_out_of_range,
    (ResolvingOffset, BecomeLeader): _become_leader,
    (ResolvingOffset, BecomeFollower): _become_follower,
    (ResolvingOffset, StopFollowing): _go_offline,
    (ResolvingOffset, LeaderOffsetFound): _on_leader_offset,
}
"""Handler of each event in each state; missing pairs cannot occur."""
