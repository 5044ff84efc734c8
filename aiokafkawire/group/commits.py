"""Which offsets to commit, and when it is known that they are.

One OffsetCommit of a group is under way at a time. What is asked for meanwhile replaces, partition
by partition, what was asked for before; after an outcome that nobody knows the newest offset is
sent again until it is acknowledged. Protocol source: OffsetCommit of Kafka's protocol guide.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, NamedTuple

from aiokafkawire.connection.backoff import Backoff
from aiokafkawire.errors import CommitFailed, KafkaError
from aiokafkawire.runtime.base import NEVER
from aiokafkawire.runtime.transitions import transition
from aiokafkawire.types import OffsetAndMetadata, TopicPartition
from aiokafkawire.wire.error_codes import ErrorCode, error_for

from .states import NO_GENERATION

__all__ = (
    "TRANSITIONS",
    "Answered",
    "CommitDue",
    "CommitEffect",
    "Commits",
    "Delayed",
    "Doubt",
    "Ended",
    "ForgetCoordinator",
    "Held",
    "Idle",
    "Kept",
    "PartKept",
    "Rejoined",
    "SendCommit",
    "Sending",
    "Settle",
    "Submitted",
    "Unanswered",
    "Waiting",
)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]

HOLD_S = 1.0
"""How often it is looked whether the rebalance that a commit waits for is still on."""

MAX_ABSENT = 3
"""So often in a row may the coordinator not know a topic that a commit is for: it may be new."""

_FENCING = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
_ELSEWHERE = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_ABSENT = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class Wanted(NamedTuple):
    """An offset that is not acknowledged yet; `ticket` is the newest one that asks for it."""

    offset: OffsetAndMetadata
    ticket: int


# --- states -----------------------------------------------------------------------------------


class CommitState:
    __slots__ = ()

    @property
    def deadline(self) -> float:
        return NEVER


@dataclass(frozen=True, slots=True)
class Idle(CommitState):
    pass


@dataclass(frozen=True, slots=True)
class Sending(CommitState):
    """`rejoined` is set once a rebalance ended while the answer was on its way.

    `absent` counts the answers in a row in which a topic was not known.
    """

    request: int
    sent: Mapping[TopicPartition, Wanted]
    generation: int
    attempt: int
    rejoined: Rejoined | None = None
    absent: int = 0


@dataclass(frozen=True, slots=True)
class Delayed(CommitState):
    """Waits after a failure that a repetition may mend."""

    until: float
    attempt: int
    absent: int = 0

    @property
    def deadline(self) -> float:
        return self.until


@dataclass(frozen=True, slots=True)
class Held(CommitState):
    """A rebalance is on: only what is still owned in the very next generation is sent again.

    At `until` it is time to see whether there is one at all.
    """

    generation: int
    until: float = NEVER

    @property
    def deadline(self) -> float:
        return self.until


# --- events -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Submitted:
    """`last` is a commit before the partitions are given back: no later one can mend it."""

    ticket: int
    offsets: Offsets
    last: bool


@dataclass(frozen=True, slots=True)
class CommitDue:
    """Time to send, if there is something to send; `generation` is the present one."""

    generation: int


@dataclass(frozen=True, slots=True)
class Answered:
    """The error code of each partition that was in the request.

    `keeping`: the member is on its way into the next generation, and takes its partitions along.
    `broker` is the name of the one that answered.
    """

    request: int
    codes: Mapping[TopicPartition, int]
    keeping: bool = False
    broker: str | None = None


@dataclass(frozen=True, slots=True)
class PartKept:
    """The coordinator keeps these partitions' offsets; the answer for the others follows.

    A commit of very many partitions goes out in several requests, each answered by itself.
    """

    request: int
    partitions: Collection[TopicPartition]


@dataclass(frozen=True, slots=True)
class Unanswered:
    request: int
    error: KafkaError


@dataclass(frozen=True, slots=True)
class Ended:
    """The partitions are not owned any more: given back, or `lost`."""

    partitions: Collection[TopicPartition]
    lost: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Rejoined:
    generation: int
    owned: Collection[TopicPartition]


@dataclass(frozen=True, slots=True)
class Waiting:
    """The rebalance is still on."""


CommitEvent = Waiting | Submitted | CommitDue | PartKept | Answered | Unanswered | Ended | Rejoined


# --- effects ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendCommit:
    request: int
    offsets: Offsets


@dataclass(frozen=True, slots=True)
class Kept:
    """The coordinator keeps these offsets now, whether somebody waits for that or not."""

    offsets: Offsets


@dataclass(frozen=True, slots=True)
class Settle:
    """A ticket's outcome; `error` is None once all of its offsets, or newer ones, are kept."""

    ticket: int
    error: KafkaError | None


