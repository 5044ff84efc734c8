"""Options shared by several commands."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from aiokafkawire.cli.arguments import CONFIG_VARIABLE, SERVERS_VARIABLE
from aiokafkawire.cli.run_loop import BACKENDS
from aiokafkawire.config import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig

__all__ = (
    "DEFAULT_TIMEOUT_MS",
    "IntegerRange",
    "SuggestingGroup",
    "assignments_option",
    "backend_option",
    "client_arguments",
    "json_option",
    "kcat_json_option",
    "quiet_option",
)

DEFAULT_TIMEOUT_MS = 15_000
"""Default of default_api_timeout_ms and max_block_ms: short, because a user waits in a shell."""

EXAMPLES: dict[type[ClientConfig], str] = {
    AdminConfig: "client_id=shell",
    ClientConfig: "client_id=shell",
    ConsumerConfig: "fetch_min_bytes=1000",
    ProducerConfig: "linger_ms=50",
}

F = TypeVar("F", bound=Callable[..., Any])


class IntegerRange(click.IntRange):
    """Parameter type of whole numbers in a range, with the error text of click's `INT`."""

    name = "integer"


class SuggestingGroup(click.Group):
    """Command group that suggests the closest name for an unknown command."""

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
        help="Event loop implementation.",
    )(function)


def quiet_option(function: F) -> F:
    return click.option("-q", "--quiet", is_flag=True, help="Print only errors on stderr.")(
        function
    )


def json_option(function: F) -> F:
    return click.option(
        "--json", "as_json", is_flag=True, help="One JSON object per line; see docs/cli.md."
    )(function)


def kcat_json_option(function: F) -> F:
    return click.option("-J", "as_kcat", is_flag=True, help="JSON in kcat's format.")(function)


def assignments_option(config_class: type[Any], example: str) -> Callable[[F], F]:
    """Return the decorator for `-X`, whose values `arguments.parse_assignments` parses."""

    def complete(_context: click.Context, _parameter: click.Parameter, begin: str) -> list[str]:
        names = [field.name for field in dataclasses.fields(config_class)]
        return [f"{name}=" for name in names if name.startswith(begin.replace(".", "_"))]

    return click.option(
        "-X",
        "assignments",
        multiple=True,
        metavar="OPTION=VALUE",
        help=f"Option of the {example}. May be repeated.",
        shell_complete=complete,
    )


def client_arguments(config_class: type[ClientConfig]) -> Callable[[F], F]:
    """Return the decorator for `-b`, `-F`, `-X`, `-q` and `--backend`."""

    def add(function: F) -> F:
        return _client_arguments(function, config_class)

    return add


def _client_arguments(function: F, config_class: type[ClientConfig]) -> F:
    for option in (
        backend_option,
        quiet_option,
        assignments_option(config_class, f"client, such as {EXAMPLES[config_class]}"),
        click.option(
            "-F",
            "--config",
            type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
            envvar=CONFIG_VARIABLE,
            show_envvar=True,
            metavar="FILE",
            help="Read client options from FILE: Java properties, or TOML (*.toml).",
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
