from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from .conftest import Cli
from .shell import aiokafkawire, serving

pytestmark = pytest.mark.slow

Rows = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def shop() -> Iterator[str]:
    """A broker with three records at 1000 to 1002 ms in the first of two partitions of `orders`."""
    with serving("-t", "orders:2") as (servers, _):
        lines = "".join(
            json.dumps({"value": "x", "partition": 0, "timestamp_ms": 1000 + number}) + "\n"
            for number in range(3)
        )
        done = aiokafkawire(
            "produce", "-q", "-b", servers, "-t", "orders", "--json", stdin=lines.encode()
        )
        assert (done.returncode, done.stderr) == (0, b"")
        yield servers


@pytest.fixture
def rows(cli: Cli, shop: str) -> Rows:
    """Run a command of `offsets` with --json that must succeed."""

    def call(name: str, *arguments: str) -> list[dict[str, Any]]:
        code, out, err = cli("offsets", name, "-b", shop, "--json", *arguments)
        assert (code, err) == (0, "")
        return [json.loads(line) for line in out.splitlines()]

    return call


@pytest.mark.parametrize(
    ("place", "offset"),
    [
        (("-o", "beginning"), 0),
        (("-o", "end"), 3),
        (("-o", "-1"), 2),
        (("-o", "-9"), 0),
        (("-o", "2"), 2),
        (("-o", "9"), 3),
        (("-o", "s@1001"), 1),
        (("-o", "s@2000"), 3),
    ],
)
def test_a_place_is_an_offset_within_the_log(rows: Rows, place: tuple[str, ...], offset: int):
    reset = rows("reset", "dry", "orders:0", "orders:1", *place, "--dry-run")
    assert [(row["partition"], row["current"], row["offset"], row["dry_run"]) for row in reset] == [
        (0, None, offset, True),
        (1, None, 0, True),
    ]
    assert rows("show", "dry") == []


def test_offsets_are_reset_shown_shifted_and_deleted(cli: Cli, shop: str, rows: Rows):
    rows("reset", "billing", "orders:0", "-o", "-1", "-y")
    assert rows("show", "billing") == [
        {
            "group": "billing",
            "topic": "orders",
            "partition": 0,
            "committed": 2,
            "end": 3,
            "lag": 1,
            "metadata": "",
        }
    ]
    (shifted,) = rows("reset", "billing", "--shift", "-1", "--yes")
    assert (shifted["current"], shifted["offset"]) == (2, 1)
    (deleted,) = rows("delete", "billing", "orders", "--dry-run")
    assert (deleted["committed"], deleted["dry_run"]) == (1, True)
    assert cli("offsets", "delete", "-b", shop, "billing", "orders:0", "-y") == (0, b"", "")
    assert cli("offsets", "show", "-b", shop, "billing") == (0, b"", "% no committed offsets\n")


def test_offsets_of_partitions_and_times_are_listed(rows: Rows):
    assert [row["offset"] for row in rows("list", "orders")] == [3, 0]
    assert [row["offset"] for row in rows("list", "orders:0", "-o", "beginning")] == [0]
    (found,) = rows("list", "orders:0", "-o", "s@1001")
    assert (found["offset"], found["timestamp_ms"]) == (1, 1001)
    (youngest,) = rows("list", "orders:0", "-o", "max-timestamp", "--committed")
    assert (youngest["offset"], youngest["timestamp_ms"]) == (2, 1002)
    assert [row["offset"] for row in rows("list", "orders", "-o", "s@9999")] == [None, None]
    assert len(rows("list")) == 2


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("reset", "g", "nope", "-o", "end", "-y"), 1, "'nope' does not exist"),
        (("reset", "g", "orders:7", "-o", "end", "-y"), 1, "no partition 7: it has"),
        (("reset", "g", "orders:0", "--shift", "1", "-y"), 1, "no committed offset to shift"),
        (("reset", "g", "orders", "-o", "end"), 2, "Give --yes"),
        (("reset", "g", "orders", "-o", "stored"), 2, "no start offset"),
        (("reset", "g", "orders", "-o", "e@5"), 2, "no start offset"),
        (("reset", "g", "orders"), 2, "give either -o or --shift"),
        (("reset", "g", "orders", "-o", "end", "--shift", "1"), 2, "give either -o or --shift"),
        (("list", "orders", "-o", "middle"), 2, "give s@TIME, beginning"),
        (("delete", "g", "orders"), 2, "Give --yes"),
        (("delete", "nobody", "orders", "-y"), 1, "GROUP_ID_NOT_FOUND"),
    ],
)
def test_what_is_wrong_is_reported_in_one_line(
    cli: Cli, shop: str, arguments: tuple[str, ...], code: int, reason: str
):
    got, out, err = cli("offsets", arguments[0], "-b", shop, *arguments[1:])
    assert (got, out, err.count("\n")) == (code, b"", 1)
    assert reason in err