@dataclass(frozen=True, slots=True)
class Doubt:
    """The coordinator refused this member: find out what has become of it."""


@dataclass(frozen=True, slots=True)
class ForgetCoordinator:
    pass


CommitEffect = SendCommit | Kept | Settle | Doubt | ForgetCoordinator
Outcome = tuple[CommitState, Sequence[CommitEffect]]


@dataclass(slots=True)
class Ticket:
    open: set[TopicPartition]
    last: bool


class Commits:
    """The commits of one group."""

    def __init__(self, backoff: Backoff, rng: random.Random) -> None:
        self.state: CommitState = Idle()
        self.wanted: dict[TopicPartition, Wanted] = {}
        self.tickets: dict[int, Ticket] = {}
        self._backoff = backoff
        self._rng = rng
        self._last = 0

    def submit(
        self, offsets: Offsets, now: float, *, last: bool = False
    ) -> tuple[int, Sequence[CommitEffect]]:
        """Ask for offsets to be committed; the ticket is settled by a `Settle` of its number."""
        ticket = self.new_number()
        return ticket, self.handle(Submitted(ticket, dict(offsets), last), now)

    def abandon(self, ticket: int) -> None:
        """Nobody waits for the ticket any more; its offsets are still committed."""
        self.tickets.pop(ticket, None)

    def handle(self, event: CommitEvent, now: float) -> Sequence[CommitEffect]:
        """Go to the next state. An answer to a request that is not under way has no effect."""
        if isinstance(event, PartKept | Answered | Unanswered) and not (
            isinstance(self.state, Sending) and self.state.request == event.request
        ):
            return ()
        self.state, effects = transition(TRANSITIONS, self.state, event)(
            self, self.state, event, now
        )
        return effects

    def due(self, now: float) -> bool:
        """Whether `CommitDue` would send something."""
        if isinstance(self.state, Delayed):
            return bool(self.wanted) and now >= self.state.until
        return bool(self.wanted) and isinstance(self.state, Idle)

    def overdue(self, now: float) -> bool:
        """Whether it is time to tell (`Rejoined`, or `Waiting`) if a rebalance is on."""
        return isinstance(self.state, Held) and now >= self.state.until and bool(self.wanted)

    def next_deadline(self) -> float:
        return self.state.deadline if self.wanted else NEVER

    # What handlers share ------------------------------------------------------------------------

    def new_number(self) -> int:
        self._last += 1
        return self._last

    def delay(self, attempt: int) -> float:
        return self._backoff.delay(attempt, self._rng)

    def acknowledge(self, tp: TopicPartition, sent: Wanted) -> Iterable[Settle]:
        # mutation: newer-commit-forgotten-with-older
        if self.wanted.get(tp) is sent:
            del self.wanted[tp]
        for number, ticket in list(self.tickets.items()):
            # mutation: commit-acknowledged-by-older-one
            if number <= sent.ticket and tp in ticket.open:
                ticket.open.remove(tp)
                if not ticket.open:
                    del self.tickets[number]
                    yield Settle(number, None)

    def refuse(
        self, tp: TopicPartition, error: KafkaError, up_to: int | None = None
    ) -> Iterable[Settle]:
        """Fail the tickets that wait for a partition, those after number `up_to` left alone."""
        wanted = self.wanted.get(tp)
        if wanted is not None and (up_to is None or wanted.ticket <= up_to):
            del self.wanted[tp]
        for number, ticket in list(self.tickets.items()):
            if tp in ticket.open and (up_to is None or number <= up_to):
                del self.tickets[number]
                yield Settle(number, error)

    def is_last(self, sent: Wanted) -> bool:
        ticket = self.tickets.get(sent.ticket)
        return ticket is not None and ticket.last


