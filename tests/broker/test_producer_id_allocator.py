"""Blocks of producer ids."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from aiokafkawire.broker import BrokerConfig
from aiokafkawire.broker.api_error import StorageError
from aiokafkawire.broker.cluster_state import ClusterState
from aiokafkawire.broker.producer_id_allocator import PRODUCER_ID_BLOCK, ProducerIdAllocator
from aiokafkawire.broker.storage import DirectoryStore
from aiokafkawire.wire import ErrorCode


def producer_ids(directory: Path) -> ProducerIdAllocator:
    store = DirectoryStore(directory)
    return ClusterState([1], store, BrokerConfig(), random.Random(1)).producer_ids


def test_producer_ids_are_never_given_twice(tmp_path: Path) -> None:
    first = producer_ids(tmp_path)
    given = [first.generate() for _ in range(PRODUCER_ID_BLOCK + 1)]
    second = producer_ids(tmp_path)
    assert given == list(range(PRODUCER_ID_BLOCK + 1))
    assert second.generate() > given[-1]


def test_a_block_that_cannot_be_stored_is_not_used() -> None:
    is_full = True

    def save() -> None:
        if is_full:
            raise StorageError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left")

    allocator = ProducerIdAllocator(save)
    for _ in range(2):
        with pytest.raises(StorageError) as caught:
            allocator.generate()
        assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    is_full = False
    assert (allocator.generate(), allocator.generate()) == (0, 1)
    assert allocator.limit == PRODUCER_ID_BLOCK
