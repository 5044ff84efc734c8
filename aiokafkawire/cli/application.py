"""The commands, what they share, and how they end."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, ClassVar

import click

from aiokafkawire._version import __version__
from aiokafkawire.cli.problems import (
    FAILED,
    INTERRUPTED,
    OK,
    USAGE,
    Failure,
    explain,
    one_line,
)
from aiokafkawire.cli.progress import ERASE_LINE
from aiokafkawire.cli.running import Stopped
from aiokafkawire.cli.shared import Suggesting
from aiokafkawire.cli.standard import discard, note
from aiokafkawire.errors import InvalidOption, KafkaError

__all__ = ("application", "expand_mode", "run")

COMMANDS = {
    "broker": "aiokafkawire.cli.broker",
    "completion": "aiokafkawire.cli.completion",
    "consume": "aiokafkawire.cli.consume",
    "decode": "aiokafkawire.cli.decode",
    "demo": "aiokafkawire.cli.demo.command",
    "groups": "aiokafkawire.cli.groups",
    "metadata": "aiokafkawire.cli.metadata",
    "produce": "aiokafkawire.cli.produce",
    "topics": "aiokafkawire.cli.topics",
    "txns": "aiokafkawire.cli.txns",
}
"""Where each command stands, under its own name; a shell waits for the import of one only."""


MODES = {"-P": "produce", "-C": "consume", "-L": "metadata"}
"""kcat's options for what to do, and the commands that do it."""

NAME = "aiokafkawire: "


def expand_mode(arguments: list[str]) -> list[str]:
    """Return the command that arguments of kcat stand for; others come back as they are."""
    if not arguments or not arguments[0].startswith("-"):
        return arguments
    for index, argument in enumerate(arguments):
        # Short options may be written together, as in -CJ.
        mode, rest = argument[:2], argument[2:]
        if mode in MODES and (not rest or rest.isalpha()):
            others = [f"-{rest}"] if rest else []
            return [MODES[mode], *arguments[:index], *others, *arguments[index + 1 :]]
    return ["consume", *arguments] if "-G" in arguments else arguments


class Commands(Suggesting):
    """The commands, imported when they are asked for."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, expand_mode(args))
        except click.NoSuchOption as error:
            ctx.fail(
                f"{error.format_message().rstrip('.')}: a command comes first, or one of"
                f" {', '.join(MODES)}"
            )

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = getattr(import_module(COMMANDS[cmd_name]), cmd_name)
        return found


class Line(logging.Formatter):
    """A message of the log as a line of stderr, where progress may stand already."""

    last: ClassVar[str] = ""

    def format(self, record: logging.LogRecord) -> str:
        before = ERASE_LINE if sys.stderr.isatty() else ""
        # A client names itself by its client_id, which is the program's name unless it was set.
        Line.last = f"{NAME}{super().format(record).removeprefix(NAME)}"
        return before + Line.last


class Lines(logging.Handler):
    """Writes the log to stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        note(self.format(record))


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 failed (also in part), 2 wrong usage, 130 ended by Ctrl-C.",
)
@click.version_option(__version__, prog_name="aiokafkawire")
def application() -> None:
    """A Kafka client for the shell, and an embedded broker to try it on."""
    Line.last = ""
    # Warnings such as that of an outage.
    handler = Lines()
    handler.setFormatter(Line())
    logging.basicConfig(handlers=[handler], level=logging.WARNING)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name; its exit code. Errors take one line of stderr."""
    try:
        given = None if arguments is None else list(arguments)
        result = application.main(given, prog_name="aiokafkawire", standalone_mode=False)
    except Stopped as stopped:
        return stopped.code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return USAGE
    except click.UsageError as error:
        path = "aiokafkawire" if error.ctx is None else error.ctx.command_path
        return _fail(f"{_sentence(error.format_message())}; see {path} --help", USAGE)
    except click.ClickException as error:
        return _fail(error.format_message(), error.exit_code)
    except click.Abort:
        return INTERRUPTED
    except InvalidOption as error:
        return _fail(str(error), USAGE)
    except (KafkaError, Failure, OSError) as error:
        return _failed(error)
    except ExceptionGroup as group:
        return _failed(_first_of(group))
    return result if isinstance(result, int) else OK


def _first_of(group: ExceptionGroup[Any]) -> Exception:
    """The first error of a group, if all are of the kinds that are told in one line."""
    told, other = group.split((KafkaError, Failure, OSError))
    if told is None or other is not None:
        raise group
    error: Exception = told
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _sentence(text: str) -> str:
    return one_line(text).rstrip(".")


def _failed(error: Exception) -> int:
    if isinstance(error, BrokenPipeError):
        discard(sys.stdout)
        return FAILED
    # A command may have put its own words around what a client raised.
    text, what = explain(error), one_line(str(error.__cause__ or error))
    if what and what in Line.last:
        # The last line said so, of the first of many attempts.
        text = f"given up{text.removeprefix(what)}"
    return _fail(text, FAILED)


def _fail(text: str, code: int) -> int:
    note(f"aiokafkawire: {one_line(text)}")
    return code
