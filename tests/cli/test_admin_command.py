from __future__ import annotations

import io
import sys

import pytest

from aiokafkawire.cli import admin_command as module
from aiokafkawire.cli.admin_command import Changing, admin_options, rows_table, split_errors
from aiokafkawire.cli.error_text import CommandFailed
from aiokafkawire.errors import InvalidOption, RequestTimedOut

ASKED = "Delete everything?"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_options_are_those_of_the_admin_client() -> None:
    options = admin_options("h:1", ["request.timeout.ms=5"])
    assert (options["bootstrap_servers"], options["request_timeout_ms"]) == ("h:1", 5)
    with pytest.raises(InvalidOption, match="'linger_ms' is a producer option"):
        admin_options("h:1", ["linger_ms=5"])


@pytest.mark.parametrize("change", [Changing(True, False, False), Changing(False, False, True)])
def test_a_dry_run_and_yes_ask_nothing(change: Changing) -> None:
    change.confirm(ASKED)


def test_without_a_terminal_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(InvalidOption, match=r"Delete everything\? Give --yes"):
        Changing(False, False, False).confirm(ASKED)


@pytest.mark.parametrize(("answer", "is_yes"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_a_terminal_is_asked(
    answer: str,
    is_yes: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    change = Changing(False, False, False)
    if is_yes:
        change.confirm(ASKED)
    else:
        with pytest.raises(CommandFailed, match="nothing was changed"):
            change.confirm(ASKED)
    out, err = capsys.readouterr()
    assert (out, ASKED in err) == ("", True)


def test_errors_are_separated_from_results() -> None:
    error = RequestTimedOut("late")
    assert split_errors({"a": 1, "b": error, "c": None}) == ({"a": 1, "c": None}, [error])


def test_rows_become_a_table() -> None:
    assert rows_table([]) == ""
    rows = [{"topic": "orders", "is_new": True, "value": 5.0}]
    assert rows_table(rows) == "topic   is new  value\norders  yes         5\n"


def test_each_failed_item_takes_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert module.report([]) == 0
    assert module.report([RequestTimedOut("one"), RequestTimedOut("two")]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line[:17] for line in lines] == ["aiokafkawire: one", "aiokafkawire: two"]
