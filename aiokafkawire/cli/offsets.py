"""`aiokafkawire offsets`: show, reset and delete offsets of groups, list those of partitions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from aiokafkawire.cli.admin_command import (
    AdminCommand,
    Changing,
    Errors,
    admin_command,
    changing,
    split_errors,
    watch_option,
)
from aiokafkawire.cli.arguments import OffsetArgument, OffsetKind, parse_offset
from aiokafkawire.cli.common_options import SuggestingGroup, json_option
from aiokafkawire.cli.error_text import CommandFailed
from aiokafkawire.cli.partition_arguments import (
    OPTIONAL_PARTITIONS,
    PARTITIONS_METAVAR,
    PartitionArgument,
    expand_partitions,
    parse_partitions,
)
from aiokafkawire.cli.tables import pluralize
from aiokafkawire.errors import InvalidOption, PartialFailure
from aiokafkawire.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokafkawire.admin import Admin, OffsetReset

__all__ = ("offsets",)

Resets = dict[TopicPartition, "OffsetReset"]

SPECS = {
    "beginning": "EARLIEST",
    "end": "LATEST",
    "max-timestamp": "MAX_TIMESTAMP",
    "earliest-local": "EARLIEST_LOCAL",
    "latest-tiered": "LATEST_TIERED",
    "earliest-pending-upload": "EARLIEST_PENDING_UPLOAD",
}
"""Values of `offsets list -o` and the members of `OffsetSpec` that they stand for."""


@click.group(cls=SuggestingGroup, short_help="Show, reset and delete offsets.")
def offsets() -> None:
    """Show, reset and delete the committed offsets of groups; list the offsets of partitions."""


@offsets.command("show", short_help="Print the committed offsets of groups.")
@admin_command
@json_option
@watch_option
@click.argument("names", nargs=-1, required=True, metavar="GROUP...")
def show_command(
    admin: AdminCommand, *, as_json: bool, watch_s: float | None, names: tuple[str, ...]
) -> int:
    """Print the committed offsets of the GROUPs with their metadata, log end offset and lag."""

    async def show(client: Admin) -> Errors:
        from aiokafkawire.admin import OffsetSpec  # noqa: PLC0415 - it imports every message

        committed, errors = split_errors(
            await client.list_consumer_group_offsets(dict.fromkeys(names), return_errors=True)
        )
        partitions = sorted({tp for each in committed.values() for tp in each})
        ends, _ = split_errors(
            await client.list_offsets(
                dict.fromkeys(partitions, OffsetSpec.LATEST), return_errors=True
            )
            if partitions
            else {}
        )
        rows = [
            _committed_to_dict(group, tp, each, ends[tp].offset if tp in ends else None)
            for group, found in committed.items()
            for tp, each in sorted(found.items())
            if each is not None
        ]
        await admin.print_rows(rows, "committed offsets", as_json=as_json, errors=errors)
        return errors

    return admin.execute(show, watch_s=watch_s)


def _committed_to_dict(
    group: str, tp: TopicPartition, committed: OffsetAndMetadata, end: int | None
) -> dict[str, Any]:
    """Return a committed offset as in `offsets show --json`."""
    return {
        "group": group,
        **tp._asdict(),
        "committed": committed.offset,
        "end": end,
        "lag": None if end is None else max(end - committed.offset, 0),
        "metadata": committed.metadata,
    }


@offsets.command("list", short_help="Print offsets of partitions.")
@admin_command
@json_option
@click.option(
    "-o",
    "--offset",
    default="end",
    show_default=True,
    metavar="OFFSET",
    help="beginning, end, s@TIME (2026-11-24T10:00:00Z, or milliseconds since 1970),"
    " max-timestamp, earliest-local, latest-tiered, earliest-pending-upload.",
)
@click.option("--committed", is_flag=True, help="End at the last stable offset (read_committed).")
@click.argument("partitions", nargs=-1, metavar=OPTIONAL_PARTITIONS)
def list_command(
    admin: AdminCommand,
    *,
    as_json: bool,
    offset: str,
    committed: bool,
    partitions: tuple[str, ...],
) -> int:
    """Print the first or last offset of the partitions, or that of a time.

    Without arguments, of all topics that are not internal.
    """
    wanted = _parse_list_offset(offset)
    given = parse_partitions(partitions)

    async def show(client: Admin) -> Errors:
        from aiokafkawire.admin import OffsetSpec  # noqa: PLC0415 - it imports every message

        target = OffsetSpec[wanted] if isinstance(wanted, str) else wanted
        # Internal topics are listed only by name.
        chosen = given or [*await client.list_topics()]
        expanded = await expand_partitions(client, chosen) if chosen else []
        if not expanded:
            await admin.print_rows((), "topics", as_json=as_json)
            return ()
        found, errors = split_errors(
            await client.list_offsets(
                dict.fromkeys(expanded, target),
                isolation_level="read_committed" if committed else "read_uncommitted",
                return_errors=True,
            )
        )
        rows = [
            {
                **tp._asdict(),
                "offset": each.offset,
                "timestamp_ms": each.timestamp_ms,
                "leader_epoch": each.leader_epoch,
            }
            for tp, each in found.items()
        ]
        await admin.print_rows(rows, "offsets", as_json=as_json, errors=errors)
        return errors

    return admin.execute(show)


def _parse_list_offset(text: str) -> str | int:
    """Parse `-o` of `offsets list` to the name of an `OffsetSpec`, or a timestamp."""
    if text in SPECS:
        return SPECS[text]
    target = parse_offset(text) if text.startswith("s@") else None
    if target is not None:
        return target.number
    raise InvalidOption(f"-o {text!r}: give s@TIME, {', '.join([*SPECS][:-1])} or {[*SPECS][-1]}")


# --- changes ---------------------------------------------------------------------------------


@offsets.command("reset", short_help="Set the committed offsets of a group.")
@admin_command
@click.option(
    "-o",
    "--offset",
    metavar="OFFSET",
    help="beginning, end, N, -N (N before the end), s@TIME (2026-11-24T10:00:00Z, or"
    " milliseconds since 1970).",
)
@click.option(
    "--shift",
    type=int,
    metavar="N",
    help="Instead of -o: move the committed offsets by N records; a negative N moves back.",
)
@changing(confirms=True)
@click.argument("group")
@click.argument("partitions", nargs=-1, metavar=OPTIONAL_PARTITIONS)
def reset_command(
    admin: AdminCommand,
    *,
    offset: str | None,
    shift: int | None,
    change: Changing,
    group: str,
    partitions: tuple[str, ...],
) -> int:
    """Commit offsets for GROUP, which must have no members, and print them.

    Without a TOPIC, for all partitions that have a committed offset.
    """
    if (offset is None) == (shift is None):
        raise InvalidOption("give either -o or --shift")
    target = None if offset is None else parse_reset_offset(offset)
    given = parse_partitions(partitions)
    change.confirm(f"Reset committed offsets of group {group}?")

    async def reset(client: Admin) -> Errors:
        await _require_no_members(client, group)
        wanted: list[PartitionArgument] | None = None
        if given:
            wanted = [*await expand_partitions(client, given)]
        resets, errors = await _reset(client, group, wanted, target, shift, dry_run=change.dry_run)
        await change.show(
            (
                {**tp._asdict(), "current": each.current_offset, "offset": each.new_offset}
                for tp, each in resets.items()
            ),
            always=True,
        )
        if not resets and not errors:
            admin.note_empty("committed offsets")
        return errors

    return admin.execute(reset)


async def _require_no_members(client: Admin, group: str) -> None:
    described, _ = split_errors(await client.describe_consumer_groups([group], return_errors=True))
    for each in described.values():
        if each.members:
            raise CommandFailed(
                f"group {group!r} is {each.group_state}"
                f" with {pluralize(len(each.members), 'member')},"
                " whose current positions would stay: stop the group first"
            )


async def _reset(
    client: Admin,
    group: str,
    partitions: Sequence[PartitionArgument] | None,
    target: OffsetArgument | None,
    shift: int | None,
    *,
    dry_run: bool,
) -> tuple[Resets, Errors]:
    """Reset offsets; return what was reset, and the errors of the other partitions."""
    arguments: dict[str, Any] = {"dry_run": dry_run}
    if target is None:
        arguments["shift_by"] = shift
    elif target.kind is OffsetKind.END and target.number:
        return await _reset_before_end(client, group, partitions, target.number, dry_run=dry_run)
    elif target.kind is OffsetKind.FROM_TIME:
        arguments["to"] = _to_datetime(target.number)
    elif target.kind is OffsetKind.OFFSET:
        arguments["to"] = target.number
    else:
        arguments["to"] = "earliest" if target.kind is OffsetKind.BEGINNING else "latest"
    return await _collect(client, group, partitions, arguments)


async def _reset_before_end(
    client: Admin,
    group: str,
    partitions: Sequence[PartitionArgument] | None,
    count: int,
    *,
    dry_run: bool,
) -> tuple[Resets, Errors]:
    """Reset to a number of records before the end of each partition."""
    ends, errors = await _collect(client, group, partitions, {"to": "latest", "dry_run": True})
    starts, _ = await _collect(client, group, [*ends], {"to": "earliest", "dry_run": True})
    resets: Resets = {}
    for tp, start in starts.items():
        offset = max(ends[tp].new_offset - count, start.new_offset)
        resets[tp] = type(start)(start.current_offset, offset)
    if dry_run or not resets:
        return resets, errors
    committed = await client.alter_consumer_group_offsets(
        group, {tp: each.new_offset for tp, each in resets.items()}, return_errors=True
    )
    done, failed = split_errors(committed)
    return {tp: resets[tp] for tp in done}, [*errors, *failed]


async def _collect(
    client: Admin,
    group: str,
    partitions: Sequence[PartitionArgument] | None,
    arguments: dict[str, Any],
) -> tuple[Resets, Errors]:
    try:
        return await client.reset_group_offsets(group, partitions, **arguments), []
    except PartialFailure as error:
        return dict(error.succeeded), [*error.failed.values()]


@offsets.command("delete", short_help="Delete the committed offsets of a group.")
@admin_command
@changing(confirms=True)
@click.argument("group")
@click.argument("partitions", nargs=-1, required=True, metavar=PARTITIONS_METAVAR)
def delete_command(
    admin: AdminCommand, *, change: Changing, group: str, partitions: tuple[str, ...]
) -> int:
    """Delete the committed offsets of GROUP for the TOPICs. No member may be subscribed to them."""
    given = parse_partitions(partitions)
    change.confirm(f"Delete committed offsets of group {group} for {' '.join(partitions)}?")

    async def delete(client: Admin) -> Errors:
        wanted = await expand_partitions(client, given)
        found = await client.list_consumer_group_offsets({group: wanted})
        committed = {tp: each.offset for tp, each in found[group].items() if each is not None}
        errors: list[Exception] = []
        if change.dry_run:
            topics = await _topics_in_use(client, group, wanted)
            errors = [
                CommandFailed(f"group {group!r} has members that read topic {each!r}: stop them")
                for each in topics
            ]
            committed = {tp: each for tp, each in committed.items() if tp.topic not in topics}
        else:
            results = await client.delete_consumer_group_offsets(group, wanted, return_errors=True)
            deleted, failed = split_errors(results)
            committed = {tp: offset for tp, offset in committed.items() if tp in deleted}
            # An error applies to all partitions of a topic: report it once.
            errors = list({(each.topic, type(each)): each for each in failed}.values())
        await change.show({**tp._asdict(), "committed": offset} for tp, offset in committed.items())
        return errors

    return admin.execute(delete, has_output=change.has_output)


async def _topics_in_use(client: Admin, group: str, wanted: Sequence[TopicPartition]) -> list[str]:
    """Return the topics that members read, whose offsets cannot be deleted."""
    described, _ = split_errors(await client.describe_consumer_groups([group], return_errors=True))
    read = {tp.topic for each in described.values() for m in each.members for tp in m.assignment}
    return sorted(read & {tp.topic for tp in wanted})


# --- arguments -------------------------------------------------------------------------------


def parse_reset_offset(text: str) -> OffsetArgument:
    """Parse the value of `-o`. Raises `InvalidOption`."""
    target = parse_offset(text)
    if target.kind in {OffsetKind.STORED, OffsetKind.UNTIL_TIME}:
        raise InvalidOption(f"-o {text!r} is no start offset: give beginning, end, N, -N or s@TIME")
    return target


def _to_datetime(timestamp_ms: int) -> datetime:
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        raise InvalidOption(f"-o s@{timestamp_ms} is after the year 9999") from None
