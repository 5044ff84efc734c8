"""Each kind of fault is reverted, also when it is cut short."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from verify.soak.faults import fault_injector as wreckers
from verify.soak.faults.fault_injector import FaultInjector
from verify.soak.faults.packet_filter import Direction
from verify.soak.faults.plan import Fault, Kind
from verify.soak.reporters import WaitFailed


class FakeNode:
    def __init__(self, node_id: int, done: list[str]) -> None:
        self.node_id = node_id
        self.port, self.controller_port, self.inter_broker_port = (
            base + node_id for base in (100, 200, 300)
        )
        self.directory = Path(f"/node-{node_id}")
        self.process: Any = SimpleNamespace(returncode=None, output=lambda: "its log")
        self._done = done

    def __getattr__(self, name: str) -> Any:
        return lambda: self._done.append(f"{name} {self.node_id}")


class Scene:
    """Fakes of all that a wrecker works with; `done` is what was done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        self.now = 0.0
        self.nodes = [FakeNode(number, self.done) for number in (1, 2, 3)]
        self.ended_at: float | None = None
        self.whole_at = 0.0
        monkeypatch.setattr(wreckers, "time", self)
        monkeypatch.setattr(wreckers, "in_sync", lambda servers: self.now >= self.whole_at)
        monkeypatch.setattr(wreckers, "cut", self.cut)
        monkeypatch.setattr(wreckers, "disks", self)
        kafka: Any = SimpleNamespace(
            nodes=self.nodes,
            bootstrap_servers="b",
            start_node=lambda node: self.done.append(f"start {node.node_id}"),
        )
        load: Any = self
        self.fault_injector = FaultInjector(kafka, load)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def check(self) -> None:
        if self.ended_at is not None and self.now >= self.ended_at:
            raise WaitFailed("an application ended")

    def replace_worker(self, number: int) -> str:
        self.done.append(f"replace {number}")
        return f"worker {number}"

    @contextmanager
    def cut(self, way: Direction, ports: Sequence[int]) -> Iterator[None]:
        self.done.append(f"cut {way.name} {list(ports)}")
        try:
            yield
        finally:
            self.done.append("joined")

    def fill(self, place: Path) -> int:
        self.done.append(f"fill {place}")
        return 5 * 2**20

    def empty(self, place: Path) -> None:
        self.done.append(f"empty {place}")


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


EXPECTED = {
    Kind.KILL: ["kill 2", "start 2"],
    Kind.FREEZE: ["suspend 2", "resume 2"],
    Kind.ROLL: ["stop 2", "start 2", "stop 3", "start 3", "stop 1", "start 1"],
    Kind.CUT: ["cut BOTH [102]", "joined"],
    Kind.REQUESTS_LOST: ["cut TO [102]", "joined"],
    Kind.RESPONSES_LOST: ["cut FROM [102]", "joined"],
    Kind.ISOLATED: ["cut BOTH [202, 302]", "joined"],
    Kind.FULL: ["fill /node-2/data", "kill 2", "empty /node-2/data", "start 2"],
    Kind.WORKER: ["replace 1"],
}


@pytest.mark.parametrize("kind", Kind)
def test_each_fault_is_injected_and_reverted(kind: Kind, scene: Scene) -> None:
    lasts = 0.0 if kind in (Kind.ROLL, Kind.WORKER) else 10.0
    happened = scene.fault_injector.inject(Fault(kind, 1, lasts, calm_seconds=3.0))
    assert scene.done == EXPECTED[kind]
    assert happened.began == pytest.approx(3.0)
    assert happened.reverted == pytest.approx(3.0 + lasts)


@pytest.mark.parametrize("kind", [Kind.FREEZE, Kind.CUT, Kind.FULL])
def test_an_interrupted_fault_is_reverted(kind: Kind, scene: Scene) -> None:
    scene.ended_at = 6.0
    with pytest.raises(WaitFailed, match="an application ended"):
        scene.fault_injector.inject(Fault(kind, 1, 10.0, calm_seconds=3.0))
    reverted = {Kind.FREEZE: "resume 2", Kind.CUT: "joined", Kind.FULL: "empty /node-2/data"}
    assert scene.done[-1] == reverted[kind]


def test_a_node_that_stopped_on_a_full_disk_is_reported(scene: Scene) -> None:
    scene.nodes[0].process.returncode = 1
    scene.fault_injector.settle()
    assert scene.fault_injector.inject(Fault(Kind.FULL, 0, 1.0)).remark.endswith(
        "gave up by itself"
    )
    assert scene.fault_injector.inject(Fault(Kind.FULL, 1, 1.0)).remark.endswith("was killed")


def test_the_next_fault_waits_for_all_replicas(scene: Scene) -> None:
    scene.whole_at = 20.0
    happened = scene.fault_injector.inject(Fault(Kind.KILL, 0, 4.0, calm_seconds=1.0))
    assert happened.in_sync == pytest.approx(20.0)
    scene.whole_at = 1_000.0
    with pytest.raises(WaitFailed, match="not all replicas in sync"):
        scene.fault_injector.settle()
    scene.nodes[2].process.returncode = 1
    with pytest.raises(WaitFailed, match=r"node 3 ended by itself:\nits log"):
        scene.fault_injector.settle()
