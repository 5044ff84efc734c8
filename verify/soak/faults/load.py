"""The applications that run during faults, each in its own process.

Idempotent producers write `orders`; a group with manual commits and one with auto-commit read them;
a chain of two transactional groups copies them to `copies`, and these to `finals`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from verify.soak.application import Job
from verify.soak.reporters import ReportingProcess, WaitFailed

ORDERS, COPIES, FINALS = TOPICS = ("orders", "copies", "finals")
PARTITIONS = 6
PRODUCERS = 2
RATE = 100.0
"""Records per second of each producer."""
WORKERS = {"hand": 3, "auto": 2, "first": 2, "second": 2}
"""Number of workers in each group."""
GROUPS: dict[str, str] = {"hand": ORDERS, "auto": ORDERS, "first": ORDERS, "second": COPIES}
"""Topic of each group."""
FINISH_SECONDS = 180.0
"""Longest time for an application to end: the delivery timeout is two minutes."""

_BY_GROUP = {
    "hand": Job(
        role="by_hand",
        name="",
        servers="",
        options={"partition_assignment_strategy": ["cooperative-sticky"]},
    ),
    "auto": Job(
        role="auto_commit",
        name="",
        servers="",
        options={"partition_assignment_strategy": ["range", "roundrobin"]},
    ),
    "first": Job(role="transactions", name="", servers="", target=COPIES, backend="trio"),
    "second": Job(role="transactions", name="", servers="", target=FINALS),
}


def jobs(servers: str, histories: Path | None, rate: float = RATE) -> list[Job]:
    """Return the jobs: the producers, then the workers of each group."""
    found = [
        Job(role="produce", name=f"producer-{n}", servers=servers, target=ORDERS, rate=rate)
        for n in range(1, PRODUCERS + 1)
    ]
    for group, count in WORKERS.items():
        found += [
            replace(
                _BY_GROUP[group],
                name=f"{group}-{n}",
                servers=servers,
                source=GROUPS[group],
                group=group,
            )
            for n in range(1, count + 1)
        ]
    return [
        replace(
            job,
            partitions=PARTITIONS,
            history="" if histories is None else history_file(histories, job.name),
        )
        for job in found
    ]


def history_file(histories: Path, name: str) -> str:
    return str(histories / f"{name}.jsonl")


class Application(ReportingProcess):
    def __init__(self, job: Job) -> None:
        self.job = job
        self.attempts = 1
        super().__init__(job.name, "verify.soak.application", [job.to_argument()])


@dataclass(frozen=True, slots=True)
class Killed:
    """A killed process, and the time."""

    name: str
    at: float


class Applications:
    """All applications. A killed one has a successor, `hand-1.2` after `hand-1`."""

    def __init__(self, found: list[Job]) -> None:
        self.killed: list[Killed] = []
        self._everyone: list[Application] = []
        try:
            for job in found:
                self._everyone.append(Application(job))
        except BaseException:
            self.close()
            raise
        self.producers = [each for each in self._everyone if each.job.role == "produce"]
        self.workers = [each for each in self._everyone if each.job.role != "produce"]

    @property
    def names(self) -> list[str]:
        return [each.name for each in self._everyone]

    def entered(self) -> bool:
        """Return whether all of them have started."""
        self.check()
        return all(each.events for each in (*self.producers, *self.workers))

    def check(self) -> None:
        """Raise `WaitFailed` if an application exited by itself."""
        _check((*self.producers, *self.workers))

    def check_workers(self) -> None:
        _check(self.workers)

    def replace_worker(self, number: int) -> str:
        old = self.workers[number]
        old.kill()
        self.killed.append(Killed(old.name, time.monotonic()))
        context = old.attempts + 1
        name = f"{old.name.partition('.')[0]}.{context}"
        history = old.job.history and history_file(Path(old.job.history).parent, name)
        new = Application(replace(old.job, name=name, history=history))
        new.attempts = context
        self.workers[number] = new
        self._everyone.append(new)
        return old.name

    def end_producers(self) -> None:
        """Make the producers flush, await every outcome, and end."""
        _leave(self.producers)

    def end_workers(self) -> None:
        _leave(self.workers)

    def again(self) -> int:
        """Return how often a transactional worker started a new producer."""
        return sum(event["what"] == "again" for each in self._everyone for event in each.events)

    def close(self) -> None:
        for each in self._everyone:
            each.kill()


def _check(some: Iterable[Application]) -> None:
    for each in some:
        if each.ended is not None:
            raise WaitFailed(f"{each.name} ended with {each.ended} by itself")


def _leave(some: list[Application]) -> None:
    for each in some:
        each.ask_to_end()
    for each in some:
        each.finish(FINISH_SECONDS)
