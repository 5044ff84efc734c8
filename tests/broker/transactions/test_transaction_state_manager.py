"""Transactional ids and their stored state."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aiokafkawire.broker.api_error import StorageError
from aiokafkawire.broker.storage import DirectoryStore, MemoryStore, Store
from aiokafkawire.broker.transactions.events import InitProducerId, TransactionState
from aiokafkawire.broker.transactions.transaction_state_manager import TransactionStateManager
from aiokafkawire.types import ProducerIdAndEpoch
from aiokafkawire.wire import ErrorCode


class FullStore(MemoryStore):
    """A store that has no space while `is_full`."""

    is_full = False

    def append_transactions(self, lines: Callable[[], list[dict[str, Any]]], live: int) -> bool:
        if self.is_full:
            raise StorageError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left")
        lines()
        return False


def manager(store: Store) -> TransactionStateManager:
    return TransactionStateManager(store, itertools.count(7).__next__)


def test_stored_ids_are_loaded_without_deleted_ones(tmp_path: Path) -> None:
    first = manager(DirectoryStore(tmp_path))
    for name in ("kept", "deleted"):
        transaction = first.create(name)
        transaction.handle(InitProducerId(timeout_ms=1_000), 5)
        first.append(transaction)
    transaction.state = TransactionState.DEAD
    first.append(transaction)
    first.remove(transaction)
    assert len(first) == 1
    [loaded] = manager(DirectoryStore(tmp_path))
    assert (loaded.transactional_id, loaded.producer) == ("kept", ProducerIdAndEpoch(7, 0))


def test_a_failed_write_is_undone_by_restore() -> None:
    store = FullStore()
    transactions = manager(store)
    stored, new = transactions.create("stored"), transactions.create("new")
    stored.handle(InitProducerId(timeout_ms=1_000), 5)
    transactions.append(stored)
    before, store.is_full = stored.producer, True
    for transaction in (stored, new):
        transaction.handle(InitProducerId(timeout_ms=1_000), 6)
        with pytest.raises(StorageError) as caught:
            transactions.append(transaction)
        assert caught.value.code is ErrorCode.NOT_COORDINATOR
        transactions.restore(transaction)
    assert (stored.producer, stored.updated_ms) == (before, 5)
    assert list(transactions) == [stored]
