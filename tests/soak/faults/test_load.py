"""Who works, and who comes after somebody who was killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.soak.application import Job
from tests.soak.faults import load
from tests.soak.faults.load import GROUPS, PARTITIONS, WORKERS, Crew, jobs
from tests.soak.reporters import GaveUp


class FakeApplication:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.lives = 1
        self.name = job.name
        self.ended: int | None = None
        self.told: list[dict[str, Any]] = []
        self.done: list[str] = []

    def kill(self) -> None:
        self.done.append("killed")

    def ask_to_end(self) -> None:
        self.done.append("asked")

    def finish(self, timeout_seconds: float) -> None:
        self.done.append("finished")


@pytest.fixture
def crew(monkeypatch: pytest.MonkeyPatch) -> Crew:
    monkeypatch.setattr(load, "Application", FakeApplication)
    return Crew(jobs("b:1", Path("/histories")))


def test_each_has_a_name_a_history_and_a_topic_of_its_own() -> None:
    found = jobs("b:1", Path("/histories"))
    assert len({job.name for job in found}) == len(found)
    assert len({job.history for job in found}) == len(found)
    assert {job.partitions for job in found} == {PARTITIONS}
    for group, count in WORKERS.items():
        members = [job for job in found if job.group == group]
        assert len(members) == count
        assert {job.source for job in members} == {GROUPS[group]}
    assert all(job.history == "" for job in jobs("b:1", None))


def test_who_is_killed_has_a_successor(crew: Crew) -> None:
    assert crew.replace_worker(0) == "hand-1"
    assert crew.replace_worker(0) == "hand-1.2"
    assert crew.workers[0].name == "hand-1.3"
    assert crew.workers[0].job.history == "/histories/hand-1.3.jsonl"
    assert crew.workers[0].job.group == "hand"
    assert [each.name for each in crew.killed] == ["hand-1", "hand-1.2"]
    assert crew.names[-2:] == ["hand-1.2", "hand-1.3"]


def test_who_ends_by_himself_is_named(crew: Crew) -> None:
    crew.check()
    crew.workers[3].ended = 1  # type: ignore[misc]
    with pytest.raises(GaveUp, match="auto-1 ended with 1 by itself"):
        crew.check()


def test_everybody_has_begun_when_each_has_told(crew: Crew) -> None:
    for each in (*crew.producers, *crew.workers):
        assert not crew.entered()
        each.told.append({"what": "entered"})
    assert crew.entered()
    crew.workers[0].told.append({"what": "again"})
    assert crew.again() == 1


def test_all_are_asked_before_one_is_waited_for(crew: Crew) -> None:
    crew.end_producers()
    crew.end_workers()
    crew.close()
    for each in (*crew.producers, *crew.workers):
        assert each.done == ["asked", "finished", "killed"]  # type: ignore[attr-defined]
