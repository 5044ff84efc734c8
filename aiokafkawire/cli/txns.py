"""`aiokafkawire txns`: list and describe transactions (KIP-664)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click

from aiokafkawire.cli.access import Access, Administration, administration, print_out, refusal
from aiokafkawire.cli.problems import Failure
from aiokafkawire.cli.reading import describe as described
from aiokafkawire.cli.shared import Suggesting, json_option
from aiokafkawire.cli.tables import counted, json_line, table
from aiokafkawire.cluster import Coordinator, CoordinatorType
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
"""What a coordinator may say of a transactional id, as Kafka names it."""

OPEN = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
"""The states in which a transaction keeps readers of committed records from what follows it."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One transactional id in the list of its coordinator."""

    transactional_id: str
    state: str
    producer_id: int
    coordinator: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """What the coordinator of a transactional id says of its last transaction.

    Times are milliseconds, `started_ms` since 1970; None for what does not apply.
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


@click.group(cls=Suggesting, short_help="List and describe transactions.")
def txns() -> None:
    """List transactional ids, and describe their transactions (brokers from 3.0 on)."""


@txns.command("list", short_help="Print the transactional ids of the cluster.")
@administration
@json_option
@click.option(
    "-s",
    "--state",
    "states",
    type=click.Choice(STATES),
    multiple=True,
    help="Only those in this state; may be repeated.",
)
def list_command(admin: Administration, *, as_json: bool, states: tuple[str, ...]) -> int:
    """Print the transactional ids that the brokers know, with their state, one a line."""

    async def show(access: Access) -> Sequence[Exception]:
        found, failed = await list_transactions(access, states)
        if as_json:
            await print_out("".join(json_line(asdict(each)) for each in found))
        elif found:
            heads = ("transactional id", "state", "producer id", "coordinator")
            rows = [
                (each.transactional_id, each.state, each.producer_id, each.coordinator)
                for each in found
            ]
            await print_out(table(heads, rows))
        return failed

    return admin.carry_out(show)


@txns.command("describe", short_help="Print state, producer, duration and partitions.")
@administration
@json_option
@click.argument("names", nargs=-1, required=True, metavar="ID...")
def describe_command(admin: Administration, *, as_json: bool, names: tuple[str, ...]) -> int:
    """Print for each transactional ID the state of its last transaction, its producer, how long it
    has been open, and which partitions have a part in it."""

    async def show(access: Access) -> Sequence[Exception]:
        found = [await describe(access, name) for name in dict.fromkeys(names)]
        if as_json:
            await print_out("".join(json_line(transaction_form(each)) for each in found))
        else:
            await print_out("\n".join(map(transaction_text, found)))
        return ()

    return admin.carry_out(show)


# --- what is asked ----------------------------------------------------------------------------


async def list_transactions(
    access: Access, states: Sequence[str]
) -> tuple[list[Listed], list[KafkaError]]:
    """The transactional ids of all brokers by name, and the errors of brokers that did not tell.

    No `states` are all of them.
    """
    request = ListTransactionsRequest(state_filters=[*states], producer_id_filters=[])
    answers = await access.cluster.to_all(request, deadline=access.deadline)
    found: list[Listed] = []
    failed: list[KafkaError] = []
    for node_id, answer in answers.items():
        if isinstance(answer, KafkaError):
            failed.append(answer)
            continue
        error = refusal(answer.error_code, api="ListTransactions", broker=str(node_id))
        if error is not None:
            failed.append(error)
        found += [
            Listed(told.transactional_id, told.transaction_state, told.producer_id, node_id)
            for told in answer.transaction_states
        ]
    return sorted(found, key=lambda each: (each.transactional_id, each.coordinator)), failed


async def describe(access: Access, transactional_id: str) -> Transaction:
    """The last transaction of an id. Raises `Failure` for an id that nobody has used."""
    route = Coordinator(transactional_id, CoordinatorType.TRANSACTION)
    node_id = await access.cluster.coordinator(route.key, route.type, deadline=access.deadline)
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    answer = await access.request(request, route)
    told = next(
        (each for each in answer.transaction_states if each.transactional_id == transactional_id),
        None,
    )
    context: dict[str, Any] = {
        "api": "DescribeTransactions",
        "transactional_id": transactional_id,
        "broker": str(node_id),
    }
    if told is None:
        raise ProtocolError("the answer is not about the transactional id", **context)
    if told.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        raise Failure(
            f"no transaction of {transactional_id!r} is known;"
            " `aiokafkawire txns list` tells which there are"
        )
    error = refusal(told.error_code, **context)
    if error is not None:
        raise error
    started_ms = told.transaction_start_time_ms if told.transaction_start_time_ms >= 0 else None
    duration_ms: int | None = None
    if started_ms is not None and told.transaction_state in OPEN:
        duration_ms = max(access.runtime.clock.wall_ms() - started_ms, 0)
    return Transaction(
        transactional_id=transactional_id,
        state=told.transaction_state,
        producer_id=told.producer_id,
        producer_epoch=told.producer_epoch,
        timeout_ms=told.transaction_timeout_ms,
        started_ms=started_ms,
        duration_ms=duration_ms,
        coordinator=node_id,
        partitions=tuple(
            sorted(TopicPartition(each.topic, n) for each in told.topics for n in each.partitions)
        ),
    )


# --- what is printed --------------------------------------------------------------------------


def transaction_form(each: Transaction) -> dict[str, Any]:
    """A transaction as `txns describe --json` has it."""
    return asdict(each) | {"partitions": [tp._asdict() for tp in each.partitions]}


def transaction_text(each: Transaction) -> str:
    """A transaction as `txns describe` has it."""
    lasting = "" if each.duration_ms is None else f" for {each.duration_ms / 1000:.1f} s"
    count = counted(len(each.partitions), "partition")
    text = (
        f"{each.transactional_id}: {each.state}{lasting}, producer {each.producer_id}"
        f" epoch {each.producer_epoch}, timeout {each.timeout_ms / 1000:g} s,"
        f" coordinator {each.coordinator}, {count}\n"
    )
    if each.partitions:
        text += f"  {described(each.partitions)}\n"
    return text