def _submit(m: Commits, state: CommitState, event: Submitted, now: float) -> Outcome:
    if not event.offsets:
        return state, (Settle(event.ticket, None),)
    m.tickets[event.ticket] = Ticket(set(event.offsets), event.last)
    m.wanted.update(
        zip(event.offsets, map(Wanted, event.offsets.values(), repeat(event.ticket)), strict=True)
    )
    return state, ()


def _submit_while_held(m: Commits, state: Held, event: Submitted, now: float) -> Outcome:
    after, effects = _submit(m, state, event, now)
    # Partitions that are being given back cannot wait for the next generation.
    return Idle() if event.last else after, effects


def _send(m: Commits, state: Idle | Delayed, event: CommitDue, now: float) -> Outcome:
    if not m.due(now):
        return state, ()
    attempt, absent = (state.attempt, state.absent) if isinstance(state, Delayed) else (0, 0)
    request = m.new_number()
    sending = Sending(request, dict(m.wanted), event.generation, attempt, absent=absent)
    offsets = {tp: wanted.offset for tp, wanted in m.wanted.items()}
    return sending, (SendCommit(request, offsets),)


def _part_kept(m: Commits, state: Sending, event: PartKept, now: float) -> Outcome:
    sent = dict(state.sent)
    # Partitions that ended meanwhile are not in it any more.
    part = {tp: sent.pop(tp) for tp in event.partitions if tp in sent}
    for tp, wanted in part.items():
        if m.wanted.get(tp) is wanted:
            del m.wanted[tp]
    effects: list[CommitEffect] = [Kept({tp: wanted.offset for tp, wanted in part.items()})]
    for number, ticket in list(m.tickets.items()):
        kept = [tp for tp in ticket.open & part.keys() if number <= part[tp].ticket]
        ticket.open.difference_update(kept)
        if kept and not ticket.open:
            del m.tickets[number]
            effects.append(Settle(number, None))
    return replace(state, sent=sent), effects


def _answered(m: Commits, state: Sending, event: Answered, now: float) -> Outcome:
    kept: dict[TopicPartition, OffsetAndMetadata] = {}
    effects: list[CommitEffect] = []
    held = delayed = doubted = forgotten = False
    moves_on = event.keeping or state.rejoined is not None
    absent = state.absent + 1 if _ABSENT.intersection(event.codes.values()) else 0
    for tp, sent in state.sent.items():
        code = event.codes.get(tp, ErrorCode.UNKNOWN_SERVER_ERROR)
        rebalancing = code == ErrorCode.REBALANCE_IN_PROGRESS
        outside = state.generation == NO_GENERATION
        # mutation: illegal-generation-counts-as-committed
        if code == ErrorCode.NONE:
            kept[tp] = sent.offset
            effects += m.acknowledge(tp, sent)
        elif code == ErrorCode.ILLEGAL_GENERATION and moves_on and not m.is_last(sent):
            # The next generation has begun, and what this member keeps it can commit there.
            held = True
        elif code in _FENCING or (rebalancing and not outside and m.is_last(sent)):
            doubted = True
            effects += m.refuse(tp, _fenced(tp, code, event.broker), sent.ticket)
        elif rebalancing and not outside:
            held = True
            doubted |= not moves_on
        elif error_for(code).retriable and not (code in _ABSENT and absent >= MAX_ABSENT):
            # mutation: refused-commit-sent-without-backoff
            delayed = True
            forgotten |= code in _ELSEWHERE
        else:
            context = error_for(
                code, api="OffsetCommit", broker=event.broker, topic=tp.topic,
                partition=tp.partition, offset=sent.offset.offset,
            )  # fmt: skip
            effects += m.refuse(tp, context, sent.ticket)
    if kept:
        effects.insert(0, Kept(kept))
    if doubted:
        effects.append(Doubt())
    if forgotten:
        effects.append(ForgetCoordinator())
    if held:
        after, more = _hold(m, state, now)
        return after, (*effects, *more)
    if delayed:
        return _delay(m, state.attempt, now, absent), effects
    return Idle(), effects


