from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable

import pytest

from aiokafkawire.cli.arguments import OffsetArgument, OffsetKind
from aiokafkawire.cli.consume import parse_offsets
from aiokafkawire.cli.run_loop import BACKENDS
from aiokafkawire.cluster.refresh_schedule import MISSING_TOPIC_LOG_AFTER_S
from aiokafkawire.errors import InvalidOption

from .conftest import Cli
from .shell import SECOND, aiokafkawire, command, end, interrupt, running, serving

pytestmark = pytest.mark.slow

Lines = Callable[[bytes], str]
Fill = Callable[..., None]


@pytest.fixture
def fill(cli: Cli, servers: str, lines: Lines) -> Fill:
    """Put lines into a topic, in partition 0 unless said otherwise."""

    def put(topic: str, data: bytes, *arguments: str) -> None:
        given = arguments or ("-p", "0")
        done = cli("produce", "-b", servers, "-t", topic, *given, "-l", lines(data))
        assert done == (0, b"", "")

    return put


@pytest.fixture(scope="module")
def five(servers: str) -> str:
    """A topic with five records in partition 0, a second apart."""
    records = b"".join(
        b'{"key":"k","value":"%d","partition":0,"timestamp_ms":%d}\n' % (n, n * 1000)
        for n in range(5)
    )
    done = aiokafkawire("produce", "-b", servers, "-t", "five", "--json", stdin=records)
    assert (done.returncode, done.stderr) == (0, b"")
    return "five"


@pytest.mark.parametrize("backend", BACKENDS)
def test_topic_to_stdout(backend: str, servers: str, fill: Fill) -> None:
    fill(f"stdout-{backend}", b"one\ntwo\n\xff\n")
    arguments = ("-b", servers, "-t", f"stdout-{backend}", "-e", "--backend", backend)
    done = aiokafkawire("consume", *arguments)
    assert (done.returncode, done.stdout) == (0, b"one\ntwo\n\xff\n")
    ends = sorted(done.stderr.decode().splitlines())
    assert ends == [
        f"% Reached end of stdout-{backend} [{partition}] at offset {offset}"
        for partition, offset in ((0, 3), (1, 0), (2, 0))
    ]


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        ((), b"0\n1\n2\n3\n4\n"),
        (("-o", "beginning"), b"0\n1\n2\n3\n4\n"),
        (("-o", "end"), b""),
        (("-o", "3"), b"3\n4\n"),
        (("-o", "5"), b""),
        (("-o", "-2"), b"3\n4\n"),
        (("-o", "-20"), b"0\n1\n2\n3\n4\n"),
        (("-o", "s@3000"), b"3\n4\n"),
        (("-o", "s@9000"), b""),
        (("-o", "s@1970-01-01T00:00:03Z"), b"3\n4\n"),
        (("-o", "e@1970-01-01T01:00:02+01:00"), b"0\n1\n"),
        (("-o", "e@2000"), b"0\n1\n"),
        (("-o", "1", "-o", "e@2001"), b"1\n2\n"),
        (("-o", "s@1000", "-o", "e@0"), b""),
        (("-c", "2"), b"0\n1\n"),
        (("-c", "9"), b"0\n1\n2\n3\n4\n"),
        (("-D", ";"), b"0;1;2;3;4;"),
        (("-K", "="), b"k=0\nk=1\nk=2\nk=3\nk=4\n"),
        (("-f", "%o:%k:%s,"), b"0:k:0,1:k:1,2:k:2,3:k:3,4:k:4,"),
    ],
)
def test_where_to_start_and_stop_and_how_to_print(
    arguments: tuple[str, ...], printed: bytes, cli: Cli, servers: str, five: str
) -> None:
    given = ("-b", servers, "-t", five, "-p", "0", "-e", "-q", *arguments)
    assert cli("consume", *given) == (0, printed, "")


