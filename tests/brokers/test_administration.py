"""The commands that change topics and groups, on real Kafka."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from aiokafkawire.cli.application import run

Command = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def command(kafka_43: str, capfdbinary: pytest.CaptureFixture[bytes]) -> Command:
    """Run a command that must succeed; gives the JSON objects that it printed."""

    def call(group: str, name: str, *arguments: str) -> list[dict[str, Any]]:
        code = run([group, name, "-b", kafka_43, *arguments])
        out, err = capfdbinary.readouterr()
        assert (code, err) == (0, b"")
        return [json.loads(line) for line in out.splitlines()]

    return call


@pytest.fixture
def refused(kafka_43: str, capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., str]:
    """Run a command that must fail in part or whole; gives the line that it wrote to stderr."""

    def call(group: str, name: str, *arguments: str) -> str:
        code = run([group, name, "-b", kafka_43, *arguments])
        out, err = capfdbinary.readouterr()
        assert (code, out, err.count(b"\n")) == (1, b"", 1)
        return err.decode()

    return call


@pytest.fixture
def name() -> str:
    return f"administration-{uuid.uuid4()}"


def test_a_topic_from_beginning_to_end(
    command: Command, refused: Callable[..., str], name: str
) -> None:
    command("topics", "create", name, "-p", "2", "-c", "cleanup.policy=compact")
    assert "--if-missing" in refused("topics", "create", name)
    command("topics", "create", name, "--if-missing")
    assert "at most the number of brokers" in refused("topics", "create", f"{name}-2", "-r", "3")
    command("topics", "add-partitions", name, "3")
    assert "number of partitions can only grow" in refused("topics", "add-partitions", name, "3")
    (described,) = command("topics", "describe", name, "-c", "--json")
    assert (described["partition_count"], described["configs"]) == (
        3,
        {"cleanup.policy": "compact"},
    )
    assert all(each["in_sync"] == [each["leader"]] for each in described["partitions"])
    command("topics", "delete", name, "-y")
    assert "topics list" in refused("topics", "delete", name, "-y")
    assert name not in {listed["topic"] for listed in command("topics", "list", "--json")}


def test_the_offsets_of_a_group(command: Command, refused: Callable[..., str], name: str) -> None:
    command("topics", "create", name, "-p", "2")
    assert f"group '{name}' does not exist" in refused("groups", "describe", name)
    reset = command("offsets", "reset", name, name, "-o", "beginning", "--json", "-y")
    assert [(row["partition"], row["offset"]) for row in reset] == [(0, 0), (1, 0)]
    (described,) = command("groups", "describe", name, "--json")
    assert (described["state"], described["lag"], described["members"]) == ("Empty", 0, [])
    assert [row["committed"] for row in described["offsets"]] == [0, 0]
    command("offsets", "delete", name, name, "-y")
    assert command("groups", "describe", name, "--json")[0]["offsets"] == []
    assert name in {listed["group"] for listed in command("groups", "list", "--json")}
    command("groups", "delete", name, "-y")
    assert f"group '{name}' does not exist" in refused("groups", "delete", name, "-y")
    command("topics", "delete", name, "-y")
