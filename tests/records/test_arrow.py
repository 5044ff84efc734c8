"""Records as Arrow."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokafkawire.records import Compression, decode_fetch
from aiokafkawire.types import TimestampType

from .record_data import ROWS, Row, batch

pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from aiokafkawire.records.arrow import MAX_CACHED_ROWS  # noqa: E402 - it imports pyarrow


@settings(max_examples=30)
@given(
    st.lists(st.sampled_from(ROWS), min_size=1, max_size=20),
    st.booleans(),
    st.integers(0, 20),
    st.integers(1, 50),
)
@pytest.mark.slow
def test_arrow_holds_what_the_records_hold(
    rows: list[Row], plain: bool, fetch_offset: int, max_records: int
) -> None:
    if plain:
        rows = [(*row[:3], ()) for row in rows]
    data = batch(rows, 5, Compression.GZIP) + batch(rows, 50) + batch(rows, 100, magic=2)
    records = decode_fetch("t", 4, data, fetch_offset).take(max_records)
    table = records.to_arrow()
    table.validate(full=True)
    assert table.num_rows == len(records)
    timestamps = table.column("timestamp").cast(pyarrow.int64()).to_pylist()
    for record, row, timestamp in zip(records, table.to_pylist(), timestamps, strict=True):
        assert timestamp == record.timestamp_ms
        headers = [(header["key"], header["value"]) for header in row["headers"] or ()]
        assert (row["topic"], row["partition"], row["offset"]) == ("t", 4, record.offset)
        assert (row["key"], row["value"]) == (record.key, record.value)
        assert tuple(headers) == record.headers
        assert row["timestamp_type"] == record.timestamp_type


@pytest.mark.parametrize("count", [MAX_CACHED_ROWS, MAX_CACHED_ROWS + 1])
def test_what_all_rows_share_is_made_once_for_batches_that_are_not_large(count: int) -> None:
    def table(offset: int, key: bytes | None = None) -> Any:
        data = batch([(5, key, b"v", ())] * count, offset)
        return decode_fetch("shared", 4, data, offset).take(count).to_arrow()

    one, two, keyed = table(0), table(count), table(0, b"k")
    assert one.drop_columns("offset") == two.drop_columns("offset")
    assert keyed.column("key").to_pylist() == [b"k"] * count
    assert keyed.drop_columns("key") == one.drop_columns("key")
    address = [found.column("topic").buffers()[2].address for found in (one, two)]
    assert (address[0] == address[1]) == (count <= MAX_CACHED_ROWS)


def test_rows_of_several_kinds_of_timestamp() -> None:
    data = batch([(5, None, b"v", ())], magic=0) + batch([(5, None, b"v", ())], 1)
    table = decode_fetch("t", 4, data, 0).take(9).to_arrow()
    assert table.column("timestamp_type").to_pylist() == [
        TimestampType.NONE,
        TimestampType.CREATE_TIME,
    ]


def test_parts_of_batches_that_were_decoded_together_and_of_others() -> None:
    bare = [(*row[:3], ()) for row in ROWS]
    data = batch(bare, 0) + batch(ROWS, 10) + batch(bare, 20, Compression.LZ4) + batch(bare, 30)
    records = decode_fetch("t", 4, data, 1).take(14)
    assert [segment.stop - segment.start for segment in records.segments] == [7, 4, 3]
    for start in range(0, 14, 3):
        for stop in range(start, 15, 2):
            part = records[start:stop]
            rows = part.to_arrow(["offset", "key", "value"]).to_pylist()
            assert rows == [
                {"offset": each.offset, "key": each.key, "value": each.value} for each in part
            ]
            headers = part.to_arrow(["headers"]).column("headers").to_pylist()
            assert [row and len(row) for row in headers] == [len(r.headers) or None for r in part]


def test_without_records_and_without_timestamps() -> None:
    empty = decode_fetch("t", 4, b"", 0).take(9).to_arrow()
    assert empty.num_rows == 0
    old = decode_fetch("t", 4, batch([(5, b"k", None, ())], magic=0), 0).take(9).to_arrow()
    assert old.schema == empty.schema
    assert old.column("timestamp").null_count == 1
    assert old.to_pylist()[0]["headers"] is None


def test_columns_that_are_asked_for_come_alone_and_in_their_order() -> None:
    records = decode_fetch("t", 4, batch(ROWS, 5), 0).take(100)
    whole, some = records.to_arrow(), records.to_arrow(["value", "offset"])
    assert some.schema.names == ["value", "offset"]
    assert some.equals(whole.select(["value", "offset"]))
    with pytest.raises(KeyError, match="nothing"):
        records.to_arrow(["nothing"])


def test_pyarrow_is_loaded_only_when_it_is_asked_for() -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from aiokafkawire.records import decode_fetch\n"
        "try: decode_fetch('t', 0, b'', 0).take(1).to_arrow()\n"
        "except ImportError as error: print(error)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    assert "aiokafkawire[arrow]" in run.stdout