def _hold(m: Commits, state: Sending, now: float) -> Outcome:
    """Wait for the end of the rebalance, unless it is over, or something cannot wait for it."""
    held = Held(state.generation, now + HOLD_S)
    if state.rejoined is not None:
        return _release(m, held, state.rejoined, now)
    if any(m.is_last(wanted) for wanted in m.wanted.values()):
        return Idle(), ()
    return held, ()


def _unanswered(m: Commits, state: Sending, event: Unanswered, now: float) -> Outcome:
    if event.error.retriable:
        # Whether the offsets are kept is not known: the newest ones go out again.
        return _delay(m, state.attempt, now, state.absent), (ForgetCoordinator(),)
    effects: list[CommitEffect] = []
    for tp, sent in state.sent.items():
        effects += m.refuse(tp, event.error, sent.ticket)
    return Idle(), effects


def _delay(m: Commits, attempt: int, now: float, absent: int) -> Delayed:
    return Delayed(now + m.delay(attempt + 1), attempt + 1, absent)


def _fenced(tp: TopicPartition, code: int, broker: str | None) -> CommitFailed:
    name = ErrorCode(code).name
    return CommitFailed(
        f"the group went on without this member ({name}): what it read since its last commit"
        " is delivered again",
        api="OffsetCommit",
        broker=broker,
        topic=tp.topic,
        partition=tp.partition,
    )


def _end(m: Commits, state: CommitState, event: Ended, now: float) -> Outcome:
    effects: list[CommitEffect] = []
    for tp in event.partitions:
        error = CommitFailed(event.reason, topic=tp.topic, partition=tp.partition)
        effects += m.refuse(tp, error)
    return state, effects


def _end_while_sending(m: Commits, state: Sending, event: Ended, now: float) -> Outcome:
    _, effects = _end(m, state, event, now)
    kept = {tp: wanted for tp, wanted in state.sent.items() if tp not in event.partitions}
    return replace(state, sent=kept), effects


def _end_while_held(m: Commits, state: Held, event: Ended, now: float) -> Outcome:
    return _end(m, state, event, now) if event.lost else (state, ())


def _release(m: Commits, state: Held, event: Rejoined, now: float) -> Outcome:
    # In the generation after the next somebody else may have read further in between.
    still = set(event.owned) if event.generation <= state.generation + 1 else set()
    # mutation: held-commits-sent-without-ownership
    gone = [tp for tp in m.wanted if tp not in still]
    _, effects = _end(m, state, Ended(gone, True, "the partition went to another member"), now)
    return Idle(), effects


def _rejoin_while_sending(m: Commits, state: Sending, event: Rejoined, now: float) -> Outcome:
    return replace(state, rejoined=event), ()


def _wait_on(m: Commits, state: Held, event: Waiting, now: float) -> Outcome:
    return replace(state, until=now + HOLD_S), ()


def _stay(m: Commits, state: CommitState, event: Any, now: float) -> Outcome:
    return state, ()


Handler = Callable[[Commits, Any, Any, float], Outcome]

TRANSITIONS: Mapping[tuple[type, type], Handler] = {
    (Idle, Submitted): _submit,
    (Idle, CommitDue): _send,
    (Idle, Ended): _end,
    (Idle, Rejoined): _stay,
    (Sending, Submitted): _submit,
    (Sending, CommitDue): _stay,
    (Sending, PartKept): _part_kept,
    (Sending, Answered): _answered,
    (Sending, Unanswered): _unanswered,
    (Sending, Ended): _end_while_sending,
    (Sending, Rejoined): _rejoin_while_sending,
    (Delayed, Submitted): _submit,
    (Delayed, CommitDue): _send,
    (Delayed, Ended): _end,
    (Delayed, Rejoined): _stay,
    (Held, Submitted): _submit_while_held,
    (Held, CommitDue): _stay,
    (Held, Ended): _end_while_held,
    (Held, Rejoined): _release,
    (Held, Waiting): _wait_on,
}
