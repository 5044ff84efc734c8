"""Cancel every public coroutine at every await: `python -m tests.cancellation` prints the table.

The table has a row for each case: the coroutine, and the number of calls on each backend. Each call
is cancelled at another suspension or in another way; the last one of each way is not cancelled.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import anyio

from aiokafkawire.broker import Broker
from tests.cancellation import test_consumer, test_producer, test_share, test_transactions
from tests.cancellation.cancellation_case import CancellationCase, cancel_at_each_suspension

__all__ = ("CASES", "rows_of", "table")

BACKENDS = ("asyncio", "trio")

CASES: tuple[type[CancellationCase], ...] = (
    *test_producer.CASE_CLASSES,
    *test_transactions.CASE_CLASSES,
    *test_consumer.CASE_CLASSES,
    *test_share.CASE_CLASSES,
)
"""All cases; a test checks that every public coroutine has one."""

HEADS = ("Coroutine", "Case", *(f"Calls on {backend}" for backend in BACKENDS))


async def _tried(case: type[CancellationCase]) -> str:
    try:
        async with Broker(group_min_session_timeout_ms=100) as broker:
            return str(await cancel_at_each_suspension(case(broker)))
    except Exception as error:
        print(f"{case.__name__}: {error!r} {getattr(error, '__notes__', '')}", file=sys.stderr)
        return "FAILED"


def rows_of(case: type[CancellationCase]) -> tuple[str, ...]:
    """Return the row of a case, tried on each backend."""
    tried: list[Any] = [anyio.run(_tried, case, backend=backend) for backend in BACKENDS]
    return (f"`{case.covers}`", case.__name__, *tried)


def table(rows: list[tuple[str, ...]]) -> str:
    lines = [HEADS, ("---",) * len(HEADS), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.cancellation", description=__doc__)
    parser.add_argument("names", nargs="*", help="of cases; all unless given")
    asked = parser.parse_args()
    cases = [case for case in CASES if not asked.names or case.__name__ in asked.names]
    rows = [rows_of(case) for case in sorted(cases, key=lambda case: case.covers)]
    print(table(rows))
    return any("FAILED" in row for row in rows)


if __name__ == "__main__":
    sys.exit(main())
