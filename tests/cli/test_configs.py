from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import Cli

pytestmark = pytest.mark.slow


def values(cli: Cli, servers: str, *resource: str) -> dict[str, Any]:
    code, out, err = cli("configs", "describe", "-b", servers, *resource, "--json")
    assert (code, err) == (0, "")
    return {each["config"]: each["value"] for each in json.loads(out)["configs"]}


def test_configs_of_a_topic_are_set_described_and_deleted(cli: Cli, servers: str) -> None:
    assert cli("topics", "create", "-b", servers, "configured", "-p", "1")[0] == 0
    topic = ("-t", "configured")
    change = ("configs", "set", "-b", servers, *topic, "retention.ms=5000")
    code, out, _ = cli(*change, "--dry-run", "--json")
    assert (code, json.loads(out)) == (
        0,
        {
            "resource_type": "topic",
            "resource": "configured",
            "config": "retention.ms",
            "operation": "set",
            "value": "5000",
            "dry_run": True,
        },
    )
    assert values(cli, servers, *topic) == {}
    assert cli(*change, "--append", "cleanup.policy=compact") == (0, b"", "")
    assert values(cli, servers, *topic) == {
        "cleanup.policy": "delete,compact",
        "retention.ms": "5000",
    }
    shown = cli("configs", "describe", "-b", servers, *topic)[1].decode().splitlines()
    assert shown[0] == "topic configured: 2 configs"
    assert shown[3].split() == ["retention.ms", "5000", "dynamic", "topic", "config"]
    subtract = ("--subtract", "cleanup.policy=delete")
    assert cli("configs", "set", "-b", servers, *topic, *subtract)[0] == 0
    assert cli("configs", "delete", "-b", servers, *topic, "retention.ms")[0] == 0
    assert values(cli, servers, *topic) == {"cleanup.policy": "compact"}
    assert "segment.bytes" in values(cli, servers, *topic, "--all")


def test_configs_of_brokers(cli: Cli, servers: str) -> None:
    assert cli("configs", "set", "-b", servers, "--broker-defaults", "log.retention.ms=7")[0] == 0
    assert values(cli, servers, "--broker-defaults")["log.retention.ms"] == "7"
    assert values(cli, servers, "--broker", "1")["log.retention.ms"] == "7"
    assert cli("configs", "delete", "-b", servers, "--broker-defaults", "log.retention.ms")[0] == 0


def test_each_resource_that_failed_takes_a_line(cli: Cli, servers: str) -> None:
    assert cli("topics", "create", "-b", servers, "there", "--if-missing")[0] == 0
    both = ("-t", "there", "-t", "not-there")
    code, out, err = cli("configs", "describe", "-b", servers, *both, "--json")
    assert (code, json.loads(out)["resource"], err.count("\n")) == (1, "there", 1)
    assert "topic not-there" in err
    code, out, err = cli("configs", "set", "-b", servers, *both, "retention.ms=1", "--json")
    assert (code, json.loads(out)["resource"], err.count("\n")) == (1, "there", 1)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("describe",), "give a resource: --topic"),
        (("set", "-t", "t"), "give at least one NAME=VALUE"),
        (("set", "-t", "t", "x"), "'x' is not of the form NAME=VALUE"),
        (("delete", "-t", "t"), "Missing argument 'NAME...'"),
    ],
)
def test_wrong_usage_is_reported(cli: Cli, arguments: tuple[str, ...], reason: str) -> None:
    code, out, err = cli("configs", arguments[0], "-b", "h:1", *arguments[1:])
    assert (code, out, err.count("\n")) == (2, b"", 1)
    assert reason in err
