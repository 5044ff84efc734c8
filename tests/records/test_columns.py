"""Columns: what one record's fields are."""

from __future__ import annotations

from .record_data import ROWS, batch, view


def test_fields_of_each_record() -> None:
    columns = view(batch()).columns()
    assert columns.has_headers
    for n, (timestamp, key, value, headers) in enumerate(ROWS):
        assert columns.timestamps[n] == timestamp
        assert columns.key(n) == key
        assert columns.value(n) == value
        assert columns.headers(n) == tuple(headers)
        count = columns.data[columns.headers_position(n)] >> 1
        assert count == len(headers)


def test_without_headers_none_are_looked_for() -> None:
    columns = view(batch([(0, None, None, ())])).columns()
    assert not columns.has_headers
    assert columns.headers(0) == ()


def test_the_first_ones_alone() -> None:
    columns, whole = view(batch()).columns(), view(batch()).columns()
    columns.cut(2)
    assert len(columns) == 2
    for name in columns.__slots__[2:]:
        assert getattr(columns, name) == getattr(whole, name)[:2]
    assert [columns.headers(n) for n in (0, 1)] == [whole.headers(n) for n in (0, 1)]


def test_all_timestamps_at_once() -> None:
    columns = view(batch()).columns()
    columns.set_timestamps(7)
    assert list(columns.timestamps) == [7] * len(ROWS)


def test_header_names_that_are_not_utf_8_are_shown() -> None:
    data = batch([(0, None, None, [("ab", None)])])
    columns = view(data.replace(b"\x04ab", b"\x04\xffb")).columns()
    assert columns.headers(0) == (("\N{REPLACEMENT CHARACTER}b", None),)
