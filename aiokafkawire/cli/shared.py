"""Options that commands have in common."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from aiokafkawire.cli.arguments import CONFIG_VARIABLE, SERVERS_VARIABLE
from aiokafkawire.cli.running import BACKENDS

__all__ = (
    "PATIENCE_MS",
    "Suggesting",
    "assignments_option",
    "backend_option",
    "client_arguments",
    "json_option",
    "kcat_json_option",
    "quiet_option",
)

PATIENCE_MS = 15_000
"""How long the first contact may take (default_api_timeout_ms); somebody waits at a shell."""

F = TypeVar("F", bound=Callable[..., Any])


class Suggesting(click.Group):
    """Commands of which the nearest is named when one is mistyped."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        near = difflib.get_close_matches(args[0], known, n=1)
        if args[0] not in known and near:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)


def backend_option(function: F) -> F:
    return click.option(
        "--backend",
        type=click.Choice(list(BACKENDS)),
        default="asyncio",
        show_default=True,
        help="What runs the event loop.",
    )(function)


def quiet_option(function: F) -> F:
    return click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors.")(
        function
    )


def json_option(function: F) -> F:
    return click.option(
        "--json", "as_json", is_flag=True, help="One JSON object a line; see docs/cli.md."
    )(function)


def kcat_json_option(function: F) -> F:
    return click.option("-J", "as_kcat", is_flag=True, help="JSON in the form of kcat.")(function)


def assignments_option(example: str) -> Callable[[F], F]:
    """`-X`, which takes what `arguments.option_values` reads."""
    return click.option(
        "-X",
        "assignments",
        multiple=True,
        metavar="OPTION=VALUE",
        help=f"An option of the {example}. May be repeated.",
    )


def client_arguments(function: F) -> F:
    """`-b`, `-F`, `-X`, `-q` and `--backend`."""
    for option in (
        backend_option,
        quiet_option,
        assignments_option("client, such as linger_ms=50"),
        click.option(
            "-F",
            "--config",
            type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
            envvar=CONFIG_VARIABLE,
            show_envvar=True,
            metavar="FILE",
            help="Read options of the client from FILE, an option=value a line.",
        ),
        click.option(
            "-b",
            "--brokers",
            metavar="HOST:PORT,…",
            help=f"Bootstrap servers.  [env var: {SERVERS_VARIABLE}]",
        ),
    ):
        function = option(function)
    return function
