from __future__ import annotations

import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from aiokafkawire.cli.produce import InputFormat, RecordSender
from aiokafkawire.cli.run_loop import BACKENDS
from aiokafkawire.cli.streams import CHUNK_BYTES, MAX_CHUNKS
from aiokafkawire.errors import ClientClosed, DeliveryTimedOut, DeliveryUnknown, KafkaError
from aiokafkawire.producer import Delivery
from aiokafkawire.producer.batch_future import BatchAppended, BatchFailed, BatchFuture
from aiokafkawire.producer.unreported_failures import UnreportedFailures
from aiokafkawire.producer.yield_budget import YieldBudget
from tests.brokers.process import free_ports

from .conftest import Cli
from .shell import SECOND, aiokafkawire, end, interrupt, running, serving

pytestmark = pytest.mark.slow

Lines = Callable[[bytes], str]


@pytest.fixture
def read(cli: Cli, servers: str) -> Callable[..., bytes]:
    """All records of a topic: partition, key, value and headers of each."""

    def all_of(topic: str, form: str = "%p %k=%s %h\\n") -> bytes:
        code, out, err = cli("consume", "-b", servers, "-t", topic, "-e", "-q", "-Z", "-f", form)
        assert (code, err) == (0, "")
        return out

    return all_of


def test_lines_keys_and_delimiters() -> None:
    assert InputFormat().parse_text(b"a:b").value == b"a:b"
    form = InputFormat(key_delimiter=b":", key=b"d", headers=(("h", None),))
    record = form.parse_text(b"a:b:c")
    assert (record.key, record.value, record.headers) == (b"a", b"b:c", (("h", None),))
    assert (form.parse_text(b"abc").key, form.parse_text(b"abc").value) == (b"d", b"abc")
    assert (form.parse_text(b":v").key, form.parse_text(b"k:").value) == (b"", b"")
    nulls = InputFormat(key_delimiter=b":", empty_is_null=True)
    assert (nulls.parse_text(b":v").key, nulls.parse_text(b"k:").value) == (None, None)
    assert InputFormat().parse_json(b"  ") is None


@pytest.mark.parametrize("backend", BACKENDS)
def test_stdin_to_topic(backend: str, servers: str, read: Callable[..., bytes]) -> None:
    arguments = ("-b", servers, "-t", f"stdin-{backend}", "-K", ":", "--backend", backend)
    done = aiokafkawire("produce", *arguments, stdin=b"k:one\nk:\n\nk:\xff last")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    records = read(f"stdin-{backend}", "%k=%s\\n").splitlines()
    assert sorted(records) == [b"NULL=", b"k=", b"k=one", b"k=\xff last"]
    assert [record for record in records if record[:1] == b"k"] == [b"k=one", b"k=", b"k=\xff last"]


def test_options_of_a_record(
    cli: Cli, servers: str, lines: Lines, read: Callable[..., bytes]
) -> None:
    arguments = ["-H", "a=1", "-H", "b", "-k", "key", "-Z", "-D", ";", "-p", "2", "-z", "gzip"]
    given = ("-b", servers, "-t", "options", *arguments, "-l", lines(b"x;;y\n"))
    assert cli("produce", *given) == (0, b"", "")
    rest = b" a=1,b=NULL\n"
    assert read("options") == b"2 key=x" + rest + b"2 key=NULL" + rest + b"2 key=y\n" + rest


def test_count_stops_early(
    cli: Cli, servers: str, lines: Lines, read: Callable[..., bytes]
) -> None:
    given = ("-b", servers, "-t", "count", "-p", "0", "-c", "2", "-l", lines(b"1\n2\n3\n"))
    assert cli("produce", *given) == (0, b"", "")
    assert read("count", "%s\\n") == b"1\n2\n"


def test_count_stops_an_input_that_goes_on(servers: str) -> None:
    with running("produce", "-b", servers, "-t", "goes-on", "-c", "1") as process:
        assert process.stdin is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert process.wait(30) == 0


