"""The applications of a run, and the successors of killed ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from verify.soak.application import Job
from verify.soak.faults import load
from verify.soak.faults.load import GROUPS, PARTITIONS, WORKERS, Applications, jobs
from verify.soak.reporters import WaitFailed


class FakeApplication:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.attempts = 1
        self.name = job.name
        self.ended: int | None = None
        self.events: list[dict[str, Any]] = []
        self.done: list[str] = []

    def kill(self) -> None:
        self.done.append("killed")

    def ask_to_end(self) -> None:
        self.done.append("asked")

    def finish(self, timeout_seconds: float) -> None:
        self.done.append("finished")


@pytest.fixture
def applications(monkeypatch: pytest.MonkeyPatch) -> Applications:
    monkeypatch.setattr(load, "Application", FakeApplication)
    return Applications(jobs("b:1", Path("/histories")))


def test_each_has_its_own_name_history_and_topic() -> None:
    found = jobs("b:1", Path("/histories"))
    assert len({job.name for job in found}) == len(found)
    assert len({job.history for job in found}) == len(found)
    assert {job.partitions for job in found} == {PARTITIONS}
    for group, count in WORKERS.items():
        members = [job for job in found if job.group == group]
        assert len(members) == count
        assert {job.source for job in members} == {GROUPS[group]}
    assert all(job.history == "" for job in jobs("b:1", None))


def test_a_killed_application_has_a_successor(applications: Applications) -> None:
    assert applications.replace_worker(0) == "hand-1"
    assert applications.replace_worker(0) == "hand-1.2"
    assert applications.workers[0].name == "hand-1.3"
    assert applications.workers[0].job.history == "/histories/hand-1.3.jsonl"
    assert applications.workers[0].job.group == "hand"
    assert [each.name for each in applications.killed] == ["hand-1", "hand-1.2"]
    assert applications.names[-2:] == ["hand-1.2", "hand-1.3"]


def test_an_application_that_exits_is_named(applications: Applications) -> None:
    applications.check()
    applications.workers[3].ended = 1  # type: ignore[misc]
    with pytest.raises(WaitFailed, match="auto-1 ended with 1 by itself"):
        applications.check()


def test_all_have_started_when_each_has_reported(applications: Applications) -> None:
    for each in (*applications.producers, *applications.workers):
        assert not applications.entered()
        each.events.append({"what": "entered"})
    assert applications.entered()
    applications.workers[0].events.append({"what": "again"})
    assert applications.again() == 1


def test_all_are_asked_before_one_is_waited_for(applications: Applications) -> None:
    applications.end_producers()
    applications.end_workers()
    applications.close()
    for each in (*applications.producers, *applications.workers):
        assert each.done == ["asked", "finished", "killed"]  # type: ignore[attr-defined]
