from __future__ import annotations

import io
import json
import sys

import pytest

from .conftest import Cli

pytestmark = pytest.mark.slow


def listed(cli: Cli, servers: str, *users: str) -> list[tuple[str, str, int]]:
    out = cli("users", "list", "-b", servers, *users, "--json")[1]
    return [
        (each["user"], each["mechanism"], each["iterations"])
        for each in map(json.loads, out.splitlines())
    ]


def test_credentials_are_set_listed_and_deleted(
    cli: Cli, servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("first line\nsecond\n"))
    assert cli("users", "set", "-b", servers, "alice", "--iterations", "5000") == (0, b"", "")
    both = [("alice", "SCRAM-SHA-256", 5000), ("alice", "SCRAM-SHA-512", 5000)]
    assert listed(cli, servers, "alice") == both
    delete = ("users", "delete", "-b", servers, "alice", "-m", "SCRAM-SHA-256")
    code, out, _ = cli(*delete, "--dry-run", "--json")
    assert (code, json.loads(out)["dry_run"]) == (0, True)
    assert cli(*delete, "--yes") == (0, b"", "")
    assert listed(cli, servers, "alice") == both[1:]
    code, _, err = cli(*delete, "--yes")
    assert (code, err.count("\n")) == (1, 1)
    assert "user 'alice' has no SCRAM credential of this mechanism" in err
    assert cli("users", "delete", "-b", servers, "alice", "-y")[0] == 0
    code, _, err = cli("users", "list", "-b", servers, "alice")
    assert (code, "RESOURCE_NOT_FOUND" in err, "users list" in err) == (1, True, True)


def test_a_password_comes_from_the_environment(
    cli: Cli, servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOKAFKAWIRE_NEW_PASSWORD", "bob-secret")
    done = cli("users", "set", "-b", servers, "bob", "-m", "SCRAM-SHA-512", "--json")
    assert (done[0], done[2]) == (0, "")
    assert b"secret" not in done[1]
    assert listed(cli, servers, "bob") == [("bob", "SCRAM-SHA-512", 4096)]


def test_a_missing_password_is_reported(
    cli: Cli, servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    code, out, err = cli("users", "set", "-b", servers, "carol")
    assert (code, out, err.count("\n")) == (2, b"", 1)
    assert "the password is missing: give it in AIOKAFKAWIRE_NEW_PASSWORD" in err
