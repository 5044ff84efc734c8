from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from .conftest import Cli
from .shell import serving

pytestmark = pytest.mark.slow

LOGIN = (
    "-X",
    "security_protocol=SASL_PLAINTEXT",
    "-X",
    "sasl_mechanism=SCRAM-SHA-256",
    "-X",
    "sasl_username=admin",
)
READ_BY_ALICE = ("-t", "orders", "--principal", "User:alice", "--operation", "read")


@pytest.fixture(scope="module")
def secured() -> Iterator[str]:
    """A broker with an authorizer, in a process of its own."""
    with serving("--sasl", "admin:admin-secret", "--super-user", "User:admin") as (addresses, _):
        yield addresses


@pytest.fixture
def acls(cli: Cli, secured: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    """Run a command of `acls` as the super user; every test begins without entries."""
    monkeypatch.setenv("AIOKAFKAWIRE_SASL_PASSWORD", "admin-secret")

    def call(name: str, *arguments: str) -> tuple[int, bytes, str]:
        return cli("acls", name, "-b", secured, *LOGIN, *arguments)

    yield call
    call("delete", "--allow", "-y")
    call("delete", "--deny", "-y")


def as_json(out: bytes) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.splitlines()]


def test_entries_are_created_listed_and_deleted(acls: Cli) -> None:
    code, out, err = acls("create", *READ_BY_ALICE, "--operation", "Write", "--json")
    assert (code, err) == (0, "")
    created = as_json(out)
    assert created[0] == {
        "resource_type": "topic",
        "resource": "orders",
        "pattern": "literal",
        "principal": "User:alice",
        "host": "*",
        "operation": "Read",
        "permission": "allow",
        "dry_run": False,
    }
    listed = as_json(acls("list", "--json")[1])
    assert [{**each, "dry_run": False} for each in listed] == created
    code, out, err = acls("delete", *READ_BY_ALICE, "--yes")
    assert (code, err) == (0, "")
    assert out.split()[-7:-3] == [b"topic", b"orders", b"literal", b"User:alice"]
    assert [each["operation"] for each in as_json(acls("list", "--json")[1])] == ["Write"]


def test_a_dry_run_changes_nothing(acls: Cli) -> None:
    code, out, _ = acls("create", *READ_BY_ALICE, "--deny", "--dry-run", "--json")
    assert (code, as_json(out)[0]["permission"]) == (0, "deny")
    assert acls("list") == (0, b"", "% no access control entries\n")
    assert acls("create", *READ_BY_ALICE) == (0, b"", "")
    assert acls("delete", "-t", "orders", "--dry-run", "--json")[1].count(b"\n") == 1
    assert acls("list", "--json")[1].count(b"\n") == 1


def test_patterns_that_apply_to_a_name_are_found(acls: Cli) -> None:
    everything = ("--principal", "User:bob", "--operation", "all")
    assert acls("create", "-t", "ord", "--pattern", "prefixed", *everything)[0] == 0
    assert acls("list", "-t", "orders", "--json")[1] == b""
    found = as_json(acls("list", "-t", "orders", "--pattern", "match", "--json")[1])
    assert [(each["resource"], each["operation"]) for each in found] == [("ord", "All")]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("create", "-t", "orders"), "--principal and --operation at least once"),
        (("create", *READ_BY_ALICE, "--allow", "--deny"), "exclude each other"),
        (("create", "--cluster", "--principal", "bob", "--operation", "all"), "give User:bob"),
        (("delete", "-t", "orders"), "Give --yes, because stdin is no terminal"),
        (("delete",), "at least one option that selects"),
    ],
)
def test_wrong_usage_is_reported(acls: Cli, arguments: tuple[str, ...], reason: str) -> None:
    code, out, err = acls(*arguments)
    assert (code, out, err.count("\n")) == (2, b"", 1)
    assert reason in err


def test_a_broker_without_authorizer_says_so(cli: Cli, servers: str) -> None:
    code, _, err = cli("acls", "list", "-b", servers)
    assert (code, err.count("\n")) == (1, 1)
    assert "SECURITY_DISABLED" in err
    assert "the brokers have no authorizer" in err
