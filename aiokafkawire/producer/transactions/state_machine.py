"""The transaction state machine: which calls are allowed, and which request is sent next.

Calls, responses and the time are its inputs, requests and states its outputs. One request is in
flight at a time. A commit that was sent is retried until it is answered; nothing may overtake it. A
transaction with a failure can only be aborted. If the failure left sequence gaps, or a coordinator
lost the producer's state, the epoch is bumped afterwards (KIP-360; with KIP-890 part 2, every end
bumps it).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from aiokafkawire.connection import Backoff
from aiokafkawire.errors import InvalidTxnState, KafkaError, TransactionFailed
from aiokafkawire.producer.transactions.actions import TransactionAction
from aiokafkawire.producer.transactions.states import (
    AbortableError,
    Aborting,
    AbortTransaction,
    AddOffsetsToTxn,
    AddPartition,
    AddPartitionsToTxn,
    BeginTransaction,
    Committing,
    CommitTransaction,
    Detached,
    Detaching,
    DetachTransaction,
    EndTxn,
    EpochBumpRequired,
    FatalError,
    Flushed,
    Initialising,
    InitTransactions,
    InTransaction,
    OffsetCommit,
    OffsetsAddedToTxn,
    PartitionsAddedToTxn,
    ProducerFailed,
    ProducerIdReceived,
    Ready,
    RecordsFailed,
    RecordsSent,
    RequestProducerId,
    SendOffsetsToTransaction,
    Transaction,
    TransactionCall,
    TransactionEvent,
    TransactionRequest,
    TransactionState,
    TransactionVersion,
    TxnEnded,
    TxnOffsetCommit,
    TxnOffsetsCommitted,
    TxnRequestFailed,
    Uninitialised,
)
from aiokafkawire.producer.transactions.transitions import (
    abort,
    add_offsets,
    add_partition,
    begin,
    bump_epoch,
    commit,
    complete_abort,
    complete_commit,
    complete_detach,
    complete_unstarted_abort,
    complete_unstarted_commit,
    detach,
    fail_on_epoch_bump,
    fail_on_record,
    fail_on_request,
    fail_producer,
    note_epoch_bump,
    note_offsets_added,
    note_offsets_committed,
    note_partitions_added,
    note_records_sent,
    note_request_failed,
    on_request_failed_while_aborting,
    request_producer_id,
    require_epoch_bump,
    set_producer_id,
)
from aiokafkawire.runtime import NEVER, copy_error
from aiokafkawire.runtime.state_machine import (
    NoEffect,
    Transitions,
    each_of,
    stay,
    transition,
)
from aiokafkawire.types import ProducerIdAndEpoch

__all__ = (
    "CONCURRENT_BACKOFF_S",
    "TRANSITIONS",
    "TransactionStateMachine",
    "concurrent_transactions_backoff",
)

CONCURRENT_BACKOFF_S = 0.02
"""First backoff in seconds while the previous transaction is still ending."""


_MAYBE_APPLIED_CODES = frozenset(
    {"UNKNOWN_SERVER_ERROR", "REQUEST_TIMED_OUT", "COORDINATOR_NOT_AVAILABLE"}
)
"""Codes that a coordinator also returns if it wrote the end, but replication was too slow."""

# Tuples: `isinstance` with a union type builds the union on every call.
_OPEN = (InTransaction, Committing, Detaching)
_FAILED = (AbortableError, Aborting)
_WITH_TRANSACTION = (*_OPEN, *_FAILED)
_ENDING = (Committing, Aborting)
_AWAITING_FLUSH = (Committing, Aborting, Detaching)
_IN_TRANSITION = (Committing, Aborting, Detaching, Initialising)


def concurrent_transactions_backoff(backoff: Backoff) -> Backoff:
    """Return the backoff for CONCURRENT_TRANSACTIONS."""
    return Backoff(min(CONCURRENT_BACKOFF_S, backoff.max_s), backoff.max_s)


class TransactionStateMachine:
    """The state machine of one producer's transactions: `handle` events, send `next_request`.

    `can_bump_epoch` is True if the coordinator can bump the epoch (Kafka 2.5 and later);
    `TransactionCoordinatorClient` sets it.
    """

    def __init__(self, transactional_id: str, backoff: Backoff) -> None:
        self.transactional_id = transactional_id
        self.state: TransactionState = Uninitialised()
        self.can_bump_epoch = True
        self.begun = 0
        self.committed = 0
        self.aborted = 0
        # Offsets that a commit made valid, until `TransactionManager` takes them.
        self.committed_offsets: list[OffsetCommit] = []
        # Why the request is retried; `attempts` counts the failures.
        self.last_error: KafkaError | None = None
        self._backoff = backoff
        self._concurrent_transactions_backoff = concurrent_transactions_backoff(backoff)
        self._request: TransactionRequest | None = None
        self._in_flight = False
        # The request was sent and got no response, so the coordinator may have applied it.
        self._maybe_applied = False
        self.attempts = 0
        self._retry_at = 0.0

    # --- properties ---

    @property
    def transaction(self) -> Transaction | None:
        """The transaction that has not ended yet, or None."""
        state = self.state
        return state.transaction if isinstance(state, _WITH_TRANSACTION) else None

    @property
    def in_transition(self) -> bool:
        """True while a transaction is being ended or a producer id is requested."""
        return isinstance(self.state, _IN_TRANSITION)

    @property
    def end_txn_pending(self) -> bool:
        """True while an EndTxn request is in flight or will be retried."""
        return isinstance(self._request, EndTxn)

    def must_bump_epoch(self, transaction_version: TransactionVersion) -> bool:
        """Return True if the epoch must be bumped before a transaction of this version begins.

        That is so after lost sequence numbers, and when the cluster was upgraded to a newer
        version: late requests of the older one may still arrive.
        """
        state = self.state
        return isinstance(state, Ready) and (
            state.epoch_bump_required
            or (state.last_version is not None and transaction_version > state.last_version)
        )

    def next_deadline(self) -> float:
        """Return the time at which to call `next_request` again if no event comes before."""
        return self._retry_at or NEVER

    def check_allowed(self, call: type[TransactionCall]) -> None:
        """Raise the error that `handle` would raise for this call, if any."""
        if (type(self.state), call) not in TRANSITIONS:
            raise self._invalid_state_error(call)

    # --- events and responses ---

    def handle(self, event: TransactionEvent, now: float) -> None:
        """Apply an event.

        Raises:
            InvalidTxnState: The call is not allowed in this state.
        """
        state = self.state
        handler = TRANSITIONS.get((type(state), type(event)))
        if handler is None:
            if isinstance(event, TransactionCall):
                raise self._invalid_state_error(type(event))
            handler = transition(TRANSITIONS, state, event)  # raises the error
        self.state, _ = handler(self, state, event, now)
        if self._request is not None and type(self.state) is not type(state):
            self._discard_request()

    def next_request(
        self, now: float, *, flushed: bool, sequence_gap: bool
    ) -> TransactionRequest | None:
        """Return the request to send now, or None.

        Report its result to `handle_response` or `handle_failure`.

        Args:
            now: The time in seconds.
            flushed: No record is buffered or in flight.
            sequence_gap: A partition has a sequence gap.
        """
        if self._in_flight or self._retry_at > now:
            return None
        self._retry_at = 0.0
        if self._request is None:
            if (
                flushed
                and isinstance(self.state, _AWAITING_FLUSH)
                and not self._has_requests_before_end()
            ):
                self.handle(Flushed(sequence_gap), now)
            self._request = self._choose_request(flushed)
            if self._request is None:
                return None
        self._in_flight = True
        if isinstance(self._request, TxnOffsetCommit) and self.transaction is not None:
            # With KIP-890, TxnOffsetCommit starts the transaction at the coordinator.
            self.transaction.started = True
        return self._request

    def handle_response(
        self,
        action: TransactionAction,
        event: TransactionEvent | None,
        error: KafkaError | None,
        now: float,
        rng: random.Random,
    ) -> None:
        """Handle the response to the request.

        Args:
            action: What the response requires.
            event: The event, if `action` is `DONE`.
            error: The error, for every other action.
            now: The time in seconds.
            rng: Source of the backoff's jitter.
        """
        request, was_maybe_applied = self._request, self._maybe_applied
        assert request is not None
        self._in_flight = self._maybe_applied = False
        if action is TransactionAction.RETRY or action is TransactionAction.FIND_COORDINATOR:
            assert error is not None
            name = getattr(error, "name", None)
            # Keep it where the coordinator did not process the retry, and for every EndTxn.
            not_processed = (
                action is TransactionAction.FIND_COORDINATOR
                or name == "COORDINATOR_LOAD_IN_PROGRESS"
            )
            is_end = isinstance(request, EndTxn)
            self._maybe_applied = (was_maybe_applied and (is_end or not_processed)) or (
                is_end and name in _MAYBE_APPLIED_CODES
            )
            concurrent = name == "CONCURRENT_TRANSACTIONS"
            backoff = self._concurrent_transactions_backoff if concurrent else self._backoff
            self._retry_later(error, now, rng, backoff)
            return
        self._request, self.attempts, self._retry_at = None, 0, 0.0
        self.last_error = None
        if action is TransactionAction.DONE:
            assert event is not None
            self.handle(event, now)
            return
        assert error is not None
        # `ABORT` proves that the transaction is not committed.
        certain = action is TransactionAction.ABORT
        in_doubt = (
            isinstance(request, EndTxn) and request.committed and was_maybe_applied and not certain
        )
        if in_doubt:
            error.reason += (
                "; an earlier commit request got no response, so the transaction may be committed"
                " or not"
            )
        if in_doubt or action in {TransactionAction.FATAL, TransactionAction.FENCED}:
            self.handle(ProducerFailed(error), now)
        else:
            self.handle(TxnRequestFailed(request.kind, action, error), now)

    def handle_failure(
        self, error: KafkaError, now: float, rng: random.Random, *, sent: bool
    ) -> None:
        """Handle a request without a response; `sent`: a broker may have received it."""
        self._in_flight = False
        self._maybe_applied = self._maybe_applied or sent
        self._retry_later(error, now, rng, self._backoff)

    # --- helpers ---

    def _retry_later(
        self, error: KafkaError, now: float, rng: random.Random, backoff: Backoff
    ) -> None:
        self.last_error = error
        self.attempts += 1
        self._retry_at = now + backoff.delay(self.attempts, rng)
        self._discard_request()

    def _discard_request(self) -> None:
        """Discard a request that must not be retried as it is."""
        if self._in_flight or self._request is None:
            return
        must_resolve = self._maybe_applied and isinstance(
            self._request, AddPartitionsToTxn | AddOffsetsToTxn | EndTxn
        )
        if isinstance(self.state, _FAILED):
            # Whether there is a transaction to end must be known before EndTxn.
            keep = must_resolve
        else:
            keep = must_resolve or not isinstance(self._request, AddPartitionsToTxn)
        if not keep:
            self._request, self._maybe_applied = None, False

    def _has_requests_before_end(self) -> bool:
        """Return True if a request must be sent before the transaction can end."""
        transaction = self.transaction
        if transaction is None or isinstance(self.state, Aborting):
            return False
        return bool(transaction.pending_partitions or transaction.pending_offsets)

    def _choose_request(self, flushed: bool) -> TransactionRequest | None:
        state = self.state
        if isinstance(state, Initialising):
            return RequestProducerId(state.previous)
        if isinstance(state, _OPEN):
            request = _request_before_end(state.transaction)
            if request is not None:
                return request
        if flushed and isinstance(state, _ENDING):
            transaction = state.transaction
            return EndTxn(
                transaction.identity, transaction.transaction_version, isinstance(state, Committing)
            )
        return None

    def _invalid_state_error(self, call: type[TransactionCall]) -> KafkaError:
        state = self.state
        if isinstance(state, FatalError | AbortableError):
            return copy_error(state.error)
        return InvalidTxnState(
            f"cannot {_CALL_TEXTS[call]}: {_STATE_TEXTS[type(state)]}",
            transactional_id=self.transactional_id,
        )

    def after_abort(
        self, transaction: Transaction, *, new_identity: ProducerIdAndEpoch | None = None
    ) -> TransactionState:
        """Return the state after an abort; `new_identity` is that of the coordinator's response."""
        self.aborted += 1
        transaction.committed = False
        transaction_version = transaction.transaction_version
        if new_identity is not None:
            return Ready(new_identity, transaction_version, committed=False)
        if not transaction.epoch_bump_required:
            return Ready(transaction.identity, transaction_version, committed=False)
        if self.can_bump_epoch:
            return Initialising(transaction.identity, transaction_version, committed=False)
        return FatalError(
            KafkaError(
                "records of the aborted transaction failed, and brokers before Kafka 2.5 cannot"
                " bump this producer's epoch: create a new producer",
                transactional_id=self.transactional_id,
            )
        )

    def to_abortable_error(self, transaction: Transaction, cause: Exception) -> AbortableError:
        """Return the state after a failure."""
        error = TransactionFailed(
            f"the transaction can only be aborted: {cause}",
            transactional_id=self.transactional_id,
        )
        error.__cause__ = cause
        transaction.pending_offsets.clear()
        return AbortableError(transaction, error)


