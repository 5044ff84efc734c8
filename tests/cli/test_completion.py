"""Completion in bash as it happens there, and what zsh and fish are answered."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Cli
from .shell import LIMIT_S, aiokafkawire

COMPLETE = "_AIOKAFKAWIRE_COMPLETE"


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH on which `aiokafkawire` stands first."""
    program = tmp_path / "bin" / "aiokafkawire"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m aiokafkawire "$@"\n')
    program.chmod(0o755)
    return f"{program.parent}:/usr/bin:/bin"


def in_bash(line: str, path: str) -> list[str]:
    """Press Tab at the end of a line of bash; what it offers."""
    words = line.split(" ")
    script = f"""
        eval "$(aiokafkawire completion bash)" || exit
        COMP_WORDS=({shlex.join(words)})
        COMP_CWORD={len(words) - 1}
        $(complete -p aiokafkawire | sed 's/.* -F \\([^ ]*\\) .*/\\1/') aiokafkawire
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
        env={"PATH": path, "PYTHONPATH": ":".join(sys.path)},
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("aiokafkawire con", ["configs", "consume"]),
        ("aiokafkawire partitions re", ["reassign"]),
        (
            "aiokafkawire acls create --operation de",
            ["delete", "describe", "describeconfigs", "describetokens"],
        ),
        ("aiokafkawire users set -m ", ["SCRAM-SHA-256", "SCRAM-SHA-512"]),
        ("aiokafkawire topics de", ["delete", "describe"]),
        ("aiokafkawire consume --part", ["--partition"]),
        ("aiokafkawire consume orders --backend u", ["uvloop"]),
        ("aiokafkawire produce -z z", ["zstd"]),
        ("aiokafkawire consume -X fetch_mi", ["fetch_min_bytes="]),
        ("aiokafkawire produce -X linger", ["linger_ms="]),
        ("aiokafkawire broker -X as_", ["as_of="]),
        ("aiokafkawire -C -b h:1 --part", ["--partition"]),
        ("aiokafkawire completion ", ["bash", "fish", "zsh"]),
    ],
)
def test_bash_completes(line: str, offered: list[str], path: str):
    assert sorted(in_bash(line, path)) == offered


@pytest.mark.parametrize(
    ("words", "kind"),
    [("produce -t t pic", "file"), ("produce orders pic", "file"), ("consume -F ka", "file")],
)
def test_files_are_left_to_the_shell(words: str, kind: str):
    environment = {COMPLETE: "bash_complete", "COMP_WORDS": f"aiokafkawire {words}"}
    count = str(len(words.split()))
    done = aiokafkawire(env={**environment, "COMP_CWORD": count})
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().splitlines()[0].partition(",")[0] == kind


def test_zsh_is_answered_with_the_help():
    words = {"COMP_WORDS": "aiokafkawire cons", "COMP_CWORD": "1"}
    done = aiokafkawire(env={COMPLETE: "zsh_complete", **words})
    assert (done.returncode, done.stderr) == (0, b"")
    kind, value, help_text = done.stdout.decode().splitlines()
    assert (kind, value) == ("plain", "consume")
    assert help_text.startswith("Print records")


def test_fish_is_answered_with_the_help():
    words = {"COMP_WORDS": "aiokafkawire cons", "COMP_CWORD": "cons"}
    done = aiokafkawire(env={COMPLETE: "fish_complete", **words})
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"consume" in done.stdout
    assert b"Print records" in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_for_its_shell(shell: str, cli: Cli, tmp_path: Path):
    code, out, err = cli("completion", shell)
    assert (code, err) == (0, "")
    assert f"{COMPLETE}={shell}_complete" in out.decode()
    if shutil.which(shell) is not None:
        script = tmp_path / "script"
        script.write_bytes(out)
        subprocess.run([shell, "-n", str(script)], check=True, timeout=LIMIT_S)


def test_another_shell_is_refused(cli: Cli):
    code, out, err = cli("completion", "tcsh")
    assert (code, out, err.count("\n")) == (2, b"", 1)
    assert "'bash', 'zsh', 'fish'" in err
