"""`aiokafkawire txns`: list, describe and abort transactions, find those that hang (KIP-664)."""

from __future__ import annotations

import time
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
    split_errors,
)
from aiokafkawire.cli.common_options import IntegerRange, SuggestingGroup, json_option
from aiokafkawire.cli.consume_plan import format_partitions
from aiokafkawire.cli.error_text import CommandFailed
from aiokafkawire.cli.partition_arguments import (
    OPTIONAL_PARTITIONS,
    PARTITIONS_METAVAR,
    expand_partitions,
    parse_partitions,
)
from aiokafkawire.cli.tables import json_line, pluralize
from aiokafkawire.errors import InvalidOption
from aiokafkawire.types import TopicPartition

if TYPE_CHECKING:
    from aiokafkawire.admin import (
        Admin,
        ProducerState,
        TransactionDescription,
    )

__all__ = ("txns",)

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
)
"""Kafka's names of the transaction states."""

OPEN_STATES = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
"""States of an open transaction, which blocks read_committed consumers."""


@click.group(cls=SuggestingGroup, short_help="List, describe and abort transactions.")
def txns() -> None:
    """List, describe and abort transactions, and find those that hang. Needs Kafka 3.0 or later."""


@txns.command("list", short_help="Print the transactional ids of the cluster.")
@admin_command
@json_option
@click.option(
    "-s",
    "--state",
    "states",
    type=click.Choice(STATES, case_sensitive=False),
    multiple=True,
    help="Only transactions in this state. May be repeated.",
)
@click.option(
    "--longer-than-ms",
    "duration_ms",
    type=IntegerRange(min=0),
    metavar="MS",
    help="Only transactions that are open for longer (Kafka 3.8 or later).",
)
def list_command(
    admin: AdminCommand, *, as_json: bool, states: tuple[str, ...], duration_ms: int | None
) -> int:
    """Print the transactional ids of all brokers with their state, one per line."""

    async def show(client: Admin) -> Errors:
        listed, errors = await list_items(
            client.list_transactions(states=states, duration_ms=duration_ms)
        )
        rows = [
            {
                "transactional_id": each.transactional_id,
                "state": str(each.state),
                "producer_id": each.producer_id,
            }
            for each in listed
        ]
        empty = f"transactions in {' or '.join(states)}" if states else "transactions"
        await admin.print_rows(rows, empty, as_json=as_json, errors=errors)
        return errors

    return admin.execute(show)


@txns.command("describe", short_help="Print state, producer, duration and partitions.")
@admin_command
@json_option
@click.argument("names", nargs=-1, required=True, metavar="ID...")
def describe_command(admin: AdminCommand, *, as_json: bool, names: tuple[str, ...]) -> int:
    """Print state, producer, duration and partitions of the last transaction of each transactional
    ID."""

    async def show(client: Admin) -> Errors:
        results = await client.describe_transactions(dict.fromkeys(names), return_errors=True)
        found, errors = split_errors(results)
        now_ms = time.time_ns() // 1_000_000
        shown = [transaction_to_dict(name, each, now_ms) for name, each in found.items()]
        if as_json:
            await print_results("".join(map(json_line, shown)))
        else:
            await print_results("\n".join(map(transaction_text, shown)))
        return errors

    return admin.execute(show)


@txns.command("producers", short_help="Print the producers that partitions know.")
@admin_command
@json_option
@click.argument("partitions", nargs=-1, required=True, metavar=PARTITIONS_METAVAR)
def producers_command(admin: AdminCommand, *, as_json: bool, partitions: tuple[str, ...]) -> int:
    """Print the idempotent and transactional producers of the partitions, and the first offset of
    each open transaction."""
    given = parse_partitions(partitions)

    async def show(client: Admin) -> Errors:
        wanted = await expand_partitions(client, given)
        found, errors = split_errors(await client.describe_producers(wanted, return_errors=True))
        rows = [
            {**tp._asdict(), **_producer_to_dict(each)}
            for tp, producers in found.items()
            for each in producers
        ]
        await admin.print_rows(rows, "producers", as_json=as_json, errors=errors)
        return errors

    return admin.execute(show)


@txns.command("hanging", short_help="Print open transactions that no coordinator will finish.")
@admin_command
@json_option
@click.option(
    "--older-than-ms",
    type=IntegerRange(min=0),
    default=900_000,
    show_default=True,
    metavar="MS",
    help="Only without a record for longer: transaction.max.timeout.ms of the brokers.",
)
@click.argument("partitions", nargs=-1, metavar=OPTIONAL_PARTITIONS)
def hanging_command(
    admin: AdminCommand, *, as_json: bool, older_than_ms: int, partitions: tuple[str, ...]
) -> int:
    """Print open transactions in partitions that no coordinator will finish.

    They block read_committed consumers for good. `txns abort` with the partition and the start
    offset aborts one. Without arguments, all topics are searched.
    """
    given = parse_partitions(partitions)

    async def show(client: Admin) -> Errors:
        wanted = [*await expand_partitions(client, given)] if given else None
        hanging, errors = await list_items(
            client.find_hanging_transactions(wanted, max_transaction_timeout_ms=older_than_ms)
        )
        rows = [
            {
                **each.topic_partition._asdict(),
                **_producer_to_dict(each.producer),
                "transactional_id": each.transactional_id,
            }
            for each in hanging
        ]
        await admin.print_rows(rows, "hanging transactions", as_json=as_json, errors=errors)
        return errors

    return admin.execute(show)