def test_files_are_records_unless_they_hold_lines(
    cli: Cli, servers: str, tmp_path: Path, read: Callable[..., bytes]
) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.write_bytes(path.name.encode() + b"1\n2\n")
    names = [str(path) for path in paths]
    assert cli("produce", "-b", servers, "-t", "files", "-p", "0", *names)[0] == 0
    assert read("files", "[%s]") == b"[a1\n2\n][b1\n2\n]"
    assert cli("produce", "-b", servers, "-t", "by-line", "-p", "0", "-l", *names)[0] == 0
    assert read("by-line", "[%s]") == b"[a1][2][b1][2]"


def test_json_says_topic_partition_and_bytes(
    cli: Cli, servers: str, lines: Lines, read: Callable[..., bytes]
) -> None:
    text = b"""
{"topic": "json-a", "partition": 1, "key": "k", "value_base64": "/w==", "timestamp_ms": 5}
{"topic": "json-b", "partition": 2, "value": null, "headers": [{"name": "h", "value": "v"}]}
"""
    assert cli("produce", "-b", servers, "--json", lines(text)) == (0, b"", "")
    assert read("json-a", "%p %k %s %T %h\\n") == b"1 k \xff 5 \n"
    assert read("json-b", "%p %k %s %h\\n") == b"2 NULL NULL h=v\n"
    given = ("-t", "json-c", "-p", "0", "--json", lines(text))
    assert cli("produce", "-b", servers, *given) == (0, b"", "")
    assert read("json-c", "%p %s\\n") == b"0 \xff\n0 NULL\n"


def test_a_line_that_is_no_record_ends_it_and_what_went_before_is_sent(
    cli: Cli, servers: str, lines: Lines, read: Callable[..., bytes]
) -> None:
    text = lines(b'{"value": "good"}\n\n{"vlaue": "bad"}\n{"value": "never"}\n')
    code, _, err = cli("produce", "-b", servers, "-t", "bad-line", "--json", text)
    assert code == 1
    assert err == (
        "aiokafkawire: line 3 of the input: unknown field 'vlaue'; did you mean 'value'?\n"
    )
    assert read("bad-line", "%s\\n") == b"good\n"
    code, _, err = cli("produce", "-b", servers, "--json", lines(b'{"value": "x"}'))
    assert (code, err.count("has no topic")) == (1, 1)


def test_one_record_too_large_fails_alone(
    cli: Cli, servers: str, lines: Lines, read: Callable[..., bytes]
) -> None:
    text = lines(b"a\n" + bytes(3_000_000) + b"\nb\n")
    code, _, err = cli("produce", "-b", servers, "-t", "large", "-p", "0", "-l", text)
    assert code == 1
    first, last = err.splitlines()
    assert first.startswith("aiokafkawire: record 2 was not delivered: ")
    assert "1048576" in first
    assert "max_request_size_bytes" in first
    assert last == "aiokafkawire: 1 of 3 records was not delivered"
    assert read("large", "%s\\n") == b"a\nb\n"


def test_what_the_broker_rejects_is_reported(cli: Cli, servers: str, lines: Lines) -> None:
    given = ("-b", servers, "-t", "large", "-X", "max_request_size_bytes=5000000")
    code, _, err = cli("produce", *given, "-l", lines(bytes(3_000_000)))
    assert code == 1
    assert "MESSAGE_TOO_LARGE" in err
    assert "1 of 1 records was not delivered" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the topic is missing: produce TOPIC"),
        (["bad topic!"], "'bad topic!' is not a valid topic name"),
        (["-t", "bad topic!"], "'bad topic!' is not a valid topic name"),
        (["t", "no-such-file"], "'no-such-file' does not exist"),
        (["-t", "t", "no-such-file"], "'no-such-file' does not exist"),
        (["t", "."], "is a directory"),
        (["--json", "no-such-file"], "with --json all arguments are files"),
        ([__file__], "is a file: give the topic first"),
        ([__file__, __file__], "is a file: give the topic first"),
        (["-t", "t", "-X", "lingr_ms=5"], "unknown option 'lingr_ms'; did you mean 'linger_ms'?"),
        (["-t", "t", "-X", "acks=1", "-X", "enable_idempotence=true"], "needs acks='all'"),
        (["-t", "t", "-K", ""], "-K must not be empty"),
        (["-t", "t", "-D", "\\q"], "a backslash starts"),
        (["-t", "t", "-z", "zip"], "'zip' is not one of"),
        (["-t", "t", "-p", "-2"], "-2"),
        (["-t", "t", "/no/such/file"], "/no/such/file"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str, cli: Cli, servers: str) -> None:
    code, out, err = cli("produce", "-b", servers, *arguments)
    assert (code, out, err.count("\n")) == (2, b"", 1)
    assert message in err