def _request_before_end(transaction: Transaction) -> TransactionRequest | None:
    """Return the next request that must precede EndTxn, or None."""
    if transaction.pending_partitions:
        return AddPartitionsToTxn(transaction.identity, tuple(transaction.pending_partitions))
    if not transaction.pending_offsets:
        return None
    commit = transaction.pending_offsets[0]
    if (
        transaction.transaction_version is TransactionVersion.TV_0
        and commit.group.group_id not in transaction.added_groups
    ):
        return AddOffsetsToTxn(transaction.identity, commit.group.group_id)
    return TxnOffsetCommit(transaction.identity, transaction.transaction_version, commit)


_CALL_TEXTS: Mapping[type[Any], str] = {
    InitTransactions: "initialise the producer",
    BeginTransaction: "begin a transaction",
    AddPartition: "send a record",
    SendOffsetsToTransaction: "send offsets",
    CommitTransaction: "commit the transaction",
    AbortTransaction: "abort the transaction",
    DetachTransaction: "detach the transaction",
}

_STATE_TEXTS: Mapping[type[Any], str] = {
    Uninitialised: "the producer is not initialised yet",
    Initialising: "the producer is being initialised",
    Ready: "no transaction is open, call begin_transaction first",
    InTransaction: "a transaction is already open, commit or abort it first",
    Committing: "the transaction is being committed",
    Aborting: "the transaction is being aborted",
    Detaching: "the transaction is being detached",
    Detached: "the transaction was detached, and this producer begins no other one",
}


