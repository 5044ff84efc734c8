"""Commands on an admin client: options, confirmation, repetition, reports of failed items."""

from __future__ import annotations

import functools
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Never, TypeVar

import anyio
import click

from aiokafkawire.cli.arguments import client_options, require_utf8
from aiokafkawire.cli.common_options import DEFAULT_TIMEOUT_MS, client_arguments
from aiokafkawire.cli.error_text import (
    FAILED,
    OK,
    CommandFailed,
    explain,
    explain_retried,
    one_line,
)
from aiokafkawire.cli.run_loop import Interruption, run_command
from aiokafkawire.cli.standard_streams import print_stderr, require_stdout
from aiokafkawire.cli.streams import OutputStream
from aiokafkawire.cli.tables import format_table, json_line
from aiokafkawire.config import AdminConfig
from aiokafkawire.errors import InvalidOption, KafkaError, PartialFailure
from aiokafkawire.runtime import NEVER

if TYPE_CHECKING:
    from aiokafkawire.admin import Admin

__all__ = (
    "AdminCommand",
    "Errors",
    "admin_command",
    "changing",
    "list_items",
    "print_results",
    "rows_table",
    "split_errors",
    "watch_option",
)

F = TypeVar("F", bound=Callable[..., Any])
K = TypeVar("K")
V = TypeVar("V")

CLOSE_TIMEOUT_MS = 5_000

MIN_WATCH_S = 0.1
"""Shortest interval of `--watch`, in seconds."""

CLEAR_SCREEN = "\x1b[2J\x1b[H"

Errors = Sequence[Exception]
"""What failed in a command: a line each on stderr."""

AdminWork = Callable[["Admin"], Awaitable[Errors]]
"""The requests and the output of a command; returns what failed."""


async def print_results(text: str) -> None:
    """Write to stdout."""
    await OutputStream(sys.stdout.fileno()).write(text.encode())


class AdminCommand(NamedTuple):
    """Options of a command that uses an admin client."""

    options: dict[str, Any]
    backend: str
    quiet: bool = False

    def note_empty(self, what: str) -> None:
        """Report on stderr that a list is empty: stdout has no line then."""
        if not self.quiet:
            print_stderr(f"% no {what}")

    async def print_rows(
        self,
        rows: Iterable[Mapping[str, Any]],
        empty: str,
        *,
        as_json: bool,
        errors: Errors = (),
    ) -> None:
        """Print items as a table or as JSON lines.

        Args:
            rows: The items, each with the same names.
            empty: Items in the plural, to report on stderr that there are none.
            as_json: Print JSON lines.
            errors: Errors of the command. If there are some, `empty` is not reported.
        """
        listed = list(rows)
        if as_json:
            await print_results("".join(map(json_line, listed)))
        elif listed:
            await print_results(rows_table(listed))
        elif not errors:
            self.note_empty(empty)

    def execute(
        self, work: AdminWork, *, has_output: bool = True, watch_s: float | None = None
    ) -> int:
        """Connect, run `work`, print one line per error, and return the exit code.

        Args:
            work: The work of the command; items of a `PartialFailure` have a line each.
            has_output: Fail before connecting if stdout is closed.
            watch_s: Repeat the work at this interval in seconds until a signal.
        """
        from aiokafkawire.admin import Admin  # noqa: PLC0415 - it imports every message

        async def run_with_admin() -> Errors:
            async with Admin(**self.options) as admin:
                if watch_s is None:
                    return await _attempt(work, admin)
                await _repeat(work, admin, watch_s)

        return self.run(run_with_admin, has_output=has_output)

    def run(self, function: Callable[[], Awaitable[Errors]], *, has_output: bool = True) -> int:
        """Run a coroutine function, print one line per error, and return the exit code."""
        if has_output:
            require_stdout()
        failed: list[Exception] = []

        async def run_to_end(_: Interruption) -> None:
            failed.extend(await function())

        try:
            run_command(run_to_end, backend=self.backend)
        except BrokenPipeError:
            # The reader of stdout has exited, as `head` does.
            return OK
        return report(failed)


def report(errors: Iterable[Exception], text_of: Callable[[BaseException], str] = explain) -> int:
    """Print one line per error on stderr and return the exit code."""
    code = OK
    for error in errors:
        print_stderr(one_line(f"aiokafkawire: {text_of(error)}"))
        code = FAILED
    return code


async def _attempt(work: AdminWork, admin: Admin) -> Errors:
    try:
        return await work(admin)
    except PartialFailure as error:
        return [*error.failed.values()]


async def _repeat(work: AdminWork, admin: Admin, interval_s: float) -> Never:
    """Run the work at an interval, and report what fails until it works again."""
    clears = sys.stdout.isatty()
    deadline = NEVER
    while True:
        deadline = anyio.current_time() + interval_s
        if clears:
            await print_results(CLEAR_SCREEN)
        try:
            report(await _attempt(work, admin), explain_retried)
        except (KafkaError, CommandFailed) as error:
            report([error], explain_retried)
        await anyio.sleep_until(deadline)


