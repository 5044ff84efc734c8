"""State machine of one transactional id, as its coordinator sees it.

`TransactionMetadata.handle(event, now_ms)` applies an event and returns its result. `TRANSITIONS`
maps each state and event to a handler and the states that may follow. The rules are those of
KIP-98, KIP-360, KIP-447 and KIP-890.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from aiokafkawire.broker.api_error import ApiError, StorageError
from aiokafkawire.broker.groups.offsets import CommittedOffset
from aiokafkawire.broker.transactions.events import (
    NO_PRODUCER,
    AddToTransaction,
    CommitTxnOffsets,
    EndTransaction,
    EpochFenced,
    Event,
    ExpireTransactionalId,
    InitProducerId,
    MarkersWritten,
    TransactionDeadlineReached,
    TransactionResult,
    TransactionState,
    VerifyInTransaction,
)
from aiokafkawire.runtime.state_machine import transition
from aiokafkawire.types import ProducerIdAndEpoch, TopicPartition
from aiokafkawire.wire import ErrorCode

__all__ = (
    "MAX_EPOCH",
    "MAX_GROUPS",
    "NO_DEADLINE",
    "TRANSITIONS",
    "TransactionMetadata",
    "TransactionTransition",
)

MAX_EPOCH = 2**15 - 2
"""Last epoch that a producer gets; the next one is reserved for fencing."""

MAX_GROUPS = 1_000
"""Limit of groups whose offsets one transaction commits."""

NO_DEADLINE = math.inf
NO_PRODUCER_ID = -1
NO_TIME = -1

State = TransactionState
EMPTY, ONGOING = State.EMPTY, State.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = State.PREPARE_COMMIT, State.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = State.COMPLETE_COMMIT, State.COMPLETE_ABORT
DEAD, PREPARE_EPOCH_FENCE = State.DEAD, State.PREPARE_EPOCH_FENCE


class TransactionMetadata:
    """Producer of a transactional id and its latest transaction. Times are wall clock times.

    `producer` is the current producer, `previous` the one before it bumped its own epoch, so that
    retried requests are recognised. `next_producer_id` replaces an id with exhausted epochs once
    the markers are written. `bumps_epoch`: the latest transaction ended with a new epoch. `offsets`
    apply once the transaction commits.
    """

    def __init__(self, transactional_id: str, new_producer_id: Callable[[], int]) -> None:
        self.transactional_id = transactional_id
        self.state = EMPTY
        self.producer = NO_PRODUCER
        self.previous: ProducerIdAndEpoch | None = None
        self.next_producer_id = NO_PRODUCER_ID
        self.bumps_epoch = False
        self.timeout_ms = 0
        self.started_ms = NO_TIME
        self.updated_ms = NO_TIME
        self.partitions: dict[TopicPartition, None] = {}
        self.groups: dict[str, None] = {}
        self.offsets: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._new_producer_id = new_producer_id

    def handle(self, event: Event, now_ms: int) -> TransactionResult:
        """Apply an event.

        Raises:
            StorageError: No producer id could be allocated; the caller restores the transaction.
        """
        transition_row = transition(TRANSITIONS, self.state, event)
        before = self.state
        try:
            result = transition_row.action(self, event, now_ms)
        except StorageError:
            raise
        except ApiError as error:
            return TransactionResult(error.code)
        assert self.state in transition_row.next_states, (
            f"{before} -> {self.state} at {type(event).__name__}"
        )
        return result

    def next_deadline_ms(self) -> float:
        """Return the time of the next `TransactionDeadlineReached` event."""
        return self.started_ms + self.timeout_ms if self.state is ONGOING else NO_DEADLINE

    @property
    def is_ending(self) -> bool:
        """Markers remain to be written."""
        return self.state in {PREPARE_COMMIT, PREPARE_ABORT}

    # --- InitProducerId ----------------------------------------------------------------------

    def _on_init(self, event: InitProducerId, now_ms: int) -> TransactionResult:
        self.producer = self._next_producer(event.expected)
        self.timeout_ms = event.timeout_ms
        self.bumps_epoch = False
        self.started_ms = NO_TIME
        self.updated_ms = now_ms
        self.state = EMPTY
        return TransactionResult(producer=self.producer)

    def _next_producer(self, expected: ProducerIdAndEpoch | None) -> ProducerIdAndEpoch:
        """Return the producer id and epoch to use from now on. Raises `ApiError`."""
        current = self.producer
        if current == NO_PRODUCER:
            return ProducerIdAndEpoch(self._new_producer_id(), 0)
        if expected is not None:
            if expected == self.previous:
                # The response to the same request was lost.
                return current
            if expected != current:
                raise ApiError(ErrorCode.PRODUCER_FENCED)
        # A request without producer id and epoch fences the previous producer.
        self.previous = expected
        if current.epoch >= MAX_EPOCH:
            return ProducerIdAndEpoch(self._new_producer_id(), 0)
        return current._replace(epoch=current.epoch + 1)

    def _on_init_ongoing(self, event: InitProducerId, now_ms: int) -> TransactionResult:
        if event.expected is not None and event.expected != self.producer:
            raise ApiError(ErrorCode.PRODUCER_FENCED)
        self._fence(now_ms)
        # The retried request gets an epoch that was never used.
        return TransactionResult(ErrorCode.CONCURRENT_TRANSACTIONS)

    def _on_init_rejected(self, event: InitProducerId, now_ms: int) -> TransactionResult:
        del event, now_ms
        return TransactionResult(ErrorCode.CONCURRENT_TRANSACTIONS)

    # --- what belongs to the transaction -----------------------------------------------------

    def _on_add(self, event: AddToTransaction, now_ms: int) -> TransactionResult:
        self._check(event.producer)
        groups = self.groups | dict.fromkeys(event.scope.groups)
        if len(groups) > MAX_GROUPS:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        if self.state is not ONGOING:
            self.started_ms = now_ms
            self.bumps_epoch = False
            self.state = ONGOING
        self.updated_ms = now_ms
        self.partitions.update(dict.fromkeys(event.scope.partitions))
        self.groups = groups
        return TransactionResult()

    def _on_verify(self, event: VerifyInTransaction, now_ms: int) -> TransactionResult:
        del now_ms
        self._check(event.producer)
        added = all(each in self.partitions for each in event.scope.partitions)
        if not added or not all(each in self.groups for each in event.scope.groups):
            raise ApiError(ErrorCode.TRANSACTION_ABORTABLE)
        return TransactionResult()

    def _on_offsets(self, event: CommitTxnOffsets, now_ms: int) -> TransactionResult:
        del now_ms
        self._check(event.producer)
        if event.group not in self.offsets and len(self.offsets) >= MAX_GROUPS:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        self.offsets.setdefault(event.group, {}).update(event.offsets)
        return TransactionResult()

    def _on_use_rejected(
        self,
        event: AddToTransaction | VerifyInTransaction | CommitTxnOffsets | EndTransaction,
        now_ms: int,
    ) -> TransactionResult:
        del now_ms
        self._check(event.producer)
        return TransactionResult(ErrorCode.CONCURRENT_TRANSACTIONS)

    def _check(self, producer: ProducerIdAndEpoch) -> None:
        if producer.producer_id != self.producer.producer_id:
            raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if producer.epoch != self.producer.epoch:
            raise ApiError(ErrorCode.PRODUCER_FENCED)

    # --- the end -----------------------------------------------------------------------------

    def _on_end(self, event: EndTransaction, now_ms: int) -> TransactionResult:
        self._check(event.producer)
        return self._prepare_end(event, now_ms)

    def _on_end_empty(self, event: EndTransaction, now_ms: int) -> TransactionResult:
        self._check(event.producer)
        if event.commit or not event.bumps_epoch:
            raise ApiError(ErrorCode.INVALID_TXN_STATE)
        # The producer cannot know whether an unacknowledged write began the transaction.
        return self._prepare_end(event, now_ms)

    def _on_end_prepared(self, event: EndTransaction, now_ms: int) -> TransactionResult:
        del now_ms
        if not (event.bumps_epoch and self._is_retried_end(event.producer)):
            self._check(event.producer)
            if event.bumps_epoch and self.bumps_epoch:
                # This epoch belongs to the next transaction, which cannot have begun.
                raise ApiError(ErrorCode.PRODUCER_FENCED)
        if event.commit != (self.state is PREPARE_COMMIT):
            raise ApiError(ErrorCode.INVALID_TXN_STATE)
        return TransactionResult(ErrorCode.CONCURRENT_TRANSACTIONS)

    def _on_end_complete(self, event: EndTransaction, now_ms: int) -> TransactionResult:
        again = event.bumps_epoch and self._is_retried_end(event.producer)
        if not again:
            self._check(event.producer)
            if event.bumps_epoch:
                return self._on_end_empty(event, now_ms)
        if event.commit != (self.state is COMPLETE_COMMIT):
            raise ApiError(ErrorCode.INVALID_TXN_STATE)
        return TransactionResult(producer=self.producer)

    def _is_retried_end(self, producer: ProducerIdAndEpoch) -> bool:
        """Return True for the producer that ended the transaction before its epoch was bumped."""
        if not self.bumps_epoch:
            return False
        if producer.producer_id == self.producer.producer_id:
            return producer.epoch + 1 == self.producer.epoch
        return producer == self.previous and self.producer.epoch == 0

    def _prepare_end(self, event: EndTransaction, now_ms: int) -> TransactionResult:
        if self.state is not ONGOING:
            self.started_ms = now_ms
        self.state = PREPARE_COMMIT if event.commit else PREPARE_ABORT
        self.updated_ms = now_ms
        self.bumps_epoch = event.bumps_epoch
        if event.bumps_epoch:
            self._bump_epoch()
        if self.next_producer_id != NO_PRODUCER_ID:
            return TransactionResult(producer=ProducerIdAndEpoch(self.next_producer_id, 0))
        return TransactionResult(producer=self.producer)

    def _bump_epoch(self) -> None:
        """Bump the epoch for the markers, with a new producer id after the last epoch."""
        self.previous = self.producer
        if self.producer.epoch >= MAX_EPOCH:
            self.next_producer_id = self._new_producer_id()
        epoch = min(self.producer.epoch, MAX_EPOCH) + 1
        self.producer = self.producer._replace(epoch=epoch)

    def _on_markers(self, event: MarkersWritten, now_ms: int) -> TransactionResult:
        for partition in event.scope.partitions:
            self.partitions.pop(partition, None)
        for group in event.scope.groups:
            self.groups.pop(group, None)
            self.offsets.pop(group, None)
        self.updated_ms = now_ms
        if not self.partitions and not self.groups:
            self.state = COMPLETE_COMMIT if self.state is PREPARE_COMMIT else COMPLETE_ABORT
            if self.next_producer_id != NO_PRODUCER_ID:
                self.producer = ProducerIdAndEpoch(self.next_producer_id, 0)
                self.next_producer_id = NO_PRODUCER_ID
        return TransactionResult()

    # --- fencing, and time -------------------------------------------------------------------

    def _on_tick(self, event: TransactionDeadlineReached, now_ms: int) -> TransactionResult:
        del event
        if self.next_deadline_ms() <= now_ms:
            self._fence(now_ms)
        return TransactionResult()

    def _fence(self, now_ms: int) -> None:
        """Fence the producer; its transaction will be aborted."""
        self._bump_epoch()
        self.updated_ms = now_ms
        self.state = PREPARE_EPOCH_FENCE

    def _on_fenced(self, event: EpochFenced, now_ms: int) -> TransactionResult:
        del now_ms
        self.bumps_epoch = event.bumps_epoch
        if not event.bumps_epoch:
            # The fenced producer must not continue as if it had bumped its own epoch.
            self.previous = None
        self.state = PREPARE_ABORT
        return TransactionResult()

    def _on_expire(self, event: ExpireTransactionalId, now_ms: int) -> TransactionResult:
        del event
        self.updated_ms = now_ms
        self.state = DEAD
        return TransactionResult()

    def _reject_expiry(self, event: Event, now_ms: int) -> TransactionResult:
        del event, now_ms
        return TransactionResult(ErrorCode.CONCURRENT_TRANSACTIONS)

    def _reject_unknown(self, event: Event, now_ms: int) -> TransactionResult:
        del event, now_ms
        return TransactionResult(ErrorCode.INVALID_PRODUCER_ID_MAPPING)

    def _ignore(self, event: Event, now_ms: int) -> TransactionResult:
        del event, now_ms
        return TransactionResult()


class TransactionTransition(NamedTuple):
    """Handler of an event in a state, and the states that may follow."""

    action: Callable[[TransactionMetadata, Any, int], TransactionResult]
    next_states: tuple[TransactionState, ...]


_T = TransactionMetadata
_Transitions = dict[tuple[TransactionState, type[Event]], TransactionTransition]


def _idle_transitions(
    state: TransactionState, end: Callable[[TransactionMetadata, Any, int], TransactionResult]
) -> _Transitions:
    """Return transitions of a state without an open transaction; `end` handles EndTxn."""
    return {
        (state, InitProducerId): TransactionTransition(_T._on_init, (EMPTY,)),
        (state, AddToTransaction): TransactionTransition(_T._on_add, (ONGOING,)),
        (state, VerifyInTransaction): TransactionTransition(_T._on_verify, (state,)),
        (state, CommitTxnOffsets): TransactionTransition(_T._on_offsets, (state,)),
        (state, EndTransaction): TransactionTransition(end, (state, PREPARE_ABORT)),
        (state, EpochFenced): TransactionTransition(_T._ignore, (state,)),
        (state, MarkersWritten): TransactionTransition(_T._ignore, (state,)),
        (state, TransactionDeadlineReached): TransactionTransition(_T._ignore, (state,)),
        (state, ExpireTransactionalId): TransactionTransition(_T._on_expire, (DEAD,)),
    }


def _prepared_transitions(state: TransactionState, complete: TransactionState) -> _Transitions:
    """Return transitions of a state in which markers are written; `complete` follows."""
    return {
        (state, InitProducerId): TransactionTransition(_T._on_init_rejected, (state,)),
        (state, AddToTransaction): TransactionTransition(_T._on_use_rejected, (state,)),
        (state, VerifyInTransaction): TransactionTransition(_T._on_use_rejected, (state,)),
        (state, CommitTxnOffsets): TransactionTransition(_T._on_use_rejected, (state,)),
        (state, EndTransaction): TransactionTransition(_T._on_end_prepared, (state,)),
        (state, EpochFenced): TransactionTransition(_T._ignore, (state,)),
        (state, MarkersWritten): TransactionTransition(_T._on_markers, (state, complete)),
        (state, TransactionDeadlineReached): TransactionTransition(_T._ignore, (state,)),
        (state, ExpireTransactionalId): TransactionTransition(_T._reject_expiry, (state,)),
    }


TRANSITIONS: Mapping[tuple[TransactionState, type[Event]], TransactionTransition] = (
    MappingProxyType(
        {
            **_idle_transitions(EMPTY, _T._on_end_empty),
            **_idle_transitions(COMPLETE_COMMIT, _T._on_end_complete),
            **_idle_transitions(COMPLETE_ABORT, _T._on_end_complete),
            (ONGOING, InitProducerId): TransactionTransition(
                _T._on_init_ongoing, (PREPARE_EPOCH_FENCE,)
            ),
            (ONGOING, AddToTransaction): TransactionTransition(_T._on_add, (ONGOING,)),
            (ONGOING, VerifyInTransaction): TransactionTransition(_T._on_verify, (ONGOING,)),
            (ONGOING, CommitTxnOffsets): TransactionTransition(_T._on_offsets, (ONGOING,)),
            (ONGOING, EndTransaction): TransactionTransition(
                _T._on_end, (PREPARE_COMMIT, PREPARE_ABORT)
            ),
            (ONGOING, EpochFenced): TransactionTransition(_T._ignore, (ONGOING,)),
            (ONGOING, MarkersWritten): TransactionTransition(_T._ignore, (ONGOING,)),
            (ONGOING, TransactionDeadlineReached): TransactionTransition(
                _T._on_tick, (ONGOING, PREPARE_EPOCH_FENCE)
            ),
            (ONGOING, ExpireTransactionalId): TransactionTransition(_T._reject_expiry, (ONGOING,)),
            **_prepared_transitions(PREPARE_COMMIT, COMPLETE_COMMIT),
            **_prepared_transitions(PREPARE_ABORT, COMPLETE_ABORT),
            (PREPARE_EPOCH_FENCE, InitProducerId): TransactionTransition(
                _T._on_init_rejected, (PREPARE_EPOCH_FENCE,)
            ),
            (PREPARE_EPOCH_FENCE, AddToTransaction): TransactionTransition(
                _T._on_use_rejected, (PREPARE_EPOCH_FENCE,)
            ),
            (PREPARE_EPOCH_FENCE, VerifyInTransaction): TransactionTransition(
                _T._on_use_rejected, (PREPARE_EPOCH_FENCE,)
            ),
            (PREPARE_EPOCH_FENCE, CommitTxnOffsets): TransactionTransition(
                _T._on_use_rejected, (PREPARE_EPOCH_FENCE,)
            ),
            (PREPARE_EPOCH_FENCE, EndTransaction): TransactionTransition(
                _T._on_use_rejected, (PREPARE_EPOCH_FENCE,)
            ),
            (PREPARE_EPOCH_FENCE, EpochFenced): TransactionTransition(
                _T._on_fenced, (PREPARE_ABORT,)
            ),
            (PREPARE_EPOCH_FENCE, MarkersWritten): TransactionTransition(
                _T._ignore, (PREPARE_EPOCH_FENCE,)
            ),
            (PREPARE_EPOCH_FENCE, TransactionDeadlineReached): TransactionTransition(
                _T._ignore, (PREPARE_EPOCH_FENCE,)
            ),
            (PREPARE_EPOCH_FENCE, ExpireTransactionalId): TransactionTransition(
                _T._reject_expiry, (PREPARE_EPOCH_FENCE,)
            ),
            (DEAD, InitProducerId): TransactionTransition(_T._on_init_rejected, (DEAD,)),
            (DEAD, AddToTransaction): TransactionTransition(_T._reject_unknown, (DEAD,)),
            (DEAD, VerifyInTransaction): TransactionTransition(_T._reject_unknown, (DEAD,)),
            (DEAD, CommitTxnOffsets): TransactionTransition(_T._reject_unknown, (DEAD,)),
            (DEAD, EndTransaction): TransactionTransition(_T._reject_unknown, (DEAD,)),
            (DEAD, EpochFenced): TransactionTransition(_T._ignore, (DEAD,)),
            (DEAD, MarkersWritten): TransactionTransition(_T._ignore, (DEAD,)),
            (DEAD, TransactionDeadlineReached): TransactionTransition(_T._ignore, (DEAD,)),
            (DEAD, ExpireTransactionalId): TransactionTransition(_T._ignore, (DEAD,)),
        }
    )
)