_FINAL = (Detached, FatalError)
_RECORD_EVENTS = (RecordsSent, RecordsFailed, EpochBumpRequired)
_RESPONSE_EVENTS = (
    ProducerIdReceived,
    PartitionsAddedToTxn,
    OffsetsAddedToTxn,
    TxnOffsetsCommitted,
    TxnEnded,
    TxnRequestFailed,
)


TRANSITIONS: Transitions[TransactionStateMachine, TransactionState, NoEffect] = {
    # calls
    (Uninitialised, InitTransactions): request_producer_id,
    (Ready, InitTransactions): bump_epoch,
    (Ready, BeginTransaction): begin,
    (InTransaction, AddPartition): add_partition,
    (InTransaction, SendOffsetsToTransaction): add_offsets,
    (InTransaction, CommitTransaction): commit,
    (InTransaction, AbortTransaction): abort,
    (InTransaction, DetachTransaction): detach,
    (AbortableError, AbortTransaction): abort,
    (Detaching, AbortTransaction): abort,
    (Committing, CommitTransaction): stay,
    (Aborting, AbortTransaction): stay,
    (Detaching, DetachTransaction): stay,
    (Detached, DetachTransaction): stay,
    # records
    **each_of(_OPEN, {RecordsSent: note_records_sent}),
    # mutation: commit-ignores-failed-record
    **each_of(_OPEN, {RecordsFailed: fail_on_record}),
    **each_of(_OPEN, {EpochBumpRequired: fail_on_epoch_bump}),
    **each_of(_FAILED, {RecordsSent: note_records_sent}),
    **each_of(_FAILED, {RecordsFailed: stay}),
    **each_of(_FAILED, {EpochBumpRequired: note_epoch_bump}),
    (Ready, EpochBumpRequired): require_epoch_bump,
    **each_of((Uninitialised, Initialising, *_FINAL), dict.fromkeys(_RECORD_EVENTS, stay)),
    (Ready, RecordsFailed): stay,
    # responses
    (Initialising, ProducerIdReceived): set_producer_id,
    **each_of(_WITH_TRANSACTION, {PartitionsAddedToTxn: note_partitions_added}),
    **each_of(_WITH_TRANSACTION, {OffsetsAddedToTxn: note_offsets_added}),
    **each_of(_WITH_TRANSACTION, {TxnOffsetsCommitted: note_offsets_committed}),
    (Committing, TxnEnded): complete_commit,
    (Aborting, TxnEnded): complete_abort,
    **each_of(_OPEN, {TxnRequestFailed: fail_on_request}),
    (AbortableError, TxnRequestFailed): note_request_failed,
    (Aborting, TxnRequestFailed): on_request_failed_while_aborting,
    # other events
    (Committing, Flushed): complete_unstarted_commit,
    (Aborting, Flushed): complete_unstarted_abort,
    (Detaching, Flushed): complete_detach,
    **each_of(_FINAL, dict.fromkeys((*_RESPONSE_EVENTS, ProducerFailed), stay)),
    **each_of(
        (Uninitialised, Initialising, Ready, *_WITH_TRANSACTION), {ProducerFailed: fail_producer}
    ),
}
"""Maps (state, event) to a transition.

A call without a row raises `InvalidTxnState`; any other event without a row is impossible.
"""
