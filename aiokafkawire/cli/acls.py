"""`aiokafkawire acls`: list, create and delete access control entries."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from aiokafkawire.cli.admin_command import (
    AdminCommand,
    Changing,
    Errors,
    admin_command,
    changing,
    split_errors,
)
from aiokafkawire.cli.common_options import SuggestingGroup, json_option
from aiokafkawire.errors import InvalidOption

if TYPE_CHECKING:
    from aiokafkawire.admin import AclBinding, AclBindingFilter, Admin

__all__ = ("acls",)

OPERATIONS = (
    "All",
    "Alter",
    "AlterConfigs",
    "ClusterAction",
    "Create",
    "CreateTokens",
    "Delete",
    "Describe",
    "DescribeConfigs",
    "DescribeTokens",
    "IdempotentWrite",
    "Read",
    "TwoPhaseCommit",
    "Write",
)
PATTERNS = ("literal", "prefixed", "match", "any")
CLUSTER_NAME = "kafka-cluster"

F = TypeVar("F", bound=Callable[..., Any])


class Selection(NamedTuple):
    """Resources and entries that the options of a command name; an empty one is not restricted."""

    resources: tuple[tuple[str, str], ...]
    """Type and name of each resource."""

    principals: tuple[str, ...]
    operations: tuple[str, ...]
    hosts: tuple[str, ...]
    deny: bool
    allow: bool


@click.group(cls=SuggestingGroup, short_help="List, create and delete access control entries.")
def acls() -> None:
    """List, create and delete access control entries (ACLs)."""


def _selecting(function: F) -> F:
    """Add the options of a `Selection`, which the function gets in the argument `selection`."""

    @functools.wraps(function)
    def command(*positional: Any, **others: Any) -> Any:
        resources = [
            (kind, name)
            for kind in ("topic", "group", "transactional_id", "delegation_token", "user")
            for name in others.pop(kind)
        ]
        if others.pop("cluster"):
            resources.append(("cluster", CLUSTER_NAME))
        selection = Selection(
            tuple(resources),
            others.pop("principals"),
            others.pop("operations"),
            others.pop("hosts"),
            others.pop("deny"),
            others.pop("allow"),
        )
        return function(*positional, selection=selection, **others)

    decorated: Any = command
    for option in reversed(_selection_options()):
        decorated = option(decorated)
    result: F = decorated
    return result


def _selection_options() -> list[Callable[[F], F]]:
    def names(flag: str, what: str, **settings: Any) -> Callable[[F], F]:
        text = f"{what}. May be repeated."
        return click.option(*flag.split(), multiple=True, metavar="NAME", help=text, **settings)

    return [
        names("-t --topic", "Topic"),
        names("-g --group", "Group"),
        click.option("--cluster", is_flag=True, help="The cluster itself."),
        names("--transactional-id", "Transactional id"),
        names("--delegation-token", "Owner of delegation tokens"),
        names("--user", "User whose tokens and credentials are managed"),
        click.option(
            "--principal",
            "principals",
            multiple=True,
            metavar="TYPE:NAME",
            help="Principal, such as User:alice. May be repeated.",
        ),
        click.option(
            "--operation",
            "operations",
            type=click.Choice(OPERATIONS, case_sensitive=False),
            multiple=True,
            help="Operation. May be repeated.",
        ),
        click.option(
            "--host",
            "hosts",
            multiple=True,
            metavar="ADDRESS",
            help="Address of the client. May be repeated.",
        ),
        click.option("--deny", is_flag=True, help="Entries that deny."),
        click.option("--allow", is_flag=True, help="Entries that allow."),
    ]


def _pattern_option(default: str, choices: Sequence[str]) -> Callable[[F], F]:
    return click.option(
        "--pattern",
        type=click.Choice(choices),
        default=default,
        show_default=True,
        help="Names are literal or prefixed; match also finds prefixes and * that apply to a name.",
    )


@acls.command("list", short_help="Print access control entries.")
@admin_command
@json_option
@_pattern_option("any", PATTERNS)
@_selecting
def list_command(admin: AdminCommand, *, as_json: bool, pattern: str, selection: Selection) -> int:
    """Print the access control entries that match all options."""

    async def show(client: Admin) -> Errors:
        found: dict[AclBinding, None] = {}
        for each in _filters(selection, pattern):
            found |= dict.fromkeys(await client.describe_acls(each))
        await admin.print_rows(
            map(binding_to_dict, sorted(found)), "access control entries", as_json=as_json
        )
        return ()

    return admin.execute(show)


@acls.command("create", short_help="Create access control entries.")
@admin_command
@_pattern_option("literal", PATTERNS[:2])
@_selecting
@changing(confirms=False)
def create_command(
    admin: AdminCommand, *, pattern: str, selection: Selection, change: Changing
) -> int:
    """Create an access control entry for each principal, operation and resource.

    The entries allow, or with --deny they deny. Those that exist already stay as they are.
    """
    if not (selection.resources and selection.principals and selection.operations):
        raise InvalidOption(
            "give a resource (--topic, --group, …), --principal and --operation at least once"
        )
    if selection.allow and selection.deny:
        raise InvalidOption("--allow and --deny exclude each other")
    for principal in selection.principals:
        if ":" not in principal:
            raise InvalidOption(f"--principal {principal!r} has no type: give User:{principal}")

    async def create(client: Admin) -> Errors:
        bindings = _bindings(selection, pattern)
        created, errors = list(bindings), list[Exception]()
        if not change.dry_run:
            results = await client.create_acls(bindings, return_errors=True)
            done, failed = split_errors(results)
            created, errors = list(done), [*failed]
        await change.show(map(binding_to_dict, created))
        return errors

    return admin.execute(create, has_output=change.has_output)


@acls.command("delete", short_help="Delete access control entries.")
@admin_command
@_pattern_option("any", PATTERNS)
@_selecting
@changing(confirms=True)
def delete_command(
    admin: AdminCommand, *, pattern: str, selection: Selection, change: Changing
) -> int:
    """Delete the access control entries that match all options, and print them.

    At least one option must select them.
    """
    if not any(selection):
        raise InvalidOption("give at least one option that selects entries")
    shown = ", ".join(_option_values(selection))
    change.confirm(f"Delete the access control entries that match {shown}?")

    async def delete(client: Admin) -> Errors:
        filters = _filters(selection, pattern)
        found: dict[AclBinding, None] = {}
        errors: list[Exception] = []
        if change.dry_run:
            for each in filters:
                found |= dict.fromkeys(await client.describe_acls(each))
        else:
            deleted, failed = split_errors(await client.delete_acls(filters, return_errors=True))
            found = {binding: None for bindings in deleted.values() for binding in bindings}
            errors.extend(failed)
        await change.show(map(binding_to_dict, sorted(found)), always=True)
        if not found and not errors:
            admin.note_empty("access control entries")
        return errors

    return admin.execute(delete)


def _option_values(selection: Selection) -> list[str]:
    return [
        *(f"{kind} {name}" for kind, name in selection.resources),
        *selection.principals,
        *selection.operations,
        *selection.hosts,
        *(["deny"] if selection.deny else []),
        *(["allow"] if selection.allow else []),
    ]


def _bindings(selection: Selection, pattern: str) -> list[AclBinding]:
    from aiokafkawire.admin import (  # noqa: PLC0415 - it imports every message
        AclBinding,
        AclPermissionType,
        PatternType,
        ResourceType,
    )

    permission = AclPermissionType.DENY if selection.deny else AclPermissionType.ALLOW
    return [
        AclBinding(
            ResourceType[kind.upper()],
            name,
            principal,
            _operation(operation),
            permission,
            PatternType.LITERAL if kind == "cluster" else PatternType[pattern.upper()],
            host,
        )
        for kind, name in selection.resources
        for principal in selection.principals
        for operation in selection.operations
        for host in selection.hosts or ("*",)
    ]


def _filters(selection: Selection, pattern: str) -> list[AclBindingFilter]:
    """Return a filter for each combination of the options."""
    from aiokafkawire.admin import (  # noqa: PLC0415 - it imports every message
        AclBindingFilter,
        AclPermissionType,
        PatternType,
        ResourceType,
    )

    permission = AclPermissionType.ANY
    if selection.allow != selection.deny:
        permission = AclPermissionType.DENY if selection.deny else AclPermissionType.ALLOW
    return [
        AclBindingFilter(
            ResourceType[kind.upper()],
            name,
            PatternType[pattern.upper()],
            principal,
            host,
            _operation(operation),
            permission,
        )
        for kind, name in selection.resources or (("any", None),)
        for principal in selection.principals or (None,)
        for host in selection.hosts or (None,)
        for operation in selection.operations or ("any",)
    ]


def _operation(name: str) -> Any:
    from aiokafkawire.admin import AclOperation  # noqa: PLC0415 - it imports every message

    wanted = name.lower()
    return next(each for each in AclOperation if each.name.replace("_", "").lower() == wanted)


def binding_to_dict(binding: AclBinding) -> dict[str, Any]:
    """Return an access control entry as in `acls list --json`."""
    return {
        "resource_type": binding.resource_type.name.lower(),
        "resource": binding.name,
        "pattern": binding.pattern_type.name.lower(),
        "principal": binding.principal,
        "host": binding.host,
        "operation": _camel(binding.operation.name),
        "permission": binding.permission_type.name.lower(),
    }


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))
