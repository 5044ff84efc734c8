from __future__ import annotations

import logging
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from aiokafkawire import __version__
from aiokafkawire.cli import application as module
from aiokafkawire.cli import main
from aiokafkawire.cli.application import COMMANDS, SHORT_HELP, application, run
from aiokafkawire.cli.error_text import CommandFailed
from aiokafkawire.cli.log_lines import LogFormatter
from aiokafkawire.errors import InvalidOption, NoBrokerAvailable

from .shell import aiokafkawire


def test_help_lists_every_command() -> None:
    shown = CliRunner().invoke(application, ["--help"])
    assert "130 stopped by Ctrl-C, 143 by SIGTERM." in " ".join(shown.output.split())
    assert shown.exit_code == 0
    for name in COMMANDS:
        assert name in shown.output


def test_help_has_the_short_help_of_each_command_and_imports_none() -> None:
    context = click.Context(application)
    commands = {name: application.get_command(context, name) for name in COMMANDS}
    assert {name: each and each.short_help for name, each in commands.items()} == SHORT_HELP
    code = (
        "import sys; from aiokafkawire.cli import main; main(['--help']);"
        "sys.exit('aiokafkawire.cli.topics' in sys.modules or 'aiokafkawire.admin' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_an_administrative_command_imports_the_client_only_when_it_runs() -> None:
    code = (
        "import sys; from aiokafkawire.cli import main; main(['acls', 'list', '--help']);"
        "sys.exit('aiokafkawire.admin' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def all_commands(group: click.Group, *before: str) -> list[tuple[str, ...]]:
    """Every command as it is typed, those of groups as well."""
    found: list[tuple[str, ...]] = []
    for name in group.list_commands(click.Context(group)):
        found.append((*before, name))
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            found += all_commands(command, *before, name)
    return found


@pytest.mark.parametrize("words", all_commands(application), ids=" ".join)
def test_every_command_has_help_for_each_of_its_options(words: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(application, [*words, "-h"])
    assert shown.exit_code == 0, shown.output
    command: click.Command | None = application
    for word in words:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
    assert command is not None
    assert command.short_help
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("aiokafkawire: no broker", "aiokafkawire: no broker"),
        ("no broker", "aiokafkawire: no broker"),
        ("other: no broker", "aiokafkawire: other: no broker"),
        ("Group a\nb \x1b[2J é", "aiokafkawire: Group a\\nb \\x1b[2J é"),
    ],
)
def test_a_warning_names_the_program_once(text: str, line: str) -> None:
    record = logging.LogRecord("aiokafkawire", logging.WARNING, "", 0, "%s", (text,), None)
    assert LogFormatter().format(record) == line


def test_the_version() -> None:
    done = aiokafkawire("--version")
    assert (done.returncode, done.stderr) == (0, b"")
    assert __version__.encode() in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["brokr"], "No such command 'brokr'. Did you mean 'broker'?"),
        (["broker", "--prot", "5"], "--port"),
        (["broker", "--port", "many"], "'--port': 'many' is not a valid integer; see"),
        (["consume", "t", "-c", "abc"], "'-c' / '--count': 'abc' is not a valid integer; see"),
        (["consume", "t", "-c", "0"], "0 is not in the range x>=1; see"),
        (["broker", "--backend", "twisted"], "'--backend'"),
        (
            ["consume", "t", "--from-beginning"],
            "No such option '--from-beginning': use -o beginning; see aiokafkawire consume --help",
        ),
        (["produce", "--broker-list", "h:1", "t"], "No such option '--broker-list': use -b;"),
        (["topics", "create", "--bootstrap-server=h:1", "t"], "'--bootstrap-server': use -b;"),
        (["groups", "describe", "--command-config", "f", "g"], "'--command-config': use --config;"),
        (["groups", "delete"], "Missing argument 'GROUP...'"),
    ],
)
def test_wrong_usage_is_one_line_and_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert message in err
    assert "--help" in err


def test_an_option_that_the_command_has_no_replacement_for_gets_no_hint(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["produce", "t", "--from-beginning"]) == 2
    error = capsys.readouterr().err
    # click 8.3 quotes the option.
    assert "--from-beginning" in error
    assert "use -o" not in error
    assert error.endswith("; see aiokafkawire produce --help\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("consume", "\udcff"),
        ("consume", "-G", "g", "\udcff"),
        ("consume", "-G", "\udcff", "t"),
        ("produce", "\udcff"),
        ("produce", "-t", "\udcff"),
        ("metadata", "\udcff"),
        ("topics", "create", "t", "\udcff"),
        ("topics", "delete", "\udcff"),
        ("topics", "describe", "\udcff"),
        ("groups", "describe", "\udcff"),
        ("groups", "delete", "\udcff"),
        ("txns", "describe", "\udcff"),
        ("consume", "-b", "h\udcff:1", "t"),
        ("consume", "-X", "client_id=\udcff", "t"),
    ],
    ids=" ".join,
)
def test_a_name_that_is_not_utf8_is_wrong_usage(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    brokers = () if "-b" in arguments else ("-b", "127.0.0.1:1")
    assert run([*arguments, *brokers]) == 2
    text = capsys.readouterr().err
    assert text.startswith("aiokafkawire: ")
    assert text.count("\n") == 1


@pytest.mark.slow
def test_no_command_shows_the_help() -> None:
    done = aiokafkawire()
    assert done.returncode == 2
    assert b"Commands:" in done.stderr


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (InvalidOption("no\nsuch option"), 2, "aiokafkawire: no such option\n"),
        (CommandFailed("it broke"), 1, "aiokafkawire: it broke\n"),
        (OSError("disk"), 1, "aiokafkawire: disk\n"),
        (
            ExceptionGroup("g", [ExceptionGroup("h", [NoBrokerAvailable("none")])]),
            1,
            "aiokafkawire: none; check -b and that the broker is running\n",
        ),
    ],
)
def test_what_a_command_raises_is_one_line(
    error: Exception,
    code: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(module.application, "main", fail)
    assert run([]) == code
    assert capsys.readouterr().err == line


def test_a_defect_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ExceptionGroup("g", [CommandFailed("expected"), ZeroDivisionError("a defect")])

    monkeypatch.setattr(module.application, "main", fail)
    with pytest.raises(ExceptionGroup):
        run([])


@pytest.mark.parametrize("missing", ["click", "rich"])
@pytest.mark.slow
def test_without_its_extra_it_says_what_to_install(missing: str) -> None:
    script = f"""
import runpy
import sys
sys.modules[{missing!r}] = None
sys.argv[1:] = ["demo"]
runpy.run_module("aiokafkawire", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
    assert b"pip install 'aiokafkawire[cli]'" in done.stderr


def test_another_missing_module_is_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "aiokafkawire.cli.application")
    monkeypatch.setitem(sys.modules, "aiokafkawire.cli.error_text", None)
    with pytest.raises(ModuleNotFoundError, match="error_text"):
        main(["demo"])
