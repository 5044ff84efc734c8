from __future__ import annotations

import json
from pathlib import Path

import pytest

from aiokafkawire import TopicPartition
from aiokafkawire.cli.partitions import parse_reassignments
from aiokafkawire.errors import InvalidOption

from .conftest import Cli

slow = pytest.mark.slow


def document(*entries: object) -> str:
    return json.dumps({"version": 1, "partitions": entries})


ENTRY = {"topic": "orders", "partition": 1, "replicas": [2, 1], "log_dirs": ["any", "any"]}


def test_the_format_of_kafkas_tool_is_read() -> None:
    assert parse_reassignments(document(ENTRY)) == {TopicPartition("orders", 1): (2, 1)}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "has no partitions"),
        (document(), "has no partitions"),
        (document(ENTRY, ENTRY), "entry 2: orders:1 is there twice"),
        (document({"topic": "orders", "partition": 1}), "entry 1 needs topic"),
        (document({**ENTRY, "replicas": [True]}), "entry 1 needs topic"),
        (document({**ENTRY, "partition": -1}), "entry 1 needs topic"),
        (document({**ENTRY, "log_dirs": ["/data", "any"]}), "log_dirs may only be 'any'"),
        (document(5), "entry 1 needs topic"),
    ],
)
def test_another_file_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidOption, match=reason):
        parse_reassignments(text)


@slow
def test_replicas_move_and_leaders_are_elected(cli: Cli, servers: str, tmp_path: Path) -> None:
    assert cli("topics", "create", "-b", servers, "moved", "-p", "1", "-r", "2")[0] == 0
    (before,) = json.loads(cli("topics", "describe", "-b", servers, "moved", "--json")[1])[
        "partitions"
    ]
    replicas = before["replicas"][::-1]
    file = tmp_path / "moves.json"
    file.write_text(document({"topic": "moved", "partition": 0, "replicas": replicas}))
    reassign = ("partitions", "reassign", "-b", servers, str(file))
    code, out, err = cli(*reassign, "--dry-run", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["current_replicas"] == before["replicas"]
    assert json.loads(out)["new_replicas"] == replicas
    assert cli(*reassign)[0] == 2
    assert cli(*reassign, "-y")[0] == 0
    line = "% no reassignments in progress\n"
    assert cli("partitions", "list", "-b", servers, "moved") == (0, b"", line)
    assert cli("partitions", "cancel", "-b", servers, "--all", "-y") == (0, b"", line)
    elect = ("partitions", "elect", "-b", servers, "moved", "--json")
    assert json.loads(cli(*elect, "--dry-run")[1])["leader_before"] == before["leader"]
    assert json.loads(cli(*elect)[1])["replicas"] == replicas
    assert cli(*elect) == (0, b"", "% no partitions that need an election\n")
    (after,) = json.loads(cli("topics", "describe", "-b", servers, "moved", "--json")[1])[
        "partitions"
    ]
    assert (after["leader"], after["replicas"]) == (replicas[0], replicas)


@slow
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("elect", "--unclean"), "--unclean needs topics or partitions"),
        (("elect", "--unclean", "t"), "Give --yes"),
        (("cancel",), "give topics or partitions, or --all"),
        (("cancel", "--all", "t"), "give topics or partitions, or --all"),
        (("reassign", "no-such-file"), "no-such-file"),
    ],
)
def test_wrong_usage_is_reported(cli: Cli, arguments: tuple[str, ...], reason: str) -> None:
    code, out, err = cli("partitions", arguments[0], "-b", "h:1", *arguments[1:])
    assert (code, out, err.count("\n")) == (2, b"", 1)
    assert reason in err
