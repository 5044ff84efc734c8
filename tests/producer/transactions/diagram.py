"""Draw the transitions of a transaction: `python -m tests.producer.transactions.diagram`.

The destinations of a (state, event) pair are found by trying it, in every situation that matters to
a transition function.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from aiokafkawire.errors import KafkaError
from aiokafkawire.producer.transactions.actions import (
    DEFAULT_ACTIONS,
    TRANSACTION_ACTIONS,
    RequestKind,
    TransactionAction,
)
from aiokafkawire.producer.transactions.state_machine import TRANSITIONS
from aiokafkawire.producer.transactions.states import (
    Flushed,
    ProducerFailed,
    Transaction,
    TransactionEvent,
    TransactionState,
    TxnEnded,
    TxnRequestFailed,
)

from .test_state_machine import ME, events, machine_in, states

Destinations = Mapping[tuple[str, str], tuple[str, ...]]


def states_like(state: TransactionState) -> Iterator[TransactionState]:
    """Yield the state with every kind of transaction."""
    transaction = getattr(state, "transaction", None)
    if transaction is None:
        yield state
        return
    for known, bump, forgotten in itertools.product((False, True), repeat=3):
        alike = Transaction(
            1,
            ME,
            transaction.transaction_version,
            0.0,
            started=known,
            epoch_bump_required=bump,
            skip_end_txn=forgotten,
        )
        changed: Any = replace(state, transaction=alike)  # type: ignore[call-arg]
        yield changed


def events_like(event: TransactionEvent) -> Iterator[TransactionEvent]:
    """Yield the event and its variants."""
    yield event
    if isinstance(event, TxnEnded):
        yield TxnEnded(ME)
    elif isinstance(event, Flushed):
        yield Flushed(sequence_gap=True)
    elif isinstance(event, TxnRequestFailed):
        for kind, action in itertools.product(
            RequestKind, (TransactionAction.ABORT, TransactionAction.BUMP_ONLY)
        ):
            yield TxnRequestFailed(kind, action, KafkaError("x"))


def destinations() -> Destinations:
    """Return the states that each pair leads to, in the order of the states."""
    order = [state.__name__ for state in states()]
    found: dict[tuple[str, str], set[str]] = {}
    for (state, event), can_raise in itertools.product(TRANSITIONS, (True, False)):
        row = found.setdefault((state.__name__, event.__name__), set())
        for happens in events_like(events()[event]):
            for before in states_like(states()[state]):
                machine = machine_in(before)
                machine.can_bump_epoch = can_raise
                machine.handle(happens, 0.0)
                row.add(type(machine.state).__name__)
    ordered = sorted(found, key=lambda pair: order.index(pair[0]))
    return {pair: tuple(sorted(found[pair], key=order.index)) for pair in ordered}


def diagram(found: Destinations) -> str:
    """Return the transitions as a Mermaid state diagram.

    `ProducerFailed` leads from every state to `FatalError` and is left out.
    """
    labels: dict[tuple[str, str], list[str]] = {}
    for (start, event), ends in found.items():
        for end in ends:
            if end != start and event != ProducerFailed.__name__:
                labels.setdefault((start, end), []).append(event)
    lines = ["stateDiagram-v2", "    [*] --> Uninitialised"]
    lines += [
        f"    {start} --> {end}: {', '.join(events)}" for (start, end), events in labels.items()
    ]
    return "\n".join([*lines, "    Detached --> [*]", "    FatalError --> [*]"]) + "\n"


def table(found: Destinations) -> str:
    """Return every pair as a row of a Markdown table; "—" if the state stays the same."""
    lines = ["| State | Event | Next state |", "|---|---|---|"]
    for state in states():
        same: dict[tuple[str, ...], list[str]] = {}
        for (start, event), ends in found.items():
            if start == state.__name__:
                same.setdefault(ends, []).append(event)
        for ends, names in same.items():
            there = "—" if ends == (state.__name__,) else ", ".join(ends)
            lines.append(f"| {state.__name__} | {', '.join(names)} | {there} |")
    return "\n".join(lines) + "\n"


BEGIN = "<!-- generated: python -m tests.producer.transactions.diagram -->\n"
END = "<!-- end of it -->\n"


def outcomes() -> str:
    """Return the action for each error code of each request as a Markdown table."""
    lines = ["| Request | Error codes | Action |", "|---|---|---|"]
    for kind, codes in TRANSACTION_ACTIONS.items():
        by_outcome: dict[TransactionAction, list[str]] = {}
        for code, action in codes.items():
            if action is not TransactionAction.DONE:
                by_outcome.setdefault(action, []).append(code.name)
        by_outcome.setdefault(TransactionAction.RETRY, []).append("other retriable codes")
        by_outcome.setdefault(DEFAULT_ACTIONS[kind], []).append("all others")
        for action in sorted(by_outcome, key=list(TransactionAction).index):
            lines.append(f"| {kind.value} | {', '.join(by_outcome[action])} | {action.value} |")
    return "\n".join(lines) + "\n"


def generated() -> str:
    """Return the generated part of the documentation page, with its marks."""
    found = destinations()
    parts = (f"```mermaid\n{diagram(found)}```\n", table(found), outcomes())
    return BEGIN + "\n".join(parts) + END


if __name__ == "__main__":
    print(generated(), end="")
