"""`aiokafkawire records`: delete the oldest records of partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from aiokafkawire.cli.admin_command import (
    AdminCommand,
    Changing,
    Errors,
    admin_command,
    changing,
    split_errors,
)
from aiokafkawire.cli.arguments import OffsetArgument, OffsetKind
from aiokafkawire.cli.common_options import SuggestingGroup
from aiokafkawire.cli.offsets import parse_reset_offset
from aiokafkawire.cli.partition_arguments import (
    PARTITIONS_METAVAR,
    expand_partitions,
    parse_partitions,
)
from aiokafkawire.errors import KafkaError
from aiokafkawire.types import TopicPartition

if TYPE_CHECKING:
    from aiokafkawire.admin import Admin

__all__ = ("records",)


@click.group(cls=SuggestingGroup, short_help="Delete the oldest records of partitions.")
def records() -> None:
    """Delete the oldest records of partitions."""


@records.command("delete", short_help="Delete the records before an offset.")
@admin_command
@click.option(
    "-o",
    "--before",
    "offset",
    required=True,
    metavar="OFFSET",
    help="First record to keep: end (delete all), N, -N (keep the last N), s@TIME"
    " (2026-11-24T10:00:00Z, or milliseconds since 1970).",
)
@changing(confirms=True)
@click.argument("partitions", nargs=-1, required=True, metavar=PARTITIONS_METAVAR)
def delete_command(
    admin: AdminCommand, *, offset: str, change: Changing, partitions: tuple[str, ...]
) -> int:
    """Delete the records before an offset in each partition, and print the new log start offsets.

    This cannot be undone. Needs Kafka 0.11 or later.
    """
    target = parse_reset_offset(offset)
    given = parse_partitions(partitions)
    change.confirm(f"Delete the records before {offset} in {' '.join(partitions)}?")

    async def delete(client: Admin) -> Errors:
        from aiokafkawire.admin import OffsetSpec  # noqa: PLC0415 - it imports every message

        wanted = await expand_partitions(client, given)
        starts, errors = await _list(client, wanted, OffsetSpec.EARLIEST)
        before, failed = await _resolve(client, [*starts], target)
        errors += failed
        after = {tp: max(offset, starts[tp]) for tp, offset in before.items()}
        if not change.dry_run:
            results = await client.delete_records(before, return_errors=True)
            after, failed = split_errors(results)
            errors += failed
        await change.show(
            (
                {**tp._asdict(), "log_start_offset": starts[tp], "new_log_start_offset": new}
                for tp, new in after.items()
            ),
            always=True,
        )
        return errors

    return admin.execute(delete)


async def _resolve(
    client: Admin, partitions: Sequence[TopicPartition], target: OffsetArgument
) -> tuple[dict[TopicPartition, int], list[KafkaError]]:
    """Return the first offset to keep in each partition, at most the end."""
    from aiokafkawire.admin import OffsetSpec  # noqa: PLC0415 - it imports every message

    ends, errors = await _list(client, partitions, OffsetSpec.LATEST)
    match target.kind:
        case OffsetKind.BEGINNING:
            return dict.fromkeys(ends, 0), errors
        case OffsetKind.END:
            return {tp: max(end - target.number, 0) for tp, end in ends.items()}, errors
        case OffsetKind.FROM_TIME:
            found, failed = await _list(client, [*ends], target.number)
            failing = {(error.topic, error.partition) for error in failed}
            return {
                tp: found.get(tp, end) for tp, end in ends.items() if tp not in failing
            }, errors + failed
        case _:
            return {tp: min(target.number, end) for tp, end in ends.items()}, errors


async def _list(
    client: Admin, partitions: Sequence[TopicPartition], spec: int
) -> tuple[dict[TopicPartition, int], list[KafkaError]]:
    if not partitions:
        return {}, []
    results = await client.list_offsets(dict.fromkeys(partitions, spec), return_errors=True)
    found, errors = split_errors(results)
    return {tp: each.offset for tp, each in found.items() if each.offset is not None}, errors
