"""The context manager of `async with producer.transaction()`."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

import anyio

from aiokafkawire.errors import KafkaError, TransactionFailed
from aiokafkawire.producer.transactions.manager import TransactionManager
from aiokafkawire.producer.transactions.states import Transaction

__all__ = ("CANCELLED_ABORT_S", "TransactionContextManager")

CANCELLED_ABORT_S = 1.0
"""Longest time in seconds that an abort delays a cancellation; it then continues by itself."""


class FailureSource(Protocol):
    """The producer's sender, as far as the context manager needs it."""

    failure: KafkaError | None

    def raise_if_failed(self) -> None:
        """Raise the error that failed the producer, if any."""
        ...


class TransactionContextManager:
    """One transaction: `begin_transaction` on entry, commit or abort on exit.

    The exit commits, or aborts if the body raised or was cancelled. A transaction that the body
    committed, aborted or detached itself is left as it is.
    """

    __slots__ = ("_sender", "_transaction", "_transaction_manager")

    def __init__(self, transaction_manager: TransactionManager, sender: FailureSource) -> None:
        self._transaction_manager = transaction_manager
        self._sender = sender
        self._transaction: Transaction | None = None

    async def __aenter__(self) -> None:
        self._transaction = await self._transaction_manager.begin()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        transaction = self._transaction
        assert transaction is not None
        unended = self._transaction_manager.needs_end(transaction)
        # mutation: cancelled-body-committed
        if error is not None:
            if unended or self._transaction_manager.is_detaching(transaction):
                await self._abort(error)
            return
        if not unended and transaction.end_requested:
            return
        if self._sender.failure is not None:
            self._sender.raise_if_failed()
        try:
            await self._transaction_manager.commit()
        except TransactionFailed as failure:
            if self._transaction_manager.needs_end(transaction):
                await self._abort(failure)
            raise

    async def _abort(self, error: BaseException) -> None:
        """Abort because of `error`; if the abort fails too, add a note to `error`."""
        try:
            if isinstance(error, Exception):
                await self._transaction_manager.abort()
                return
            with anyio.CancelScope(shield=True):
                await self._transaction_manager.abort(CANCELLED_ABORT_S)
        except KafkaError as failure:
            if not isinstance(error, type(failure)):
                error.add_note(f"the transaction was not aborted: {failure}")
