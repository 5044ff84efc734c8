"""Generated files with the tables of the package: a changed table shows in the diff of its file.

    python -m tests.golden

writes the files again. Review the diff: each line is behaviour.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path

__all__ = ["TABLES", "as_text", "observed", "path", "read"]

TABLES: Mapping[str, str] = {
    "broker-group": "tests.broker.test_classic_group",
    "broker-transaction": "tests.broker.transactions.test_transaction_metadata",
    "commits": "tests.group.test_commit_machine",
    "consumer-protocol": "tests.group.consumer_protocol.test_machine",
    "membership": "tests.group.test_membership_machine",
    "produce-errors": "tests.producer.test_batch_actions",
    "share-protocol": "tests.group.share_protocol.test_machine",
    "share-session": "tests.share.test_session",
    "telemetry": "tests.telemetry.test_state_machine",
    "transaction-errors": "tests.producer.transactions.test_actions",
}
"""Module of each table; its `observed()` returns what the package does, by row and column."""

Table = Mapping[tuple[str, str], str]


def path(name: str) -> Path:
    return Path(__file__).with_name(f"{name}.txt")


def observed(name: str) -> Table:
    """Return a table from the behaviour of the package."""
    table: Table = importlib.import_module(TABLES[name]).observed()
    return table


def as_text(table: Table) -> str:
    return "".join(f"{row} | {column} | {value}\n" for (row, column), value in table.items())


def read(name: str) -> Table:
    """Return a table from its file."""
    lines = path(name).read_text("utf-8").splitlines()
    rows = (line.split(" | ") for line in lines)
    return {(row, column): value for row, column, value in rows}
