"""Transactions as lines of JSON."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest

from aiokafkawire.broker.groups.offsets import CommittedOffset
from aiokafkawire.broker.transactions.events import TransactionState
from aiokafkawire.broker.transactions.serialization import deserialize, serialize
from aiokafkawire.broker.transactions.transaction_metadata import TransactionMetadata
from aiokafkawire.errors import KafkaError
from aiokafkawire.types import ProducerIdAndEpoch, TopicPartition


def made() -> TransactionMetadata:
    transaction = TransactionMetadata("tx", count().__next__)
    transaction.state = TransactionState.PREPARE_ABORT
    transaction.producer = ProducerIdAndEpoch(7, 3)
    transaction.previous = ProducerIdAndEpoch(7, 2)
    transaction.next_producer_id = 9
    transaction.bumps_epoch = True
    transaction.timeout_ms, transaction.started_ms, transaction.updated_ms = 1, 2, 3
    transaction.partitions[TopicPartition("t", 4)] = None
    transaction.groups["g"] = None
    transaction.offsets["g"] = {TopicPartition("u", 5): CommittedOffset(6, 1, "note")}
    return transaction


def again(line: dict[str, Any]) -> TransactionMetadata:
    return deserialize(json.loads(json.dumps(line)), count().__next__)


def test_nothing_is_lost() -> None:
    given, found = vars(made()), vars(again(serialize(made())))
    assert given.keys() == found.keys()
    for name in given.keys() - {"_new_producer_id"}:
        assert given[name] == found[name], name


def test_a_dead_transaction_has_its_state_only() -> None:
    transaction = made()
    transaction.state = TransactionState.DEAD
    assert again(serialize(transaction)).state is TransactionState.DEAD


@pytest.mark.parametrize("name", serialize(made()))
def test_a_line_that_makes_no_sense_is_refused(name: str) -> None:
    line = serialize(made())
    del line[name]
    with pytest.raises(KafkaError, match="the stored transactions are damaged"):
        again(line)
