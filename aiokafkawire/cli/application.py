"""Root command group: logging, error reports and exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

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
)
from aiokafkawire.cli.log_lines import LogFormatter, elapsed_s, log_to_stderr
from aiokafkawire.cli.run_loop import StoppedBySignal
from aiokafkawire.cli.standard_streams import print_stderr, redirect_to_null
from aiokafkawire.errors import InvalidOption, KafkaError, NoBrokerAvailable, UnknownTopic

__all__ = ("application", "expand_mode", "run")

COMMANDS = {
    "acls": "aiokafkawire.cli.acls",
    "broker": "aiokafkawire.cli.broker",
    "cluster": "aiokafkawire.cli.cluster",
    "completion": "aiokafkawire.cli.completion",
    "configs": "aiokafkawire.cli.configs",
    "consume": "aiokafkawire.cli.consume",
    "dead": "aiokafkawire.cli.dead",
    "decode": "aiokafkawire.cli.decode",
    "demo": "aiokafkawire.cli.demo.command",
    "groups": "aiokafkawire.cli.groups",
    "metadata": "aiokafkawire.cli.metadata",
    "offsets": "aiokafkawire.cli.offsets",
    "partitions": "aiokafkawire.cli.partitions",
    "produce": "aiokafkawire.cli.produce",
    "quotas": "aiokafkawire.cli.quotas",
    "records": "aiokafkawire.cli.records",
    "topics": "aiokafkawire.cli.topics",
    "txns": "aiokafkawire.cli.txns",
    "users": "aiokafkawire.cli.users",
    "worker": "aiokafkawire.cli.worker",
}
"""Module of each command. Only the module of the command that runs is imported."""

SHORT_HELP = {
    "acls": "List, create and delete access control entries.",
    "broker": "Run the embedded broker.",
    "cluster": "Print nodes, features, quorum and log directories.",
    "completion": "Print a shell completion script.",
    "configs": "Describe, set and delete configs.",
    "consume": "Print records of a topic, or as a member of a group.",
    "dead": "List, show, retry and drop dead letters.",
    "decode": "Print frames of Kafka's protocol as JSON.",
    "demo": "Watch a group of workers survive failures.",
    "groups": "List, describe and delete groups.",
    "metadata": "Print brokers, topics, partitions and replicas.",
    "offsets": "Show, reset and delete offsets.",
    "partitions": "Move replicas, and elect leaders.",
    "produce": "Send records from stdin or files.",
    "quotas": "List, set and delete client quotas.",
    "records": "Delete the oldest records of partitions.",
    "topics": "List, describe, create, change and delete topics.",
    "txns": "List, describe and abort transactions.",
    "users": "List, set and delete SCRAM credentials.",
    "worker": "Run a worker of a module.",
}
"""Lines of `--help`, which imports no command: the `short_help` of each."""

KCAT_MODES = {"-P": "produce", "-C": "consume", "-L": "metadata"}
"""kcat's mode options and the commands they stand for."""

CONSOLE_TOOL_OPTIONS = {
    "--bootstrap-server": "-b",
    "--broker-list": "-b",
    "--command-config": "--config",
    "--consumer-property": "-X",
    "--consumer.config": "--config",
    "--from-beginning": "-o beginning",
    "--if-not-exists": "--if-missing",
    "--max-messages": "-c",
    "--producer-property": "-X",
    "--producer.config": "--config",
    "--replication-factor": "-r",
}
"""Options of Kafka's console tools (kafka-console-consumer.sh, …) and what replaces them."""


def expand_mode(arguments: list[str]) -> list[str]:
    """Replace kcat's mode option by a command; return other arguments unchanged."""
    if not arguments or not arguments[0].startswith("-"):
        return arguments
    for index, argument in enumerate(arguments):
        # Short options may be combined, as in -CJ.
        mode, rest = argument[:2], argument[2:]
        if mode in KCAT_MODES and (not rest or rest.isalpha()):
            others = [f"-{rest}"] if rest else []
            return [KCAT_MODES[mode], *arguments[:index], *others, *arguments[index + 1 :]]
    return ["consume", *arguments] if "-G" in arguments else arguments