def test_a_read_without_offset_begins_where_the_reset_policy_says(
    cli: Cli, servers: str, five: str
) -> None:
    given = ("consume", "-b", servers, five, "-p", "0", "-e", "-q", "-X")
    assert cli(*given, "auto_offset_reset=latest") == (0, b"", "")
    assert cli(*given, "auto.offset.reset=latest", "-o", "4") == (0, b"4\n", "")
    assert cli(*given, "auto_offset_reset=earliest")[1].count(b"\n") == 5


def test_a_reset_by_duration_starts_at_that_time(cli: Cli, servers: str, lines: Lines) -> None:
    now_ms = time.time_ns() // 1_000_000
    aged = [
        {"topic": "aged", "value": f"{age_h} h", "timestamp_ms": now_ms - age_h * 3_600_000}
        for age_h in (3, 1)
    ]
    data = lines("\n".join(map(json.dumps, aged)).encode())
    assert cli("produce", "-b", servers, "-p", "0", "--json", data) == (0, b"", "")
    given = ("consume", "-b", servers, "aged", "-p", "0", "-e", "-q", "-X")
    assert cli(*given, "auto_offset_reset=by_duration:PT2H") == (0, b"1 h\n", "")
    code, _, err = cli(*given, "auto_offset_reset=by_duration:2h")
    assert (code, err.count("\n")) == (2, 1)
    assert "auto_offset_reset must be 'earliest', 'latest'" in err


def test_a_topic_needs_no_option(cli: Cli, servers: str, five: str) -> None:
    given = ("-b", servers, "-p", "0", "-e", "-q", "-c", "1")
    assert cli("consume", five, *given) == (0, b"0\n", "")
    assert cli("consume", *given, five) == (0, b"0\n", "")


def test_an_offset_beyond_the_end_is_noted(cli: Cli, servers: str, fill: Fill) -> None:
    fill("beyond", b"one\n")
    code, out, err = cli("consume", "-b", servers, "-t", "beyond", "-p", "0", "-o", "7", "-e")
    assert (code, out) == (0, b"")
    assert "% beyond [0] starts at its end offset 1" in err


def test_count_ends_a_read_that_would_go_on(servers: str, fill: Fill, cli: Cli) -> None:
    fill("count", b"1\n2\n3\n")
    assert cli("consume", "-b", servers, "-t", "count", "-c", "2") == (0, b"1\n2\n", "")


def test_it_waits_for_what_comes(servers: str, fill: Fill) -> None:
    fill("tail", b"old\n")
    with running("consume", "-b", servers, "-t", "tail", "-q") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"old\n"
        fill("tail", b"new\n")
        assert process.stdout.readline() == b"new\n"
        assert interrupt(process) < SECOND
        assert process.returncode == 130
        assert end(process) == (b"", b"")


def test_null_is_not_empty(cli: Cli, servers: str, fill: Fill) -> None:
    fill("nulls", b":\nk:v", "-p", "0", "-K", ":", "-Z")
    given = ("-b", servers, "-t", "nulls", "-e", "-q")
    assert cli("consume", *given, "-K", ":", "-Z") == (0, b"NULL:NULL\nk:v\n", "")
    assert cli("consume", *given, "-K", ":") == (0, b":\nk:v\n", "")


def test_json_goes_round(cli: Cli, servers: str, lines: Lines) -> None:
    records = [
        {"partition": 2, "timestamp_ms": 7, "key": None, "value": "text\n", "headers": []},
        {"partition": 2, "timestamp_ms": 8, "key_base64": "/w==", "value": "", "headers": []},
        {
            "partition": 2,
            "timestamp_ms": 9,
            "key": "ключ",
            "value": None,
            "headers": [{"name": "h", "value": None}, {"name": "h", "value_base64": "gA=="}],
        },
    ]
    text = b"".join(json.dumps(record).encode() + b"\n" for record in records)
    for topic in ("round-1", "round-2"):
        given = ("-b", servers, "-t", topic, "--json", lines(text))
        assert cli("produce", *given) == (0, b"", "")
        code, text, _ = cli("consume", "-b", servers, "-t", topic, "-e", "-q", "--json")
        assert code == 0
        seen = [json.loads(line) for line in text.splitlines()]
        for offset, (record, back) in enumerate(zip(records, seen, strict=True)):
            assert back.pop("topic") == topic
            assert back.pop("offset") == offset
            assert back.pop("timestamp_type") == "create_time"
            assert back == record


