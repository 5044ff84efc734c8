"""The commands, what they share, and how they end."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, ClassVar

import click

from aiokafkawire._version import __version__
from aiokafkawire.cli.common_options import SuggestingGroup
from aiokafkawire.cli.error_text import (
    FAILED,
    INTERRUPTED,
    OK,
    USAGE,
    CommandFailed,
    explain,
    one_line,
    printable,
)
from aiokafkawire.cli.progress import ERASE_LINE
from aiokafkawire.cli.run_loop import StoppedBySignal
from aiokafkawire.cli.standard_streams import print_stderr, redirect_to_null
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


KCAT_MODES = {"-P": "produce", "-C": "consume", "-L": "metadata"}
"""kcat's options for what to do, and the commands that do it."""

LOG_PREFIX = "aiokafkawire: "


def expand_mode(arguments: list[str]) -> list[str]:
    """Return the command that arguments of kcat stand for; others come back as they are."""
    if not arguments or not arguments[0].startswith("-"):
        return arguments
    for index, argument in enumerate(arguments):
        # Short options may be written together, as in -CJ.
        mode, rest = argument[:2], argument[2:]
        if mode in KCAT_MODES and (not rest or rest.isalpha()):
            others = [f"-{rest}"] if rest else []
            return [KCAT_MODES[mode], *arguments[:index], *others, *arguments[index + 1 :]]
    return ["consume", *arguments] if "-G" in arguments else arguments


class CommandGroup(SuggestingGroup):
    """The commands, imported when they are asked for."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, expand_mode(args))
        except click.NoSuchOption as error:
            ctx.fail(
                f"{error.format_message().rstrip('.')}: a command comes first, or one of"
                f" {', '.join(KCAT_MODES)}"
            )

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = getattr(import_module(COMMANDS[cmd_name]), cmd_name)
        return found


class LogFormatter(logging.Formatter):
    """A message of the log as a line of stderr, where progress may stand already."""

    last_line: ClassVar[str] = ""

    def format(self, record: logging.LogRecord) -> str:
        before = ERASE_LINE if sys.stderr.isatty() else ""
        # A client names itself by its client_id, which is the program's name unless it was set.
        LogFormatter.last_line = f"{LOG_PREFIX}{super().format(record).removeprefix(LOG_PREFIX)}"
        return before + LogFormatter.last_line

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        # Clients choose the names of groups and members that a broker logs.
        return printable(super().formatMessage(record))


class StderrHandler(logging.Handler):
    """Writes the log to stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        print_stderr(self.format(record))


@click.group(
    cls=CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 failed (also in part), 2 wrong usage, 130 ended by Ctrl-C.",
)
@click.version_option(__version__, prog_name="aiokafkawire")
def application() -> None:
    """A Kafka client for the shell, and an embedded broker to try it on."""
    LogFormatter.last_line = ""
    # Warnings such as that of an outage.
    handler = StderrHandler()
    handler.setFormatter(LogFormatter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name; its exit code. Errors take one line of stderr."""
    try:
        given = None if arguments is None else list(arguments)
        result = application.main(given, prog_name="aiokafkawire", standalone_mode=False)
    except StoppedBySignal as stopped:
        return stopped.code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return USAGE
    except click.UsageError as error:
        path = "aiokafkawire" if error.ctx is None else error.ctx.command_path
        return _report(f"{_without_period(error.format_message())}; see {path} --help", USAGE)
    except click.ClickException as error:
        return _report(error.format_message(), error.exit_code)
    except click.Abort:
        return INTERRUPTED
    except InvalidOption as error:
        return _report(str(error), USAGE)
    except (KafkaError, CommandFailed, OSError) as error:
        return _report_error(error)
    except ExceptionGroup as group:
        return _report_error(_first_error(group))
    return result if isinstance(result, int) else OK


def _first_error(group: ExceptionGroup[Any]) -> Exception:
    """The first error of a group, if all are of the kinds that are told in one line."""
    expected, other = group.split((KafkaError, CommandFailed, OSError))
    if expected is None or other is not None:
        raise group
    error: Exception = expected
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _without_period(text: str) -> str:
    return one_line(text).rstrip(".")


def _report_error(error: Exception) -> int:
    if isinstance(error, BrokenPipeError):
        redirect_to_null(sys.stdout)
        return FAILED
    # A command may have put its own words around what a client raised.
    text, reason = explain(error), one_line(str(error.__cause__ or error))
    if reason and reason in LogFormatter.last_line:
        # The last line said so, of the first of many attempts.
        text = f"given up{text.removeprefix(reason)}"
    return _report(text, FAILED)


def _report(text: str, code: int) -> int:
    print_stderr(f"aiokafkawire: {one_line(text)}")
    return code
