"""The transition functions of the transaction state machine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aiokafkawire.errors import KafkaError
from aiokafkawire.producer.transactions.actions import RequestKind, TransactionAction
from aiokafkawire.producer.transactions.states import (
    AbortableError,
    Aborting,
    AbortTransaction,
    AddPartition,
    BeginTransaction,
    Committing,
    CommitTransaction,
    Detached,
    Detaching,
    DetachTransaction,
    EpochBumpRequired,
    FatalError,
    Flushed,
    Initialising,
    InitTransactions,
    InTransaction,
    OffsetsAddedToTxn,
    PartitionsAddedToTxn,
    ProducerFailed,
    ProducerIdReceived,
    Ready,
    RecordsFailed,
    RecordsSent,
    SendOffsetsToTransaction,
    Transaction,
    TransactionState,
    TransactionVersion,
    TxnEnded,
    TxnOffsetsCommitted,
    TxnRequestFailed,
    Uninitialised,
)

if TYPE_CHECKING:
    from aiokafkawire.producer.transactions.state_machine import TransactionStateMachine

__all__ = (
    "WithTransaction",
    "abort",
    "add_offsets",
    "add_partition",
    "begin",
    "bump_epoch",
    "commit",
    "complete_abort",
    "complete_commit",
    "complete_detach",
    "complete_unstarted_abort",
    "complete_unstarted_commit",
    "detach",
    "fail_on_epoch_bump",
    "fail_on_record",
    "fail_on_request",
    "fail_producer",
    "note_epoch_bump",
    "note_offsets_added",
    "note_offsets_committed",
    "note_partitions_added",
    "note_records_sent",
    "note_request_failed",
    "on_request_failed_while_aborting",
    "request_producer_id",
    "require_epoch_bump",
    "set_producer_id",
)

Outcome = tuple[TransactionState, tuple[()]]
WithTransaction = InTransaction | Committing | Detaching | AbortableError | Aborting


# --- transitions: calls ---


def request_producer_id(
    machine: TransactionStateMachine, state: Uninitialised, event: InitTransactions, now: float
) -> Outcome:
    return Initialising(None), ()


def bump_epoch(
    machine: TransactionStateMachine, state: Ready, event: InitTransactions, now: float
) -> Outcome:
    if machine.can_bump_epoch:
        return Initialising(state.identity, None, state.committed), ()
    return FatalError(
        KafkaError(
            "sequence numbers were lost, and brokers before Kafka 2.5 cannot bump this producer's"
            " epoch: create a new producer",
            transactional_id=machine.transactional_id,
        )
    ), ()


def begin(
    machine: TransactionStateMachine, state: Ready, event: BeginTransaction, now: float
) -> Outcome:
    machine.begun += 1
    return InTransaction(
        Transaction(machine.begun, state.identity, event.transaction_version, now)
    ), ()


def add_partition(
    machine: TransactionStateMachine, state: InTransaction, event: AddPartition, now: float
) -> Outcome:
    transaction = state.transaction
    if transaction.transaction_version is TransactionVersion.TV_2:
        transaction.partitions[event.partition] = None
    elif event.partition not in transaction.partitions:
        transaction.pending_partitions[event.partition] = None
    return state, ()


def add_offsets(
    machine: TransactionStateMachine,
    state: InTransaction,
    event: SendOffsetsToTransaction,
    now: float,
) -> Outcome:
    state.transaction.pending_offsets.append(event.commit)
    return state, ()


def commit(
    machine: TransactionStateMachine, state: InTransaction, event: CommitTransaction, now: float
) -> Outcome:
    return Committing(state.transaction), ()


def abort(
    machine: TransactionStateMachine,
    state: InTransaction | AbortableError | Detaching,
    event: AbortTransaction,
    now: float,
) -> Outcome:
    state.transaction.pending_offsets.clear()
    state.transaction.pending_partitions.clear()
    return Aborting(state.transaction), ()


def detach(
    machine: TransactionStateMachine, state: InTransaction, event: DetachTransaction, now: float
) -> Outcome:
    return Detaching(state.transaction), ()


# --- transitions: events ---


def note_records_sent(
    machine: TransactionStateMachine, state: WithTransaction, event: RecordsSent, now: float
) -> Outcome:
    # mutation: implicit-transaction-not-ended
    if state.transaction.transaction_version is TransactionVersion.TV_2:
        state.transaction.started = True
    return state, ()


def fail_on_record(
    machine: TransactionStateMachine,
    state: InTransaction | Committing | Detaching,
    event: RecordsFailed,
    now: float,
) -> Outcome:
    return machine.to_abortable_error(state.transaction, event.error), ()


def fail_on_epoch_bump(
    machine: TransactionStateMachine,
    state: InTransaction | Committing | Detaching,
    event: EpochBumpRequired,
    now: float,
) -> Outcome:
    state.transaction.epoch_bump_required = True
    if machine.end_txn_pending:
        return state, ()  # all records are in the logs: it affects the next transaction
    return machine.to_abortable_error(
        state.transaction, KafkaError("a partition's sequence numbers were lost")
    ), ()


def note_epoch_bump(
    machine: TransactionStateMachine,
    state: Aborting | AbortableError,
    event: EpochBumpRequired,
    now: float,
) -> Outcome:
    state.transaction.epoch_bump_required = True
    return state, ()


def require_epoch_bump(
    machine: TransactionStateMachine, state: Ready, event: EpochBumpRequired, now: float
) -> Outcome:
    return replace(state, epoch_bump_required=True), ()


def set_producer_id(
    machine: TransactionStateMachine, state: Initialising, event: ProducerIdReceived, now: float
) -> Outcome:
    return Ready(event.identity, state.last_version, state.committed), ()


def note_partitions_added(
    machine: TransactionStateMachine,
    state: WithTransaction,
    event: PartitionsAddedToTxn,
    now: float,
) -> Outcome:
    transaction = state.transaction
    transaction.started = True
    for partition in event.partitions:
        transaction.partitions[partition] = None
        transaction.pending_partitions.pop(partition, None)
    return state, ()


def note_offsets_added(
    machine: TransactionStateMachine, state: WithTransaction, event: OffsetsAddedToTxn, now: float
) -> Outcome:
    state.transaction.started = True
    state.transaction.added_groups[event.group_id] = None
    return state, ()


def note_offsets_committed(
    machine: TransactionStateMachine, state: WithTransaction, event: TxnOffsetsCommitted, now: float
) -> Outcome:
    event.commit.done = True
    if event.commit in state.transaction.pending_offsets:
        state.transaction.pending_offsets.remove(event.commit)
        state.transaction.accepted_offsets.append(event.commit)
    return state, ()


def complete_commit(
    machine: TransactionStateMachine, state: Committing, event: TxnEnded, now: float
) -> Outcome:
    machine.committed += 1
    transaction = state.transaction
    transaction.committed = True
    machine.committed_offsets.extend(transaction.accepted_offsets)
    if event.identity is not None:
        return Ready(event.identity, transaction.transaction_version, committed=True), ()
    stale = (
        transaction.epoch_bump_required
        or transaction.transaction_version is TransactionVersion.TV_2
    )
    return Ready(
        transaction.identity,
        transaction.transaction_version,
        committed=True,
        epoch_bump_required=stale,
    ), ()


def complete_unstarted_commit(
    machine: TransactionStateMachine, state: Committing, event: Flushed, now: float
) -> Outcome:
    if state.transaction.started:
        return state, ()
    machine.committed += 1
    state.transaction.committed = True
    return Ready(
        state.transaction.identity, state.transaction.transaction_version, committed=True
    ), ()


def complete_abort(
    machine: TransactionStateMachine, state: Aborting, event: TxnEnded, now: float
) -> Outcome:
    if event.identity is None and state.transaction.transaction_version is TransactionVersion.TV_2:
        state.transaction.epoch_bump_required = True
    return machine.after_abort(state.transaction, new_identity=event.identity), ()


def complete_unstarted_abort(
    machine: TransactionStateMachine, state: Aborting, event: Flushed, now: float
) -> Outcome:
    transaction = state.transaction
    transaction.epoch_bump_required = transaction.epoch_bump_required or event.sequence_gap
    if transaction.started and not transaction.skip_end_txn:
        return state, ()
    return machine.after_abort(transaction), ()


def complete_detach(
    machine: TransactionStateMachine, state: Detaching, event: Flushed, now: float
) -> Outcome:
    return Detached(state.transaction), ()


def _note_failed_request(transaction: Transaction, event: TxnRequestFailed) -> None:
    if event.action in {TransactionAction.ABORT_AND_BUMP, TransactionAction.BUMP_ONLY}:
        transaction.epoch_bump_required = True
        transaction.skip_end_txn = (
            transaction.skip_end_txn or event.action is TransactionAction.BUMP_ONLY
        )


def fail_on_request(
    machine: TransactionStateMachine,
    state: InTransaction | Committing | Detaching,
    event: TxnRequestFailed,
    now: float,
) -> Outcome:
    _note_failed_request(state.transaction, event)
    return machine.to_abortable_error(state.transaction, event.error), ()


def note_request_failed(
    machine: TransactionStateMachine, state: AbortableError, event: TxnRequestFailed, now: float
) -> Outcome:
    _note_failed_request(state.transaction, event)
    return state, ()


def on_request_failed_while_aborting(
    machine: TransactionStateMachine, state: Aborting, event: TxnRequestFailed, now: float
) -> Outcome:
    _note_failed_request(state.transaction, event)
    if event.kind is RequestKind.END_TXN:
        # The coordinator refused EndTxn. InitProducerId bumps the epoch and aborts the transaction.
        state.transaction.epoch_bump_required = True
        state.transaction.abort_failure = event.error
        return machine.after_abort(state.transaction), ()
    return state, ()


def fail_producer(
    machine: TransactionStateMachine, state: TransactionState, event: ProducerFailed, now: float
) -> Outcome:
    return FatalError(event.error), ()