def test_a_group_goes_on_where_it_was(cli: Cli, servers: str, fill: Fill) -> None:
    fill("shared", b"1\n2\n3\n")
    given = ("-b", servers, "-G", "readers", "shared", "-o", "beginning", "-q")
    assert cli("consume", *given, "-c", "2") == (0, b"1\n2\n", "")
    assert cli("consume", *given, "-e") == (0, b"3\n", "")
    assert cli("consume", *given, "-e") == (0, b"", "")
    fill("shared", b"4\n")
    stored = ("-b", servers, "-t", "shared", "-q", "-e", "-o", "stored", "-X", "group_id=readers")
    assert cli("consume", *stored) == (0, b"4\n", "")
    assert cli("consume", *stored) == (0, b"", "")


def test_a_group_reads_by_pattern(cli: Cli, servers: str, fill: Fill) -> None:
    fill("pattern-1", b"1\n")
    fill("pattern-2", b"2\n")
    given = ("-b", servers, "-G", "by-pattern", "-o", "beginning", "-q", "-e")
    code, out, _ = cli("consume", *given, "^pattern-")
    assert (code, sorted(out.splitlines())) == (0, [b"1", b"2"])


def test_ctrl_c_in_a_group_commits_what_was_printed(servers: str, fill: Fill, cli: Cli) -> None:
    fill("member", b"1\n2\n")
    given = ("-b", servers, "-G", "interrupted", "member", "-o", "beginning", "-q")
    with running("consume", *given) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == [b"1\n", b"2\n"]
        fill("member", b"3\n")
        assert process.stdout.readline() == b"3\n"
        assert interrupt(process) < SECOND
        assert process.returncode == 130
    code, out, _ = cli("consume", *given, "-e")
    # The last one was printed, but the consumer may not have come back for more.
    assert (code, out.removesuffix(b"3\n")) == (0, b"")


