from __future__ import annotations

from itertools import islice

from verify.soak.faults.plan import IN_SANDBOX, SECONDS, SHORT, Kind, drawn, possible


def test_each_kind_comes_once_a_round_and_a_seed_gives_the_same_again() -> None:
    kinds = possible(sandboxed=True)
    faults = list(islice(drawn(7, kinds, 3, 4), 3 * len(kinds)))
    for begin in range(0, len(faults), len(kinds)):
        assert {fault.kind for fault in faults[begin : begin + len(kinds)]} == set(Kind)
    assert faults == list(islice(drawn(7, kinds, 3, 4), len(faults)))
    assert faults != list(islice(drawn(8, kinds, 3, 4), len(faults)))
    for fault in faults:
        least, most = SECONDS.get(fault.kind, (0.0, 0.0))
        assert least <= fault.seconds <= most
        assert 0 <= fault.target < (4 if fault.kind is Kind.WORKER else 3)
    assert {fault.target for fault in faults if fault.kind is not Kind.WORKER} == {0, 1, 2}


def test_without_a_sandbox_there_are_faults_of_processes_alone() -> None:
    kinds = possible(sandboxed=False)
    assert kinds == [Kind.KILL, Kind.FREEZE, Kind.ROLL, Kind.WORKER]
    assert {fault.kind for fault in SHORT} & set(IN_SANDBOX), "the short run has some of them"
