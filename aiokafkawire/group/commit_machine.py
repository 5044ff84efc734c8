"""State machine of a group's offset commits.

At most one OffsetCommit per group is in flight. Commits submitted meanwhile are merged: the newest
offset per partition wins. If the outcome of a request is unknown, the newest offsets are sent again
until they are acknowledged. Protocol source: OffsetCommit of Kafka's protocol guide.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import NamedTuple

from aiokafkawire.connection.backoff import Backoff
from aiokafkawire.errors import CommitFailed, KafkaError
from aiokafkawire.runtime.interfaces import AT_ONCE, NEVER
from aiokafkawire.runtime.state_machine import Transitions, stay, transition
from aiokafkawire.types import OffsetAndMetadata, TopicPartition
from aiokafkawire.wire.error_codes import ErrorCode, error_for

from .commit_events import (
    ChunkCommitted,
    CommitDue,
    CommitEffect,
    CommitEvent,
    CommitRequestFailed,
    CommitResponseReceived,
    CommitSubmitted,
    CompleteCommit,
    Offsets,
    OwnershipEnded,
    Rejoined,
    ReportCommitted,
    SendCommit,
    VerifyMembership,
)
from .membership.effects import ForgetCoordinator
from .membership.states import NO_GENERATION

__all__ = (
    "TRANSITIONS",
    "AwaitingRebalance",
    "CommitBackoff",
    "CommitIdle",
    "CommitInFlight",
    "CommitMachine",
)

REBALANCE_CHECK_INTERVAL_S = 1.0
"""Interval of the checks whether the rebalance that a commit waits for continues."""

MAX_UNKNOWN_TOPIC_COMMITS = 3
"""A commit fails after this many consecutive responses with an unknown topic.

