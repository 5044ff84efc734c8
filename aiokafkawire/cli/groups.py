"""`aiokafkawire groups`: list, describe and delete groups, remove their members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from aiokafkawire.cli.admin_command import (
    AdminCommand,
    Changing,
    Errors,
    admin_command,
    changing,
    list_items,
    print_results,
    rows_table,
    split_errors,
    watch_option,
)
from aiokafkawire.cli.common_options import SuggestingGroup, json_option
from aiokafkawire.cli.error_text import CommandFailed
from aiokafkawire.cli.group_reports import (
    GroupReport,
    describe_groups,
    group_text,
    group_to_dict,
)
from aiokafkawire.cli.tables import json_line, pluralize

if TYPE_CHECKING:
    from aiokafkawire.admin import Admin, GroupListing

__all__ = ("groups",)

TYPES = ("Classic", "Consumer", "Share", "Streams")
STATES = (
    "Assigning",
    "CompletingRebalance",
    "Dead",
    "Empty",
    "NotReady",
    "PreparingRebalance",
    "Reconciling",
    "Stable",
)


@click.group(cls=SuggestingGroup, short_help="List, describe and delete groups.")
def groups() -> None:
    """List and describe groups with their lag, delete groups, and remove members.

    `aiokafkawire offsets` shows, resets and deletes their offsets.
    """


@groups.command("list", short_help="Print the groups of the cluster.")
@admin_command
@json_option
@watch_option
@click.option(
    "-l", "--long", "is_long", is_flag=True, help="Print type, state and protocol type too."
)
@click.option(
    "--type",
    "types",
    type=click.Choice(TYPES, case_sensitive=False),
    multiple=True,
    help="Only groups of this type. May be repeated.",
)
@click.option(
    "-s",
    "--state",
    "states",
    type=click.Choice(STATES, case_sensitive=False),
    multiple=True,
    help="Only groups in this state. May be repeated.",
)
def list_command(
    admin: AdminCommand,
    *,
    as_json: bool,
    watch_s: float | None,
    is_long: bool,
    types: tuple[str, ...],
    states: tuple[str, ...],
) -> int:
    """Print the groups of the cluster, one per line."""

    async def show(client: Admin) -> Errors:
        listed, errors = await list_items(client.list_groups(types=types, states=states))
        rows = [listing_to_dict(group) for group in listed]
        if as_json:
            await print_results("".join(map(json_line, rows)))
        elif is_long:
            await print_results(rows_table(rows))
        else:
            await print_results("".join(f"{group.group_id}\n" for group in listed))
        if not rows and not errors and not as_json:
            admin.note_empty("groups")
        return errors

    return admin.execute(show, watch_s=watch_s)


@groups.command("describe", short_help="Print state, members, and lag per partition.")
@admin_command
@json_option
@watch_option
@click.argument("names", nargs=-1, required=True, metavar="GROUP...")
def describe_command(
    admin: AdminCommand, *, as_json: bool, watch_s: float | None, names: tuple[str, ...]
) -> int:
    """Print state, members and assignment of the GROUPs, and for each partition the committed
    offset, the log end offset and the lag."""

    async def show(client: Admin) -> Errors:
        reports, errors = await describe_groups(client, names)
        if as_json:
            await print_results("".join(json_line(group_to_dict(each)) for each in reports))
        else:
            await print_results("\n".join(map(group_text, reports)))
        return errors

    return admin.execute(show, watch_s=watch_s)


@groups.command("delete", short_help="Delete groups and their offsets.")
@admin_command
@changing(confirms=True)
@click.argument("names", nargs=-1, required=True, metavar="GROUP...")
def delete_command(admin: AdminCommand, *, change: Changing, names: tuple[str, ...]) -> int:
    """Delete the GROUPs and their committed offsets. They must have no members."""
    count = pluralize(len(names), "group")
    change.confirm(f"Delete {count} with all committed offsets: {' '.join(names)}?")

    async def delete(client: Admin) -> Errors:
        if change.dry_run:
            reports, found_errors = await describe_groups(client, names)
            await change.show(
                {
                    "group": each.group_id,
                    "state": each.state,
                    "members": len(each.members),
                    "committed_offsets": sum(row.committed is not None for row in each.offsets),
                }
                for each in reports
            )
            return [*found_errors, *(_has_members(each) for each in reports if each.members)]
        # DeleteGroups is the same for groups of all types.
        results = await client.delete_consumer_groups(names, return_errors=True)
        deleted, errors = split_errors(results)
        await change.show({"group": name} for name in deleted)
        return errors

    return admin.execute(delete, has_output=change.has_output)


def _has_members(report: GroupReport) -> CommandFailed:
    count = pluralize(len(report.members), "member")
    return CommandFailed(f"group {report.group_id!r} has {count}: stop the group first")


@groups.command("remove-members", short_help="Remove members from a group.")
@admin_command
@click.option(
    "--instance",
    "instances",
    multiple=True,
    metavar="ID",
    help="Static member by its group.instance.id. May be repeated.  [default: all members]",
)
@click.option("--reason", default="", help="Reason for the logs of the brokers.")
@changing(confirms=True)
@click.argument("group")
def remove_members_command(
    admin: AdminCommand,
    *,
    instances: tuple[str, ...],
    reason: str,
    change: Changing,
    group: str,
) -> int:
    """Remove members from GROUP, such as static members that do not return.

    A consumer that still runs joins again.
    """
    whom = " ".join(instances) if instances else "all members"
    change.confirm(f"Remove {whom} from group {group}?")

    async def remove(client: Admin) -> Errors:
        if change.dry_run:
            (report,), errors = await _describe_one(client, group)
            members = [
                {
                    "member": each.group_instance_id or each.member_id,
                    "client_id": each.client_id,
                    "host": each.host,
                }
                for each in report.members
                if not instances or each.group_instance_id in instances
            ]
            await change.show(members)
            missing = {*instances} - {each["member"] for each in members}
            return [*errors, *(_no_member(group, each) for each in sorted(missing))]
        results = await client.remove_members_from_consumer_group(
            group, instances or None, reason=reason, return_errors=True
        )
        removed, failed = split_errors(results)
        await change.show({"member": each} for each in removed)
        return failed

    return admin.execute(remove, has_output=change.has_output)


async def _describe_one(client: Admin, group: str) -> tuple[list[GroupReport], Errors]:
    reports, errors = await describe_groups(client, [group])
    if not reports:
        raise errors[0]
    return reports, errors


def _no_member(group: str, instance: str) -> CommandFailed:
    return CommandFailed(
        f"group {group!r} has no static member {instance!r};"
        f" `aiokafkawire groups describe {group}` lists the members"
    )


def listing_to_dict(group: GroupListing) -> dict[str, Any]:
    """Return a group as in `groups list --json`; fields that old brokers do not report are None."""
    return {
        "group": group.group_id,
        "state": None if group.group_state is None else str(group.group_state),
        "protocol_type": group.protocol,
        "type": None if group.type is None else str(group.type),
    }
