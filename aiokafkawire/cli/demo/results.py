"""Store of the workers' results, together with the offsets of the counted records.

One SQLite file with one row per partition: the offset of the next record to count. A worker adds
its counts of records [first, next) in one transaction that moves this offset from `first` to
`next`. If the offset is not `first`, another worker has counted the records, and nothing is added.
So each record counts once, however often it is delivered, even if a worker wrongly believes to own
a partition.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ("BUSY_TIMEOUT_S", "Results", "Tally", "create_store")

BUSY_TIMEOUT_S = 10.0
"""Timeout of a database transaction that waits for other workers."""

TABLES = """
create table if not exists position (part integer primary key, next_offset integer not null);
create table if not exists word (
    word blob not null, part integer not null, number integer not null,
    primary key (word, part)
) without rowid;
create table if not exists line (
    part integer not null, first_offset integer not null, numbers blob not null,
    primary key (part, first_offset)
);
"""


@dataclass(slots=True)
class Tally:
    """Word counts of the records of one partition from `first_offset` to `next_offset`.

    `lines` are the line numbers of the records in the input.
    """

    partition: int
    first_offset: int
    next_offset: int
    lines: array[int] = field(default_factory=lambda: array("I"))
    words: Counter[bytes] = field(default_factory=Counter)


def create_store(path: Path) -> None:
    """Create the file, before the processes that open it.

    SQLite fails at once, without the busy timeout, if two connections turn a file to WAL mode at
    the same time. The mode stays in the file.
    """
    with closing(_connect(path)) as database:
        database.execute("pragma journal_mode = wal")
        database.executescript(TABLES)


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )


class Results:
    """One process's connection to the store, which `create_store` has created."""

    def __init__(self, path: Path) -> None:
        self._database = _connect(path)
        # Durable across a process crash, which the demo needs, but not across a machine crash.
        self._database.execute("pragma synchronous = off")

    def close(self) -> None:
        self._database.close()

    def position(self, partition: int) -> int:
        """Return the offset of the first uncounted record."""
        row = self._database.execute(
            "select next_offset from position where part = ?", (partition,)
        ).fetchone()
        return 0 if row is None else int(row[0])

    def positions(self) -> dict[int, int]:
        """Return the position of every partition that has one."""
        return dict(self._database.execute("select part, next_offset from position"))

    def add(self, tallies: Iterable[Tally]) -> list[int]:
        """Add tallies in one transaction; return the partitions whose tally is outdated."""
        late = []
        self._database.execute("begin immediate")
        try:
            for tally in tallies:
                if not self._move(tally):
                    late.append(tally.partition)
                    continue
                self._database.executemany(
                    "insert into word values (?, ?, ?)"
                    " on conflict do update set number = number + excluded.number",
                    ((word, tally.partition, number) for word, number in tally.words.items()),
                )
                self._database.execute(
                    "insert into line values (?, ?, ?)",
                    (tally.partition, tally.first_offset, tally.lines.tobytes()),
                )
            self._database.execute("commit")
        except BaseException:
            self._database.execute("rollback")
            raise
        return late

    def _move(self, tally: Tally) -> bool:
        """Advance the position past the tally's records; return False if it was not before them."""
        self._database.execute(
            "insert into position values (?, 0) on conflict do nothing", (tally.partition,)
        )
        moved = self._database.execute(
            "update position set next_offset = ? where part = ? and next_offset = ?",
            (tally.next_offset, tally.partition, tally.first_offset),
        )
        return moved.rowcount == 1

    def words(self) -> Counter[bytes]:
        """Return the count of each word over all partitions."""
        rows = self._database.execute("select word, sum(number) from word group by word")
        return Counter(dict(rows))

    def line_numbers(self) -> Iterable[array[int]]:
        """Yield the numbers of all counted lines in chunks, unordered."""
        for (blob,) in self._database.execute("select numbers from line"):
            numbers = array("I")
            numbers.frombytes(blob)
            yield numbers
