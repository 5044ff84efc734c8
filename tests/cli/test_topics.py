from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from aiokafkawire.cli.configs import parse_config
from aiokafkawire.cli.topics import topic_text
from aiokafkawire.errors import InvalidOption

from .conftest import Cli
from .shell import (
    LIMIT_S,
    SECOND,
    aiokafkawire,
    command,
    end,
    interrupt,
    running,
    serving,
)

pytestmark = pytest.mark.slow


def test_topics_are_made_listed_and_deleted(cli: Cli, servers: str):
    assert cli("topics", "create", "-b", servers, "made-b", "made-a", "-p", "2") == (0, b"", "")
    code, out, err = cli("topics", "list", "-b", servers)
    assert (code, err) == (0, "")
    assert [name for name in out.decode().split() if name.startswith("made")] == [
        "made-a",
        "made-b",
    ]
    assert cli("topics", "delete", "-y", "-b", servers, "made-a", "made-b") == (0, b"", "")
    assert b"made" not in cli("topics", "list", "-b", servers)[1]


def test_the_number_of_partitions_is_an_option(cli: Cli, servers: str):
    code, _, err = cli("topics", "create", "-b", servers, "orders:3")
    assert (code, err.strip()) == (
        2,
        "aiokafkawire: 'orders:3' is no topic name; write orders -p 3",
    )


@pytest.mark.skipif(sys.platform == "win32", reason="terminals are those of POSIX")
def test_a_terminal_shows_the_list_each_time():
    """Several commands at a time keep the machine busy."""
    with serving("-t", "orders:1") as (servers, _):

        def shown(_: int) -> tuple[int, bytes]:
            reader, terminal = os.openpty()
            try:
                process = subprocess.Popen(
                    command("topics", "list", "-b", servers),
                    stdin=terminal,
                    stdout=terminal,
                    stderr=terminal,
                )
                os.close(terminal)
                text = bytearray()
                # Reading fails with EIO when the command has closed its side.
                with contextlib.suppress(OSError):
                    while data := os.read(reader, 4096):
                        text += data
                return process.wait(LIMIT_S), bytes(text)
            finally:
                os.close(reader)

        with ThreadPoolExecutor(4) as pool:
            assert Counter(pool.map(shown, range(16))) == {(0, b"orders\r\n"): 16}


def test_a_topic_is_described(cli: Cli, servers: str):
    made = ("-p", "2", "-r", "2", "-c", "cleanup.policy=compact")
    assert cli("topics", "create", "-b", servers, "described", *made)[0] == 0
    code, out, _ = cli("topics", "describe", "-b", servers, "described")
    lines = out.decode().splitlines()
    assert (code, lines[0][:24]) == (0, "described: 2 partitions,")
    assert " ".join(lines[1].split()) == "partition leader epoch replicas in sync offline"
    form = json.loads(cli("topics", "describe", "-b", servers, "described", "--json")[1])
    assert (form["topic"], form["partition_count"], form["replication_factor"]) == (
        "described",
        2,
        2,
    )
    assert [each["partition"] for each in form["partitions"]] == [0, 1]
    for each in form["partitions"]:
        assert each["leader"] == each["replicas"][0]
        assert sorted(each["in_sync"]) == [1, 2]
    (listed,) = [
        line
        for line in map(json.loads, cli("topics", "list", "-b", servers, "--json")[1].splitlines())
        if line["topic"] == "described"
    ]
    assert listed == {key: form[key] for key in listed}


def test_a_topic_is_reported_with_its_own_settings(cli: Cli, servers: str):
    settings = ("-c", "cleanup.policy=compact", "-c", "retention.ms=5000")
    assert cli("topics", "create", "-b", servers, "set", "-p", "1", *settings)[0] == 0
    assert cli("topics", "create", "-b", servers, "unset", "-p", "1")[0] == 0
    lines = cli("topics", "describe", "-b", servers, "set", "-c")[1].decode().splitlines()
    assert sorted(lines[3:]) == ["  cleanup.policy=compact", "  retention.ms=5000"]
    output = cli("topics", "describe", "-b", servers, "set", "unset", "-c", "--json")[1]
    assert [json.loads(line)["configs"] for line in output.splitlines()] == [
        {"cleanup.policy": "compact", "retention.ms": "5000"},
        {},
    ]


def test_a_secret_stays_one_and_an_internal_topic_is_reported_as_such():
    output = topic_text(
        {
            "topic": "t",
            "topic_id": None,
            "internal": True,
            "partitions": [],
            "configs": {"key": None},
        }
    )
    assert output.splitlines()[0] == "t: 0 partitions, internal"
    assert output.splitlines()[2] == "  key=(secret)"


def test_partitions_are_added(cli: Cli, servers: str):
    assert cli("topics", "create", "-b", servers, "grows", "-p", "1")[0] == 0
    assert cli("topics", "add-partitions", "-b", servers, "grows", "4") == (0, b"", "")
    form = json.loads(cli("topics", "describe", "-b", servers, "grows", "--json")[1])
    assert form["partition_count"] == 4
    code, _, err = cli("topics", "add-partitions", "-b", servers, "grows", "4")
    assert (code, err.count("\n")) == (1, 1)
    assert "the number of partitions can only grow" in err


