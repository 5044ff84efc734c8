"""`aiokafkawire partitions`: move replicas to other brokers, and elect leaders."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

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
from aiokafkawire.cli.error_text import CommandFailed
from aiokafkawire.cli.partition_arguments import (
    OPTIONAL_PARTITIONS,
    PartitionArgument,
    describe_existing,
    expand_partitions,
    parse_partitions,
)
from aiokafkawire.cli.tables import pluralize
from aiokafkawire.errors import BrokerError, InvalidOption, KafkaError
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ErrorCode

if TYPE_CHECKING:
    from aiokafkawire.admin import Admin, PartitionReassignment, TopicPartitionInfo

__all__ = ("parse_reassignments", "partitions")

MAX_FILE_CHARACTERS = 64 * 2**20
ANY_LOG_DIR = "any"


@click.group(cls=SuggestingGroup, short_help="Move replicas, and elect leaders.")
def partitions() -> None:
    """Move the replicas of partitions to other brokers, and elect leaders."""


@partitions.command("list", short_help="Print reassignments in progress.")
@admin_command
@json_option
@click.argument("names", nargs=-1, metavar=OPTIONAL_PARTITIONS)
def list_command(admin: AdminCommand, *, as_json: bool, names: tuple[str, ...]) -> int:
    """Print the partitions whose replicas are moving. Needs Kafka 2.4 or later."""
    given = parse_partitions(names)

    async def show(client: Admin) -> Errors:
        wanted = await expand_partitions(client, given) if given else None
        found = await client.list_partition_reassignments(wanted)
        rows = [_reassignment_to_dict(tp, each) for tp, each in sorted(found.items())]
        await admin.print_rows(rows, "reassignments in progress", as_json=as_json)
        return ()

    return admin.execute(show)


def _reassignment_to_dict(tp: TopicPartition, each: PartitionReassignment) -> dict[str, Any]:
    return {
        **tp._asdict(),
        "replicas": list(each.replicas),
        "adding": list(each.adding_replicas),
        "removing": list(each.removing_replicas),
    }


@partitions.command("reassign", short_help="Move replicas as a JSON file says.")
@admin_command
@changing(confirms=True)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
def reassign_command(admin: AdminCommand, *, change: Changing, file: str) -> int:
    """Move replicas to other brokers as FILE says, in the format of kafka-reassign-partitions.

    Prints the replicas before and after. A FILE of - is stdin. Needs Kafka 2.4 or later;
    `partitions list` shows the progress.
    """
    wanted = parse_reassignments(_read(file))
    change.confirm(f"Move the replicas of {pluralize(len(wanted), 'partition')}?")

    async def reassign(client: Admin) -> Errors:
        current = await _describe(client, [*wanted])
        changed: dict[TopicPartition, Any] = dict(wanted)
        errors: list[KafkaError] = []
        if not change.dry_run:
            results = await client.alter_partition_reassignments(wanted, return_errors=True)
            changed, errors = split_errors(results)
        await change.show(
            (
                {
                    **tp._asdict(),
                    "current_replicas": list(current[tp].replicas),
                    "new_replicas": list(wanted[tp]),
                }
                for tp in changed
            ),
            always=True,
        )
        return errors

    return admin.execute(reassign)


def _read(file: str) -> str:
    if file == "-":
        return sys.stdin.read(MAX_FILE_CHARACTERS)
    try:
        with Path(file).open(encoding="utf-8") as opened:
            return opened.read(MAX_FILE_CHARACTERS)
    except UnicodeDecodeError:
        raise InvalidOption(f"{file} is not UTF-8") from None


def parse_reassignments(text: str) -> dict[TopicPartition, tuple[int, ...]]:
    """Parse the file of `partitions reassign`. Raises `InvalidOption`."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidOption(f"the file is not JSON: {error}") from None
    entries = document.get("partitions") if isinstance(document, Mapping) else None
    if not isinstance(entries, list) or not entries:
        raise InvalidOption(
            'the file has no partitions: {"version":1,"partitions":'
            '[{"topic":"orders","partition":0,"replicas":[1,2]}]}'
        )
    parsed: dict[TopicPartition, tuple[int, ...]] = {}
    for number, entry in enumerate(entries, 1):
        tp, replicas = _parse_entry(entry, number)
        if tp in parsed:
            raise InvalidOption(f"entry {number}: {tp.topic}:{tp.partition} is there twice")
        parsed[tp] = replicas
    return parsed