Fewer may mean that the topic is new, and not known everywhere yet.
"""

_FENCED_CODES = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
_COORDINATOR_MOVED_CODES = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
)
_UNKNOWN_TOPIC_CODES = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class PendingOffset(NamedTuple):
    """An unacknowledged offset. `commit_id` is the newest commit that contains it."""

    offset: OffsetAndMetadata
    commit_id: int


# --- states -----------------------------------------------------------------------------------


class CommitState:
    __slots__ = ()

    @property
    def deadline(self) -> float:
        """When `CommitDue` may be handled if offsets are pending."""
        return NEVER


@dataclass(frozen=True, slots=True)
class CommitIdle(CommitState):
    @property
    def deadline(self) -> float:
        return AT_ONCE


@dataclass(frozen=True, slots=True)
class CommitInFlight(CommitState):
    """OffsetCommit is in flight.

    `rejoined` is the end of a rebalance that happened meanwhile. `unknown_topic_responses` counts
    consecutive responses with an unknown topic.
    """

    request: int
    sent: Mapping[TopicPartition, PendingOffset]
    generation: int
    attempt: int
    rejoined: Rejoined | None = None
    unknown_topic_responses: int = 0


@dataclass(frozen=True, slots=True)
class CommitBackoff(CommitState):
    """Waits after a retriable error."""

    until: float
    attempt: int
    unknown_topic_responses: int = 0

    @property
    def deadline(self) -> float:
        return self.until


@dataclass(frozen=True, slots=True)
class AwaitingRebalance(CommitState):
    """Waits for the end of a rebalance, then commits what is owned in the next generation.

    At `until` it checks whether the rebalance continues.
    """

    generation: int
    until: float

    @property
    def deadline(self) -> float:
        return self.until


Outcome = tuple[CommitState, Sequence[CommitEffect]]


@dataclass(slots=True)
class PendingCommit:
    unacknowledged: set[TopicPartition]
    before_revocation: bool


class CommitMachine:
    """The commits of one group. `handle` takes an event and returns the effects."""

    def __init__(self, backoff: Backoff, rng: random.Random) -> None:
        self.state: CommitState = CommitIdle()
        self.pending_offsets: dict[TopicPartition, PendingOffset] = {}
        self.pending_commits: dict[int, PendingCommit] = {}
        self._backoff = backoff
        self._rng = rng
        self._last = 0

    def submit(
        self, offsets: Offsets, now: float, *, before_revocation: bool = False
    ) -> tuple[int, Sequence[CommitEffect]]:
        """Add offsets to commit; `CompleteCommit` with the returned id reports the outcome."""
        commit_id = self.new_id()
        return commit_id, self.handle(
            CommitSubmitted(commit_id, dict(offsets), before_revocation), now
        )

    def abandon(self, commit_id: int) -> None:
        """Stop reporting the outcome of a commit. Its offsets are still committed."""
        self.pending_commits.pop(commit_id, None)

    def handle(self, event: CommitEvent, now: float) -> Sequence[CommitEffect]:
        """Go to the next state and return its effects. Ignore late responses."""
        if isinstance(
            event, ChunkCommitted | CommitResponseReceived | CommitRequestFailed
        ) and not (isinstance(self.state, CommitInFlight) and self.state.request == event.request):
            return ()
        self.state, effects = transition(TRANSITIONS, self.state, event)(
            self, self.state, event, now
        )
        return effects

    def next_deadline(self) -> float:
        """Return when `CommitDue` is due: `NEVER` if nothing is pending, or a response is."""
        return self.state.deadline if self.pending_offsets else NEVER

    # For handlers -------------------------------------------------------------------------------

    def new_id(self) -> int:
        self._last += 1
        return self._last

    def backoff_s(self, attempt: int) -> float:
        return self._backoff.delay(attempt, self._rng)

    def acknowledge(self, sent: Mapping[TopicPartition, PendingOffset]) -> Iterable[CompleteCommit]:
        """Remove acknowledged offsets, and complete the commits that wait for no others."""
        for tp, pending in sent.items():
            # mutation: newer-commit-forgotten-with-older
            if self.pending_offsets.get(tp) is pending:
                del self.pending_offsets[tp]
        for commit_id, commit in list(self.pending_commits.items()):
            acknowledged = [tp for tp in sent if tp in commit.unacknowledged]
            for tp in acknowledged:
                # mutation: commit-acknowledged-by-older-one
                if commit_id <= sent[tp].commit_id:
                    commit.unacknowledged.remove(tp)
            if acknowledged and not commit.unacknowledged:
                del self.pending_commits[commit_id]
                yield CompleteCommit(commit_id, None)

    def fail_commits(
        self, tp: TopicPartition, error: KafkaError, up_to: int | None = None
    ) -> Iterable[CompleteCommit]:
        """Fail the commits that contain a partition, except those newer than `up_to`."""
        pending = self.pending_offsets.get(tp)
        if pending is not None and (up_to is None or pending.commit_id <= up_to):
            del self.pending_offsets[tp]
        for commit_id, commit in list(self.pending_commits.items()):
            if tp in commit.unacknowledged and (up_to is None or commit_id <= up_to):
                del self.pending_commits[commit_id]
                yield CompleteCommit(commit_id, error)

    def is_before_revocation(self, sent: PendingOffset) -> bool:
        commit = self.pending_commits.get(sent.commit_id)
        return commit is not None and commit.before_revocation


def _submit(
    machine: CommitMachine, state: CommitState, event: CommitSubmitted, now: float
) -> Outcome:
    if not event.offsets:
        return state, (CompleteCommit(event.commit_id, None),)
    machine.pending_commits[event.commit_id] = PendingCommit(
        set(event.offsets), event.before_revocation
    )
    machine.pending_offsets.update(
        zip(
            event.offsets,
            map(PendingOffset, event.offsets.values(), repeat(event.commit_id)),
            strict=True,
        )
    )
    return state, ()


def _submit_while_rebalancing(
    machine: CommitMachine, state: AwaitingRebalance, event: CommitSubmitted, now: float
) -> Outcome:
    next_state, effects = _submit(machine, state, event, now)
    # Partitions that are being revoked cannot wait for the next generation.
    return CommitIdle() if event.before_revocation else next_state, effects


def _send(
    machine: CommitMachine, state: CommitIdle | CommitBackoff, event: CommitDue, now: float
) -> Outcome:
    if machine.next_deadline() > now:
        return state, ()
    attempt, unknown_topic_responses = (
        (state.attempt, state.unknown_topic_responses)
        if isinstance(state, CommitBackoff)
        else (0, 0)
    )
    request = machine.new_id()
    sending = CommitInFlight(
        request,
        dict(machine.pending_offsets),
        event.generation,
        attempt,
        unknown_topic_responses=unknown_topic_responses,
    )
    offsets = {tp: pending.offset for tp, pending in machine.pending_offsets.items()}
    return sending, (SendCommit(request, offsets),)


def _chunk_committed(
    machine: CommitMachine, state: CommitInFlight, event: ChunkCommitted, now: float
) -> Outcome:
    sent = dict(state.sent)
    # Partitions whose ownership ended meanwhile are no longer in `sent`.
    chunk = {tp: sent.pop(tp) for tp in event.partitions if tp in sent}
    committed = ReportCommitted({tp: pending.offset for tp, pending in chunk.items()})
    return replace(state, sent=sent), [committed, *machine.acknowledge(chunk)]


def _response_received(
    machine: CommitMachine, state: CommitInFlight, event: CommitResponseReceived, now: float
) -> Outcome:
    committed: dict[TopicPartition, OffsetAndMetadata] = {}
    effects: list[CommitEffect] = []
    must_await_rebalance = must_retry = must_verify = must_find_coordinator = False
    is_member = state.generation != NO_GENERATION
    rejoins = event.in_cooperative_rejoin or state.rejoined is not None
    has_unknown_topics = not _UNKNOWN_TOPIC_CODES.isdisjoint(event.codes.values())
    unknown_topic_responses = state.unknown_topic_responses + 1 if has_unknown_topics else 0
    for tp, sent in state.sent.items():
        code = event.codes.get(tp, ErrorCode.UNKNOWN_SERVER_ERROR)
        rebalancing = is_member and code == ErrorCode.REBALANCE_IN_PROGRESS
        # mutation: illegal-generation-counts-as-committed
        if code == ErrorCode.NONE:
            committed[tp] = sent.offset
            effects += machine.acknowledge({tp: sent})
        elif (
            code == ErrorCode.ILLEGAL_GENERATION
            and rejoins
            and not machine.is_before_revocation(sent)
        ):
            # The next generation has begun. Kept partitions can be committed there.
            must_await_rebalance = True
        elif code in _FENCED_CODES or (rebalancing and machine.is_before_revocation(sent)):
            must_verify = True
            effects += machine.fail_commits(
                tp, _fenced_error(tp, code, event.broker), sent.commit_id
            )
        elif rebalancing:
            must_await_rebalance = True
            must_verify |= not rejoins
        # mutation: commit-with-stale-epoch-fails
        elif is_member and code == ErrorCode.STALE_MEMBER_EPOCH:
            # Sent again with the epoch of the next heartbeat (KIP-848).
            must_retry = must_verify = True
        elif error_for(code).retriable and not (
            code in _UNKNOWN_TOPIC_CODES and unknown_topic_responses >= MAX_UNKNOWN_TOPIC_COMMITS
        ):
            # mutation: refused-commit-sent-without-backoff
            must_retry = True
            must_find_coordinator |= code in _COORDINATOR_MOVED_CODES
        else:
            context = error_for(
                code, api="OffsetCommit", broker=event.broker, topic=tp.topic,
                partition=tp.partition, offset=sent.offset.offset,
            )  # fmt: skip
            effects += machine.fail_commits(tp, context, sent.commit_id)
    if committed:
        effects.insert(0, ReportCommitted(committed))
    if must_verify:
        effects.append(VerifyMembership())
    if must_find_coordinator:
        effects.append(ForgetCoordinator())
    if must_await_rebalance:
        next_state, more = _await_rebalance(machine, state, now)
        return next_state, (*effects, *more)
    if must_retry:
        return _back_off(machine, state.attempt, now, unknown_topic_responses), effects
    return CommitIdle(), effects


def _await_rebalance(machine: CommitMachine, state: CommitInFlight, now: float) -> Outcome:
    """Wait for the end of the rebalance, unless it ended or a commit cannot wait for it."""
    awaiting = AwaitingRebalance(state.generation, now + REBALANCE_CHECK_INTERVAL_S)
    if state.rejoined is not None:
        return _resume_after_rebalance(machine, awaiting, state.rejoined, now)
    if any(machine.is_before_revocation(pending) for pending in machine.pending_offsets.values()):
        return CommitIdle(), ()
    return awaiting, ()


def _request_failed(
    machine: CommitMachine, state: CommitInFlight, event: CommitRequestFailed, now: float
) -> Outcome:
    if event.error.retriable:
        # The outcome is unknown, so the newest offsets are sent again.
        return _back_off(machine, state.attempt, now, state.unknown_topic_responses), (
            ForgetCoordinator(),
        )
    effects: list[CommitEffect] = []
    for tp, sent in state.sent.items():
        effects += machine.fail_commits(tp, event.error, sent.commit_id)
    return CommitIdle(), effects


def _back_off(
    machine: CommitMachine, attempt: int, now: float, unknown_topic_responses: int
) -> CommitBackoff:
    return CommitBackoff(now + machine.backoff_s(attempt + 1), attempt + 1, unknown_topic_responses)


def _fenced_error(tp: TopicPartition, code: int, broker: str | None) -> CommitFailed:
    name = ErrorCode(code).name
    return CommitFailed(
        f"the member was removed from the group ({name}); records since its last commit"
        " are delivered again",
        api="OffsetCommit",
        broker=broker,
        topic=tp.topic,
        partition=tp.partition,
    )


def _end(machine: CommitMachine, state: CommitState, event: OwnershipEnded, now: float) -> Outcome:
    effects: list[CommitEffect] = []
    for tp in event.partitions:
        error = CommitFailed(event.reason, topic=tp.topic, partition=tp.partition)
        effects += machine.fail_commits(tp, error)
    return state, effects


def _end_while_in_flight(
    machine: CommitMachine, state: CommitInFlight, event: OwnershipEnded, now: float
) -> Outcome:
    _, effects = _end(machine, state, event, now)
    still_owned = {tp: pending for tp, pending in state.sent.items() if tp not in event.partitions}
    return replace(state, sent=still_owned), effects


def _end_while_rebalancing(
    machine: CommitMachine, state: AwaitingRebalance, event: OwnershipEnded, now: float
) -> Outcome:
    return _end(machine, state, event, now) if event.lost else (state, ())


def _resume_after_rebalance(
    machine: CommitMachine, state: AwaitingRebalance, event: Rejoined, now: float
) -> Outcome:
    # After a missed generation, another member may have read and committed further.
    still_owned = set(event.owned) if event.generation <= state.generation + 1 else set()
    # mutation: held-commits-sent-without-ownership
    not_owned = [tp for tp in machine.pending_offsets if tp not in still_owned]
    _, effects = _end(
        machine,
        state,
        OwnershipEnded(not_owned, True, "the partition was assigned to another member"),
        now,
    )
    return CommitIdle(), effects


def _rejoined_while_in_flight(
    machine: CommitMachine, state: CommitInFlight, event: Rejoined, now: float
) -> Outcome:
    return replace(state, rejoined=event), ()


def _check_rebalance(
    machine: CommitMachine, state: AwaitingRebalance, event: CommitDue, now: float
) -> Outcome:
    if machine.next_deadline() > now:
        return state, ()
    if event.rebalancing:
        return replace(state, until=now + REBALANCE_CHECK_INTERVAL_S), ()
    # The coordinator rejected the commit, but this member is not in a rebalance.
    rejoined = Rejoined(event.generation, machine.pending_offsets.keys())
    return _resume_after_rebalance(machine, state, rejoined, now)


TRANSITIONS: Transitions[CommitMachine, CommitState, CommitEffect] = {
    (CommitIdle, CommitSubmitted): _submit,
    (CommitIdle, CommitDue): _send,
    (CommitIdle, OwnershipEnded): _end,
    (CommitIdle, Rejoined): stay,
    (CommitInFlight, CommitSubmitted): _submit,
    (CommitInFlight, CommitDue): stay,
    (CommitInFlight, ChunkCommitted): _chunk_committed,
    (CommitInFlight, CommitResponseReceived): _response_received,
    (CommitInFlight, CommitRequestFailed): _request_failed,
    (CommitInFlight, OwnershipEnded): _end_while_in_flight,
    (CommitInFlight, Rejoined): _rejoined_while_in_flight,
    (CommitBackoff, CommitSubmitted): _submit,
    (CommitBackoff, CommitDue): _send,
    (CommitBackoff, OwnershipEnded): _end,
    (CommitBackoff, Rejoined): stay,
    (AwaitingRebalance, CommitSubmitted): _submit_while_rebalancing,
    (AwaitingRebalance, CommitDue): _check_rebalance,
    (AwaitingRebalance, OwnershipEnded): _end_while_rebalancing,
    (AwaitingRebalance, Rejoined): _resume_after_rebalance,
}
