from __future__ import annotations

import json
import re
import signal
import socket
from pathlib import Path

import anyio
import pytest

from aiokafkawire.broker import CertificateAuthority
from aiokafkawire.cli.broker import parse_listeners, parse_topic, parse_user
from aiokafkawire.cli.run_loop import BACKENDS
from aiokafkawire.errors import InvalidOption
from aiokafkawire.kafka07 import Client

from .conftest import Cli
from .shell import SECOND, aiokafkawire, end, interrupt, running, serving

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_serves_until_ctrl_c(backend: str) -> None:
    with serving("--nodes", "3", "--backend", backend) as (servers, process):
        ports = [int(server.rpartition(":")[2]) for server in servers.split(",")]
        assert len(set(ports)) == 3
        for port in ports:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        assert interrupt(process) < SECOND
        assert process.returncode == 130


def test_a_client_that_stays_connected_does_not_hold_it() -> None:
    with serving() as (servers, process):
        port = int(servers.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            assert interrupt(process) < SECOND


def test_sigterm_ends_it_too() -> None:
    with serving() as (_, process):
        assert interrupt(process, signal.SIGTERM) < SECOND
        assert process.returncode == 143


def test_it_greets_on_stderr_and_warns_of_an_open_door() -> None:
    with running("broker", "--port", "0", "--host", "0.0.0.0") as process:
        assert process.stdout is not None
        process.stdout.readline()
        interrupt(process)
        err = end(process)[1].decode()
    assert "in memory only" in err
    assert "without authentication" in err


def test_verbose_shows_clients_topics_and_groups() -> None:
    with serving("-v", "-t", "orders:2") as (servers, process):
        aiokafkawire("produce", "-b", servers, "-t", "orders", stdin=b"book\n")
        read = ("consume", "-b", servers, "-G", "billing", "-o", "beginning", "-c", "1", "orders")
        assert aiokafkawire(*read).stdout == b"book\n"
        interrupt(process)
        err = end(process)[1].decode()
    assert "Topic orders: created with 2 partitions, replication factor 1" in err
    assert "(aiokafkawire " in err
    assert "connected" in err
    assert "disconnected" in err
    assert "Group billing: member " in err
    assert "Group billing: generation 1 is stable: 1 member, leader" in err
    lines = [line for line in err.splitlines() if not line.startswith("%")]
    time = r"aiokafkawire: \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \S"
    assert lines
    assert [line for line in lines if not re.match(time, line)] == []


def test_a_port_in_use_is_one_line(cli: Cli) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        code, out, err = cli("broker", "--port", str(port))
    assert (code, out, err.count("\n")) == (1, b"", 1)
    assert f"port {port} of 127.0.0.1" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", __file__], "is a file"),
        (["--port", "65535", "--nodes", "2"], "no room for 2 nodes"),
        (["-t", "a:b"], "NAME[:PARTITIONS[:REPLICAS]]"),
        (["--as-of", "2.9"], "a release of Kafka from 0.8 to 4.4, not '2.9'"),
        (["--nodes", "3", "--racks", "a,b"], "3 nodes need 3 racks, not 2"),
        (["-X", "segment_byte=1"], "did you mean 'segment_bytes'"),
        (["-X", "segment.bytes=0"], "segment_bytes must be at least 1, not 0"),
        (["--listener", "SSL"], "the listener SSL needs tls"),
        (["--listener", "SSL:x", "--tls"], "not of the form PROTOCOL[:PORT]"),
        (["--listener", "SSL", "--listener", "SSL:1", "--tls"], "--listener SSL is there twice"),
        (["--listener", "SSL:65535", "--tls", "--nodes", "2"], "no room for 2 nodes"),
        (["--sasl", "alice"], "--sasl is not of the form USER:PASSWORD"),
        (["--tls-keyfile", __file__], "--tls-keyfile needs --tls-certfile"),
        (["--tls-client-cafile", __file__], "--tls-client-cafile needs --tls"),
        (["--tls", "--tls-client-cafile", __file__], "the TLS settings cannot be used"),
        (["--super-user", "admin"], "super_users"),
        (["--tls", "--tls-certfile", __file__], "--tls makes a certificate"),
        (["--tls-certfile", __file__], "the TLS settings cannot be used"),
        (["-X", "nodes=3"], "unknown option 'nodes'; there are as_of, auto_create_topics, "),
    ],
)
def test_wrong_usage(arguments: list[str], message: str, cli: Cli) -> None:
    code, out, err = cli("broker", *arguments)
    assert (code, out, err.count("\n")) == (2, b"", 1)
    assert message in err


def test_what_it_keeps_in_a_folder_is_there_again(tmp_path: Path) -> None:
    for text in (b"one\n", b"two\n"):
        with serving("--data", str(tmp_path / "kafka"), "-t", "t:2") as (servers, process):
            done = aiokafkawire("produce", "-b", servers, "-t", "t", "-p", "1", stdin=text)
            assert (done.returncode, done.stderr) == (0, b"")
            read = aiokafkawire("consume", "-b", servers, "-t", "t", "-e", "-q", "-f", "%p%o%s,")
            assert interrupt(process) < SECOND
    assert read.stdout == b"10one,11two,"


