"""Transactions as lines of JSON."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest

from aiokafkawire.broker.groups.offsets import Committed
from aiokafkawire.broker.transactions.events import TransactionState
from aiokafkawire.broker.transactions.machine import Transaction
from aiokafkawire.broker.transactions.saving import loaded, saved
from aiokafkawire.errors import KafkaError
from aiokafkawire.types import ProducerIdAndEpoch, TopicPartition


def made() -> Transaction:
    transaction = Transaction("tx", count().__next__)
    transaction.state = TransactionState.PREPARE_ABORT
    transaction.producer = ProducerIdAndEpoch(7, 3)
    transaction.previous = ProducerIdAndEpoch(7, 2)
    transaction.next_producer_id = 9
    transaction.bumps_epoch = True
    transaction.timeout_ms, transaction.started_ms, transaction.updated_ms = 1, 2, 3
    transaction.partitions[TopicPartition("t", 4)] = None
    transaction.groups["g"] = None
    transaction.offsets["g"] = {TopicPartition("u", 5): Committed(6, 1, "note")}
    return transaction


def again(line: dict[str, Any]) -> Transaction:
    return loaded(json.loads(json.dumps(line)), count().__next__)


def test_nothing_is_lost() -> None:
    given, found = vars(made()), vars(again(saved(made())))
    assert given.keys() == found.keys()
    for name in given.keys() - {"_new_producer_id"}:
        assert given[name] == found[name], name


def test_a_dead_one_says_no_more_than_that() -> None:
    transaction = made()
    transaction.state = TransactionState.DEAD
    assert again(saved(transaction)).state is TransactionState.DEAD


@pytest.mark.parametrize("name", saved(made()))
def test_a_line_that_makes_no_sense_is_refused(name: str) -> None:
    line = saved(made())
    del line[name]
    with pytest.raises(KafkaError, match="the saved transactions are damaged"):
        again(line)
