"""Kafka's own definitions of messages: each (API, version) of them has its classes and vectors."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from aiokafkawire import wire
from aiokafkawire.wire.schema import VersionRange
from tests.wire import vectors


class Row(NamedTuple):
    key: int
    name: str
    versions: frozenset[int]


def rows() -> Iterator[Row]:
    """The union of what the three sets of definitions have."""
    for line in (Path(__file__).parent / "definitions.txt").read_text().splitlines():
        if not line.startswith("#"):
            key, name, *spans = line.split()
            ranges = [VersionRange.parse(span) for span in spans if span != "-"]
            versions = {v for low, high in ranges for v in range(low, high + 1)}
            yield Row(int(key), name, frozenset(versions))


@pytest.mark.parametrize("row", [*rows()], ids=lambda row: row.name)
def test_no_api_and_version_lacks_a_class(row: Row) -> None:
    for kind in ("Request", "Response"):
        cls = wire.message_class(row.name + kind)
        assert getattr(cls, "api_key") == row.key  # noqa: B009
        assert row.versions <= set(range(cls.min_version, cls.max_version + 1))
        tried = {vector["version"] for _, vector in vectors.by_message()[row.name + kind]}
        assert row.versions <= tried


def test_the_table_of_apis_is_theirs(record_property: Callable[[str, object], None]) -> None:
    theirs: dict[int, set[int]] = {}
    for row in rows():
        theirs.setdefault(row.key, set()).update(row.versions)
    ours = {key: set(range(api.min_version, api.max_version + 1)) for key, api in wire.APIS.items()}
    differing = [key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key)]
    assert not differing, "the versions in wire/api.py are not those of tests/spec/definitions.txt"
    pairs = sum(map(len, theirs.values()))
    summary = (
        f"(API, version) pairs of three sets of definitions that have classes: {pairs} of {pairs}"
    )
    record_property("summary", summary)
