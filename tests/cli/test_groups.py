from __future__ import annotations

import json

import pytest

from aiokafkawire.cli.group_requests import GroupDescription, MemberDescription, PartitionLag
from aiokafkawire.cli.groups import group_text
from aiokafkawire.types import TopicPartition

from .conftest import Cli
from .shell import serving

slow = pytest.mark.slow


def make(cli: Cli, servers: str, topic: str, group: str) -> None:
    assert cli("topics", "create", "-b", servers, topic, "-p", "2")[0] == 0
    reset = ("groups", "reset-offsets", "-b", servers, group, "-t", topic, "-o", "beginning")
    code, out, err = cli(*reset)
    assert (code, err) == (0, "")
    assert [line.split() for line in out.decode().splitlines()] == [
        ["topic", "partition", "offset"],
        [topic, "0", "0"],
        [topic, "1", "0"],
    ]


@slow
@slow
def test_empty_lists_say_so(cli: Cli) -> None:
    with serving() as (addresses, _):
        for command in ("groups", "topics"):
            assert cli(command, "list", "-b", addresses) == (0, b"", f"% no {command}\n")
            assert cli(command, "list", "-b", addresses, "-q") == (0, b"", "")
            assert cli(command, "list", "-b", addresses, "--json") == (0, b"", "")


def test_a_group_is_listed_described_and_deleted(cli: Cli, servers: str):
    make(cli, servers, "billed", "billing")
    assert b"billing\n" in cli("groups", "list", "-b", servers)[1]
    lines = cli("groups", "list", "-b", servers, "--json")[1].splitlines()
    (listed,) = [line for line in map(json.loads, lines) if line["group"] == "billing"]
    assert listed["state"] == "Empty"
    code, out, _ = cli("groups", "describe", "-b", servers, "billing")
    assert (code, out[:15]) == (0, b"billing: Empty,")
    form = json.loads(cli("groups", "describe", "-b", servers, "billing", "--json")[1])
    assert (form["lag"], form["members"]) == (0, [])
    assert form["offsets"][1] == {
        "topic": "billed",
        "partition": 1,
        "committed": 0,
        "end": 0,
        "lag": 0,
        "member_id": None,
    }
    assert cli("groups", "delete", "-b", servers, "billing") == (0, b"", "")
    code, _, err = cli("groups", "describe", "-b", servers, "billing")
    assert (code, err.count("\n")) == (1, 1)
    assert "`aiokafkawire groups list` lists the groups" in err


@slow
def test_a_topic_needs_no_option(cli: Cli, servers: str):
    make(cli, servers, "optional", "with-option")
    reset = ("groups", "reset-offsets", "-b", servers, "without-option")
    assert cli(*reset, "optional", "-o", "end")[0] == 0
    code, out, err = cli(*reset, "-o", "end")
    assert (code, out) == (2, b"")
    assert "the topic is missing: reset-offsets GROUP TOPIC" in err
    code, out, err = cli(*reset, "one", "-t", "two", "-o", "end")
    assert (code, out) == (2, b"")
    assert "'two' and 'one' are given: reset the offsets of one topic" in err


@slow
def test_nothing_is_done_when_it_is_only_tried(cli: Cli, servers: str):
    make(cli, servers, "tried", "trying")
    reset = ("groups", "reset-offsets", "-b", servers, "untried", "-t", "tried", "-o", "end")
    code, out, _ = cli(*reset, "--dry-run", "--json", "-p", "1")
    assert (code, json.loads(out)) == (0, {"topic": "tried", "partition": 1, "offset": 0})
    assert cli("groups", "describe", "-b", servers, "untried")[0] == 1


@slow
def test_offsets_of_a_topic_are_forgotten(cli: Cli, servers: str):
    make(cli, servers, "kept", "keeper")
    assert cli("groups", "delete-offsets", "-b", servers, "keeper", "kept") == (0, b"", "")
    form = json.loads(cli("groups", "describe", "-b", servers, "keeper", "--json")[1])
    assert form["offsets"] == []


@slow
@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("delete", "nobody"), 1, "group 'nobody': GROUP_ID_NOT_FOUND"),
        (("reset-offsets", "g", "-t", "nope", "-o", "end"), 1, "'nope' does not exist"),
        (("reset-offsets", "g", "-t", "few", "-o", "end", "-p", "7"), 1, "no partition 7: it has"),
        (("reset-offsets", "g", "-t", "few", "-o", "stored"), 2, "no start offset"),
        (("reset-offsets", "g", "-t", "few", "-o", "e@5"), 2, "no start offset"),
        (("reset-offsets", "g", "-t", "few"), 2, "Missing option '-o'"),
        (("descirbe", "g"), 2, "Did you mean 'describe'?"),
    ],
)
def test_what_is_wrong_is_reported_in_one_line(
    cli: Cli, servers: str, arguments: tuple[str, ...], code: int, reason: str
):
    cli("topics", "create", "-b", servers, "few", "--if-missing")
    got, out, err = cli("groups", arguments[0], "-b", servers, *arguments[1:])
    assert (got, out, err.count("\n")) == (code, b"", 1)
    assert reason in err


def test_a_group_reads_well():
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    group = GroupDescription(
        group_id="billing",
        state="Stable",
        protocol_type="consumer",
        protocol="range",
        coordinator=2,
        members=(MemberDescription("m-1", None, "desk", "/10.0.0.1", (first, second)),),
        offsets=(PartitionLag(first, 10, 22, "m-1"), PartitionLag(second, None, 5, "m-1")),
    )
    assert group_text(group) == (
        "billing: Stable, range, coordinator 2, 1 member, lag 12\n"
        "  topic   partition  committed  end  lag  member\n"
        "  orders          0         10   22   12       1\n"
        "  orders          1          -    5    -       1\n"
        "\n"
        "  member  id   instance  client  host       partitions\n"
        "       1  m-1  -         desk    /10.0.0.1  orders [0, 1]\n"
    )
