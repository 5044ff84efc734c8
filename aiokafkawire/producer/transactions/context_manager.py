"""`async with producer.transaction()`."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

import anyio

from aiokafkawire.errors import KafkaError, TransactionFailed
from aiokafkawire.producer.transactions.manager import TransactionManager
from aiokafkawire.producer.transactions.states import Transaction

__all__ = ("CANCELLED_ABORT_S", "TransactionContextManager")

CANCELLED_ABORT_S = 1.0
"""How long an abort may hold up a cancellation; it goes on after that without its caller."""


class FailureSource(Protocol):
    """What a producer sends with."""

    failure: KafkaError | None

    def raise_if_failed(self) -> None:
        """Raise why the producer cannot go on, if so."""
        ...


class TransactionContextManager:
    """One transaction, from entering to leaving.

    Leaving commits, or aborts if the body raised or was cancelled. What was ended or detached in
    the body is left alone.
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
        """Abort for an error that goes on its way; that the abort failed too is a note."""
        try:
            if isinstance(error, Exception):
                await self._transaction_manager.abort()
                return
            with anyio.CancelScope(shield=True):
                await self._transaction_manager.abort(CANCELLED_ABORT_S)
        except KafkaError as failure:
            if not isinstance(error, type(failure)):
                error.add_note(f"the transaction was not aborted: {failure}")
