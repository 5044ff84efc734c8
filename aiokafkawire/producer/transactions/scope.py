"""`async with producer.transaction()`."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

import anyio

from aiokafkawire.errors import KafkaError, TransactionFailed
from aiokafkawire.producer.transactions.driver import Transactions
from aiokafkawire.producer.transactions.states import Transaction

__all__ = ("CANCELLED_ABORT_S", "TransactionScope")

CANCELLED_ABORT_S = 1.0
"""How long an abort may hold up a cancellation; it goes on after that without its caller."""


class Refusing(Protocol):
    """What a producer sends with."""

    failure: KafkaError | None

    def raise_if_failed(self) -> None:
        """Raise why the producer cannot go on, if so."""
        ...


class TransactionScope:
    """One transaction, from entering to leaving.

    Leaving commits, or aborts if the body raised or was cancelled. What was ended or detached in
    the body is left alone.
    """

    __slots__ = ("_sender", "_transaction", "_transactions")

    def __init__(self, transactions: Transactions, sender: Refusing) -> None:
        self._transactions = transactions
        self._sender = sender
        self._transaction: Transaction | None = None

    async def __aenter__(self) -> None:
        self._transaction = await self._transactions.begin()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        transaction = self._transaction
        assert transaction is not None
        unended = self._transactions.unended(transaction)
        # mutation: cancelled-body-committed
        if error is not None:
            if unended or self._transactions.detaching(transaction):
                await self._abort(error)
            return
        if not unended and transaction.asked:
            return
        if self._sender.failure is not None:
            self._sender.raise_if_failed()
        try:
            await self._transactions.commit()
        except TransactionFailed as failure:
            if self._transactions.unended(transaction):
                await self._abort(failure)
            raise

    async def _abort(self, error: BaseException) -> None:
        """Abort for an error that goes on its way; that the abort failed too is a note."""
        try:
            if isinstance(error, Exception):
                await self._transactions.abort()
                return
            with anyio.CancelScope(shield=True):
                await self._transactions.abort(CANCELLED_ABORT_S)
        except KafkaError as failure:
            if not isinstance(error, type(failure)):
                error.add_note(f"the transaction was not aborted: {failure}")
