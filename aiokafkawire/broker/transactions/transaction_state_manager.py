"""Transactional ids and their stored state, as in the log of __transaction_state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from aiokafkawire.broker.api_error import StorageError
from aiokafkawire.broker.storage import Store
from aiokafkawire.broker.transactions.events import TransactionState
from aiokafkawire.broker.transactions.serialization import deserialize, restore, serialize
from aiokafkawire.broker.transactions.transaction_metadata import TransactionMetadata
from aiokafkawire.wire import ErrorCode

__all__ = ("TransactionStateManager",)


class TransactionStateManager:
    """Transactional ids by name, with the last stored line of each."""

    def __init__(self, store: Store, new_producer_id: Callable[[], int]) -> None:
        """Load transactional ids from `store`."""
        self._store = store
        self._new_producer_id = new_producer_id
        self._transactions: dict[str, TransactionMetadata] = {}
        self._stored_lines: dict[str, dict[str, Any]] = {}
        for line in store.load_transactions():
            transaction = deserialize(line, new_producer_id)
            self._transactions[transaction.transactional_id] = transaction
            self._stored_lines[transaction.transactional_id] = line
        for transaction in self:
            if transaction.state is TransactionState.DEAD:
                self.remove(transaction)
                del self._stored_lines[transaction.transactional_id]

    def __iter__(self) -> Iterator[TransactionMetadata]:
        return iter(list(self._transactions.values()))

    def __len__(self) -> int:
        return len(self._transactions)

    def __getitem__(self, transactional_id: str) -> TransactionMetadata:
        return self._transactions[transactional_id]

    def get(self, transactional_id: str) -> TransactionMetadata | None:
        """Return the state of a transactional id, None if unknown."""
        return self._transactions.get(transactional_id)

    def create(self, transactional_id: str) -> TransactionMetadata:
        """Add a transactional id, which is not stored yet."""
        transaction = TransactionMetadata(transactional_id, self._new_producer_id)
        self._transactions[transactional_id] = transaction
        return transaction

    def remove(self, transaction: TransactionMetadata) -> None:
        """Remove a transactional id, whose deletion is stored."""
        del self._transactions[transaction.transactional_id]

    def append(self, transaction: TransactionMetadata) -> None:
        """Store the state of a transactional id, or its deletion.

        Raises:
            StorageError: The previously stored state is still there. The caller must `restore` it.
        """
        name = transaction.transactional_id
        lines: list[dict[str, Any]] = []

        def stored() -> list[dict[str, Any]]:
            lines.append(serialize(transaction))
            return lines

        try:
            stale = self._store.append_transactions(stored, len(self._transactions))
        except StorageError as error:
            # Kafka answers this if it cannot write to the partition of __transaction_state.
            raise StorageError(ErrorCode.NOT_COORDINATOR, error.message) from error
        if transaction.state is TransactionState.DEAD:
            self._stored_lines.pop(name, None)
        elif lines:
            (self._stored_lines[name],) = lines
        if stale:
            self._store.rewrite_transactions(list(self._stored_lines.values()))

    def restore(self, transaction: TransactionMetadata) -> None:
        """Reset a transactional id to its stored state; remove one that was never stored."""
        line = self._stored_lines.get(transaction.transactional_id)
        if line is None:
            self._transactions.pop(transaction.transactional_id, None)
        else:
            restore(transaction, line)
