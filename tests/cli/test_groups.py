from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from aiokafkawire.cli.group_reports import GroupReport, MemberRow, OffsetRow, group_text
from aiokafkawire.testing import Answer, ApiKey, ErrorCode, KafkaBroker
from aiokafkawire.types import TopicPartition

from .conftest import Cli
from .shell import running, serving

slow = pytest.mark.slow


def make(cli: Cli, servers: str, topic: str, group: str) -> None:
    assert cli("topics", "create", "-b", servers, topic, "-p", "2")[0] == 0
    reset = ("offsets", "reset", "-y", "-b", servers, group, topic, "-o", "beginning")
    code, out, err = cli(*reset)
    assert (code, err) == (0, "")
    assert [line.split() for line in out.decode().splitlines()] == [
        ["topic", "partition", "current", "offset"],
        [topic, "0", "-", "0"],
        [topic, "1", "-", "0"],
    ]


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
    assert cli("groups", "delete", "-y", "-b", servers, "billing") == (0, b"", "")
    code, _, err = cli("groups", "describe", "-b", servers, "billing")
    assert (code, err.count("\n")) == (1, 1)
    assert "`aiokafkawire groups list` lists the groups" in err


@slow
def test_groups_are_listed_with_type_and_state(cli: Cli, servers: str):
    make(cli, servers, "typed", "typing")
    assert [b"typing", b"Empty", b"-", b"Classic"] in [
        line.split() for line in cli("groups", "list", "-b", servers, "-l")[1].splitlines()
    ]
    assert (
        b"typing\n" in cli("groups", "list", "-b", servers, "--type", "classic", "-s", "empty")[1]
    )
    assert b"typing\n" not in cli("groups", "list", "-b", servers, "--type", "share")[1]


@slow
def test_a_dry_run_of_a_deletion_changes_nothing(cli: Cli, servers: str):
    make(cli, servers, "spared", "sparing")
    code, out, err = cli("groups", "delete", "-b", servers, "sparing", "--dry-run", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "group": "sparing",
        "state": "Empty",
        "members": 0,
        "committed_offsets": 2,
        "dry_run": True,
    }
    assert cli("groups", "delete", "-b", servers, "sparing")[0] == 2
    assert b"sparing\n" in cli("groups", "list", "-b", servers)[1]


@slow
@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("delete", "nobody", "-y"), 1, "group 'nobody' does not exist"),
        (("describe", "nobody"), 1, "`aiokafkawire groups list` lists the groups"),
        (("remove-members", "nobody", "-y"), 1, "group 'nobody' does not exist"),
        (("remove-members", "nobody"), 2, "Give --yes"),
        (("descirbe", "g"), 2, "Did you mean 'describe'?"),
    ],
)
def test_what_is_wrong_is_reported_in_one_line(
    cli: Cli, servers: str, arguments: tuple[str, ...], code: int, reason: str
):
    got, out, err = cli("groups", arguments[0], "-b", servers, *arguments[1:])
    assert (got, out, err.count("\n")) == (code, b"", 1)
    assert reason in err


def test_a_group_reads_well():
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    group = GroupReport(
        group_id="billing",
        group_type="Classic",
        state="Stable",
        protocol_type="consumer",
        protocol="range",
        coordinator=2,
        members=(MemberRow("m-1", None, "desk", "/10.0.0.1", (first, second)),),
        offsets=(OffsetRow(first, 10, 22, 12, "m-1"), OffsetRow(second, None, 5, None, "m-1")),
    )
    assert group_text(group) == (
        "billing: Stable, range, coordinator 2, 1 member, lag 12 (unknown in 1 partition)\n"
        "  topic   partition  committed  end  lag  member\n"
        "  orders          0         10   22   12       1\n"
        "  orders          1          -    5    -       1\n"
        "\n"
        "  member  id   instance  client  host       partitions\n"
        "       1  m-1  -         desk    /10.0.0.1  orders [0, 1]\n"
    )


def test_a_share_group_reads_well():
    group = GroupReport(
        group_id="billing",
        group_type="Share",
        state="Stable",
        protocol_type="share",
        protocol="",
        coordinator=2,
        offsets=(OffsetRow(TopicPartition("orders", 0), 10, 14, 4),),
    )
    assert group_text(group) == (
        "billing: Share group, Stable, coordinator 2, 0 members, lag 4\n"
        "  topic   partition  start  end  lag  member\n"
        "  orders          0     10   14    4  -\n"
    )


@slow
def test_a_share_group_is_described_with_its_end_offsets(
    cli: Cli, servers: str, lines: Callable[[bytes], str]
) -> None:
    assert cli("topics", "create", "-b", servers, "shared", "-p", "1")[0] == 0
    reset = "share.auto.offset.reset=earliest"
    assert cli("configs", "set", "-b", servers, "--group", "sharing", reset)[0] == 0
    assert cli("produce", "-b", servers, "-t", "shared", "-l", lines(b"1\n2\n3\n"))[0] == 0
    assert cli("consume", "-b", servers, "--share", "sharing", "shared", "-c", "1")[0] == 0
    out = cli("groups", "describe", "-b", servers, "sharing", "--json")[1]
    (row,) = json.loads(out)["offsets"]
    assert (row["committed"], row["end"], row["lag"]) == (1, 3, 2)


def test_a_watched_group_without_coordinator_is_tried_again(cli: Cli) -> None:
    with KafkaBroker() as broker:
        make(cli, broker.bootstrap_servers, "watched", "watching")
        broker.on(ApiKey.CONSUMER_GROUP_DESCRIBE, Answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        options = ("-b", broker.bootstrap_servers, "-X", "default_api_timeout_ms=500")
        command = ("groups", "describe", *options, "--watch", "0.1", "watching")
        with running(*command) as process:
            assert process.stderr is not None
            away = process.stderr.readline().decode()
            broker.clear_faults()
            assert process.stdout is not None
            assert process.stdout.readline().startswith(b"watching: Empty")
            assert cli("groups", "delete", "-y", *options, "watching")[0] == 0
            while (gone := process.stderr.readline().decode()) == away:
                pass
    assert re.fullmatch(
        r"aiokafkawire: the coordinator is still loading its state"
        r" \(broker 1 at 127\.0\.0\.1:\d+, group watching\); trying again\n",
        away,
    )
    advice = "`aiokafkawire groups list` lists the groups"
    assert gone == f"aiokafkawire: group 'watching' does not exist; {advice}\n"
