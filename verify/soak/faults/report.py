"""Report of a run as tables."""

from __future__ import annotations

from itertools import pairwise

from verify.invariants.checker import INVARIANTS
from verify.soak.faults.check_run import Counts, Silences, counts_of
from verify.soak.faults.load import GROUPS, ORDERS
from verify.soak.faults.run import Outcome
from verify.soak.tables import table

GUARANTEES = {
    1: "an acknowledged record is readable at its offset",
    2: "no record stands twice in the log",
    3: "each producer's order in each partition",
    4: "a failed record is not there",
    5: "no poll skips or goes back",
    6: "no committed offset goes back or passes what was given",
    7: "no commit of a partition that is another's",
    8: "each partition of a stable group is consumed",
    9: "each call ends by its deadline",
    10: "nothing is left after closing",
    11: "everything is consumed a minute after the last fault",
    12: "errors are typed",
    13: "no secret is written anywhere",
    14: "a transaction is visible whole or not at all",
}
"""The invariants in a few words."""
SHOWN_PROBLEMS = 20
SHOWN_CALLS = 6


def lines(outcome: Outcome) -> list[str]:
    """Return the lines of the report: faults, amounts and findings."""
    counts = counts_of(outcome.history)
    found = [*_faults(outcome), "", *_load(outcome, counts), "", *_promises(outcome)]
    for problem in outcome.problems[:SHOWN_PROBLEMS]:
        found.append(f"  PROBLEM: {problem}")
    if (more := len(outcome.problems) - SHOWN_PROBLEMS) > 0:
        found.append(f"  and {more} more")
    return found


def _faults(outcome: Outcome) -> list[str]:
    if not outcome.happened:
        return ["  no faults"]
    silences = Silences(outcome.history)
    begun = outcome.history[0].at if outcome.history else 0.0
    rows: list[list[object]] = []
    last = outcome.happened[-1].in_sync
    borders = [*(each.began for each in outcome.happened), last]
    for number, (each, (began, until)) in enumerate(
        zip(outcome.happened, pairwise(borders), strict=True), start=1
    ):
        reading, group = silences.reading(began, until)
        what = each.fault.kind.value + (f"; {each.remark}" if each.remark else "")
        rows.append(
            [
                number,
                each.began - begun,
                each.whom,
                what,
                each.reverted - each.began,
                each.in_sync - each.reverted,
                silences.sending(began, until),
                reading,
                group,
            ]
        )
    head = ("#", "at s", "who", "what", "for s", "in sync s", "sending s", "reading s", "group")
    return [
        *table(head, rows),
        "  (in sync: until all replicas were again; sending: the longest time without an",
        "  acknowledgement in any partition; reading: without records for any group, and which)",
    ]


def _load(outcome: Outcome, counts: Counts) -> list[str]:
    stored = outcome.read_contents.records
    committed = outcome.read_contents.committed_records
    rows: list[list[object]] = []
    for topic, by_partition in stored.items():
        visible = sum(map(len, committed[topic].values()))
        every = sum(map(len, by_partition.values()))
        remark = "" if topic == ORDERS else f"{every - visible:,} of aborted transactions"
        rows.append([f"{topic}: acknowledged", counts.acknowledged[topic], ""])
        rows.append([f"{topic}: stored and committed", visible, remark])
    for kind, count in sorted(counts.failed.items()):
        rows.append([f"records not acknowledged ({kind})", count, ""])
    for group in GROUPS:
        again = f"{counts.again[group]:,} of them again"
        rows.append([f"{group}: records given", counts.delivered[group], again])
    for group, places in outcome.read_contents.group_commits.items():
        rows.append([f"{group}: offsets that coordinators stored", len(places), ""])
    rows += [[f"manual commits: {kind}", count, ""] for kind, count in counts.commits.items()]
    rows += [[f"transactions: {kind}", count, ""] for kind, count in counts.transactions.items()]
    rows.append(["transactional producers restarted", outcome.began_again, ""])
    slow = sorted(counts.longest.items(), key=lambda each: -each[1])[:SHOWN_CALLS]
    longest = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in slow)
    rows.append(["calls", counts.calls, f"the longest: {longest}"])
    rows += [
        [f"calls that raised ({name})", count, ""] for name, count in sorted(counts.errors.items())
    ]
    return table(("what", "how many", ""), rows)


def _promises(outcome: Outcome) -> list[str]:
    check_result = outcome.check_result
    if check_result is None:
        return []
    found: dict[int, int] = {}
    for violation in check_result.violations:
        found[violation.invariant] = found.get(violation.invariant, 0) + 1
    not_checked = dict.fromkeys(GUARANTEES.keys() - INVARIANTS.keys(), "not looked for")
    not_checked |= check_result.not_checked
    rows: list[list[object]] = [
        [number, text, not_checked.get(number) or f"{found.get(number, 0)} violations"]
        for number, text in GUARANTEES.items()
    ]
    others = len(outcome.problems) - len(check_result.violations)
    rows.append(["", "our reader and another client read the same;", ""])
    rows.append(["", "stored commits never go back; each copy stands once", f"{others} violations"])
    return table(("#", "promised", "found"), rows)
