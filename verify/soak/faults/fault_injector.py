"""Injects faults on three nodes, and always reverts them, also when interrupted."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.brokers.kafka import Kafka, Node
from tests.brokers.releases import tail
from verify.soak.chain import in_sync
from verify.soak.faults import disks
from verify.soak.faults.packet_filter import Direction, cut
from verify.soak.faults.plan import Fault, Kind
from verify.soak.reporters import WaitFailed

POLL_INTERVAL_S = 0.25
IN_SYNC_SECONDS = 90.0
"""Longest time until all replicas are in sync again, on a busy machine."""


class Load(Protocol):
    """The applications that run meanwhile."""

    def check(self) -> None:
        """Raise `WaitFailed` if an application exited by itself."""

    def replace_worker(self, number: int) -> str:
        """Kill a worker and start another one in its place; return its name."""


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """An injected fault: its start and end, and when all replicas were in sync again."""

    fault: Fault
    whom: str
    began: float
    reverted: float
    in_sync: float
    remark: str = ""


class FaultInjector:
    """Injects faults by kind; each method returns the target and a remark."""

    def __init__(self, kafka: Kafka, load: Load) -> None:
        self._kafka = kafka
        self._load = load
        self._injectors: dict[Kind, Callable[[Fault], tuple[str, str]]] = {
            Kind.KILL: self._kill,
            Kind.FREEZE: self._pause,
            Kind.ROLL: self._roll,
            Kind.CUT: lambda fault: self._cut(fault, Direction.BOTH),
            Kind.REQUESTS_LOST: lambda fault: self._cut(fault, Direction.TO),
            Kind.RESPONSES_LOST: lambda fault: self._cut(fault, Direction.FROM),
            Kind.ISOLATED: self._isolate,
            Kind.FULL: self._fill,
            Kind.WORKER: self._worker,
        }

    def inject(self, fault: Fault) -> InjectedFault:
        """Inject one fault: wait before it, and until all replicas are in sync after it."""
        self.pause(fault.calm_seconds)
        began = time.monotonic()
        whom, remark = self._injectors[fault.kind](fault)
        reverted = time.monotonic()
        self.settle()
        return InjectedFault(fault, whom, began, reverted, time.monotonic(), remark)

    def pause(self, seconds: float) -> None:
        """Sleep, unless an application exits."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._load.check()
            time.sleep(min(left, POLL_INTERVAL_S))

    def settle(self) -> None:
        """Wait until all replicas are in sync."""
        end = time.monotonic() + IN_SYNC_SECONDS
        while not in_sync(self._kafka.bootstrap_servers):
            for node in self._kafka.nodes:
                if node.process is None or node.process.returncode is not None:
                    output = node.process.output() if node.process else ""
                    raise WaitFailed(f"node {node.node_id} ended by itself:\n{tail(output)}")
            if time.monotonic() > end:
                raise WaitFailed(f"not all replicas in sync after {IN_SYNC_SECONDS:.0f} s")
            self.pause(POLL_INTERVAL_S)

    def _node(self, fault: Fault) -> tuple[Node, str]:
        node = self._kafka.nodes[fault.target]
        return node, f"node {node.node_id}"

    def _kill(self, fault: Fault) -> tuple[str, str]:
        node, name = self._node(fault)
        node.kill()
        self.pause(fault.seconds)
        self._kafka.start_node(node)
        return name, ""

    def _pause(self, fault: Fault) -> tuple[str, str]:
        node, name = self._node(fault)
        node.suspend()
        try:
            self.pause(fault.seconds)
        finally:
            node.resume()
        return name, ""

    def _roll(self, fault: Fault) -> tuple[str, str]:
        nodes = self._kafka.nodes
        for step in range(len(nodes)):
            node = nodes[(fault.target + step) % len(nodes)]
            node.stop()
            self._kafka.start_node(node)
            self.settle()
        return "all nodes", ""

    def _cut(self, fault: Fault, way: Direction) -> tuple[str, str]:
        node, name = self._node(fault)
        with cut(way, [node.port]):
            self.pause(fault.seconds)
        return name, ""

    def _isolate(self, fault: Fault) -> tuple[str, str]:
        node, name = self._node(fault)
        ports = [node.controller_port]
        if node.inter_broker_port is not None:
            ports.append(node.inter_broker_port)
        with cut(Direction.BOTH, ports):
            self.pause(fault.seconds)
        return name, ""

    def _fill(self, fault: Fault) -> tuple[str, str]:
        node, name = self._node(fault)
        disk = data_of(node)
        taken = disks.fill(disk)
        try:
            self.pause(fault.seconds)
            alone = node.process is not None and node.process.returncode is not None
            node.kill()
        finally:
            disks.empty(disk)
        self._kafka.start_node(node)
        how = "gave up by itself" if alone else "was killed"
        return name, f"{taken // 2**20} MiB taken; it {how}"

    def _worker(self, fault: Fault) -> tuple[str, str]:
        return self._load.replace_worker(fault.target), ""


def data_of(node: Node) -> Path:
    """Return the directory of a node's log."""
    return node.directory / "data"
