"""`aiokafkawire txns`: list and describe transactions (KIP-664)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click

from aiokafkawire.cli.client_session import (
    AdminCommand,
    ClientSession,
    admin_command,
    print_results,
    response_error,
)
from aiokafkawire.cli.common_options import SuggestingGroup, json_option
from aiokafkawire.cli.consume_plan import format_partitions
from aiokafkawire.cli.error_text import CommandFailed
from aiokafkawire.cli.tables import format_table, json_line, pluralize
from aiokafkawire.cluster import CoordinatorType, ToCoordinator
from aiokafkawire.cluster.all_nodes import request_all_nodes
from aiokafkawire.errors import KafkaError, ProtocolError
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.describe_transactions import DescribeTransactionsRequest
from aiokafkawire.wire.messages.list_transactions import ListTransactionsRequest

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


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id as its coordinator lists it."""

    transactional_id: str
    state: str
    producer_id: int
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """Last transaction of a transactional id, as its coordinator describes it.

    `started_ms` is in milliseconds since the epoch. It and `duration_ms` may be None.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    duration_ms: int | None
    coordinator: int
    partitions: tuple[TopicPartition, ...] = ()


@click.group(cls=SuggestingGroup, short_help="List and describe transactions.")
def txns() -> None:
    """List transactional ids and describe their transactions. Needs Kafka 3.0 or later."""


@txns.command("list", short_help="Print the transactional ids of the cluster.")
@admin_command
@json_option
@click.option(
    "-s",
    "--state",
    "states",
    type=click.Choice(STATES),
    multiple=True,
    help="Only transactions in this state. May be repeated.",
)
def list_command(admin: AdminCommand, *, as_json: bool, states: tuple[str, ...]) -> int:
    """Print the transactional ids of all brokers with their state, one per line."""

    async def show(session: ClientSession) -> Sequence[Exception]:
        transactions, failed = await list_transactions(session, states)
        if as_json:
            await print_results(
                "".join(json_line(asdict(transaction)) for transaction in transactions)
            )
        elif transactions:
            heads = ("transactional id", "state", "producer id", "coordinator")
            rows = [
                (
                    transaction.transactional_id,
                    transaction.state,
                    transaction.producer_id,
                    transaction.coordinator,
                )
                for transaction in transactions
            ]
            await print_results(format_table(heads, rows))
        elif not failed:
            admin.note_empty(f"transactions in {' or '.join(states)}" if states else "transactions")
        return failed

    return admin.execute(show)


@txns.command("describe", short_help="Print state, producer, duration and partitions.")
@admin_command
@json_option
@click.argument("names", nargs=-1, required=True, metavar="ID...")
def describe_command(admin: AdminCommand, *, as_json: bool, names: tuple[str, ...]) -> int:
    """Print state, producer, duration and partitions of the last transaction of each transactional
    ID."""

    async def show(session: ClientSession) -> Sequence[Exception]:
        descriptions = [await describe_transaction(session, name) for name in dict.fromkeys(names)]
        if as_json:
            await print_results(
                "".join(json_line(transaction_to_dict(description)) for description in descriptions)
            )
        else:
            await print_results("\n".join(map(transaction_text, descriptions)))
        return ()

    return admin.execute(show)


# --- requests --------------------------------------------------------------------------------


async def list_transactions(
    session: ClientSession, states: Sequence[str]
) -> tuple[list[TransactionListing], list[KafkaError]]:
    """Return the transactional ids of all brokers by name, and the errors of brokers that failed.

    Empty `states` mean all states.
    """
    request = ListTransactionsRequest(state_filters=[*states], producer_id_filters=[])
    responses = await request_all_nodes(session.cluster, request, deadline=session.deadline)
    transactions: list[TransactionListing] = []
    failed: list[KafkaError] = []
    for node_id, response in responses.items():
        if isinstance(response, KafkaError):
            failed.append(response)
            continue
        error = response_error(response.error_code, api="ListTransactions", broker=str(node_id))
        if error is not None:
            failed.append(error)
        transactions += [
            TransactionListing(
                result.transactional_id, result.transaction_state, result.producer_id, node_id
            )
            for result in response.transaction_states
        ]
    return sorted(
        transactions,
        key=lambda transaction: (transaction.transactional_id, transaction.coordinator),
    ), failed


async def describe_transaction(
    session: ClientSession, transactional_id: str
) -> TransactionDescription:
    """Return the last transaction of an id. Raises `CommandFailed` for an unknown id."""
    route = ToCoordinator(transactional_id, CoordinatorType.TRANSACTION)
    node_id = await session.cluster.find_coordinator(
        route.key, route.type, deadline=session.deadline
    )
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    response = await session.request(request, route)
    result = next(
        (each for each in response.transaction_states if each.transactional_id == transactional_id),
        None,
    )
    context: dict[str, Any] = {
        "api": "DescribeTransactions",
        "transactional_id": transactional_id,
        "broker": str(node_id),
    }
    if result is None:
        raise ProtocolError("the transactional id is not in the response", **context)
    if result.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        raise CommandFailed(
            f"transactional id {transactional_id!r} does not exist;"
            " `aiokafkawire txns list` lists the transactional ids"
        )
    error = response_error(result.error_code, **context)
    if error is not None:
        raise error
    started_ms = result.transaction_start_time_ms if result.transaction_start_time_ms >= 0 else None
    duration_ms: int | None = None
    if started_ms is not None and result.transaction_state in OPEN_STATES:
        duration_ms = max(session.runtime.clock.wall_ms() - started_ms, 0)
    return TransactionDescription(
        transactional_id=transactional_id,
        state=result.transaction_state,
        producer_id=result.producer_id,
        producer_epoch=result.producer_epoch,
        timeout_ms=result.transaction_timeout_ms,
        started_ms=started_ms,
        duration_ms=duration_ms,
        coordinator=node_id,
        partitions=tuple(
            sorted(TopicPartition(each.topic, n) for each in result.topics for n in each.partitions)
        ),
    )


# --- output ----------------------------------------------------------------------------------


def transaction_to_dict(each: TransactionDescription) -> dict[str, Any]:
    """Return a transaction as in `txns describe --json`."""
    return asdict(each) | {"partitions": [tp._asdict() for tp in each.partitions]}


def transaction_text(each: TransactionDescription) -> str:
    """Return a transaction as `txns describe` prints it."""
    duration = "" if each.duration_ms is None else f" for {each.duration_ms / 1000:.1f} s"
    count = pluralize(len(each.partitions), "partition")
    text = (
        f"{each.transactional_id}: {each.state}{duration}, producer {each.producer_id}"
        f" epoch {each.producer_epoch}, timeout {each.timeout_ms / 1000:g} s,"
        f" coordinator {each.coordinator}, {count}\n"
    )
    if each.partitions:
        text += f"  {format_partitions(each.partitions)}\n"
    return text