class CommandGroup(SuggestingGroup):
    """Command group that imports a command when it is used."""

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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([*SHORT_HELP.items()])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(COMMANDS[cmd_name]), cmd_name)
        return command


@click.group(
    cls=CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 success, 1 failure (also partial), 2 wrong usage, 130 stopped by Ctrl-C,"
    " 143 by SIGTERM.",
)
@click.version_option(__version__, prog_name="aiokafkawire")
def application() -> None:
    """Kafka client for the shell, with an embedded broker for tests."""
    # Shows warnings, for example when no broker is reachable.
    log_to_stderr()


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. Print an error as one line on stderr.

    Raises:
        SystemExit: A worker exits with this code.
    """
    streams = sys.stdout, sys.stderr
    try:
        given = None if arguments is None else list(arguments)
        result = application.main(given, prog_name="aiokafkawire", standalone_mode=False)
    except StoppedBySignal as stopped:
        return stopped.code
    except click.exceptions.NoArgsIsHelpError as error:
        print_stderr(error.format_message())
        return USAGE
    except click.UsageError as error:
        path = "aiokafkawire" if error.ctx is None else error.ctx.command_path
        return _report(f"{_usage_text(error)}; see {path} --help", USAGE)
    except click.ClickException as error:
        return _report(error.format_message(), error.exit_code)
    except click.Abort:
        return INTERRUPTED
    except SystemExit:
        if sys.stdout is streams[0]:
            raise
        # The reader of stdout has exited, as `head` does: click wraps the streams and exits with 1.
        sys.stdout, sys.stderr = streams
        redirect_to_null(sys.stdout)
        return OK
    except InvalidOption as error:
        return _report(str(error), USAGE)
    except (KafkaError, CommandFailed, OSError) as error:
        return _report_error(error)
    except ExceptionGroup as group:
        return _report_error(_first_error(group))
    return result if isinstance(result, int) else OK


def _first_error(group: ExceptionGroup[Any]) -> Exception:
    """Return the first error of a group; raise the group if it contains an unexpected error."""
    expected, other = group.split((KafkaError, CommandFailed, OSError))
    if expected is None or other is not None:
        raise group
    error: Exception = expected
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _usage_text(error: click.UsageError) -> str:
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        replacement = CONSOLE_TOOL_OPTIONS.get(error.option_name, "")
        name = replacement.partition(" ")[0]
        if any(name in param.opts for param in error.ctx.command.params):
            return f"No such option {error.option_name!r}: use {replacement}"
    return one_line(error.format_message()).rstrip(".")


def _report_error(error: Exception) -> int:
    if isinstance(error, BrokenPipeError):
        redirect_to_null(sys.stdout)
        return FAILED
    # A command may have wrapped the client's error in its own text.
    cause = error.__cause__ or error
    text, reason = explain(error), one_line(str(cause))
    last_reason = reason.rpartition("; the last attempt: ")[2]
    if last_reason and last_reason in LogFormatter.last_line:
        # The last log line has already reported this reason for an earlier attempt: be short.
        reasons = cause.reasons if isinstance(cause, NoBrokerAvailable) else ()
        text = f"{_given_up()}: {'; '.join(reasons) or last_reason}{text.removeprefix(reason)}"
    elif isinstance(cause, UnknownTopic):
        problem, _, rest = text.partition(", and ")
        if rest and problem in LogFormatter.last_line:
            text = f"{_given_up()}: {rest}"
    return _report(text, FAILED)


def _given_up() -> str:
    return f"given up after {elapsed_s():.1f} s"


def _report(text: str, code: int) -> int:
    print_stderr(f"aiokafkawire: {one_line(text)}")
    return code
