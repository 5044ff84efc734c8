from __future__ import annotations

from pathlib import Path

import pytest

from verify.soak.faults import __main__ as main
from verify.soak.faults.plan import IN_SANDBOX, SHORT, Kind


def test_a_short_run_has_fixed_faults_and_a_long_one_those_of_its_seed() -> None:
    assert main.planned(2, 1, sandboxed=True) == main.planned(2, 2, sandboxed=True)
    assert main.planned(2, 1, sandboxed=True) == (list(SHORT), len(SHORT))
    faults, least = main.planned(10, 7, sandboxed=True)
    assert least == 12
    assert {fault.kind for fault in faults[: len(Kind)]} == set(Kind)
    assert main.planned(10, 8, sandboxed=True)[0] != faults
    bare, least = main.planned(2, 1, sandboxed=False)
    assert not {fault.kind for fault in bare} & set(IN_SANDBOX)
    assert least == len(bare) > 0


class Calls:
    """Fake sandbox and run that record their calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, missing_requirement: str | None) -> None:
        self.inside: list[list[str]] = []
        self.conducted: list[Path] = []
        monkeypatch.setattr(main, "java_for", lambda release: None)
        monkeypatch.setattr(main, "fetch", lambda release: None)
        monkeypatch.setattr(
            "verify.soak.faults.sandbox.missing_requirement", lambda: missing_requirement
        )
        monkeypatch.setattr("verify.soak.faults.sandbox.run", self.run)
        monkeypatch.setattr(main, "perform", self.perform)
        monkeypatch.setattr("signal.signal", lambda *_: None)

    def run(self, arguments: list[str]) -> int:
        self.inside.append(arguments)
        return 5

    def perform(self, options: object, place: Path) -> int:
        assert place.is_dir()
        self.conducted.append(place)
        return 6


def test_it_runs_itself_inside_a_sandbox_where_one_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch, None)
    assert main.main(["--minutes", "2"]) == 5
    (given,) = calls.inside
    assert given[:4] == ["-m", "verify.soak.faults", "--minutes", "2"]
    assert main.parsed(given[2:]).folder is not None
    assert not main.parsed(given[2:]).folder.exists(), "removed at the end"
    assert calls.conducted == []


def test_it_runs_without_one_and_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = Calls(monkeypatch, "there is no tc")
    assert main.main([]) == 6
    assert len(calls.conducted) == 1
    assert "without dropped packets and full disks: there is no tc" in capsys.readouterr().out
    assert main.main(["--folder", str(Path(__file__).parent)]) == 6, "as it runs itself inside"