def test_a_reader_that_has_had_enough(servers: str, fill: Fill) -> None:
    fill("pipe", b"line\n" * 40_000)
    reader = subprocess.Popen(
        command("consume", "-b", servers, "-t", "pipe", "-e", "-q"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert reader.stdout is not None
    assert reader.stderr is not None
    with reader.stdout, reader.stderr:
        assert reader.stdout.readline() == b"line\n"
        reader.stdout.close()
        assert reader.wait(30) == 0
        assert reader.stderr.read() == b""


def test_a_full_disk_is_one_line(servers: str, fill: Fill) -> None:
    fill("full", b"line\n")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command("consume", "-b", servers, "-t", "full", "-e", "-q"),
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
        )
    assert done.returncode == 1
    assert done.stderr == b"aiokafkawire: [Errno 28] No space left on device\n"


@pytest.mark.parametrize(("backend", "group"), [("asyncio", True), ("trio", True), ("trio", False)])
def test_ctrl_c_while_the_broker_is_stopped(backend: str, group: bool) -> None:
    with serving("-t", "t") as (addresses, broker):
        aiokafkawire("produce", "-b", addresses, "-t", "t", stdin=b"one\n")
        what = ("-G", "g", "t", "-o", "beginning") if group else ("-t", "t")
        with running("consume", "-b", addresses, *what, "--backend", backend) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"one\n"
            broker.send_signal(signal.SIGSTOP)
            try:
                assert interrupt(process) < SECOND
            finally:
                broker.send_signal(signal.SIGCONT)
            assert process.returncode == 130


def test_ctrl_c_while_the_output_is_not_read(servers: str, fill: Fill) -> None:
    fill("unread", b"line\n" * 40_000)
    with running("consume", "-b", servers, "-t", "unread", "-q") as process:
        assert process.stdout is not None
        assert os.read(process.stdout.fileno(), 5) == b"line\n"
        assert interrupt(process) < SECOND
        assert process.returncode == 130


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the topic is missing: consume TOPIC, or -G GROUP TOPIC…"),
        (["-t", "t", "u"], "'t' and 'u' are given: without -G give one topic"),
        (["t", "u"], "'t' and 'u' are given: without -G give one topic"),
        ([""], "the topic must not be empty"),
        (["-G", "", "t"], "-G must not be empty"),
        (["-G", "g"], "-G is given without topics"),
        (["--share", "g"], "--share is given without topics"),
        (["--share", "g", "t", "-e", "-p", "1"], "--share excludes -p and -e"),
        (["-G", "g", "t", "-p", "1"], "-p and -G exclude each other"),
        (["-G", "g", "t", "-o", "5"], "with -G the only offsets are -o beginning"),
        (["-G", "g", "t", "-o", "-5"], "with -G the only offsets are -o beginning"),
        (["-G", "g", "t", "^("], "'^(' is not a regular expression"),
        (["-t", "t", "-o", "first"], "-o 'first' is not an offset"),
        (["-t", "t", "-o", "1", "-o", "2"], "-o is given twice"),
        (["-t", "t", "-o", "stored"], "-X group_id"),
        (["-t", "t", "-f", "%x"], "unknown token '%x'"),
        (["-t", "t", "-f", "%s", "-K", ":"], "omit -K"),
        (["-t", "t", "--json", "-f", "%s"], "omit -f"),
        (["-t", "t", "-X", "fetch_min_byte=1"], "did you mean 'fetch_min_bytes'"),
        (["-t", "t", "-c", "0"], "'-c'"),
        (["-t", "t", "-D", ""], "-D must not be empty"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str, cli: Cli) -> None:
    code, out, err = cli("consume", "-b", "localhost:1", *arguments)
    assert (code, out, err.count("\n")) == (2, b"", 1)
    assert message in err


def test_what_is_not_there_is_reported_soon(cli: Cli, servers: str, fill: Fill) -> None:
    code, _, err = cli("consume", "-b", servers, "-t", "no-such-topic", "-e")
    assert (code, err.count("\n")) == (1, 1)
    assert "topic 'no-such-topic' does not exist" in err
    assert "auto_create" not in err
    fill("three", b"x\n")
    code, _, err = cli("consume", "-b", servers, "-t", "three", "-p", "3", "-e")
    assert code == 1
    assert "topic 'three' has no partition 3: it has 3 partitions" in err


def test_one_start_and_one_stop() -> None:
    assert parse_offsets(()) == (None, None)
    assert parse_offsets(("e@5", "-3")) == (OffsetArgument(OffsetKind.END, 3), 5)
    with pytest.raises(InvalidOption, match="twice"):
        parse_offsets(("e@5", "e@6"))


def test_a_pattern_without_topics_has_no_end(cli: Cli, servers: str) -> None:
    code, _, err = cli("consume", "-b", servers, "-G", "g", "^no-such-", "-e")
    assert (code, err) == (1, "aiokafkawire: no topic matches ^no-such-\n")


def test_a_group_without_its_topic_has_no_end(cli: Cli, servers: str, fill: Fill) -> None:
    fill("there", b"1\n")
    code, out, err = cli("consume", "-b", servers, "-G", "g", "there", "no-such-topic", "-e")
    assert (code, out) == (1, b"")
    assert err == "aiokafkawire: topic no-such-topic does not exist\n"


def test_rebalances_are_reported_on_stderr(servers: str, fill: Fill) -> None:
    fill("orders", b"1\n")
    given = ("-b", servers, "-G", "audit", "orders", "-o", "beginning")
    with running("consume", *given) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line == b"% group audit: assigned orders [0, 1, 2]\n"
        assert interrupt(process) < SECOND
    done = aiokafkawire("consume", *given, "-e")
    err_lines = done.stderr.decode().splitlines()
    assert err_lines[0] == "% group audit: assigned orders [0, 1, 2]"
    assert err_lines[-1] == "% group audit: revoked orders [0, 1, 2]"


def test_a_group_without_committed_offsets_says_where_it_starts(servers: str, fill: Fill) -> None:
    fill("start", b"1\n2\n3\n")
    where = "% group new: no committed offset for start [0, 1, 2]: starting at "
    given = ("-b", servers, "-G", "new", "start")
    done = aiokafkawire("consume", *given, "-e", "-o", "end")
    assert f"{where}the end; -o beginning starts at the first record" in notes(done)
    done = aiokafkawire("consume", "-b", servers, "-G", "other", "start", "-e", "-o", "beginning")
    assert done.stdout.splitlines() == [b"1", b"2", b"3"]
    assert f"{where.replace('new', 'other')}the first record" in notes(done)
    # The offsets are committed now.
    done = aiokafkawire("consume", "-b", servers, "-G", "other", "start", "-e")
    assert not any("no committed offset" in line for line in notes(done))


def notes(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    assert done.returncode == 0
    return done.stderr.decode().splitlines()


def test_an_internal_topic_is_no_match_of_a_pattern(cli: Cli, servers: str, fill: Fill) -> None:
    fill("matched", b"1\n")
    given = ("-b", servers, "-G", "creates-offsets", "-o", "beginning", "-q", "-e")
    assert cli("consume", *given, "^matched$")[:2] == (0, b"1\n")
    code, _, err = cli("consume", *given, "^__consumer_")
    assert (code, err) == (1, "aiokafkawire: no topic matches ^__consumer_\n")


@pytest.mark.parametrize("what", ["later", "^later-"])
def test_a_group_says_that_it_waits_for_a_topic(what: str, servers: str) -> None:
    with running("consume", "-b", servers, "-G", "waiting", what) as process:
        assert process.stderr is not None
        line = process.stderr.readline().decode()
        assert line in {
            "% topic later does not exist yet\n",
            "% no topic matches ^later- yet\n",
        }
        # Longer than the client waits until it logs a missing topic.
        time.sleep(MISSING_TOPIC_LOG_AFTER_S + 2)
        assert interrupt(process) < SECOND
        assert process.returncode == 130
        assert "does not exist" not in end(process)[1].decode()


def test_an_outage_is_reported_while_it_lasts() -> None:
    with serving("-t", "t") as (addresses, broker):
        aiokafkawire("produce", "-b", addresses, "-t", "t", stdin=b"one\n")
        with running("consume", "-b", addresses, "-t", "t") as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == b"one\n"
            broker.kill()
            line = process.stderr.readline()
            assert line.startswith(b"aiokafkawire: consumer aiokafkawire: no broker can be reached")
            assert line.count(b"\n") == 1
            assert interrupt(process) < SECOND


def test_each_record_goes_to_one_member_of_a_share_group(servers: str, fill: Fill) -> None:
    reset = "share.auto.offset.reset=earliest"
    done = aiokafkawire("configs", "set", "-b", servers, "--group", "workers", reset)
    assert done.returncode == 0, done.stderr
    fill("jobs", b"1\n2\n3\n4\n5\n")
    seen = b""
    for count in ("2", "3"):
        given = ("-b", servers, "--share", "workers", "jobs", "-c", count)
        done = aiokafkawire("consume", *given)
        assert done.returncode == 0, done.stderr
        seen += done.stdout
    assert seen == b"1\n2\n3\n4\n5\n"
