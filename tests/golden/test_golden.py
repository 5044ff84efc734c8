"""The package does what the golden files say."""

from __future__ import annotations

import pytest

from tests.golden import TABLES, as_text, observed, path, read


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_as_in_its_file(name: str) -> None:
    assert observed(name) == read(name), "if this is meant, run: python -m tests.golden"
    assert path(name).read_text("utf-8") == as_text(read(name))


def test_every_file_has_a_table() -> None:
    assert {each.stem for each in path("any").parent.glob("*.txt")} == set(TABLES)
