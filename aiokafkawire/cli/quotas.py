"""`aiokafkawire quotas`: list, set and delete client quotas (KIP-546)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from aiokafkawire.cli.admin_command import (
    AdminCommand,
    Changing,
    Errors,
    admin_command,
    changing,
)
from aiokafkawire.cli.common_options import SuggestingGroup, json_option
from aiokafkawire.errors import InvalidOption

if TYPE_CHECKING:
    from aiokafkawire.admin import Admin

__all__ = ("quotas",)

ENTITY_TYPES = ("user", "client-id", "ip")

F = TypeVar("F", bound=Callable[..., Any])
Entity = dict[str, str | None]
"""Name by entity type; None is the default entity of the type."""


@click.group(cls=SuggestingGroup, short_help="List, set and delete client quotas.")
def quotas() -> None:
    """List, set and delete client quotas. Needs Kafka 2.6 or later."""


def _entity_options(function: F) -> F:
    """Add the options that name an entity, which the function gets in the argument `entity`."""

    @functools.wraps(function)
    def command(*positional: Any, **others: Any) -> Any:
        entity: Entity = {}
        for kind in ENTITY_TYPES:
            argument = kind.replace("-", "_")
            name, is_default = others.pop(argument), others.pop(f"{argument}_default")
            if name is not None and is_default:
                raise InvalidOption(f"--{kind} and --{kind}-default exclude each other")
            if name is not None or is_default:
                entity[kind] = name
        return function(*positional, entity=entity, **others)

    decorated: Any = command
    for kind in reversed(ENTITY_TYPES):
        what = {"user": "User", "client-id": "Client id", "ip": "IP address"}[kind]
        for option in (
            click.option(f"--{kind}-default", is_flag=True, help=f"Default of every {kind}."),
            click.option(f"--{kind}", metavar="NAME", help=f"{what} that the quotas apply to."),
        ):
            decorated = option(decorated)
    result: F = decorated
    return result


@quotas.command("list", short_help="Print client quotas.")
@admin_command
@json_option
@click.option("--strict", is_flag=True, help="Leave out entities of further types.")
@_entity_options
def list_command(admin: AdminCommand, *, as_json: bool, strict: bool, entity: Entity) -> int:
    """Print the quotas of all entities, or of those that match the options."""

    async def show(client: Admin) -> Errors:
        from aiokafkawire.admin import (  # noqa: PLC0415 - it imports every message
            ClientQuotaFilterComponent,
            QuotaMatch,
        )

        found = await client.describe_client_quotas(
            [
                ClientQuotaFilterComponent(kind, QuotaMatch.DEFAULT if name is None else name)
                for kind, name in entity.items()
            ],
            strict=strict,
        )
        rows = [
            {**_entity_to_dict(each.entries), "quota": name, "value": value}
            for each, values in found.items()
            for name, value in sorted(values.items())
        ]
        await admin.print_rows(rows, "quotas", as_json=as_json)
        return ()

    return admin.execute(show)


@quotas.command("set", short_help="Set quotas of an entity.")
@admin_command
@_entity_options
@changing(confirms=False)
@click.argument("settings", nargs=-1, required=True, metavar="QUOTA=VALUE...")
def set_command(
    admin: AdminCommand, *, entity: Entity, change: Changing, settings: tuple[str, ...]
) -> int:
    """Set quotas, such as producer_byte_rate=1048576, of a user, client id or IP address."""
    return _alter(admin, change, entity, dict(map(_parse_setting, settings)))


@quotas.command("delete", short_help="Remove quotas of an entity.")
@admin_command
@_entity_options
@changing(confirms=False)
@click.argument("names", nargs=-1, required=True, metavar="QUOTA...")
def delete_command(
    admin: AdminCommand, *, entity: Entity, change: Changing, names: tuple[str, ...]
) -> int:
    """Remove quotas, such as producer_byte_rate, of a user, client id or IP address."""
    return _alter(admin, change, entity, dict.fromkeys(names))


def _alter(
    admin: AdminCommand, change: Changing, entity: Entity, values: Mapping[str, float | None]
) -> int:
    if not entity:
        raise InvalidOption("give --user, --client-id or --ip, or the default of one")

    async def alter(client: Admin) -> Errors:
        from aiokafkawire.admin import (  # noqa: PLC0415 - it imports every message
            ClientQuotaAlteration,
            ClientQuotaEntity,
        )

        alteration = ClientQuotaAlteration(ClientQuotaEntity(entity), values)
        await client.alter_client_quotas([alteration], validate_only=change.dry_run)
        await change.show(
            {**_entity_to_dict(entity), "quota": name, "value": value}
            for name, value in values.items()
        )
        return ()

    return admin.execute(alter, has_output=change.has_output)


def _parse_setting(setting: str) -> tuple[str, float]:
    name, equals, text = setting.partition("=")
    try:
        if not name or not equals:
            raise ValueError
        return name, float(text)
    except ValueError:
        raise InvalidOption(
            f"{setting!r} is not of the form quota=number, as producer_byte_rate=1048576"
        ) from None


def _entity_to_dict(entity: Mapping[str, str | None] | Iterable[tuple[str, str | None]]) -> Any:
    """Return an entity as in `quotas list --json`: "<default>" is the default of a type."""
    names = dict(entity)
    return {
        kind.replace("-", "_"): ("<default>" if names[kind] is None else names[kind])
        if kind in names
        else None
        for kind in ENTITY_TYPES
    }
