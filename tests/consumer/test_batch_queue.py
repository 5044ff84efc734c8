from __future__ import annotations

import pytest

from aiokafkawire.consumer.batch_queue import BatchQueue
from aiokafkawire.errors import CorruptRecord
from aiokafkawire.records import control_batch, decode_fetch

from .record_data import P0, fetched, log


def test_records_are_decoded_in_order_and_free_the_queue() -> None:
    queue = BatchQueue()
    first, second = log(3), log(2, start=3)
    queue.append(fetched(first, 0), len(first))
    queue.append(fetched(second, 3), len(second))
    assert queue.size_bytes == len(first) + len(second)
    offsets = []
    while (records := queue.decode(2, 1_000_000)) is not None:
        offsets.append(records.offsets())
    assert offsets == [[0, 1], [2], [3, 4]]
    assert queue.size_bytes == 0


def test_batches_without_records_are_skipped() -> None:
    queue = BatchQueue()
    control = control_batch(1, 0, commit=True, coordinator_epoch=1, timestamp_ms=5)
    data = log(1, start=1)
    queue.append(fetched(control, 0), len(control))
    queue.append(fetched(data, 1), len(data))
    records = queue.decode(10, 1_000_000)
    assert records is not None
    assert records.offsets() == [1]


def test_decoding_is_suspended_for_a_batch_to_decompress_in_a_thread() -> None:
    queue = BatchQueue()
    data = log(3)
    batches = decode_fetch(*P0, data, 0, max_inline_bytes=len(data) - 1)
    queue.append(batches, len(data))
    assert queue.decode(10, 1_000_000) is None
    assert queue.suspended_batches is batches
    assert batches.offloaded is not None
    batches.offloaded.decompress()
    records = queue.decode(10, 1_000_000)
    assert records is not None
    assert records.offsets() == [0, 1, 2]
    assert queue.suspended_batches is None


def test_an_error_is_raised_after_the_records() -> None:
    queue = BatchQueue()
    data = log(2)
    queue.append(fetched(data), len(data))
    queue.end_with_error(CorruptRecord("damage"), 100)
    assert queue.decode(10, 1_000_000) is not None
    assert queue.size_bytes == 100
    for _ in range(2):
        with pytest.raises(CorruptRecord, match="damage"):
            queue.decode(10, 1_000_000)
    queue.clear()
    assert queue.decode(10, 1_000_000) is None
    assert queue.size_bytes == 0