def _parse_entry(entry: Any, number: int) -> tuple[TopicPartition, tuple[int, ...]]:
    fields = entry if isinstance(entry, Mapping) else {}
    topic, partition = fields.get("topic"), fields.get("partition")
    replicas = fields.get("replicas")
    if (
        not isinstance(topic, str)
        or not _is_number(partition)
        or not isinstance(replicas, list)
        or not replicas
        or not all(map(_is_number, replicas))
    ):
        raise InvalidOption(f"entry {number} needs topic, partition and replicas: {entry!r:.200}")
    if any(each != ANY_LOG_DIR for each in fields.get("log_dirs") or ()):
        raise InvalidOption(
            f"entry {number}: log_dirs may only be {ANY_LOG_DIR!r}; Admin.alter_replica_log_dirs"
            " moves replicas between directories"
        )
    return TopicPartition(topic, partition), tuple(replicas)


def _is_number(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


@partitions.command("cancel", short_help="Cancel reassignments in progress.")
@admin_command
@click.option("--all", "cancels_all", is_flag=True, help="Cancel all of the cluster.")
@changing(confirms=True)
@click.argument("names", nargs=-1, metavar=OPTIONAL_PARTITIONS)
def cancel_command(
    admin: AdminCommand, *, cancels_all: bool, change: Changing, names: tuple[str, ...]
) -> int:
    """Cancel reassignments in progress, so that replicas return to where they were."""
    if cancels_all == bool(names):
        raise InvalidOption("give topics or partitions, or --all")
    given = parse_partitions(names)
    change.confirm(f"Cancel the reassignments of {' '.join(names) or 'all partitions'}?")

    async def cancel(client: Admin) -> Errors:
        wanted = await expand_partitions(client, given) if given else None
        found = await client.list_partition_reassignments(wanted)
        errors: list[KafkaError] = []
        if found and not change.dry_run:
            results = await client.alter_partition_reassignments(
                dict.fromkeys(found), return_errors=True
            )
            cancelled, errors = split_errors(results)
            found = {tp: found[tp] for tp in cancelled}
        await change.show(
            (_reassignment_to_dict(tp, each) for tp, each in sorted(found.items())), always=True
        )
        if not found and not errors:
            admin.note_empty("reassignments in progress")
        return errors

    return admin.execute(cancel)


@partitions.command("elect", short_help="Elect the leaders of partitions.")
@admin_command
@click.option(
    "--unclean",
    is_flag=True,
    help="Elect a replica that is not in sync if no other is alive. Records may be lost.",
)
@changing(confirms=True)
@click.argument("names", nargs=-1, metavar=OPTIONAL_PARTITIONS)
def elect_command(
    admin: AdminCommand, *, unclean: bool, change: Changing, names: tuple[str, ...]
) -> int:
    """Make the preferred replica of each partition its leader, and print the partitions changed.

    Without arguments, of all partitions. Needs Kafka 2.2 or later. Only --unclean asks.
    """
    if unclean and not names:
        raise InvalidOption("--unclean needs topics or partitions")
    given = parse_partitions(names)
    if unclean:
        change.confirm(f"Elect leaders that may lack records, in {' '.join(names)}?")

    async def elect(client: Admin) -> Errors:
        from aiokafkawire.admin import ElectionType  # noqa: PLC0415 - it imports every message

        before = await _describe(client, given)
        needed = [tp for tp, each in before.items() if _needs_election(each, unclean)]
        elected, errors = needed, list[KafkaError]()
        if needed and not change.dry_run:
            kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
            results = await client.elect_leaders(kind, needed, return_errors=True)
            done, failed = split_errors(results)
            elected = [*done]
            errors = [error for error in failed if not _not_needed(error)]
        await change.show(
            (
                {
                    **tp._asdict(),
                    "leader_before": before[tp].leader_id,
                    "replicas": list(before[tp].replicas),
                    "in_sync": list(before[tp].isr),
                }
                for tp in elected
            ),
            always=True,
        )
        if not elected and not errors:
            admin.note_empty("partitions that need an election")
        return errors

    return admin.execute(elect)


def _needs_election(partition: TopicPartitionInfo, unclean: bool) -> bool:
    if unclean:
        return partition.leader_id is None
    return partition.leader_id != partition.replicas[0]


def _not_needed(error: KafkaError) -> bool:
    return isinstance(error, BrokerError) and error.code == ErrorCode.ELECTION_NOT_NEEDED


async def _describe(
    client: Admin, given: Sequence[PartitionArgument]
) -> dict[TopicPartition, TopicPartitionInfo]:
    """Describe partitions. Raises `CommandFailed` for one that does not exist."""
    expanded = await expand_partitions(client, given)
    described = await describe_existing(client, [tp.topic for tp in expanded])
    found: dict[TopicPartition, TopicPartitionInfo] = {}
    for tp in expanded:
        partition = described[tp.topic].partitions.get(tp.partition)
        if partition is None:
            raise CommandFailed(f"{tp.topic}:{tp.partition} was deleted: try again")
        found[tp] = partition
    return found
