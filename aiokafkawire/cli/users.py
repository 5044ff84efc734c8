"""`aiokafkawire users`: list, set and delete SCRAM credentials."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from aiokafkawire.cli.admin_command import (
    AdminCommand,
    Changing,
    Errors,
    admin_command,
    changing,
    split_errors,
)
from aiokafkawire.cli.common_options import IntegerRange, SuggestingGroup, json_option
from aiokafkawire.errors import BrokerError, InvalidOption, KafkaError
from aiokafkawire.wire import ErrorCode

if TYPE_CHECKING:
    from aiokafkawire.admin import Admin, ScramCredentialInfo, ScramMechanism

__all__ = ("users",)

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORD_VARIABLE = "AIOKAFKAWIRE_NEW_PASSWORD"
MAX_PASSWORD_CHARACTERS = 4_096


@click.group(cls=SuggestingGroup, short_help="List, set and delete SCRAM credentials.")
def users() -> None:
    """List, set and delete SCRAM credentials of users. Needs Kafka 2.7 or later."""


@users.command("list", short_help="Print users with SCRAM credentials.")
@admin_command
@json_option
@click.argument("names", nargs=-1, metavar="[USER]...")
def list_command(admin: AdminCommand, *, as_json: bool, names: tuple[str, ...]) -> int:
    """Print the SCRAM mechanisms and iterations of the USERs, or of all users."""

    async def show(client: Admin) -> Errors:
        results = await client.describe_user_scram_credentials(names or None, return_errors=True)
        found, errors = split_errors(results)
        rows = [
            {"user": user, **_credential_to_dict(each)}
            for user, credentials in sorted(found.items())
            for each in credentials
        ]
        await admin.print_rows(rows, "users with SCRAM credentials", as_json=as_json, errors=errors)
        return errors

    return admin.execute(show)


@users.command("set", short_help="Create or replace a user's SCRAM credential.")
@admin_command
@click.option(
    "-m",
    "--mechanism",
    "mechanisms",
    type=click.Choice(MECHANISMS),
    multiple=True,
    help="Mechanism. May be repeated.  [default: both]",
)
@click.option(
    "--iterations",
    type=IntegerRange(min=4_096, max=16_384),
    default=4_096,
    show_default=True,
    help="Iterations of the hash.",
)
@changing(confirms=False)
@click.argument("name", metavar="USER")
def set_command(
    admin: AdminCommand,
    *,
    mechanisms: tuple[str, ...],
    iterations: int,
    change: Changing,
    name: str,
) -> int:
    """Create or replace the SCRAM credentials of USER.

    The password is the environment variable AIOKAFKAWIRE_NEW_PASSWORD, or the first line of stdin;
    a terminal asks for it. It does not leave this machine.
    """
    wanted = mechanisms or MECHANISMS
    password = "" if change.dry_run else _read_password(name)

    async def create(client: Admin) -> Errors:
        from aiokafkawire.admin import UserScramCredentialUpsertion  # noqa: PLC0415 - messages

        # A request may change a user once only.
        for each in () if change.dry_run else wanted:
            mechanism = _mechanism(each)
            await client.alter_user_scram_credentials(
                [UserScramCredentialUpsertion(name, mechanism, password, iterations)]
            )
        await change.show(
            {"user": name, "mechanism": each, "iterations": iterations} for each in wanted
        )
        return ()

    return admin.execute(create, has_output=change.has_output)


def _read_password(user: str) -> str:
    """Return the new password. Raises `InvalidOption` if it is empty."""
    password = os.environ.get(PASSWORD_VARIABLE, "")
    if not password and sys.stdin.isatty():
        text = f"New password of {user}"
        password = click.prompt(text, hide_input=True, confirmation_prompt=True, err=True)
    elif not password:
        password = sys.stdin.readline(MAX_PASSWORD_CHARACTERS).rstrip("\r\n")
    if not password:
        raise InvalidOption(
            f"the password is missing: give it in {PASSWORD_VARIABLE}, or as a line of stdin"
        )
    return password


@users.command("delete", short_help="Delete SCRAM credentials of users.")
@admin_command
@click.option(
    "-m",
    "--mechanism",
    "mechanisms",
    type=click.Choice(MECHANISMS),
    multiple=True,
    help="Mechanism. May be repeated.  [default: all that the user has]",
)
@changing(confirms=True)
@click.argument("names", nargs=-1, required=True, metavar="USER...")
def delete_command(
    admin: AdminCommand, *, mechanisms: tuple[str, ...], change: Changing, names: tuple[str, ...]
) -> int:
    """Delete SCRAM credentials of the USERs, who can then no longer authenticate with them."""
    change.confirm(f"Delete SCRAM credentials of {' '.join(names)}?")

    async def delete(client: Admin) -> Errors:
        results = await client.describe_user_scram_credentials(names, return_errors=True)
        found, errors = split_errors(results)
        rows: list[dict[str, Any]] = []
        for user, credentials in found.items():
            chosen = [each for each in credentials if not mechanisms or _name(each) in mechanisms]
            if not chosen:
                errors.append(_no_credential(user))
            failed = [] if change.dry_run else await _delete(client, user, chosen)
            errors.extend(failed)
            if not failed:
                rows.extend({"user": user, **_credential_to_dict(each)} for each in chosen)
        await change.show(rows)
        return errors

    return admin.execute(delete, has_output=change.has_output)


async def _delete(
    client: Admin, user: str, credentials: Sequence[ScramCredentialInfo]
) -> list[KafkaError]:
    from aiokafkawire.admin import UserScramCredentialDeletion  # noqa: PLC0415 - messages

    for each in credentials:
        # A request may change a user once only.
        results = await client.alter_user_scram_credentials(
            [UserScramCredentialDeletion(user, each.mechanism)], return_errors=True
        )
        errors = split_errors(results)[1]
        if errors:
            return errors
    return []


def _no_credential(user: str) -> BrokerError:
    code = ErrorCode.RESOURCE_NOT_FOUND
    return BrokerError(
        f"user {user!r} has no SCRAM credential of this mechanism", code=code, name=code.name
    )


def _mechanism(name: str) -> ScramMechanism:
    from aiokafkawire.admin import ScramMechanism  # noqa: PLC0415 - it imports every message

    return ScramMechanism[name.replace("-", "_")]


def _name(credential: ScramCredentialInfo) -> str:
    return credential.mechanism.name.replace("_", "-")


def _credential_to_dict(credential: ScramCredentialInfo) -> dict[str, Any]:
    """Return a credential as in `users list --json`."""
    return {"mechanism": _name(credential), "iterations": credential.iterations}