def _producer_to_dict(producer: ProducerState) -> dict[str, Any]:
    return {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "last_sequence": producer.last_sequence,
        "last_timestamp_ms": producer.last_timestamp_ms,
        "start_offset": producer.current_transaction_start_offset,
        "coordinator_epoch": producer.coordinator_epoch,
    }


@txns.command("abort", short_help="Abort an open transaction.")
@admin_command
@click.option(
    "-p",
    "--partition",
    metavar="TOPIC:PARTITION",
    help="Abort a hanging transaction in this partition, past its coordinator.",
)
@click.option(
    "--start-offset",
    type=IntegerRange(min=0),
    help="First offset of the hanging transaction, as `txns hanging` prints it.",
)
@changing(confirms=True)
@click.argument("name", required=False, metavar="[ID]")
def abort_command(
    admin: AdminCommand,
    *,
    partition: str | None,
    start_offset: int | None,
    change: Changing,
    name: str | None,
) -> int:
    """Abort the open transaction of a transactional ID, and fence its producer; or one that hangs,
    by -p and --start-offset."""
    if (name is None) == (partition is None) or (partition is None) != (start_offset is None):
        raise InvalidOption("give a transactional id, or -p TOPIC:PARTITION and --start-offset")
    if partition is None or start_offset is None:
        return _abort_by_id(admin, change, str(name))
    parsed = parse_partitions([partition])
    tp = parsed[0]
    if isinstance(tp, str) or len(parsed) > 1:
        raise InvalidOption(f"-p {partition!r} is not one partition: give TOPIC:PARTITION")
    return _abort_hanging(admin, change, tp, start_offset)


def _abort_by_id(admin: AdminCommand, change: Changing, name: str) -> int:
    change.confirm(f"Abort the transaction of {name} and fence its producer?")

    async def abort(client: Admin) -> Errors:
        described = (await client.describe_transactions([name]))[name]
        if not change.dry_run:
            await client.force_terminate_transaction(name)
        await change.show([{"transactional_id": name, "state": str(described.state)}])
        return ()

    return admin.execute(abort, has_output=change.has_output)


def _abort_hanging(
    admin: AdminCommand, change: Changing, tp: TopicPartition, start_offset: int
) -> int:
    where = f"{tp.topic}:{tp.partition} at offset {start_offset}"
    change.confirm(f"Abort the transaction in {where}?")

    async def abort(client: Admin) -> Errors:
        from aiokafkawire.admin import HangingTransaction  # noqa: PLC0415 - imports messages

        producers = (await client.describe_producers([tp]))[tp]
        found = [
            each for each in producers if each.current_transaction_start_offset == start_offset
        ]
        if not found:
            raise CommandFailed(
                f"no transaction is open in {where};"
                f" `aiokafkawire txns producers {tp.topic}:{tp.partition}` lists them"
            )
        producer = found[0]
        if not change.dry_run:
            await client.abort_transaction(HangingTransaction(tp, producer).spec)
        await change.show([{**tp._asdict(), **_producer_to_dict(producer)}])
        return ()

    return admin.execute(abort, has_output=change.has_output)


# --- output ----------------------------------------------------------------------------------


def transaction_to_dict(name: str, each: TransactionDescription, now_ms: int) -> dict[str, Any]:
    """Return a transaction as in `txns describe --json`; an open one with its duration."""
    state = str(each.state)
    started_ms = each.transaction_start_time_ms
    duration_ms = None
    if started_ms is not None and state in OPEN_STATES:
        duration_ms = max(now_ms - started_ms, 0)
    return {
        "transactional_id": name,
        "state": state,
        "producer_id": each.producer_id,
        "producer_epoch": each.producer_epoch,
        "timeout_ms": each.transaction_timeout_ms,
        "started_ms": started_ms,
        "duration_ms": duration_ms,
        "coordinator": each.coordinator_id,
        "partitions": [tp._asdict() for tp in sorted(each.topic_partitions)],
    }


def transaction_text(shown: dict[str, Any]) -> str:
    """Return the result of `transaction_to_dict` as `txns describe` prints it."""
    open_ms = shown["duration_ms"]
    duration = "" if open_ms is None else f" for {open_ms / 1000:.1f} s"
    partitions = [TopicPartition(**each) for each in shown["partitions"]]
    text = (
        f"{shown['transactional_id']}: {shown['state']}{duration}, producer {shown['producer_id']}"
        f" epoch {shown['producer_epoch']}, timeout {shown['timeout_ms'] / 1000:g} s,"
        f" coordinator {shown['coordinator']}, {pluralize(len(partitions), 'partition')}\n"
    )
    if partitions:
        text += f"  {format_partitions(partitions)}\n"
    return text
