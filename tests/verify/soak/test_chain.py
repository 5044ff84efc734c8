"""The chain's faults, with fake processes."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any

import pytest

from verify.soak import chain as chains
from verify.soak.chain import FaultPlan, FaultSchedule, Stage


class FakeProcess:
    def __init__(self, name: str, module: str, arguments: Any) -> None:
        self.name = name
        self.ended: int | None = None
        self.signals: list[signal.Signals] = []
        self.killed = False
        self.events: list[dict[str, Any]] = []

    def send(self, number: signal.Signals) -> None:
        self.signals.append(number)

    def kill(self) -> None:
        self.killed = True


class FakeKafka:
    bootstrap_servers = "b"

    def __init__(self) -> None:
        self.killed: list[int] = []
        self.started: list[int] = []
        self.nodes = [
            SimpleNamespace(number=n, kill=lambda n=n: self.killed.append(n)) for n in range(3)
        ]

    def start_node(self, node: Any) -> None:
        self.started.append(node.number)

    def start(self) -> None:
        self.started.append(-1)


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(chains, "time", clock)
    monkeypatch.setattr(chains, "ReportingProcess", FakeProcess)
    monkeypatch.setattr(chains, "in_sync", lambda servers: clock.now % 7 > 1)
    return clock


def test_workers_are_killed_and_replaced_and_one_node_at_a_time_goes(clock: Clock) -> None:
    kafka: Any = FakeKafka()
    stages = [Stage(kafka, "a", "b", "transactions"), Stage(kafka, "b", "c", "transactions")]
    fault_plan = FaultPlan()
    chaos = FaultSchedule(kafka, stages, fault_plan)
    work = 0
    while not chaos.enough:
        assert chaos.kills + chaos.stops <= work / fault_plan.between_kills
        assert chaos.restarts <= work / fault_plan.between_restarts
        for stage in stages:
            work += 1
            stage.workers[0].events.append({"what": "copied"})
        assert work < 10_000
        chaos.turn()
        assert abs(len(kafka.killed) - len(kafka.started)) <= 1
        clock.now += 0.05
    assert chaos.stops >= 1
    assert kafka.killed[:3] == kafka.started[:3] == [0, 1, 2]
    everyone: Any = [worker for stage in stages for worker in stage.all]
    assert sum(worker.killed for worker in everyone) == chaos.kills
    assert len(everyone) == 6 + chaos.kills
    chaos.end()
    assert kafka.started[-1] == -1
    for worker in everyone:
        frozen = len(worker.signals) // 2
        assert worker.signals == [signal.SIGSTOP, signal.SIGCONT] * frozen
    for stage in stages:
        assert len({worker.name for worker in stage.workers}) == 3


def test_a_worker_that_ended_by_itself_is_seen(clock: Clock) -> None:
    kafka: Any = FakeKafka()
    stage = Stage(kafka, "a", "b", "plain")
    assert stage.ended is None
    worker: Any = stage.workers[1]
    worker.ended = 1
    assert stage.ended is worker