def admin_command(function: Callable[..., int]) -> Callable[..., int]:
    """Add `client_arguments`; pass them as an `AdminCommand` in the first argument."""

    @functools.wraps(function)
    def command(
        *,
        brokers: str | None,
        config: Path | None,
        assignments: tuple[str, ...],
        quiet: bool,
        backend: str,
        **others: Any,
    ) -> int:
        for value in others.values():
            require_utf8(value)
        options = admin_options(brokers, assignments, config)
        return function(AdminCommand(options, backend, quiet), **others)

    return client_arguments(AdminConfig)(command)


def admin_options(
    brokers: str | None, assignments: Sequence[str], config: Path | None = None
) -> dict[str, Any]:
    """Return the options of the admin client. Raises `InvalidOption`."""
    return client_options(
        AdminConfig,
        assignments,
        {"bootstrap_servers": brokers},
        {
            "allow_auto_create_topics": False,
            "close_timeout_ms": CLOSE_TIMEOUT_MS,
            "default_api_timeout_ms": DEFAULT_TIMEOUT_MS,
        },
        config=config,
    )


# --- options ---------------------------------------------------------------------------------


def watch_option(function: F) -> F:
    """Add `--watch`."""
    return click.option(
        "--watch",
        "watch_s",
        type=click.FloatRange(min=MIN_WATCH_S),
        metavar="SECONDS",
        help="Print again at this interval until Ctrl-C.",
    )(function)


class Changing(NamedTuple):
    """Options of a command that changes something."""

    dry_run: bool
    as_json: bool
    yes: bool

    @property
    def has_output(self) -> bool:
        """True if the command prints what it has changed or would change."""
        return self.dry_run or self.as_json

    def confirm(self, question: str) -> None:
        """Ask on stderr before something is lost, unless `--yes` or `--dry-run` was given.

        Raises:
            InvalidOption: stdin is not a terminal.
            CommandFailed: The answer is no.
        """
        if self.yes or self.dry_run:
            return
        if sys.stdin is None or not sys.stdin.isatty():
            raise InvalidOption(
                f"{question} Give --yes, because stdin is no terminal;"
                " --dry-run shows what would change"
            )
        if not click.confirm(question, err=True):
            raise CommandFailed("nothing was changed")

    async def show(self, rows: Iterable[Mapping[str, Any]], *, always: bool = False) -> None:
        """Print what a command has changed, or with `--dry-run` would change.

        Args:
            rows: The changed items, each with the same names.
            always: Print a table too if neither `--json` nor `--dry-run` was given.
        """
        if self.as_json:
            text = "".join(json_line({**row, "dry_run": self.dry_run}) for row in rows)
        elif self.dry_run or always:
            text = rows_table(rows)
        else:
            return
        await print_results(text)


def changing(*, confirms: bool) -> Callable[[F], F]:
    """Return the decorator for `--dry-run`, `--json` and, with `confirms`, `--yes`.

    The function gets them as a `Changing` in the argument `change`.
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def command(*positional: Any, **others: Any) -> Any:
            change = Changing(
                others.pop("dry_run"), others.pop("as_json"), others.pop("yes", False)
            )
            return function(*positional, change=change, **others)

        decorated: Any = command
        if confirms:
            decorated = click.option("-y", "--yes", is_flag=True, help="Do not ask.")(decorated)
        decorated = click.option(
            "--json", "as_json", is_flag=True, help="Print one JSON object per changed item."
        )(decorated)
        result: F = click.option(
            "--dry-run", is_flag=True, help="Only check and print what would change."
        )(decorated)
        return result

    return decorate


# --- results ---------------------------------------------------------------------------------


def split_errors(results: Mapping[K, V | KafkaError]) -> tuple[dict[K, V], list[KafkaError]]:
    """Separate the results of a call with `return_errors=True` from its errors."""
    found: dict[K, V] = {}
    errors: list[KafkaError] = []
    for key, result in results.items():
        if isinstance(result, KafkaError):
            errors.append(result)
        else:
            found[key] = result
    return found, errors


async def list_items(call: Awaitable[list[V]]) -> tuple[list[V], Errors]:
    """Return the items that a call found, and its errors if a part of it failed."""
    try:
        return await call, ()
    except PartialFailure as error:
        found: Mapping[Any, V] = error.succeeded
        return [*found.values()], [*error.failed.values()]


def rows_table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return items with the same names as a table; an empty text without items."""
    listed = list(rows)
    if not listed:
        return ""
    heads = [name.replace("_", " ") for name in listed[0]]
    return format_table(heads, [list(row.values()) for row in listed])
