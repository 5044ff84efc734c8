"""Options that commands have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from aiokafkawire.cli.running import BACKENDS

__all__ = ("PATIENCE_MS", "backend_option", "client_arguments", "quiet_option")

PATIENCE_MS = 15_000
"""How long the first contact may take (default_api_timeout_ms); somebody waits at a shell."""

F = TypeVar("F", bound=Callable[..., Any])


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


def client_arguments(function: F) -> F:
    """`-b`, `-X`, `-q` and `--backend`."""
    for option in (
        backend_option,
        quiet_option,
        click.option(
            "-X",
            "assignments",
            multiple=True,
            metavar="OPTION=VALUE",
            help="An option of the client, such as linger_ms=50. May be repeated.",
        ),
        click.option(
            "-b",
            "--brokers",
            required=True,
            metavar="HOST:PORT,…",
            help="Bootstrap servers.",
        ),
    ):
        function = option(function)
    return function
