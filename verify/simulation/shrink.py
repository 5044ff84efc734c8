"""Find the shortest plan that still fails, by removing steps, clients and records in turn."""

from __future__ import annotations

from collections.abc import Callable

from verify.simulation.plan import Plan

__all__ = ("MAX_RUNS", "Shrinker", "Shrunk", "shrink")

MAX_RUNS = 120
"""Maximum number of runs per plan; the shortest plan by then is used."""


class Shrunk:
    """The remaining steps and clients of a plan by number, and the number of records."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.steps = list(range(len(plan.steps)))
        self.clients = list(range(len(plan.clients)))
        self.records = plan.records

    def made(self) -> Plan:
        return self.plan.only(steps=self.steps, clients=self.clients, records=self.records)


class Shrinker:
    """Tries at most `max_runs` shorter plans. `fails` returns whether a plan fails as the first
    did."""

    def __init__(self, plan: Plan, fails: Callable[[Plan], bool], max_runs: int = MAX_RUNS) -> None:
        self.left = Shrunk(plan)
        self.runs = 0
        self._fails = fails
        self._max_runs = max_runs

    def shrink(self) -> Shrunk:
        """Continue until nothing can be removed, or all runs are used."""
        before = -1
        while before != self._size() and self.runs < self._max_runs:
            before = self._size()
            self._without("steps")
            self._without("clients")
            self._fewer_records()
        return self.left

    def _size(self) -> int:
        return len(self.left.steps) + len(self.left.clients) + self.left.records

    def _try(self, name: str, value: list[int] | int) -> bool:
        """Try another value; keep it and return True if the run still fails."""
        if self.runs >= self._max_runs:
            return False
        self.runs += 1
        before = getattr(self.left, name)
        setattr(self.left, name, value)
        if self._fails(self.left.made()):
            return True
        setattr(self.left, name, before)
        return False

    def _without(self, name: str) -> None:
        """Delta debugging: leave out halves, then quarters, down to single ones."""
        size = max(1, len(getattr(self.left, name)))
        while size:
            start = 0
            while start < len(numbers := getattr(self.left, name)):
                if not self._try(name, numbers[:start] + numbers[start + size :]):
                    start += size
            size //= 2

    def _fewer_records(self) -> None:
        step = self.left.records
        while step:
            if step > self.left.records or not self._try("records", self.left.records - step):
                step //= 2


def shrink(plan: Plan, fails: Callable[[Plan], bool], max_runs: int = MAX_RUNS) -> Shrunk:
    """Return the shortest plan found that fails like this one."""
    return Shrinker(plan, fails, max_runs).shrink()
