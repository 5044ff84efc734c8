from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from aiokafkawire.cli.features import parse_level
from aiokafkawire.errors import InvalidOption

from .conftest import Cli
from .shell import serving

slow = pytest.mark.slow


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with serving("--as-of", "4.3") as (addresses, _):
        yield addresses


def finalized(cli: Cli, servers: str, *words: str) -> dict[str, Any]:
    code, out, err = cli("cluster", "features", *words, "-b", servers, "--json")
    assert (code, err) == (0, "")
    return {each["feature"]: each["finalized"] for each in map(json.loads, out.splitlines())}


@slow
def test_features_are_printed_with_and_without_the_name_of_a_command(cli: Cli, servers: str):
    assert finalized(cli, servers)["transaction.version"] == 2
    assert finalized(cli, servers, "show") == finalized(cli, servers)


@slow
def test_a_feature_is_downgraded_and_upgraded(cli: Cli, servers: str):
    given = ("-b", servers, "--json")
    lower = ("cluster", "features", "downgrade", *given, "transaction.version=1")
    code, out, err = cli(*lower, "--dry-run")
    assert (code, err) == (0, "")
    changed = {"feature": "transaction.version", "current": 2, "level": 1}
    assert json.loads(out) == changed | {"dry_run": True}
    assert finalized(cli, servers)["transaction.version"] == 2
    code, _, err = cli(*lower)
    assert code == 2
    assert "Downgrade transaction.version=1 for the whole cluster? Give --yes" in err
    assert cli(*lower, "--yes")[0] == 0
    assert finalized(cli, servers)["transaction.version"] == 1
    code, _, err = cli("cluster", "features", "upgrade", *given, "transaction.version=2", "-y")
    assert (code, err) == (0, "")
    assert finalized(cli, servers)["transaction.version"] == 2


@slow
def test_what_the_controller_refuses_is_reported_once(cli: Cli, servers: str):
    words = ("transaction.version=1", "share.version=0", "-b", servers, "--yes")
    code, out, err = cli("cluster", "features", "upgrade", *words)
    assert (code, out) == (1, b"")
    (line,) = err.splitlines()
    assert "INVALID_UPDATE_VERSION" in line
    assert "without setting the upgrade type to either safe or unsafe downgrade" in line


def test_levels() -> None:
    assert parse_level("metadata.version=27") == ("metadata.version", 27)
    for text in ("metadata.version", "=3", "a=", "a=-1", "a=x", "a=\u0663"):
        with pytest.raises(InvalidOption, match="must be FEATURE=LEVEL"):
            parse_level(text)
