from __future__ import annotations

import json

import pytest

from .conftest import Cli
from .shell import aiokafkawire, serving

pytestmark = pytest.mark.slow


def test_the_oldest_records_are_deleted(cli: Cli) -> None:
    with serving("-t", "orders:2") as (servers, _):
        text = b"".join(b"%d\n" % number for number in range(5))
        aiokafkawire("produce", "-q", "-b", servers, "-t", "orders", "-p", "0", stdin=text)
        delete = ("records", "delete", "-b", servers, "orders", "--json")

        def starts(*arguments: str) -> list[tuple[int, int]]:
            code, out, err = cli(*delete, *arguments)
            assert (code, err) == (0, "")
            lines = map(json.loads, out.splitlines())
            return [(each["log_start_offset"], each["new_log_start_offset"]) for each in lines]

        assert starts("-o", "-2", "--dry-run") == [(0, 3), (0, 0)]
        assert starts("-o", "2", "-y") == [(0, 2), (0, 0)]
        assert starts("-o", "s@0", "--dry-run")[0] == (2, 2)
        assert starts("-o", "end", "-y") == [(2, 5), (0, 0)]
        code, _, err = cli(*delete, "-o", "end")
        assert (code, "Give --yes" in err) == (2, True)