@pytest.mark.parametrize("address", ["localhost:99999", "", "ho st:1"])
def test_an_address_that_cannot_be_is_wrong_usage(address: str, cli: Cli) -> None:
    code, _, err = cli("produce", "-b", address, "-t", "t")
    assert (code, err.count("\n")) == (2, 1)
    assert "bootstrap" in err


FIRST_CONTACT = ("-X", "default_api_timeout_ms=700")


@pytest.fixture
def http_port() -> Iterator[int]:
    """A server that answers everything as HTTP servers do, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    peer, _ = server.accept()
                except OSError:
                    return
                with peer:
                    peer.recv(1000)
                    peer.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def test_a_server_of_another_kind_is_named(cli: Cli, http_port: int, lines: Lines) -> None:
    given = ("-b", f"127.0.0.1:{http_port}", "-t", "t", *FIRST_CONTACT, "-l", lines(b"x"))
    code, _, err = cli("produce", *given)
    assert code == 1
    assert "HTTP" in err.splitlines()[-1]


def test_a_closed_port(cli: Cli, lines: Lines) -> None:
    (port,) = free_ports(1)
    given = ("-b", f"127.0.0.1:{port}", "-t", "t", *FIRST_CONTACT, "-l", lines(b"x"))
    code, _, err = cli("produce", *given)
    assert code == 1
    last = err.splitlines()[-1]
    assert last.startswith(
        f"aiokafkawire: no broker of bootstrap_servers could be used: 127.0.0.1:{port}"
    )
    assert "connection refused" in last
    assert last.endswith("nothing listens there: check host and port")


@pytest.mark.parametrize("command", ["produce", "consume"])
@pytest.mark.parametrize("backoff_ms", [50, 1_500])
def test_a_failure_that_was_reported_is_not_said_again(command: str, backoff_ms: int) -> None:
    """Also if the deadline comes during a backoff, and the error says so."""
    (port,) = free_ports(1)
    backoff = (f"reconnect_backoff_ms={backoff_ms}", f"reconnect_backoff_max_ms={backoff_ms}")
    options = ("default_api_timeout_ms=2000", *backoff)
    patience = [argument for option in options for argument in ("-X", option)]
    done = aiokafkawire(command, "-b", f"127.0.0.1:{port}", "-t", "t", *patience, stdin=b"x")
    assert done.returncode == 1
    first, last = done.stderr.decode().splitlines()
    assert f"no broker of bootstrap_servers could be used: 127.0.0.1:{port}" in first
    assert "connection refused" in first
    assert first.endswith("retrying")
    assert re.fullmatch(
        rf"aiokafkawire: given up after [0-9]+\.\d s: .*127\.0\.0\.1:{port}.* connection refused;"
        r" nothing listens there: check host and port",
        last,
    )


@pytest.mark.parametrize(
    ("command", "option"), [("topics", ()), ("consume", ()), ("topics", ("-q",))]
)
def test_a_wrong_address_is_named_within_seconds(command: str, option: tuple[str, ...]) -> None:
    (port,) = free_ports(1)
    words = ("topics", "list") if command == "topics" else ("consume", "-t", "t")
    began = time.monotonic()
    done = aiokafkawire(*words, "-b", f"127.0.0.1:{port}", *option)
    assert time.monotonic() - began < 12
    assert done.returncode == 1
    last = done.stderr.decode().splitlines()[-1]
    assert re.search(rf"127\.0\.0\.1:{port}: connection refused; nothing listens there", last)
    assert last.endswith("nothing listens there: check host and port")


def test_a_name_that_does_not_exist(cli: Cli, lines: Lines) -> None:
    given = ("-b", "nowhere.invalid", "-t", "t", *FIRST_CONTACT, "-l", lines(b"x"))
    code, _, err = cli("produce", *given)
    assert code == 1
    assert "'nowhere.invalid' cannot be resolved" in err.splitlines()[-1]
    assert err.splitlines()[-1].count("check ") == 1


def test_a_topic_needs_no_option(cli: Cli, servers: str, lines: Lines) -> None:
    path = lines(b"one\ntwo\n")
    assert cli("produce", "-b", servers, "no-option", "-l", path, "-p", "0") == (0, b"", "")
    assert cli("produce", "-b", servers, "no-option", path, "-p", "0") == (0, b"", "")
    done = aiokafkawire("produce", "-b", servers, "no-option", "-p", "0", stdin=b"three\n")
    assert (done.returncode, done.stderr) == (0, b"")
    given = ("-b", servers, "-e", "-q", "-p", "0", "-f", "[%s]")
    assert cli("consume", "no-option", *given) == (0, b"[one][two][one\ntwo\n][three]", "")


def test_a_topic_that_may_not_be_made(cli: Cli, lines: Lines) -> None:
    with serving("--no-auto-create") as (addresses, _):
        code, _, err = cli(
            "produce", "-b", addresses, "-t", "t", "-X", "max_block_ms=500", "-l", lines(b"x")
        )
    assert code == 1
    assert "'t' does not exist" in err
    assert "1 of 1 records was not delivered" in err


def test_a_missing_topic_is_reported_once(lines: Lines) -> None:
    with serving("--no-auto-create") as (addresses, _):
        given = ("-b", addresses, "-t", "t", "-X", "max_block_ms=3500", "-l", lines(b"x"))
        done = aiokafkawire("produce", *given)
    assert done.returncode == 1
    first, last = done.stderr.decode().splitlines()
    assert "topic 't' does not exist or is not available" in first
    assert re.match(
        r"aiokafkawire: given up after [34]\.\d s: no broker created it before the deadline", last
    )
    assert "does not exist" not in last


def wait_for_a_record(servers: str, topic: str) -> None:
    options = ("-X", "allow_auto_create_topics=true")
    done = aiokafkawire("consume", "-b", servers, "-t", topic, "-c", "1", *options)
    assert (done.returncode, done.stdout) == (0, b"one\n")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_ctrl_c_while_the_input_waits(backend: str, servers: str) -> None:
    with running(
        "produce", "-b", servers, "-t", f"ctrl-c-{backend}", "--backend", backend
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        wait_for_a_record(servers, f"ctrl-c-{backend}")
        assert interrupt(process) < SECOND
        out, err = end(process)
        line = b"aiokafkawire: interrupted; the record was delivered\n"
        assert (process.returncode, out, err) == (130, b"", line)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_ctrl_c_while_the_broker_is_stopped(backend: str) -> None:
    with (
        serving("-t", "t") as (addresses, broker),
        running("produce", "-b", addresses, "-t", "t", "--backend", backend) as process,
    ):
        assert process.stdin is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        wait_for_a_record(addresses, "t")
        broker.send_signal(signal.SIGSTOP)
        try:
            process.stdin.write(b"two\n")
            process.stdin.flush()
            assert interrupt(process) < SECOND
        finally:
            broker.send_signal(signal.SIGCONT)
        assert process.returncode == 130


@pytest.mark.parametrize(
    ("number", "code", "backend"),
    [
        (signal.SIGINT, 130, "asyncio"),
        (signal.SIGTERM, 143, "trio"),
        (signal.SIGINT, 130, "uvloop"),
    ],
)
def test_a_signal_with_many_buffered_records(
    number: signal.Signals, code: int, backend: str
) -> None:
    count, line = 100_000, b"v\n"
    # The rest fits into the chunks that the command reads ahead, its current one and the pipe.
    rest = (MAX_CHUNKS + 3) * CHUNK_BYTES // len(line)
    with (
        serving("-t", "t") as (addresses, broker),
        running("produce", "-b", addresses, "t", "--backend", backend) as process,
    ):
        assert process.stdin is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        wait_for_a_record(addresses, "t")
        broker.send_signal(signal.SIGSTOP)
        try:
            process.stdin.write(line * (count + rest))
            process.stdin.flush()
            assert interrupt(process, number) < SECOND
        finally:
            broker.send_signal(signal.SIGCONT)
        _, err = end(process)
    assert process.returncode == code
    text = (
        r"aiokafkawire: interrupted; ([\d,]+) of ([\d,]+) records were not acknowledged"
        r" \(they may be in the log\)\n"
    )
    match = re.fullmatch(text, err.decode())
    assert match is not None, err
    unknown, sent = (int(each.replace(",", "")) for each in match.groups())
    assert sent > count
    assert unknown == sent - 1


class Outcome(NamedTuple):
    error: KafkaError | None = None

    def delivery(self) -> Delivery:
        future = BatchFuture("t", 0, UnreportedFailures(), YieldBudget())
        future.count = 1
        future.complete(BatchAppended(7) if self.error is None else BatchFailed(self.error, {}))
        return Delivery(future, 0, 0)


APPENDED, CLOSED, UNKNOWN, EXPIRED = map(
    Outcome,
    (None, ClientClosed("closed"), DeliveryUnknown("sent"), DeliveryTimedOut("expired")),
)


@pytest.mark.parametrize(
    ("outcomes", "text"),
    [
        ((), ""),
        ((APPENDED,), "; the record was delivered"),
        ((APPENDED, APPENDED), "; all 2 records were delivered"),
        (
            (APPENDED, CLOSED),
            "; 1 of 2 records was not acknowledged (it may be in the log)",
        ),
        (
            (EXPIRED, APPENDED, UNKNOWN, CLOSED),
            "; 4 of 5 records were not acknowledged (they may be in the log)",
        ),
    ],
)
def test_a_hard_exit_reports_the_records_once(
    outcomes: tuple[Outcome, ...], text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    sender = RecordSender("t", None, InputFormat().parse_text)
    sender._pending.extend((number, each.delivery()) for number, each in enumerate(outcomes))
    sender.sent = len(outcomes)
    if EXPIRED in outcomes:
        sender.sent += 1
        future = BatchFuture("t", 0, UnreportedFailures(), YieldBudget())
        sender._pending.append((9, Delivery(future, 0, 0)))
    sender._report_interruption()
    sender._report_interruption()
    assert capfd.readouterr().err == f"aiokafkawire: interrupted{text}\n"


def test_records_that_may_be_in_the_log_are_counted_apart(
    capfd: pytest.CaptureFixture[str],
) -> None:
    sender = RecordSender("t", None, InputFormat().parse_text)
    for number, outcome in enumerate((EXPIRED, APPENDED, UNKNOWN), 1):
        sender._pending.append((number, outcome.delivery()))
        sender.sent += 1
    sender._collect_results()
    first, second = capfd.readouterr().err.splitlines()
    assert first.startswith("aiokafkawire: record 1 was not delivered: expired")
    assert second.startswith("aiokafkawire: record 3 was not acknowledged: sent")
    assert sender._undelivered_texts() == [
        "1 of 3 records was not delivered",
        "1 of 3 records was not acknowledged (it may be in the log)",
    ]


def test_a_stopped_broker_is_reported_at_the_deadline(lines: Lines, cli: Cli) -> None:
    with serving() as (addresses, broker):
        broker.send_signal(signal.SIGSTOP)
        try:
            code, _, err = cli(
                "produce", "-b", addresses, "-t", "t", *FIRST_CONTACT, "-l", lines(b"x")
            )
        finally:
            broker.send_signal(signal.SIGCONT)
    assert code == 1
    assert "no broker of bootstrap_servers could be used" in err.splitlines()[-1]


def test_progress_is_for_eyes_only(servers: str) -> None:
    done = aiokafkawire("produce", "-b", servers, "-t", "many", stdin=b"line\n" * 50_000)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_partition_that_the_topic_lacks_is_left_to_the_key(
    cli: Cli, servers: str, lines: Lines
) -> None:
    file = lines(b'{"key":"k","value":"v","partition":7}\n')
    given = ("-b", servers, "-t", "lacking", "--json", file)
    code, _, err = cli("produce", *given, "-X", "max_block_ms=500")
    assert (code, err.count("\n")) == (1, 1)
    assert "-p -1 chooses the partition by key" in err
    assert "create the topic" not in err
    assert cli("produce", *given, "-p", "-1") == (0, b"", "")


def test_acks_that_no_broker_takes_are_not_its_age(cli: Cli, servers: str, lines: Lines) -> None:
    given = ("-b", servers, "-t", "acks", "-l", lines(b"v\n"))
    code, _, err = cli("produce", *given, "-X", "acks=2")
    assert code == 2
    assert "acks must be 'all', -1, 0 or 1, not 2" in err
    assert "too old" not in err
    assert "broker's version" not in err
