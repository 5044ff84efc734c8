"""The buffered records of a transaction: flushed before a commit, dropped by an abort."""

from __future__ import annotations

from collections.abc import Callable

from aiokafkawire.errors import KafkaError, TransactionAborted
from aiokafkawire.producer.accumulator import Accumulator
from aiokafkawire.producer.transactions.state_machine import TransactionStateMachine
from aiokafkawire.producer.transactions.states import (
    AbortableError,
    Aborting,
    Committing,
    Detaching,
    TransactionVersion,
)

__all__ = ("TO_ABORT", "BufferedRecords")

# Tuples: `isinstance` with a union type builds the union on every call.
_FLUSHING = (Committing, Detaching)
TO_ABORT = (AbortableError, Aborting)
"""States of a transaction that will be aborted."""


class BufferedRecords:
    """The accumulator as the state of the transaction requires it.

    Args:
        perform: Performs what follows from a call of the accumulator.
    """

    def __init__(
        self,
        machine: TransactionStateMachine,
        accumulator: Accumulator,
        perform: Callable[[], None],
    ) -> None:
        self._machine = machine
        self._accumulator = accumulator
        self._perform = perform
        self._flushing = False

    def update(self) -> None:
        """Flush the records of a commit, drop those of an abort."""
        state = type(self._machine.state)
        if (state in _FLUSHING) is not self._flushing:
            self.update_flushing()
        if state in TO_ABORT:
            self.abort()

    def update_flushing(self) -> None:
        """Send records without linger while the transaction commits or detaches."""
        flushing = isinstance(self._machine.state, _FLUSHING)
        if flushing is not self._flushing:
            self._flushing = flushing
            if flushing:
                self._accumulator.begin_flush()
                self._perform()
            else:
                self._accumulator.end_flush()

    def abort(self) -> None:
        """Abort the buffered records of a transaction that will be aborted.

        With TV_0, responses are awaited, so that no record reaches a log after the abort marker.
        With TV_2 the end bumps the epoch, and brokers reject late records by it.
        """
        state = self._machine.state
        if isinstance(state, TO_ABORT) and self._accumulator.incomplete:
            cause = state.error if isinstance(state, AbortableError) else None
            bumps_epoch = state.transaction.transaction_version is TransactionVersion.TV_2
            self._accumulator.abort_transaction(
                self.aborted_error(cause), in_flight=bumps_epoch and isinstance(state, Aborting)
            )
            self._perform()

    def aborted_error(self, cause: KafkaError | None) -> TransactionAborted:
        """Return the error of the records of an aborted transaction."""
        error = TransactionAborted(
            "the record's transaction is aborted", transactional_id=self._machine.transactional_id
        )
        if cause is not None:
            error.__cause__ = cause.__cause__
        return error

    @property
    def flushed(self) -> bool:
        """True if no record waits, and none can reach a log after the end marker.

        With TV_2 the end bumps the epoch, and brokers reject late records by their old epoch.
        """
        if self._accumulator.incomplete:
            return False
        state = self._machine.state
        if (
            not isinstance(state, Aborting)
            or state.transaction.transaction_version is TransactionVersion.TV_2
        ):
            return True
        # mutation: abort-overtakes-expired-record
        return not self._accumulator.all_topics.has_expired_in_flight

    def has_sequence_gap(self) -> bool:
        """Return True if a partition has a sequence gap, so that the epoch must be bumped."""
        topics = self._accumulator.all_topics
        if not self._machine.can_bump_epoch:
            topics.resume_sequences()
        return topics.has_sequence_gap

    def wake_all(self) -> None:
        """Check all batches again: a response may have added their partitions."""
        self._accumulator.wake_all()
        self._perform()
