"""Commands whose standard streams a shell has closed: `>&-`, `2>&-`, `<&-`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from .shell import LIMIT_S, command, serving

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
def test_a_full_disk_is_one_line(arguments: tuple[str, ...]):
    done = closing(">/dev/full", *arguments)
    assert done.returncode == 1
    assert done.stderr == b"aiokafkawire: [Errno 28] No space left on device\n"
