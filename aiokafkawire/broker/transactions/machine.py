"""One transactional id, as its coordinator sees it.

`Transaction.handle(event, now_ms)` carries out one event and gives what its request is answered.
`TRANSITIONS` says what each event does in each state and which states may follow. The rules are
those of KIP-98, KIP-360, KIP-447 and KIP-890.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from aiokafkawire.broker.api_error import ApiError, StorageError
from aiokafkawire.broker.groups.offsets import Committed
from aiokafkawire.broker.transactions.events import (
    NOBODY,
    Add,
    Answer,
    CommitOffsets,
    End,
    Event,
    Expire,
    Fenced,
    Init,
    MarkersWritten,
    Tick,
    TransactionState,
    Verify,
)
from aiokafkawire.runtime.transitions import transition
from aiokafkawire.types import ProducerIdAndEpoch, TopicPartition
from aiokafkawire.wire import ErrorCode

__all__ = ("MAX_EPOCH", "MAX_GROUPS", "NO_DEADLINE", "TRANSITIONS", "Row", "Transaction")

MAX_EPOCH = 2**15 - 2
"""The last epoch that a producer is given; the one after it is kept to fence with."""

MAX_GROUPS = 1_000
"""Groups whose offsets one transaction commits."""

NO_DEADLINE = math.inf
NO_PRODUCER_ID = -1
NO_TIME = -1

State = TransactionState
EMPTY, ONGOING = State.EMPTY, State.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = State.PREPARE_COMMIT, State.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = State.COMPLETE_COMMIT, State.COMPLETE_ABORT
DEAD, PREPARE_EPOCH_FENCE = State.DEAD, State.PREPARE_EPOCH_FENCE


class Transaction:
    """The producer of a transactional id and its latest transaction. Times are of the wall clock.

    `producer` is who may act; `previous` who it was before it bumped its epoch itself, so that a
    request whose answer was lost is known again. `next_producer_id` replaces an id whose epochs are
    used up, once the markers are written. `bumps_epoch`: the latest transaction ended with a new
    epoch. `offsets` are those of groups that count once the transaction is committed.
    """

    def __init__(self, transactional_id: str, new_producer_id: Callable[[], int]) -> None:
        self.transactional_id = transactional_id
        self.state = EMPTY
        self.producer = NOBODY
        self.previous: ProducerIdAndEpoch | None = None
        self.next_producer_id = NO_PRODUCER_ID
        self.bumps_epoch = False
        self.timeout_ms = 0
        self.started_ms = NO_TIME
        self.updated_ms = NO_TIME
        self.partitions: dict[TopicPartition, None] = {}
        self.groups: dict[str, None] = {}
        self.offsets: dict[str, dict[TopicPartition, Committed]] = {}
        self._new_producer_id = new_producer_id

    def handle(self, event: Event, now_ms: int) -> Answer:
        """Carry out one event.

        Raises:
            StorageError: A producer id could not be allocated; the transaction is to be restored.
        """
        row = transition(TRANSITIONS, self.state, event)
        before = self.state
        try:
            answer = row.action(self, event, now_ms)
        except StorageError:
            raise
        except ApiError as error:
            return Answer(error.code)
        assert self.state in row.leads_to, f"{before} -> {self.state} at {type(event).__name__}"
        return answer

    def next_deadline_ms(self) -> float:
        """When a `Tick` has something to do, if nothing happens before."""
        return self.started_ms + self.timeout_ms if self.state is ONGOING else NO_DEADLINE

    @property
    def is_ending(self) -> bool:
        """Whether markers have still to be written."""
        return self.state in {PREPARE_COMMIT, PREPARE_ABORT}

    # --- InitProducerId ----------------------------------------------------------------------

    def _on_init(self, event: Init, now_ms: int) -> Answer:
        self.producer = self._bumped(event.expected)
        self.timeout_ms = event.timeout_ms
        self.bumps_epoch = False
        self.started_ms = NO_TIME
        self.updated_ms = now_ms
        self.state = EMPTY
        return Answer(producer=self.producer)

    def _bumped(self, expected: ProducerIdAndEpoch | None) -> ProducerIdAndEpoch:
        """Who the producer is from now on. Raises `ApiError`."""
        current = self.producer
        if current == NOBODY:
            return ProducerIdAndEpoch(self._new_producer_id(), 0)
        if expected is not None:
            if expected == self.previous:
                # The answer to the same request was lost.
                return current
            if expected != current:
                raise ApiError(ErrorCode.PRODUCER_FENCED)
        # A producer that did not say who it is fences whoever was it before.
        self.previous = expected
        if current.epoch >= MAX_EPOCH:
            return ProducerIdAndEpoch(self._new_producer_id(), 0)
        return current._replace(epoch=current.epoch + 1)

    def _on_init_ongoing(self, event: Init, now_ms: int) -> Answer:
        if event.expected is not None and event.expected != self.producer:
            raise ApiError(ErrorCode.PRODUCER_FENCED)
        self._fence(now_ms)
        # The next attempt gets an epoch that nobody has seen.
        return Answer(ErrorCode.CONCURRENT_TRANSACTIONS)

    def _on_init_refused(self, event: Init, now_ms: int) -> Answer:
        del event, now_ms
        return Answer(ErrorCode.CONCURRENT_TRANSACTIONS)

    # --- what belongs to the transaction -----------------------------------------------------

    def _on_add(self, event: Add, now_ms: int) -> Answer:
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
        return Answer()

    def _on_verify(self, event: Verify, now_ms: int) -> Answer:
        del now_ms
        self._check(event.producer)
        added = all(each in self.partitions for each in event.scope.partitions)
        if not added or not all(each in self.groups for each in event.scope.groups):
            raise ApiError(ErrorCode.TRANSACTION_ABORTABLE)
        return Answer()

    def _on_offsets(self, event: CommitOffsets, now_ms: int) -> Answer:
        del now_ms
        self._check(event.producer)
        if event.group not in self.offsets and len(self.offsets) >= MAX_GROUPS:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        self.offsets.setdefault(event.group, {}).update(event.offsets)
        return Answer()

    def _on_use_refused(self, event: Add | Verify | CommitOffsets | End, now_ms: int) -> Answer:
        del now_ms
        self._check(event.producer)
        return Answer(ErrorCode.CONCURRENT_TRANSACTIONS)

    def _check(self, producer: ProducerIdAndEpoch) -> None:
        if producer.producer_id != self.producer.producer_id:
            raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if producer.epoch != self.producer.epoch:
            raise ApiError(ErrorCode.PRODUCER_FENCED)

    # --- the end -----------------------------------------------------------------------------

    def _on_end(self, event: End, now_ms: int) -> Answer:
        self._check(event.producer)
        return self._prepare(event, now_ms)

    def _on_end_empty(self, event: End, now_ms: int) -> Answer:
        self._check(event.producer)
        if event.commit or not event.bumps_epoch:
            raise ApiError(ErrorCode.INVALID_TXN_STATE)
        # It cannot know whether a write of it, never answered, began the transaction.
        return self._prepare(event, now_ms)

    def _on_end_ending(self, event: End, now_ms: int) -> Answer:
        del now_ms
        if not (event.bumps_epoch and self._ended_before(event.producer)):
            self._check(event.producer)
            if event.bumps_epoch and self.bumps_epoch:
                # This epoch is for the next transaction, which cannot have begun.
                raise ApiError(ErrorCode.PRODUCER_FENCED)
        if event.commit != (self.state is PREPARE_COMMIT):
            raise ApiError(ErrorCode.INVALID_TXN_STATE)
        return Answer(ErrorCode.CONCURRENT_TRANSACTIONS)

    def _on_end_complete(self, event: End, now_ms: int) -> Answer:
        again = event.bumps_epoch and self._ended_before(event.producer)
        if not again:
            self._check(event.producer)
            if event.bumps_epoch:
                return self._on_end_empty(event, now_ms)
        if event.commit != (self.state is COMPLETE_COMMIT):
            raise ApiError(ErrorCode.INVALID_TXN_STATE)
        return Answer(producer=self.producer)

    def _ended_before(self, producer: ProducerIdAndEpoch) -> bool:
        """Whether this is who the producer was when the transaction ended with a new epoch."""
        if not self.bumps_epoch:
            return False
        if producer.producer_id == self.producer.producer_id:
            return producer.epoch + 1 == self.producer.epoch
        return producer == self.previous and self.producer.epoch == 0

    def _prepare(self, event: End, now_ms: int) -> Answer:
        if self.state is not ONGOING:
            self.started_ms = now_ms
        self.state = PREPARE_COMMIT if event.commit else PREPARE_ABORT
        self.updated_ms = now_ms
        self.bumps_epoch = event.bumps_epoch
        if event.bumps_epoch:
            self._bump()
        if self.next_producer_id != NO_PRODUCER_ID:
            return Answer(producer=ProducerIdAndEpoch(self.next_producer_id, 0))
        return Answer(producer=self.producer)

    def _bump(self) -> None:
        """Go on to the epoch that the markers bear, and to a new id after the last one."""
        self.previous = self.producer
        if self.producer.epoch >= MAX_EPOCH:
            self.next_producer_id = self._new_producer_id()
        epoch = min(self.producer.epoch, MAX_EPOCH) + 1
        self.producer = self.producer._replace(epoch=epoch)

    def _on_markers(self, event: MarkersWritten, now_ms: int) -> Answer:
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
        return Answer()

    # --- fencing, and time -------------------------------------------------------------------

    def _on_tick(self, event: Tick, now_ms: int) -> Answer:
        del event
        if self.next_deadline_ms() <= now_ms:
            self._fence(now_ms)
        return Answer()

    def _fence(self, now_ms: int) -> None:
        """Let nothing more in from the producer, whose transaction is then aborted."""
        self._bump()
        self.updated_ms = now_ms
        self.state = PREPARE_EPOCH_FENCE

    def _on_fenced(self, event: Fenced, now_ms: int) -> Answer:
        del now_ms
        self.bumps_epoch = event.bumps_epoch
        if not event.bumps_epoch:
            # It may not go on as if it had bumped its epoch itself.
            self.previous = None
        self.state = PREPARE_ABORT
        return Answer()

    def _on_expire(self, event: Expire, now_ms: int) -> Answer:
        del event
        self.updated_ms = now_ms
        self.state = DEAD
        return Answer()

    def _in_use(self, event: Event, now_ms: int) -> Answer:
        del event, now_ms
        return Answer(ErrorCode.CONCURRENT_TRANSACTIONS)

    def _unknown(self, event: Event, now_ms: int) -> Answer:
        del event, now_ms
        return Answer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)

    def _nothing(self, event: Event, now_ms: int) -> Answer:
        del event, now_ms
        return Answer()


class Row(NamedTuple):
    """What an event does in a state, and the states that may follow."""

    action: Callable[[Transaction, Any, int], Answer]
    leads_to: tuple[TransactionState, ...]


_T = Transaction
_Rows = dict[tuple[TransactionState, type[Event]], Row]


def _settled(state: TransactionState, end: Callable[[Transaction, Any, int], Answer]) -> _Rows:
    """A state in which no transaction is open: `end` is what EndTxn does in it."""
    return {
        (state, Init): Row(_T._on_init, (EMPTY,)),
        (state, Add): Row(_T._on_add, (ONGOING,)),
        (state, Verify): Row(_T._on_verify, (state,)),
        (state, CommitOffsets): Row(_T._on_offsets, (state,)),
        (state, End): Row(end, (state, PREPARE_ABORT)),
        (state, Fenced): Row(_T._nothing, (state,)),
        (state, MarkersWritten): Row(_T._nothing, (state,)),
        (state, Tick): Row(_T._nothing, (state,)),
        (state, Expire): Row(_T._on_expire, (DEAD,)),
    }


def _ending(state: TransactionState, complete: TransactionState) -> _Rows:
    """A state in which markers are written; `complete` follows."""
    return {
        (state, Init): Row(_T._on_init_refused, (state,)),
        (state, Add): Row(_T._on_use_refused, (state,)),
        (state, Verify): Row(_T._on_use_refused, (state,)),
        (state, CommitOffsets): Row(_T._on_use_refused, (state,)),
        (state, End): Row(_T._on_end_ending, (state,)),
        (state, Fenced): Row(_T._nothing, (state,)),
        (state, MarkersWritten): Row(_T._on_markers, (state, complete)),
        (state, Tick): Row(_T._nothing, (state,)),
        (state, Expire): Row(_T._in_use, (state,)),
    }


TRANSITIONS: Mapping[tuple[TransactionState, type[Event]], Row] = MappingProxyType(
    {
        **_settled(EMPTY, _T._on_end_empty),
        **_settled(COMPLETE_COMMIT, _T._on_end_complete),
        **_settled(COMPLETE_ABORT, _T._on_end_complete),
        (ONGOING, Init): Row(_T._on_init_ongoing, (PREPARE_EPOCH_FENCE,)),
        (ONGOING, Add): Row(_T._on_add, (ONGOING,)),
        (ONGOING, Verify): Row(_T._on_verify, (ONGOING,)),
        (ONGOING, CommitOffsets): Row(_T._on_offsets, (ONGOING,)),
        (ONGOING, End): Row(_T._on_end, (PREPARE_COMMIT, PREPARE_ABORT)),
        (ONGOING, Fenced): Row(_T._nothing, (ONGOING,)),
        (ONGOING, MarkersWritten): Row(_T._nothing, (ONGOING,)),
        (ONGOING, Tick): Row(_T._on_tick, (ONGOING, PREPARE_EPOCH_FENCE)),
        (ONGOING, Expire): Row(_T._in_use, (ONGOING,)),
        **_ending(PREPARE_COMMIT, COMPLETE_COMMIT),
        **_ending(PREPARE_ABORT, COMPLETE_ABORT),
        (PREPARE_EPOCH_FENCE, Init): Row(_T._on_init_refused, (PREPARE_EPOCH_FENCE,)),
        (PREPARE_EPOCH_FENCE, Add): Row(_T._on_use_refused, (PREPARE_EPOCH_FENCE,)),
        (PREPARE_EPOCH_FENCE, Verify): Row(_T._on_use_refused, (PREPARE_EPOCH_FENCE,)),
        (PREPARE_EPOCH_FENCE, CommitOffsets): Row(_T._on_use_refused, (PREPARE_EPOCH_FENCE,)),
        (PREPARE_EPOCH_FENCE, End): Row(_T._on_use_refused, (PREPARE_EPOCH_FENCE,)),
        (PREPARE_EPOCH_FENCE, Fenced): Row(_T._on_fenced, (PREPARE_ABORT,)),
        (PREPARE_EPOCH_FENCE, MarkersWritten): Row(_T._nothing, (PREPARE_EPOCH_FENCE,)),
        (PREPARE_EPOCH_FENCE, Tick): Row(_T._nothing, (PREPARE_EPOCH_FENCE,)),
        (PREPARE_EPOCH_FENCE, Expire): Row(_T._in_use, (PREPARE_EPOCH_FENCE,)),
        (DEAD, Init): Row(_T._on_init_refused, (DEAD,)),
        (DEAD, Add): Row(_T._unknown, (DEAD,)),
        (DEAD, Verify): Row(_T._unknown, (DEAD,)),
        (DEAD, CommitOffsets): Row(_T._unknown, (DEAD,)),
        (DEAD, End): Row(_T._unknown, (DEAD,)),
        (DEAD, Fenced): Row(_T._nothing, (DEAD,)),
        (DEAD, MarkersWritten): Row(_T._nothing, (DEAD,)),
        (DEAD, Tick): Row(_T._nothing, (DEAD,)),
        (DEAD, Expire): Row(_T._nothing, (DEAD,)),
    }
)
