from __future__ import annotations

import json
import socket

import pytest

from aiokafkawire.cli.topics import parse_config, topic_text
from aiokafkawire.errors import InvalidOption

from .conftest import Cli
from .shell import SECOND, aiokafkawire, end, interrupt, running

pytestmark = pytest.mark.slow


def test_topics_are_made_listed_and_deleted(cli: Cli, servers: str):
    assert cli("topics", "create", "-b", servers, "made-b", "made-a", "-p", "2") == (0, b"", "")
    code, out, err = cli("topics", "list", "-b", servers)
    assert (code, err) == (0, "")
    assert [name for name in out.decode().split() if name.startswith("made")] == [
        "made-a",
        "made-b",
    ]
    assert cli("topics", "delete", "-b", servers, "made-a", "made-b") == (0, b"", "")
    assert b"made" not in cli("topics", "list", "-b", servers)[1]


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
    assert "topic 'once'" in err
    assert "--if-missing" in err
    assert cli("topics", "create", "-b", servers, "once", "twice", "--if-missing") == (0, b"", "")
    code, _, err = cli("topics", "delete", "-b", servers, "once", "nope", "twice")
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
        (("create", "-b", "h:1", "t", "-c", "name"), "-c 'name' is not of the form name=value"),
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
    assert err.splitlines()[-1].endswith("check -b and that the broker is running")


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
