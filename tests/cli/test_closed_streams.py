"""Commands whose standard streams are closed (`>&-`, `2>&-`, `<&-`), full, or not read any more."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from .shell import LIMIT_S, aiokafkawire, command, serving

FRAME = "00000019000c0004000000070004776f726b00026700000002026d0000"
NO_STDOUT = b"aiokafkawire: stdout is closed, but the command prints to it\n"
NO_STDIN = b"aiokafkawire: stdin is closed, but the command reads it\n"
UNREACHABLE = ("-b", "127.0.0.1:1", "-X", "default_api_timeout_ms=50")


def closing(redirection: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run one command of a shell with a redirection."""
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", *command(*arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("--version",),
        ("consume", "-t", "t", *UNREACHABLE),
        ("consume", "-G", "g", "t", *UNREACHABLE),
        ("topics", "list", *UNREACHABLE),
        ("topics", "describe", "t", *UNREACHABLE),
        ("groups", "list", *UNREACHABLE),
        ("txns", "list", *UNREACHABLE),
        ("decode", FRAME),
        ("broker", "--port", "0"),
        ("demo", "--plain"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_printed_is_a_failure(arguments: tuple[str, ...]):
    done = closing(">&-", *arguments)
    assert (done.returncode, done.stderr) == (1, NO_STDOUT)


@pytest.mark.parametrize("arguments", [("produce", "-t", "t", *UNREACHABLE), ("decode",)])
def test_what_cannot_be_read_is_a_failure(arguments: tuple[str, ...]):
    done = closing("<&-", *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", NO_STDIN)


def test_errors_do_not_go_to_stdout():
    done = closing("2>&-", "topics", "list", *UNREACHABLE)
    assert (done.returncode, done.stdout) == (1, b"")
    done = closing("2>&-", "topics", "list")
    assert (done.returncode, done.stdout) == (2, b"")
    done = closing("2>&- >&-", "topics", "list", *UNREACHABLE)
    assert (done.returncode, done.stdout) == (1, b"")
    assert closing("2>&-", "decode", FRAME).stdout.startswith(b"{")


@contextmanager
def full() -> Iterator[int]:
    """A descriptor that takes nothing, as a file on a full disk."""
    descriptor = os.open("/dev/full", os.O_WRONLY)
    yield descriptor
    os.close(descriptor)


@contextmanager
def not_read() -> Iterator[int]:
    """A pipe whose reader has ended."""
    receiver, sender = os.pipe()
    os.close(receiver)
    yield sender
    os.close(sender)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is Linux's")
@pytest.mark.parametrize("broken", [full, not_read])
def test_a_command_goes_on_where_its_notes_cannot_be_written(broken: Any):
    # Empty partitions have come to their end, which is noted, before the records are printed.
    with serving("--partitions", "3") as (servers, _), broken() as errors:
        brokers = ("-b", servers)
        assert aiokafkawire("produce", *brokers, "t", stdin=b"one\ntwo\n").returncode == 0
        for arguments, code, printed in (
            (("consume", *brokers, "t", "-e"), 0, b"one\ntwo\n"),
            (("consume", *brokers, "t", "-e", "-f", "%x"), 2, b""),
            (("consume", *UNREACHABLE, "t"), 1, b""),
            (("topics", "create", *brokers, "t", "u"), 1, b""),
        ):
            done = subprocess.run(
                command(*arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                timeout=LIMIT_S,
                check=False,
            )
            assert (done.returncode, done.stdout) == (code, printed)


@pytest.mark.slow
def test_what_needs_no_stream_does_without(tmp_path: Path):
    path = tmp_path / "input"
    path.write_bytes(b"one\ntwo\n")
    with serving() as (servers, _):
        for redirection in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
            done = closing(redirection, "produce", "-b", servers, "-t", "t", "-l", str(path))
            assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        done = closing("<&- >&- 2>&-", "topics", "create", "-b", servers, "made")
        assert done.returncode == 0
        done = closing("<&- 2>&-", "consume", "-b", servers, "-t", "t", "-e")
        assert (done.returncode, done.stdout) == (0, b"one\ntwo\n" * 4)


@pytest.mark.parametrize("arguments", [("--help",), ("decode", FRAME)])
def test_a_full_disk_is_one_line(arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch):
    # Unbuffered output fails at once, and leaves nothing to write at exit.
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    done = closing(">/dev/full", *arguments)
    assert done.returncode == 1
    assert done.stderr == b"aiokafkawire: [Errno 28] No space left on device\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("--version",),
        ("topics", "create", "--help"),
        ("completion", "bash"),
        ("decode", FRAME),
        ("demo", "--help"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_exited_is_no_failure(arguments: tuple[str, ...], unbuffered: str):
    with not_read() as output:
        done = subprocess.run(
            command(*arguments),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
            timeout=LIMIT_S,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert (done.returncode, done.stderr) == (0, b"")


def test_usage_that_nobody_reads_is_wrong_usage_all_the_same():
    with not_read() as errors:
        done = subprocess.run(
            command(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            timeout=LIMIT_S,
            check=False,
        )
    assert (done.returncode, done.stdout) == (2, b"")
