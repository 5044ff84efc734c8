"""`aiokafkawire groups`: list and describe groups, delete them, reset and delete offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from aiokafkawire.cli import group_requests as requests
from aiokafkawire.cli.arguments import OffsetArgument, OffsetKind, parse_offset, require_one_topic
from aiokafkawire.cli.client_session import (
    AdminCommand,
    ClientSession,
    admin_command,
    print_results,
    require_topics,
)
from aiokafkawire.cli.common_options import IntegerRange, SuggestingGroup, json_option
from aiokafkawire.cli.consume_plan import format_partitions
from aiokafkawire.cli.error_text import CommandFailed
from aiokafkawire.cli.group_requests import GroupDescription
from aiokafkawire.cli.tables import format_table, json_line, pluralize
from aiokafkawire.errors import InvalidOption
from aiokafkawire.types import TopicPartition, no_partition_text
from aiokafkawire.wire.messages.list_groups import ListedGroup

__all__ = ("groups",)

Errors = Sequence[Exception]


@click.group(cls=SuggestingGroup, short_help="List, describe, reset and delete groups.")
def groups() -> None:
    """List and describe groups with their lag; reset and delete their offsets."""


@groups.command("list", short_help="Print the groups of the cluster.")
@admin_command
@json_option
def list_command(admin: AdminCommand, *, as_json: bool) -> int:
    """Print the groups of the cluster, one per line."""

    async def show(session: ClientSession) -> Errors:
        listed, failed = await requests.list_groups(session)
        if not listed and not failed and not as_json:
            admin.note_empty("groups")
        lines = [
            json_line(listing_to_dict(group)) if as_json else f"{group.group_id}\n"
            for group in listed
        ]
        await print_results("".join(lines))
        return failed

    return admin.execute(show)


@groups.command("describe", short_help="Print state, members, and lag per partition.")
@admin_command
@json_option
@click.argument("names", nargs=-1, required=True, metavar="GROUP...")
def describe_command(
    admin: AdminCommand,
    *,
    as_json: bool,
    names: tuple[str, ...],
) -> int:
    """Print state, members and assignment of the GROUPs, and for each partition the committed
    offset, the log end offset and the lag."""

    async def show(session: ClientSession) -> Errors:
        descriptions = [
            await requests.describe_group(session, name) for name in dict.fromkeys(names)
        ]
        if as_json:
            await print_results(
                "".join(json_line(group_to_dict(description)) for description in descriptions)
            )
        else:
            await print_results("\n".join(map(group_text, descriptions)))
        return ()

    return admin.execute(show, all_topics=True)


@groups.command("delete", short_help="Delete groups and their offsets.")
@admin_command
@click.argument("names", nargs=-1, required=True, metavar="GROUP...")
def delete_command(
    admin: AdminCommand,
    *,
    names: tuple[str, ...],
) -> int:
    """Delete the GROUPs and their committed offsets. They must have no members."""

    async def change(session: ClientSession) -> Errors:
        return await requests.delete_groups(session, names)

    return admin.execute(change, has_output=False)


@groups.command("reset-offsets", short_help="Set the committed offsets of a group.")
@admin_command
@json_option
@click.option("-t", "--topic", help="Topic; the same as TOPIC.")
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=IntegerRange(min=0),
    multiple=True,
    help="Partition. May be repeated.  [default: all]",
)
@click.option(
    "-o",
    "--offset",
    required=True,
    metavar="OFFSET",
    help="beginning, end, N, -N (N before the end), s@TIME (2026-11-24T10:00:00Z, or"
    " milliseconds since 1970).",
)
@click.option("--dry-run", is_flag=True, help="Print the offsets without committing them.")
@click.argument("group")
@click.argument("topics", nargs=-1, metavar="[TOPIC]")
def reset_command(
    admin: AdminCommand,
    *,
    as_json: bool,
    topic: str | None,
    partitions: tuple[int, ...],
    offset: str,
    dry_run: bool,
    group: str,
    topics: tuple[str, ...],
) -> int:
    """Commit offsets of TOPIC for GROUP, which must have no members, and print them."""
    target = parse_reset_offset(offset)
    usage = "reset-offsets GROUP TOPIC"
    name = require_one_topic(topic, topics, "reset the offsets of one topic at a time", usage)

    async def change(session: ClientSession) -> Errors:
        selected = select_partitions(session, name, partitions)
        offsets = await requests.resolve_offsets(session, selected, target)
        missing = [tp for tp in selected if tp not in offsets]
        if missing:
            raise CommandFailed(f"{format_partitions(missing)} have no leader: try again later")
        if not dry_run:
            errors = await requests.reset_offsets(session, group, offsets)
            if errors:
                return errors
        rows = [(tp.topic, tp.partition, offset) for tp, offset in offsets.items()]
        heads = ("topic", "partition", "offset")
        if as_json:
            await print_results(
                "".join(json_line(dict(zip(heads, row, strict=True))) for row in rows)
            )
        else:
            await print_results(format_table(heads, rows))
        return ()

    return admin.execute(change, all_topics=True)


@groups.command("delete-offsets", short_help="Delete the committed offsets of a group.")
@admin_command
@click.argument("group")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
def delete_offsets_command(
    admin: AdminCommand,
    *,
    group: str,
    topics: tuple[str, ...],
) -> int:
    """Delete the committed offsets of GROUP for the TOPICs. No member may be subscribed to them."""

    async def change(session: ClientSession) -> Errors:
        require_topics(session, topics)
        selected = [
            tp for name in dict.fromkeys(topics) for tp in select_partitions(session, name, ())
        ]
        return await requests.delete_offsets(session, group, selected)

    return admin.execute(change, all_topics=True, has_output=False)


def select_partitions(
    session: ClientSession, topic: str, partitions: Sequence[int]
) -> list[TopicPartition]:
    """Return some or all partitions of a topic. Raises `CommandFailed` for a missing partition."""
    require_topics(session, [topic])
    known = session.cluster.metadata.topics[topic].partitions
    for number in partitions:
        if number not in known:
            raise CommandFailed(no_partition_text(topic, number, known))
    return [TopicPartition(topic, number) for number in sorted({*partitions} or known)]


def parse_reset_offset(text: str) -> OffsetArgument:
    """Parse the value of `-o`. Raises `InvalidOption`."""
    target = parse_offset(text)
    if target.kind in {OffsetKind.STORED, OffsetKind.UNTIL_TIME}:
        raise InvalidOption(f"-o {text!r} is no start offset: give beginning, end, N, -N or s@TIME")
    return target


# --- output ----------------------------------------------------------------------------------


def listing_to_dict(group: ListedGroup) -> dict[str, Any]:
    """Return a group as in `groups list --json`; fields that old brokers do not report are None."""
    return {
        "group": group.group_id,
        "state": group.group_state or None,
        "protocol_type": group.protocol_type,
        "type": group.group_type or None,
    }


def group_to_dict(group: GroupDescription) -> dict[str, Any]:
    """Return a group as in `groups describe --json`."""
    return {
        "group": group.group_id,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol,
        "coordinator": group.coordinator,
        "lag": group.lag,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "partitions": [tp._asdict() for tp in member.partitions],
            }
            for member in group.members
        ],
        "offsets": [
            {
                **each.partition._asdict(),
                "committed": each.committed,
                "end": each.end,
                "lag": each.lag,
                "member_id": each.member_id,
            }
            for each in group.offsets
        ],
    }


def group_text(group: GroupDescription) -> str:
    """Return a group as `groups describe` prints it."""
    protocol = f", {group.protocol}" if group.protocol else ""
    count = pluralize(len(group.members), "member")
    head = f"{group.group_id}: {group.state}{protocol}, coordinator {group.coordinator}, {count}"
    text = f"{head}, lag {group.lag}\n"
    if group.offsets:
        names: dict[str | None, int] = {
            member.member_id: number for number, member in enumerate(group.members, 1)
        }
        text += format_table(
            ("topic", "partition", "committed", "end", "lag", "member"),
            [
                (*each.partition, each.committed, each.end, each.lag, names.get(each.member_id))
                for each in group.offsets
            ],
            "  ",
        )
    if group.members:
        text += "\n" + format_table(
            ("member", "id", "instance", "client", "host", "partitions"),
            [
                (
                    number,
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.host,
                    format_partitions(member.partitions),
                )
                for number, member in enumerate(group.members, 1)
            ],
            "  ",
        )
    return text