def test_options_of_the_broker_reach_it() -> None:
    arguments = ("--as-of", "0.10.2", "--racks", "north", "-X", "segment.bytes=9999")
    with serving(*arguments, "-t", "t") as (servers, _):
        described = aiokafkawire("topics", "describe", "-b", servers, "--json", "t")
        assert json.loads(described.stdout)["topic"] == "t"
        # 0.10.2 has no ids of topics, and groups cannot be deleted there.
        assert json.loads(described.stdout)["topic_id"] is None
        refused = aiokafkawire("groups", "delete", "-y", "-b", servers, "g")
        assert (refused.returncode, refused.stderr.count(b"\n")) == (1, 1)
        assert b"DeleteGroups needs Kafka 1.1 or later" in refused.stderr
        missing = aiokafkawire("consume", "-b", servers, "-t", "missing", "-e")
        assert (missing.returncode, missing.stderr.count(b"\n")) == (1, 1)
        assert b"'missing' does not exist" in missing.stderr
        assert aiokafkawire("topics", "list", "-b", servers).stdout == b"t\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of commands."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_tls_and_sasl_with_the_flags_that_it_prints(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOKAFKAWIRE_SASL_PASSWORD", "alice-secret")
    arguments = ("--port", "0", "--tls", "--sasl", "alice:alice-secret", "-t", "orders")
    with running("broker", *arguments) as process:
        assert process.stdout is not None
        servers = process.stdout.readline().decode().strip()
        flags = ("-X", "security_protocol=SASL_SSL", "-X", "ssl_cafile=aiokafkawire-ca.pem")
        user = ("-X", "sasl_mechanism=PLAIN", "-X", "sasl_username=alice")
        shown = aiokafkawire("metadata", "-b", servers, *flags, *user)
        interrupt(process)
        err = end(process)[1].decode()
    assert b"orders" in shown.stdout
    assert f"% SASL_SSL: -b {servers} {' '.join((*flags, *user))}, and the password in" in err
    assert "alice-secret" not in err
    assert "BEGIN CERTIFICATE" in (folder / "aiokafkawire-ca.pem").read_text()


def test_client_certificates(folder: Path) -> None:
    authority = CertificateAuthority()
    authority.write("clients.pem")
    certfile, keyfile = authority.issue("alice").write(folder)
    arguments = ("--tls", "--tls-client-cafile", "clients.pem", "-t", "orders")
    with serving(*arguments) as (servers, _):
        flags = ("-X", "security_protocol=SSL", "-X", "ssl_cafile=aiokafkawire-ca.pem")
        refused = aiokafkawire("topics", "list", "-b", servers, *flags)
        own = ("-X", f"ssl_certfile={certfile}", "-X", f"ssl_keyfile={keyfile}")
        shown = aiokafkawire("topics", "list", "-b", servers, *flags, *own)
    assert (refused.returncode, refused.stdout) == (1, b"")
    assert (shown.returncode, shown.stdout) == (0, b"orders\n")


def test_a_super_user_may_do_everything_and_others_nothing() -> None:
    users = ("--sasl", "admin:admin-secret", "--sasl", "alice:alice-secret")
    with serving(*users, "--super-user", "User:admin", "-t", "orders") as (servers, _):
        listed = {}
        for user in ("admin", "alice"):
            flags = ["security_protocol=SASL_PLAINTEXT", "sasl_mechanism=PLAIN"]
            flags += [f"sasl_username={user}", f"sasl_password={user}-secret"]
            given = [part for flag in flags for part in ("-X", flag)]
            listed[user] = aiokafkawire("topics", "list", "-b", servers, *given).stdout
    assert listed == {"admin": b"orders\n", "alice": b""}


def test_several_listeners(folder: Path) -> None:
    with running("broker", "--listener", "PLAINTEXT", "--listener", "SSL", "--tls") as process:
        assert process.stdout is not None
        servers = process.stdout.readline().decode().strip()
        assert aiokafkawire("topics", "list", "-b", servers).returncode == 0
        interrupt(process)
        err = end(process)[1].decode()
    assert f"% PLAINTEXT: -b {servers}" in err
    assert "% SSL: -b 127.0.0.1:" in err


@pytest.mark.parametrize(
    ("texts", "nodes", "expected"),
    [
        (("SSL",), 2, {"SSL": [0, 0]}),
        (("SSL:9093", "PLAINTEXT:9100"), 2, {"SSL": [9093, 9094], "PLAINTEXT": [9100, 9101]}),
    ],
)
def test_listeners(texts: tuple[str, ...], nodes: int, expected: dict[str, list[int]]) -> None:
    assert parse_listeners(texts, nodes) == expected


@pytest.mark.parametrize("text", ["alice", "alice:", ":secret", ""])
def test_users_without_name_or_password(text: str) -> None:
    with pytest.raises(InvalidOption, match="--sasl is not of the form USER:PASSWORD"):
        parse_user(text)


def test_it_speaks_kafka_0_7_too() -> None:
    with serving("--kafka07-port", "0") as (_, process):
        assert process.stdout is not None
        server = process.stdout.readline().decode().strip()

        async def produce_and_fetch() -> list[bytes]:
            async with Client(server) as client:
                await client.produce("t", [b"one"])
                await client.flush()
                return [message.payload for message in await client.fetch("t", 0, 0)]

        assert anyio.run(produce_and_fetch) == [b"one"]


def test_topics() -> None:
    assert parse_topic("a") == ("a", None, None)
    assert parse_topic("a:3") == ("a", 3, None)
    assert parse_topic("a:3:2") == ("a", 3, 2)
    for text in ("", ":3", "a:", "a:x", "a:1:2:3"):
        with pytest.raises(InvalidOption, match="NAME"):
            parse_topic(text)


def test_a_topic_that_the_broker_refuses_is_one_line(cli: Cli) -> None:
    code, out, err = cli("broker", "--port", "0", "-t", "a:1:7")
    assert (code, out, err.count("\n")) == (1, b"", 1)
