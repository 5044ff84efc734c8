"""The table of cancellations has a row for every public coroutine."""

from __future__ import annotations

from aiokafkawire.consumer import BatchIterator, Consumer, RecordIterator
from aiokafkawire.producer import Delivery, Producer
from aiokafkawire.share import ShareConsumer
from aiokafkawire.share.iterators import ShareBatchIterator, ShareRecordIterator
from tests.cancellation.__main__ import CASES, table
from tests.cancellation.cancellation_case import public_coroutines


def test_every_public_coroutine_has_a_row() -> None:
    public = public_coroutines(
        Producer,
        Delivery,
        Consumer,
        RecordIterator,
        BatchIterator,
        ShareConsumer,
        ShareRecordIterator,
        ShareBatchIterator,
    )
    assert {case.covers for case in CASES} == public | {"Delivery.__await__"}
    assert len(set(CASES)) == len(CASES)


def test_a_row_has_the_coroutine_and_each_backend() -> None:
    *_, row = table([("`Producer.send`", "Send", "20", "2")]).splitlines()
    assert row == "| `Producer.send` | Send | 20 | 2 |"