def test_what_was_refused_takes_a_line_each_and_the_rest_is_done(cli: Cli, servers: str):
    assert cli("topics", "create", "-b", servers, "once")[0] == 0
    code, out, err = cli("topics", "create", "-b", servers, "once", "twice")
    assert (code, out, err.count("\n")) == (1, b"", 1)
    assert "TOPIC_ALREADY_EXISTS: topic 'once'" in err.replace("Topic", "topic")
    assert "--if-missing" in err
    assert cli("topics", "create", "-b", servers, "once", "twice", "--if-missing") == (0, b"", "")
    code, _, err = cli("topics", "delete", "-y", "-b", servers, "once", "nope", "twice")
    assert (code, err.count("\n")) == (1, 1)
    assert "topic nope" in err
    listed = cli("topics", "list", "-b", servers)[1].split()
    assert not {b"once", b"twice"} & {*listed}


def test_the_nearest_topic_is_named(cli: Cli, servers: str):
    assert cli("topics", "create", "-b", servers, "invoices")[0] == 0
    code, _, err = cli("topics", "describe", "-b", servers, "invoicse")
    assert code == 1
    assert "'invoicse' does not exist; did you mean 'invoices'?" in err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("create", "-b", "h:1"), "Missing argument 'TOPIC...'"),
        (("create", "-b", "h:1", "t", "-c", "name"), "-c 'name' is not of the form NAME=VALUE"),
        (("add-partitions", "-b", "h:1", "t", "0"), "Invalid value for 'TOTAL'"),
        (("list",), "brokers are missing"),
        (("lsit",), "Did you mean 'list'?"),
        (("list", "-b", "h:1", "-X", "retrys=1"), "unknown option 'retrys'"),
    ],
)
def test_wrong_usage_is_reported(cli: Cli, arguments: tuple[str, ...], reason: str):
    code, _, err = cli("topics", *arguments)
    assert (code, err.count("\n")) == (2, 1)
    assert reason in err


def test_no_broker_is_reported_in_one_line(cli: Cli):
    code, _, err = cli("topics", "list", "-b", "127.0.0.1:1", "-X", "default_api_timeout_ms=50")
    assert code == 1
    assert err.splitlines()[-1].endswith("nothing listens there: check host and port")


def test_a_reader_that_has_enough_is_no_failure(servers: str):
    done = aiokafkawire("topics", "list", "-b", servers)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_setting_has_a_name():
    assert parse_config("a=b=c") == ("a", "b=c")
    assert parse_config("a=") == ("a", "")
    with pytest.raises(InvalidOption):
        parse_config("=b")


def test_ctrl_c_ends_it_also_when_a_broker_hangs():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = f"127.0.0.1:{silent.getsockname()[1]}"
        with running("topics", "list", "-b", servers) as process, silent.accept()[0]:
            assert interrupt(process) < SECOND
            assert (process.returncode, end(process)[1]) == (130, b"")


def test_a_dry_run_changes_nothing(cli: Cli, servers: str):
    code, out, _ = cli("topics", "create", "-b", servers, "tried", "-p", "4", "--dry-run", "--json")
    assert (code, json.loads(out)["partition_count"]) == (0, 4)
    assert b"tried" not in cli("topics", "list", "-b", servers)[1].split()
    assert cli("topics", "create", "-b", servers, "tried", "-p", "1")[0] == 0
    for words in (("add-partitions", "tried", "4"), ("delete", "tried")):
        code, out, err = cli("topics", words[0], "-b", servers, *words[1:], "--dry-run")
        assert (code, err) == (0, "")
        assert out.splitlines()[0].startswith(b"topic")
    described = json.loads(cli("topics", "describe", "-b", servers, "tried", "--json")[1])
    assert described["partition_count"] == 1


def test_deletion_needs_a_yes(cli: Cli, servers: str):
    assert cli("topics", "create", "-b", servers, "stays")[0] == 0
    code, out, err = cli("topics", "delete", "-b", servers, "stays")
    assert (code, out, err.count("\n")) == (2, b"", 1)
    assert "Delete 1 topic with all records: stays? Give --yes" in err
    assert b"stays" in cli("topics", "list", "-b", servers)[1].split()


def test_topics_are_ensured(cli: Cli, servers: str):
    ensure = ("topics", "ensure", "-b", servers, "ensured", "-c", "retention.ms=5000", "--json")
    keys = ("created", "added_partitions", "altered_configs")
    for options, expected in (
        (("-p", "1"), [True, 0, []]),
        (("-p", "1"), [False, 0, []]),
        (("-p", "3", "-c", "retention.ms=6000"), [False, 2, ["retention.ms=6000"]]),
    ):
        code, out, err = cli(*ensure, *options)
        assert (code, err) == (0, "")
        assert [json.loads(out)[key] for key in keys] == expected


def test_a_list_is_printed_again_until_ctrl_c(cli: Cli, servers: str):
    assert cli("topics", "create", "-b", servers, "watched")[0] == 0
    with running("topics", "list", "-b", servers, "--watch", "0.1") as process:
        assert process.stdout is not None
        seen = 0
        while seen < 2:
            seen += process.stdout.readline() == b"watched\n"
        interrupt(process)
        assert process.returncode == 130


def test_what_old_brokers_lack_is_reported_at_once(cli: Cli):
    with serving("--as-of", "0.8.2") as (servers, _):
        # They do not report a controller, and the request would wait for one.
        code, _, err = cli("topics", "create", "-b", servers, "orders")
    assert (code, err.count("\n")) == (1, 1)
    assert "CreateTopics needs Kafka 0.10.1 or later" in err
