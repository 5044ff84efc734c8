"""The report names what happened and what was found."""

from __future__ import annotations

from verify.invariants.checker import CheckResult, Violation
from verify.invariants.events import Acknowledged, Polled, TopicCreated
from verify.soak.checker import PartitionOffset
from verify.soak.faults.check_run import FinalContents
from verify.soak.faults.fault_injector import InjectedFault
from verify.soak.faults.plan import Fault, Kind
from verify.soak.faults.report import GUARANTEES, SHOWN_PROBLEMS, lines
from verify.soak.faults.run import Outcome


def outcome(*violations: Violation) -> Outcome:
    records = {0: [(0, b"a"), (1, b"b")]}
    return Outcome(
        happened=[
            InjectedFault(Fault(Kind.FREEZE, 1, 5.0), "node 2", 110.0, 115.0, 117.0),
            InjectedFault(Fault(Kind.FULL, 0, 5.0), "node 1", 120.0, 125.0, 130.0, "9 MiB taken"),
        ],
        history=[
            TopicCreated(100.0, "", "orders", 6),
            Acknowledged(112.0, "producer-1", 1, "orders", 0, ((0, b"a"),)),
            Acknowledged(118.0, "producer-1", 2, "orders", 0, ((1, b"b"),)),
            Polled(119.0, "hand-1", "orders", 0, ((0, b"a"), (1, b"b")), 2),
        ],
        read_contents=FinalContents(
            {"orders": records, "copies": records},
            {"orders": records, "copies": {0: [(0, b"a")]}},
            {"hand": [PartitionOffset(0, 2)]},
        ),
        check_result=CheckResult(violations, {7: "requests are not known"}),
        problems=[str(violation) for violation in violations],
    )


def test_the_report_lists_faults_and_amounts() -> None:
    text = "\n".join(lines(outcome()))
    for part in (
        "1  10.0  node 2  frozen (SIGSTOP)",
        "2  20.0  node 1  disk full; 9 MiB taken",
        "orders: acknowledged",
        "1 of aborted transactions",
        "requests are not known",
    ):
        assert part in text
    first = next(line for line in text.splitlines() if "frozen" in line)
    assert first.split()[-5:] == ["5.0", "2.0", "10.0", "10.0", "second"]
    for promise in GUARANTEES.values():
        assert promise in text
    assert "PROBLEM" not in text


def test_findings_are_counted_by_guarantee() -> None:
    found = lines(outcome(*(Violation(1, f"lost {n}") for n in range(SHOWN_PROBLEMS + 2))))
    assert sum("PROBLEM: (1) lost" in line for line in found) == SHOWN_PROBLEMS
    assert found[-1] == "  and 2 more"
    assert any("an acknowledged record" in line and "22 violations" in line for line in found)


def test_a_run_that_failed_early_has_a_report() -> None:
    assert "no faults" in lines(Outcome(problems=["x"]))[0]
    assert lines(Outcome(happened=outcome().happened, problems=["x"]))
