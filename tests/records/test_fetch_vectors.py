"""Every fetch vector, for both isolation levels, against what Java's consumer returned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aiokafkawire.records import DecodeOptions, FetchedBatches, IsolationLevel, decode_fetch

from .vectors import load, unbase64

VECTORS = load("fetches")


def fetched(vector: dict[str, Any], isolation: IsolationLevel) -> FetchedBatches:
    aborted = [
        (transaction["producerId"], transaction["firstOffset"])
        for transaction in vector["abortedTransactions"]
    ]
    data, offset = unbase64(vector["bytes"]), vector["fetchOffset"]
    return decode_fetch(
        "topic", 3, data, offset, DecodeOptions(isolation=isolation), aborted=aborted
    )


def as_tuples(records: Any) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in records]


@pytest.mark.parametrize("isolation", IsolationLevel)
def test_fetch_vectors(
    isolation: IsolationLevel, record_property: Callable[[str, object], None]
) -> None:
    name = "readCommitted" if isolation else "readUncommitted"
    for vector in VECTORS:
        expected = [
            (offset, unbase64(key), unbase64(value))
            for offset, key, value in vector[name]["records"]
        ]
        next_offset = vector[name]["nextOffset"]

        whole = fetched(vector, isolation)
        assert as_tuples(whole.take(1 << 30)) == expected, vector["id"]
        assert whole.position == next_offset
        assert whole.exhausted

        singly = fetched(vector, isolation)
        seen = []
        while len(taken := singly.take(1)):
            seen += as_tuples(taken)
            assert taken.next_offset == singly.position > taken[0].offset
        assert seen == expected
        assert singly.position == next_offset

        by_batch = fetched(vector, isolation)
        assert [row for records in by_batch for row in as_tuples(records)] == expected
        assert by_batch.position == next_offset
    record_property("summary", f"golden vectors, fetches/{name}: {len(VECTORS)}")
    assert len(VECTORS) == 100
