"""A run waits until all is consumed, and reports what it has, however it ends."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaException

from verify.invariants.checker import CheckResult, Violation
from verify.invariants.events import FaultsHealed, GroupsStable, TopicCreated
from verify.soak.faults import run as runs
from verify.soak.faults.check_run import FinalContents
from verify.soak.faults.plan import Fault, Kind
from verify.soak.faults.run import Outcome, Run
from verify.soak.reporters import WaitFailed

RECORDS = {0: [(0, b"a"), (3, b"b")], 1: [(5, b"c")]}


class Scene:
    """Fakes of the nodes, the applications and what reads the brokers."""

    killed: tuple[()] = ()

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.now = 0.0
        self.done: list[str] = []
        self.committed: list[dict[int, int | None]] = []
        self.without_coordinator = 0
        self.check_result = CheckResult((), {})
        kafka: Any = SimpleNamespace(
            bootstrap_servers="b", create_topic=lambda name, **_: self.done.append(name)
        )
        self.run = Run(kafka, tmp_path, self.done.append)
        self.outcome = Outcome()
        for name, fake in {
            "time": self,
            "Applications": lambda jobs: self,
            "FaultInjector": lambda kafka, applications: self,
            "confluent_reader": self,
        }.items():
            monkeypatch.setattr(runs, name, fake)
        monkeypatch.setattr(
            "verify.soak.faults.check_run.read_contents", lambda servers: FinalContents()
        )
        monkeypatch.setattr(
            "verify.soak.faults.check_run.check_result",
            lambda history, read_contents: self.check_result,
        )
        monkeypatch.setattr("verify.soak.faults.check_run.check_copies", lambda read_contents: [])

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    # the applications
    def entered(self) -> bool:
        return True

    def check_workers(self) -> None:
        self.done.append("looked")

    def end_producers(self) -> None:
        self.done.append("producers ended")

    def end_workers(self) -> None:
        self.done.append("workers ended")

    def again(self) -> int:
        return 2

    def close(self) -> None:
        self.done.append("closed")

    # the wrecker
    def settle(self) -> None:
        self.done.append("settled")

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def inject(self, fault: Fault) -> Any:
        self.now += 10.0
        return SimpleNamespace(fault=fault, whom="node 1")

    # what reads
    def records(self, *_: object, **__: object) -> dict[int, list[tuple[int, bytes]]]:
        return RECORDS

    def committed_offsets(self, *_: object) -> dict[int, int | None]:
        if self.without_coordinator:
            self.without_coordinator -= 1
            raise KafkaException("NOT_COORDINATOR")
        return self.committed.pop(0) if self.committed else {0: 4, 1: 6}


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Scene:
    return Scene(monkeypatch, tmp_path)


def test_a_coordinator_that_still_moves_is_waited_for(scene: Scene) -> None:
    scene.without_coordinator = 3
    scene.run.perform([], 0.0, scene.outcome)
    assert scene.without_coordinator == 0
    assert "workers ended" in scene.done


def test_a_coordinator_that_never_comes_ends_the_wait(scene: Scene) -> None:
    scene.without_coordinator = 10_000
    with pytest.raises(KafkaException, match="NOT_COORDINATOR"):
        scene.run.perform([], 0.0, scene.outcome)
    assert scene.now > runs.CONSUMED_SECONDS


def test_faults_come_until_the_time_is_over_then_all_is_ended_and_judged(scene: Scene) -> None:
    scene.check_result = CheckResult((Violation(1, "lost"),), {})
    scene.run.perform([Fault(Kind.KILL)] * 9, 25.0, scene.outcome)
    assert len(scene.outcome.happened) == 3, "the last begins before the time is over"
    assert scene.done[:3] == ["orders", "copies", "finals"]
    ends = [scene.done.index(what) for what in ("producers ended", "workers ended", "closed")]
    assert ends == sorted(ends)
    assert scene.outcome.problems == ["(1) lost"]
    assert scene.outcome.began_again == 2
    assert isinstance(scene.outcome.history[0], TopicCreated)
    healed, settled = scene.outcome.history[-2:]
    assert isinstance(healed, FaultsHealed)
    assert isinstance(settled, GroupsStable)


def test_it_waits_until_each_group_has_all(scene: Scene) -> None:
    scene.committed = [{0: 4, 1: None}, {0: 3, 1: 6}]
    scene.run.perform([], 1.0, scene.outcome)
    assert scene.outcome.consumed_after == pytest.approx(1.0)


def test_a_group_without_progress_is_named(scene: Scene) -> None:
    scene.committed = [{0: 4, 1: None}] * 1_000
    with pytest.raises(WaitFailed, match="hand has not consumed all"):
        scene.run.perform([], 1.0, scene.outcome)
    assert scene.done[-1] == "closed"
    assert scene.outcome.history, "what was written down is there for the report"
