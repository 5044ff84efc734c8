"""The transactions of one producer: what may happen in which state, and what to ask next.

A machine: calls, answers and the time go in, requests and states come out. One request is under
way at a time. A commit that was sent is repeated until its answer comes; nothing else may follow
it. A transaction in which something failed can only be aborted; where the failure left gaps in
the sequence numbers, or the coordinator lost what it knew, the epoch is raised afterwards
(KIP-360; with KIP-890 part 2 every end raises it).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from aiokafkawire.connection import Backoff
from aiokafkawire.errors import InvalidTxnState, KafkaError, TransactionFailed
from aiokafkawire.producer.transactions.outcomes import Outcome
from aiokafkawire.producer.transactions.states import (
    Abort,
    AbortableError,
    Aborting,
    AddOffsets,
    AddPartitions,
    Begin,
    Call,
    Commit,
    CommitOffsets,
    Committing,
    Detach,
    Detached,
    Detaching,
    End,
    Ended,
    Event,
    Failed,
    FatalError,
    Flushed,
    Init,
    Initialise,
    Initialised,
    Initialising,
    InTransaction,
    NumbersLost,
    OffsetCommit,
    OffsetsAdded,
    OffsetsCommitted,
    PartitionsAdded,
    Protocol,
    Ready,
    RecordsFailed,
    RecordsSent,
    Refused,
    Request,
    SendOffsets,
    State,
    Transaction,
    Uninitialised,
    UsePartition,
)
from aiokafkawire.producer.transactions.steps import (
    abort,
    abort_rest,
    added,
    become_stale,
    begin,
    commit,
    commit_nothing,
    detach,
    end_abort,
    end_commit,
    fail,
    give_away,
    initialise,
    initialised,
    note_lost_numbers,
    numbers_lost,
    offsets_added,
    offsets_committed,
    raise_epoch,
    records_failed,
    refused,
    refused_in_abort,
    refused_late,
    sent,
    stay,
    take_offsets,
    use,
)
from aiokafkawire.runtime import NEVER, copy_error
from aiokafkawire.runtime.transitions import invalid_transition
from aiokafkawire.types import ProducerIdAndEpoch

__all__ = ("CONCURRENT_BACKOFF_S", "TRANSITIONS", "TransactionMachine", "concurrent_backoff")

CONCURRENT_BACKOFF_S = 0.02
"""The first pause while the end of the transaction before is still being written."""


_MAYBE_WRITTEN = frozenset(
    {"UNKNOWN_SERVER_ERROR", "REQUEST_TIMED_OUT", "COORDINATOR_NOT_AVAILABLE"}
)
"""What a coordinator answers to an end also when it has written it, and not heard of its replicas
in time."""

# Tuples, not unions, which would be made anew at each look.
_OPEN = (InTransaction, Committing, Detaching)
_FAILED = (AbortableError, Aborting)
_GOING = (*_OPEN, *_FAILED)
_ENDING = (Committing, Aborting)
_LEAVING = (Committing, Aborting, Detaching)
_UNSETTLED = (Committing, Aborting, Detaching, Initialising)


def concurrent_backoff(backoff: Backoff) -> Backoff:
    """The pauses while the end of the transaction before is still being written."""
    return Backoff(min(CONCURRENT_BACKOFF_S, backoff.max_s), backoff.max_s)


class TransactionMachine:
    """`handle` what callers want and what happened; `next_request` tells what to send.

    `can_raise` tells whether the coordinator raises an epoch when asked (Kafka 2.5 and later); the
    driver sets it.
    """

    def __init__(self, transactional_id: str, backoff: Backoff) -> None:
        self.transactional_id = transactional_id
        self.state: State = Uninitialised()
        self.can_raise = True
        self.begun = 0
        self.committed = 0
        self.aborted = 0
        # Offsets that became valid with a commit, for the driver to take.
        self.kept: list[OffsetCommit] = []
        # Why the request that is to be repeated was not answered as hoped, and how often.
        self.trouble: KafkaError | None = None
        self._backoff = backoff
        self._concurrent = concurrent_backoff(backoff)
        self._request: Request | None = None
        self._in_flight = False
        # Whether the request was sent without an answer, so that it may have been carried out.
        self._doubtful = False
        self.attempts = 0
        self._again_at = 0.0

    # --- what others look at ---

    @property
    def transaction(self) -> Transaction | None:
        """The transaction that is not over yet."""
        state = self.state
        return state.transaction if isinstance(state, _GOING) else None

    @property
    def ending(self) -> bool:
        """Whether the transaction is being ended, or a new epoch is asked for."""
        return isinstance(self.state, _UNSETTLED)

    @property
    def end_asked(self) -> bool:
        """Whether the coordinator was asked to end the transaction."""
        return isinstance(self._request, End)

    def must_raise(self, protocol: Protocol) -> bool:
        """Whether the epoch must be raised before a transaction of this protocol begins.

        So it is where numbers were lost, and when the cluster has changed to a newer protocol: what
        may still be on its way was sent under the older one.
        """
        state = self.state
        return isinstance(state, Ready) and (
            state.stale or (state.last is not None and protocol > state.last)
        )

    def next_deadline(self) -> float:
        """When to ask `next_request` again if nothing happens."""
        return self._again_at or NEVER

    def check(self, call: type[Call]) -> None:
        """Raise what `handle` would for a call out of order."""
        if (type(self.state), call) not in TRANSITIONS:
            raise self._out_of_order(call)

    # --- what happens ---

    def handle(self, event: Event, now: float) -> None:
        """Go to the next state. Raises `InvalidTxnState` for a call out of order."""
        state = self.state
        go = TRANSITIONS.get((type(state), type(event)))
        if go is None:
            if isinstance(event, Call):
                raise self._out_of_order(type(event))
            raise invalid_transition(state, event)
        self.state = after = go(self, state, event, now)
        if self._request is not None and type(after) is not type(state):
            self._let_go()

    def next_request(self, now: float, *, flushed: bool, gap: bool) -> Request | None:
        """What to send now, if anything. The answer must come to `answered` or `unanswered`.

        `flushed`: no record waits or is under way; `gap`: some partition's numbers ended.
        """
        if self._in_flight or self._again_at > now:
            return None
        self._again_at = 0.0
        if self._request is None:
            if flushed and isinstance(self.state, _LEAVING) and not self._owing():
                self.handle(Flushed(gap), now)
            self._request = self._wanted(flushed)
            if self._request is None:
                return None
        self._in_flight = True
        if isinstance(self._request, CommitOffsets) and self.transaction is not None:
            # With KIP-890 it makes the coordinator take up the transaction.
            self.transaction.known = True
        return self._request

    def answered(
        self,
        outcome: Outcome,
        event: Event | None,
        error: KafkaError | None,
        now: float,
        rng: random.Random,
    ) -> None:
        """The request got an answer: `event` if it was carried out (`Outcome.DONE`), else
        `error`."""
        request, doubtful = self._request, self._doubtful
        assert request is not None
        self._in_flight = self._doubtful = False
        if outcome is Outcome.RETRY or outcome is Outcome.FIND:
            assert error is not None
            name = getattr(error, "name", None)
            # What may have been carried out before stays so where nobody has looked, and an end
            # in any case.
            unseen = outcome is Outcome.FIND or name == "COORDINATOR_LOAD_IN_PROGRESS"
            ends = isinstance(request, End)
            self._doubtful = (doubtful and (ends or unseen)) or (ends and name in _MAYBE_WRITTEN)
            concurrent = name == "CONCURRENT_TRANSACTIONS"
            self._postpone(error, now, rng, self._concurrent if concurrent else self._backoff)
            return
        self._request, self.attempts, self._again_at = None, 0, 0.0
        self.trouble = None
        if outcome is Outcome.DONE:
            assert event is not None
            self.handle(event, now)
            return
        assert error is not None
        # That it is to be aborted is said of what surely is not committed.
        certain = outcome is Outcome.ABORT
        in_doubt = isinstance(request, End) and request.committed and doubtful and not certain
        if in_doubt:
            error.reason += (
                "; an earlier attempt to commit got no answer, so that the transaction may be"
                " committed or not"
            )
        if in_doubt or outcome in {Outcome.FATAL, Outcome.FENCED}:
            self.handle(Failed(error), now)
        else:
            self.handle(Refused(request.kind, outcome, error), now)

    def unanswered(self, error: KafkaError, now: float, rng: random.Random, *, sent: bool) -> None:
        """The request got no answer; `sent` tells whether it may have been carried out."""
        self._in_flight = False
        self._doubtful = self._doubtful or sent
        self._postpone(error, now, rng, self._backoff)

    # --- inside ---

    def _postpone(
        self, error: KafkaError, now: float, rng: random.Random, backoff: Backoff
    ) -> None:
        self.trouble = error
        self.attempts += 1
        self._again_at = now + backoff.delay(self.attempts, rng)
        self._let_go()

    def _let_go(self) -> None:
        """Forget a request that is not to be repeated as it is."""
        if self._in_flight or self._request is None:
            return
        kept = self._doubtful and isinstance(self._request, AddPartitions | AddOffsets | End)
        if isinstance(self.state, _FAILED):
            # Whether there is anything to end must be known before it is ended.
            keep = kept
        else:
            keep = kept or not isinstance(self._request, AddPartitions)
        if not keep:
            self._request, self._doubtful = None, False

    def _owing(self) -> bool:
        """Whether something must be asked before the transaction can end."""
        transaction = self.transaction
        if transaction is None or isinstance(self.state, Aborting):
            return False
        return bool(transaction.wanted or transaction.offsets)

    def _wanted(self, flushed: bool) -> Request | None:
        state = self.state
        if isinstance(state, Initialising):
            return Init(state.previous)
        if isinstance(state, _OPEN):
            request = _in_transaction(state.transaction)
            if request is not None:
                return request
        if flushed and isinstance(state, _ENDING):
            transaction = state.transaction
            return End(transaction.identity, transaction.protocol, isinstance(state, Committing))
        return None

    def _out_of_order(self, call: type[Call]) -> KafkaError:
        state = self.state
        if isinstance(state, FatalError | AbortableError):
            return copy_error(state.error)
        return InvalidTxnState(
            f"{_CALLS[call]}, but {_STATES[type(state)]}",
            transactional_id=self.transactional_id,
        )

    def over(self, transaction: Transaction, identity: ProducerIdAndEpoch | None) -> State:
        """The state after an abort; `identity` is the one that the coordinator gave, if it did."""
        self.aborted += 1
        transaction.committed = False
        protocol = transaction.protocol
        if identity is not None:
            return Ready(identity, protocol, committed=False)
        if not transaction.bump:
            return Ready(transaction.identity, protocol, committed=False)
        if self.can_raise:
            return Initialising(transaction.identity, protocol, committed=False)
        return FatalError(
            KafkaError(
                "records of the aborted transaction failed, and brokers before Kafka 2.5 give this"
                " producer no new epoch to go on with: make a new producer",
                transactional_id=self.transactional_id,
            )
        )

    def abortable(self, transaction: Transaction, cause: Exception) -> AbortableError:
        """The state after a failure."""
        error = TransactionFailed(
            f"the transaction can only be aborted: {cause}",
            transactional_id=self.transactional_id,
        )
        error.__cause__ = cause
        transaction.offsets.clear()
        return AbortableError(transaction, error)


def _in_transaction(transaction: Transaction) -> Request | None:
    """What the coordinators have to be told before the end."""
    if transaction.wanted:
        return AddPartitions(transaction.identity, tuple(transaction.wanted))
    if not transaction.offsets:
        return None
    commit = transaction.offsets[0]
    if transaction.protocol is Protocol.CLASSIC and commit.group.group_id not in transaction.groups:
        return AddOffsets(transaction.identity, commit.group.group_id)
    return CommitOffsets(transaction.identity, transaction.protocol, commit)


_CALLS: Mapping[type[Any], str] = {
    Initialise: "the producer is to be initialised",
    Begin: "a transaction is to begin",
    UsePartition: "a record is to be sent",
    SendOffsets: "offsets are to be sent",
    Commit: "a transaction is to be committed",
    Abort: "a transaction is to be aborted",
    Detach: "a transaction is to be detached",
}

_STATES: Mapping[type[Any], str] = {
    Uninitialised: "the producer is not initialised yet",
    Initialising: "the producer is being initialised",
    Ready: "no transaction is open: begin one",
    InTransaction: "one is open already: commit or abort it first",
    Committing: "the transaction is being committed",
    Aborting: "the transaction is being aborted",
    Detaching: "the transaction is being detached",
    Detached: "the transaction was detached, and with it this producer's part is over",
}


Transition = Callable[[TransactionMachine, Any, Any, float], State]

_OVER = (Detached, FatalError)
_RECORDS = (RecordsSent, RecordsFailed, NumbersLost)
_ANSWERS = (PartitionsAdded, OffsetsAdded, OffsetsCommitted)


def _rows(
    states: tuple[type[Any], ...], events: tuple[type[Any], ...], transition: Transition
) -> dict[tuple[type[Any], type[Any]], Transition]:
    return {(state, event): transition for state in states for event in events}


TRANSITIONS: Mapping[tuple[type[Any], type[Any]], Transition] = {
    # calls
    (Uninitialised, Initialise): initialise,
    (Ready, Initialise): raise_epoch,
    (Ready, Begin): begin,
    (InTransaction, UsePartition): use,
    (InTransaction, SendOffsets): take_offsets,
    (InTransaction, Commit): commit,
    (InTransaction, Abort): abort,
    (InTransaction, Detach): detach,
    (AbortableError, Abort): abort,
    (Detaching, Abort): abort,
    (Committing, Commit): stay,
    (Aborting, Abort): stay,
    (Detaching, Detach): stay,
    (Detached, Detach): stay,
    # records
    **_rows(_OPEN, (RecordsSent,), sent),
    # mutation: commit-ignores-failed-record
    **_rows(_OPEN, (RecordsFailed,), records_failed),
    **_rows(_OPEN, (NumbersLost,), numbers_lost),
    **_rows(_FAILED, (RecordsSent,), sent),
    **_rows(_FAILED, (RecordsFailed,), stay),
    **_rows(_FAILED, (NumbersLost,), note_lost_numbers),
    (Ready, NumbersLost): become_stale,
    **_rows((Uninitialised, Initialising, *_OVER), _RECORDS, stay),
    (Ready, RecordsFailed): stay,
    # answers
    (Initialising, Initialised): initialised,
    **_rows((*_OPEN, *_FAILED), (PartitionsAdded,), added),
    **_rows((*_OPEN, *_FAILED), (OffsetsAdded,), offsets_added),
    **_rows((*_OPEN, *_FAILED), (OffsetsCommitted,), offsets_committed),
    (Committing, Ended): end_commit,
    (Aborting, Ended): end_abort,
    **_rows(_OPEN, (Refused,), refused),
    (AbortableError, Refused): refused_late,
    (Aborting, Refused): refused_in_abort,
    # the rest
    (Committing, Flushed): commit_nothing,
    (Aborting, Flushed): abort_rest,
    (Detaching, Flushed): give_away,
    **_rows(_OVER, (Initialised, *_ANSWERS, Ended, Refused), stay),
    **_rows((Uninitialised, Initialising, Ready, *_OPEN, *_FAILED), (Failed,), fail),
    **_rows(_OVER, (Failed,), stay),
}
"""(state, event) -> what leads to the next state; a call whose pair is absent is out of order, and
anything else whose pair is absent cannot happen."""
