"""Check a history against the guarantees: `check(history, observed, guarantees)`.

Each invariant is one function in `checks`. It does no I/O, reads no clock, and needs few passes
over the history.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Sequence

from verify.invariants.check_result import CheckResult, Guarantees, Violation
from verify.invariants.checks import (
    calls,
    commits,
    consumed_after_heal,
    groups,
    logs,
    reading,
    share_groups,
    transactions,
)
from verify.invariants.checks.finding import NotChecked
from verify.invariants.events import Event
from verify.invariants.observed import Observed
from verify.invariants.run import Run

__all__ = ("INVARIANTS", "CheckResult", "Guarantees", "Violation", "check", "judge")

INVARIANTS: dict[int, Callable[[Run], Iterable[Violation]]] = {
    1: logs.acknowledged_is_readable,
    2: logs.no_duplicates,
    3: logs.in_order,
    4: logs.failed_records_are_absent,
    5: reading.reading_is_continuous,
    6: commits.commits_are_correct,
    7: groups.only_owners_commit,
    8: groups.every_partition_is_owned,
    9: calls.calls_end_in_time,
    10: calls.nothing_leaks,
    11: consumed_after_heal.everything_is_consumed,
    12: calls.errors_are_typed,
    13: calls.no_secret_is_logged,
    14: transactions.transactions_are_whole,
    15: share_groups.each_record_has_one_holder,
    16: share_groups.each_record_is_finished_once,
    17: share_groups.results_are_true,
}


def check(history: Sequence[Event], observed: Observed, guarantees: Guarantees) -> list[Violation]:
    """Return every violation of the invariants."""
    return list(judge(history, observed, guarantees).violations)


def judge(history: Sequence[Event], observed: Observed, guarantees: Guarantees) -> CheckResult:
    """Return the violations, and the invariants that could not be checked with the reason."""
    run = Run(history, observed, guarantees)
    violations: list[Violation] = []
    not_checked: dict[int, str] = {}
    # Many objects are made and none is freed: garbage collection would only cost time.
    collects = gc.isenabled()
    gc.disable()
    try:
        for number, invariant in INVARIANTS.items():
            try:
                violations += invariant(run)
            except NotChecked as reason:
                not_checked[number] = str(reason)
    finally:
        if collects:
            gc.enable()
    return CheckResult(tuple(violations), not_checked)
