"""`aiokafkawire configs`: describe, set and delete configs of topics, brokers and others."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from aiokafkawire.cli.admin_command import (
    AdminCommand,
    Changing,
    Errors,
    admin_command,
    changing,
    print_results,
    split_errors,
)
from aiokafkawire.cli.common_options import SuggestingGroup, json_option
from aiokafkawire.cli.tables import format_table, json_line, pluralize
from aiokafkawire.errors import InvalidOption

if TYPE_CHECKING:
    from aiokafkawire.admin import Admin, AlterConfigOp, ConfigEntry, ConfigResource

__all__ = ("configs", "parse_config", "set_entries")

RESOURCES = {
    "topic": "Topic",
    "broker": "Node id of a broker",
    "broker-logger": "Node id of a broker, for the levels of its loggers",
    "group": "Group",
    "client-metrics": "Client metrics subscription",
}
"""Options that name resources, and what they are; the types are those of `ConfigResourceType`."""

UNSET_SOURCES = frozenset({"DEFAULT_CONFIG", "STATIC_BROKER_CONFIG", "UNKNOWN"})
"""Sources of values that no client has set."""

TOPIC_SOURCE = "DYNAMIC_TOPIC_CONFIG"
"""Source of values that are set on a topic; it inherits others from the brokers."""

F = TypeVar("F", bound=Callable[..., Any])
Resources = list[tuple[str, str]]
"""Type and name of each resource."""


@click.group(cls=SuggestingGroup, short_help="Describe, set and delete configs.")
def configs() -> None:
    """Describe, set and delete the configs of topics, brokers, groups and client metrics."""


def _resource_options(function: F) -> F:
    """Add the options that name resources, which the function gets in the argument `resources`."""

    @functools.wraps(function)
    def command(*positional: Any, **others: Any) -> Any:
        resources = [
            (kind, name) for kind in RESOURCES for name in others.pop(kind.replace("-", "_"))
        ]
        if others.pop("broker_defaults"):
            resources.append(("broker", ""))
        if not resources:
            raise InvalidOption(
                "give a resource: --topic, --broker, --broker-defaults, --broker-logger, --group or"
                " --client-metrics"
            )
        return function(*positional, resources=resources, **others)

    decorated: Any = click.option(
        "--broker-defaults", is_flag=True, help="The defaults of all brokers."
    )(command)
    for kind, what in reversed(RESOURCES.items()):
        flags = {"topic": ["-t"], "group": ["-g"]}.get(kind, [])
        decorated = click.option(
            *flags, f"--{kind}", multiple=True, metavar="NAME", help=f"{what}. May be repeated."
        )(decorated)
    result: F = decorated
    return result


@configs.command("describe", short_help="Print configs.")
@admin_command
@json_option
@click.option("-a", "--all", "shows_all", is_flag=True, help="Include defaults and static configs.")
@_resource_options
def describe_command(
    admin: AdminCommand, *, as_json: bool, shows_all: bool, resources: Resources
) -> int:
    """Print the configs that are set on the resources, or with --all every config."""

    async def show(client: Admin) -> Errors:
        wanted = [_resource(kind, name) for kind, name in resources]
        results = await client.describe_configs(wanted, return_errors=True)
        found, errors = split_errors(results)
        shown = [
            resource_to_dict(resource, entries if shows_all else set_entries(resource, entries))
            for resource, entries in found.items()
        ]
        if as_json:
            await print_results("".join(map(json_line, shown)))
        else:
            await print_results("\n".join(map(_resource_text, shown)))
        return errors

    return admin.execute(show)


@configs.command("set", short_help="Set configs.")
@admin_command
@_resource_options
@click.option(
    "--append",
    "appended",
    multiple=True,
    metavar="NAME=VALUE",
    help="Add a value to a list, such as cleanup.policy. May be repeated.",
)
@click.option(
    "--subtract",
    "subtracted",
    multiple=True,
    metavar="NAME=VALUE",
    help="Remove a value from a list. May be repeated.",
)
@changing(confirms=False)
@click.argument("settings", nargs=-1, metavar="[NAME=VALUE]...")
def set_command(
    admin: AdminCommand,
    *,
    resources: Resources,
    appended: tuple[str, ...],
    subtracted: tuple[str, ...],
    change: Changing,
    settings: tuple[str, ...],
) -> int:
    """Set configs of the resources; all others stay as they are."""
    given = [("SET", settings), ("APPEND", appended), ("SUBTRACT", subtracted)]
    operations = [(kind, *parse_config(setting)) for kind, texts in given for setting in texts]
    if not operations:
        raise InvalidOption("give at least one NAME=VALUE")
    return _alter(admin, change, resources, operations)


@configs.command("delete", short_help="Reset configs to their defaults.")
@admin_command
@_resource_options
@changing(confirms=False)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def delete_command(
    admin: AdminCommand, *, resources: Resources, change: Changing, names: tuple[str, ...]
) -> int:
    """Reset configs of the resources to their defaults."""
    return _alter(admin, change, resources, [("DELETE", name, None) for name in names])


def _alter(
    admin: AdminCommand,
    change: Changing,
    resources: Resources,
    operations: Sequence[tuple[str, str, str | None]],
) -> int:
    async def alter(client: Admin) -> Errors:
        wanted = [_resource(kind, name) for kind, name in resources]
        results = await client.incremental_alter_configs(
            dict.fromkeys(wanted, _operations(operations)),
            validate_only=change.dry_run,
            return_errors=True,
        )
        changed, errors = split_errors(results)
        await change.show(
            {
                **_resource_names(resource),
                "config": name,
                "operation": kind.lower(),
                "value": value,
            }
            for resource in changed
            for kind, name, value in operations
        )
        return errors

    return admin.execute(alter, has_output=change.has_output)


def _operations(operations: Iterable[tuple[str, str, str | None]]) -> list[AlterConfigOp]:
    from aiokafkawire.admin import (  # noqa: PLC0415 - it imports every message
        AlterConfigOp,
        AlterConfigOpType,
    )

    return [AlterConfigOp(name, value, AlterConfigOpType[kind]) for kind, name, value in operations]


def parse_config(setting: str, option: str = "") -> tuple[str, str]:
    """Parse NAME=VALUE; `option` precedes it in the error. Raises `InvalidOption`."""
    name, equals, value = setting.partition("=")
    if not equals or not name:
        raise InvalidOption(f"{option}{setting!r} is not of the form NAME=VALUE")
    return name, value


def _resource(kind: str, name: str) -> ConfigResource:
    from aiokafkawire.admin import (  # noqa: PLC0415 - it imports every message
        ConfigResource,
        ConfigResourceType,
    )

    return ConfigResource(ConfigResourceType[kind.upper().replace("-", "_")], name)


# --- output ----------------------------------------------------------------------------------


def set_entries(
    resource: ConfigResource, entries: Mapping[str, ConfigEntry]
) -> dict[str, ConfigEntry]:
    """Return the configs that clients have set on a resource, by name in order."""
    is_topic = resource.type.name == "TOPIC"
    return {
        name: entry
        for name, entry in sorted(entries.items())
        if (entry.source.name == TOPIC_SOURCE if is_topic else _is_set(entry))
    }


def _is_set(entry: ConfigEntry) -> bool:
    return entry.source.name not in UNSET_SOURCES


def _resource_names(resource: ConfigResource) -> dict[str, str | None]:
    return {
        "resource_type": resource.type.name.lower().replace("_", "-"),
        "resource": resource.name or None,
    }


def resource_to_dict(
    resource: ConfigResource, entries: Mapping[str, ConfigEntry]
) -> dict[str, Any]:
    """Return a resource as in `configs describe --json`; the value of a secret is None."""
    return {
        **_resource_names(resource),
        "configs": [
            {
                "config": entry.name,
                "value": entry.value,
                "source": entry.source.name.lower(),
                "read_only": entry.is_read_only,
                "sensitive": entry.is_sensitive,
            }
            for _, entry in sorted(entries.items())
        ],
    }


def _resource_text(shown: Mapping[str, Any]) -> str:
    """Return the result of `resource_to_dict` as `configs describe` prints it."""
    name = "defaults" if shown["resource"] is None else shown["resource"]
    text = f"{shown['resource_type']} {name}: {pluralize(len(shown['configs']), 'config')}\n"
    if not shown["configs"]:
        return text
    rows = [
        (
            each["config"],
            "(secret)" if each["sensitive"] else each["value"],
            each["source"].replace("_", " "),
        )
        for each in shown["configs"]
    ]
    return text + format_table(("config", "value", "source"), rows, "  ")
