from __future__ import annotations

import json

import pytest

from .conftest import Cli

pytestmark = pytest.mark.slow


def test_quotas_are_set_listed_and_deleted(cli: Cli, servers: str) -> None:
    who = ("-b", servers, "--user", "alice", "--client-id-default")
    setting = ("producer_byte_rate=1024", "request_percentage=50.5")
    assert cli("quotas", "set", *who, *setting, "--dry-run", "--json")[1].count(b"\n") == 2
    assert cli("quotas", "list", "-b", servers) == (0, b"", "% no quotas\n")
    assert cli("quotas", "set", *who, *setting) == (0, b"", "")
    lines = cli("quotas", "list", *who, "--json")[1].splitlines()
    assert json.loads(lines[0]) == {
        "user": "alice",
        "client_id": "<default>",
        "ip": None,
        "quota": "producer_byte_rate",
        "value": 1024.0,
    }
    assert json.loads(lines[1])["value"] == 50.5
    assert cli("quotas", "delete", *who, "request_percentage") == (0, b"", "")
    assert cli("quotas", "list", *who)[1].splitlines()[1:] == [
        b"alice  <default>  -   producer_byte_rate   1024"
    ]
    assert cli("quotas", "delete", *who, "producer_byte_rate")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("set", "producer_byte_rate=1"), 2, "give --user, --client-id or --ip"),
        (("set", "--user", "a", "producer_byte_rate"), 2, "not of the form quota=number"),
        (("set", "--user", "a", "--user-default", "x=1"), 2, "exclude each other"),
        (("set", "--user", "a", "nonsense=1"), 1, "INVALID_REQUEST"),
    ],
)
def test_what_is_wrong_is_reported(
    cli: Cli, servers: str, arguments: tuple[str, ...], code: int, reason: str
) -> None:
    got, out, err = cli("quotas", arguments[0], "-b", servers, *arguments[1:])
    assert (got, out, err.count("\n")) == (code, b"", 1)
    assert reason in err
