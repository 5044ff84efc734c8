"""Visible state of the demo: plain values that `demo_run` changes and `view` shows."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ("RATE_WINDOW_S", "DemoEvent", "Rate", "Stage", "WorkerProcess")

RATE_WINDOW_S = 2.0
MAX_EVENTS = 100
OVER = frozenset({"killed", "done"})
"""Worker states in which its last assignment stays and its events are ignored."""


class Rate:
    """Rate of a count over the last `RATE_WINDOW_S` seconds."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, int]] = deque()

    def note(self, now: float, count: int) -> float:
        """Add a point; return the rate per second."""
        self._points.append((now, count))
        while len(self._points) > 2 and self._points[1][0] <= now - RATE_WINDOW_S:
            self._points.popleft()
        began, first = self._points[0]
        return (count - first) / (now - began) if now > began else 0.0


@dataclass(slots=True)
class WorkerProcess:
    """One worker process."""

    name: str
    pid: int
    state: str = "starting"
    partitions: tuple[int, ...] = ()
    processed: int = 0


@dataclass(frozen=True, slots=True)
class DemoEvent:
    """An event, `at` seconds after the start."""

    at: float
    text: str


@dataclass(slots=True)
class Stage:
    """State of the demo."""

    partitions: int
    total: int = 0
    sent: int = 0
    positions: dict[int, int] = field(default_factory=dict)
    workers: dict[str, WorkerProcess] = field(default_factory=dict)
    nodes: dict[int, bool] = field(default_factory=dict)
    events: deque[DemoEvent] = field(default_factory=lambda: deque(maxlen=MAX_EVENTS))

    @property
    def processed(self) -> int:
        """Number of records in the results. Every partition starts at offset 0."""
        return sum(self.positions.values())

    @property
    def lag(self) -> int:
        return max(0, self.sent - self.processed)

    @property
    def owners(self) -> dict[int, str]:
        """Worker of each partition."""
        return {
            partition: worker.name
            for worker in self.workers.values()
            for partition in worker.partitions
        }

    def apply(self, name: str, report: Mapping[str, Any]) -> str | None:
        """Apply an event of a worker; return a sentence if it is worth showing."""
        worker = self.workers[name]
        for text, position in report.get("positions", {}).items():
            partition = int(text)
            self.positions[partition] = max(self.positions.get(partition, 0), position)
        event = report["event"]
        if event == "counted":
            worker.processed += report["records"]
        elif event == "late":
            late = report["partitions"]
            were = "partition" if len(late) == 1 else "partitions"
            was = "was" if len(late) == 1 else "were"
            return f"{name} was too late: {were} {ranges(late)} {was} counted by another worker"
        elif worker.state in OVER:
            return None
        elif event == "assigned":
            worker.state = "working"
            worker.partitions = tuple(report["partitions"])
            return f"{name} has partitions {ranges(worker.partitions)}"
        elif event == "revoked":
            worker.state = "rebalancing"
            worker.partitions = ()
        return None


def ranges(numbers: tuple[int, ...] | list[int]) -> str:
    """Format numbers as ranges: 0-3, 7 for 0, 1, 2, 3, 7."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    shown = [str(low) if low == high else f"{low}-{high}" for low, high in runs]
    return ", ".join(shown) or "none"
