"""Batches of older producers, converted to the format of the log."""

from __future__ import annotations

import pytest

from aiokafkawire.broker.message_conversion import up_convert
from aiokafkawire.records.batch import BatchView, iter_batches

from .raw_client import batch


def records(views: list[BatchView]) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [
        (offset, timestamp, columns.key(index), columns.value(index))
        for view in views
        for columns in [view.columns()]
        for index, (offset, timestamp) in enumerate(
            zip(columns.offsets, columns.timestamps, strict=True)
        )
    ]


@pytest.mark.parametrize("compression", [0, 1, 2], ids=["plain", "gzip", "snappy"])
@pytest.mark.parametrize(("older", "newer"), [(0, 1), (0, 2), (1, 2)])
def test_records_stay_what_they_are(older: int, newer: int, compression: int) -> None:
    sent = list(iter_batches(batch(b"a", None, b"c", magic=older, compression=compression)))
    kept = up_convert(sent, newer)
    assert {(view.magic, int(view.compression)) for view in kept} == {(newer, compression)}
    assert records(kept) == records(sent)
    for view in kept:
        view.check_crc()


def test_all_of_a_request_becomes_one_batch() -> None:
    sent = list(iter_batches(batch(b"a", magic=0) + batch(b"b", b"c", magic=1)))
    (kept,) = up_convert(sent, 2)
    assert [entry[0] for entry in records([kept])] == [0, 1, 2]
    assert [entry[3] for entry in records([kept])] == [b"a", b"b", b"c"]


def test_what_is_new_enough_is_left_alone() -> None:
    sent = list(iter_batches(batch(b"a", magic=1)))
    assert up_convert(sent, 1) == sent
    assert up_convert(sent, 0) == sent
    assert up_convert([], 2) == []
