"""What leads from one state of a transaction to the next, for the table of the machine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aiokafkawire.errors import KafkaError
from aiokafkawire.producer.transactions.outcomes import Outcome, RequestKind
from aiokafkawire.producer.transactions.states import (
    Abort,
    AbortableError,
    Aborting,
    Begin,
    Commit,
    Committing,
    Detach,
    Detached,
    Detaching,
    Ended,
    Event,
    Failed,
    FatalError,
    Flushed,
    Initialise,
    Initialised,
    Initialising,
    InTransaction,
    NumbersLost,
    OffsetsAdded,
    OffsetsCommitted,
    PartitionsAdded,
    Protocol,
    Ready,
    RecordsFailed,
    RecordsSent,
    Refused,
    SendOffsets,
    State,
    Transaction,
    Uninitialised,
    UsePartition,
)

if TYPE_CHECKING:
    from aiokafkawire.producer.transactions.machine import TransactionMachine

__all__ = (
    "Going",
    "abort",
    "abort_rest",
    "added",
    "become_stale",
    "begin",
    "commit",
    "commit_nothing",
    "detach",
    "end_abort",
    "end_commit",
    "fail",
    "give_away",
    "initialise",
    "initialised",
    "note_lost_numbers",
    "numbers_lost",
    "offsets_added",
    "offsets_committed",
    "raise_epoch",
    "records_failed",
    "refused",
    "refused_in_abort",
    "refused_late",
    "sent",
    "stay",
    "take_offsets",
    "use",
)

Going = InTransaction | Committing | Detaching | AbortableError | Aborting


# --- transitions: calls -----------------------------------------------------------------------


def initialise(_: TransactionMachine, __: Uninitialised, ___: Initialise, ____: float) -> State:
    return Initialising(None)


def raise_epoch(machine: TransactionMachine, state: Ready, _: Initialise, __: float) -> State:
    if machine.can_raise:
        return Initialising(state.identity, None, state.committed)
    return FatalError(
        KafkaError(
            "sequence numbers were lost, and brokers before Kafka 2.5 give this producer no new"
            " epoch: make a new producer",
            transactional_id=machine.transactional_id,
        )
    )


def begin(machine: TransactionMachine, state: Ready, event: Begin, now: float) -> State:
    machine.begun += 1
    return InTransaction(Transaction(machine.begun, state.identity, event.protocol, now))


def use(_: TransactionMachine, state: InTransaction, event: UsePartition, __: float) -> State:
    transaction = state.transaction
    if transaction.protocol is Protocol.IMPLICIT:
        transaction.partitions[event.partition] = None
    elif event.partition not in transaction.partitions:
        transaction.wanted[event.partition] = None
    return state


def take_offsets(
    _: TransactionMachine, state: InTransaction, event: SendOffsets, __: float
) -> State:
    state.transaction.offsets.append(event.commit)
    return state


def commit(_: TransactionMachine, state: InTransaction, __: Commit, ___: float) -> State:
    return Committing(state.transaction)


def abort(
    _: TransactionMachine,
    state: InTransaction | AbortableError | Detaching,
    __: Abort,
    ___: float,
) -> State:
    state.transaction.offsets.clear()
    state.transaction.wanted.clear()
    return Aborting(state.transaction)


def detach(_: TransactionMachine, state: InTransaction, __: Detach, ___: float) -> State:
    return Detaching(state.transaction)


# --- transitions: what happened ---------------------------------------------------------------


def stay(_: TransactionMachine, state: State, __: Event, ___: float) -> State:
    return state


def sent(_: TransactionMachine, state: Going, __: RecordsSent, ___: float) -> State:
    # mutation: implicit-transaction-not-ended
    if state.transaction.protocol is Protocol.IMPLICIT:
        state.transaction.known = True
    return state


def records_failed(
    machine: TransactionMachine,
    state: InTransaction | Committing | Detaching,
    event: RecordsFailed,
    _: float,
) -> State:
    return machine.abortable(state.transaction, event.error)


def numbers_lost(
    machine: TransactionMachine,
    state: InTransaction | Committing | Detaching,
    _: NumbersLost,
    __: float,
) -> State:
    state.transaction.bump = True
    if machine.end_asked:
        return state  # all of it is in the logs: they are of the next transaction
    return machine.abortable(
        state.transaction, KafkaError("a partition's sequence numbers were lost")
    )


def note_lost_numbers(
    _: TransactionMachine, state: Aborting | AbortableError, __: NumbersLost, ___: float
) -> State:
    state.transaction.bump = True
    return state


def become_stale(_: TransactionMachine, state: Ready, __: NumbersLost, ___: float) -> State:
    return replace(state, stale=True)


def initialised(_: TransactionMachine, state: Initialising, event: Initialised, __: float) -> State:
    return Ready(event.identity, state.last, state.committed)


def added(_: TransactionMachine, state: Going, event: PartitionsAdded, __: float) -> State:
    transaction = state.transaction
    transaction.known = True
    for partition in event.partitions:
        transaction.partitions[partition] = None
        transaction.wanted.pop(partition, None)
    return state


def offsets_added(_: TransactionMachine, state: Going, event: OffsetsAdded, __: float) -> State:
    state.transaction.known = True
    state.transaction.groups[event.group_id] = None
    return state


def offsets_committed(
    _: TransactionMachine, state: Going, event: OffsetsCommitted, __: float
) -> State:
    event.commit.done = True
    if event.commit in state.transaction.offsets:
        state.transaction.offsets.remove(event.commit)
        state.transaction.taken.append(event.commit)
    return state


def end_commit(machine: TransactionMachine, state: Committing, event: Ended, _: float) -> State:
    machine.committed += 1
    transaction = state.transaction
    transaction.committed = True
    machine.kept.extend(transaction.taken)
    if event.identity is not None:
        return Ready(event.identity, transaction.protocol, committed=True)
    stale = transaction.bump or transaction.protocol is Protocol.IMPLICIT
    return Ready(transaction.identity, transaction.protocol, committed=True, stale=stale)


def commit_nothing(machine: TransactionMachine, state: Committing, _: Flushed, __: float) -> State:
    if state.transaction.known:
        return state
    machine.committed += 1
    state.transaction.committed = True
    return Ready(state.transaction.identity, state.transaction.protocol, committed=True)


def end_abort(machine: TransactionMachine, state: Aborting, event: Ended, _: float) -> State:
    if event.identity is None and state.transaction.protocol is Protocol.IMPLICIT:
        state.transaction.bump = True
    return machine.over(state.transaction, event.identity)


def abort_rest(machine: TransactionMachine, state: Aborting, event: Flushed, _: float) -> State:
    transaction = state.transaction
    transaction.bump = transaction.bump or event.gap
    if transaction.known and not transaction.forgotten:
        return state
    return machine.over(transaction, None)


def give_away(_: TransactionMachine, state: Detaching, __: Flushed, ___: float) -> State:
    return Detached(state.transaction)


def _note_refusal(transaction: Transaction, event: Refused) -> None:
    if event.outcome in {Outcome.BUMP, Outcome.FORGOTTEN}:
        transaction.bump = True
        transaction.forgotten = transaction.forgotten or event.outcome is Outcome.FORGOTTEN


def refused(
    machine: TransactionMachine,
    state: InTransaction | Committing | Detaching,
    event: Refused,
    _: float,
) -> State:
    _note_refusal(state.transaction, event)
    return machine.abortable(state.transaction, event.error)


def refused_late(_: TransactionMachine, state: AbortableError, event: Refused, __: float) -> State:
    _note_refusal(state.transaction, event)
    return state


def refused_in_abort(
    machine: TransactionMachine, state: Aborting, event: Refused, _: float
) -> State:
    _note_refusal(state.transaction, event)
    if event.kind is RequestKind.END:
        # There is nothing to end, or the coordinator cannot: a new epoch ends whatever is open.
        state.transaction.bump = True
        state.transaction.refusal = event.error
        return machine.over(state.transaction, None)
    return state


def fail(_: TransactionMachine, __: State, event: Failed, ___: float) -> State:
    return FatalError(event.error)
