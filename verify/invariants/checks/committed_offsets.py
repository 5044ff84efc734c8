"""Committed offsets in the order in which brokers stored them: where members may start to read."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from functools import cached_property
from typing import NamedTuple

from aiokafkawire.types import TopicPartition
from verify.invariants.events import EndTxnRequested, OffsetsSent, TransactionEnded
from verify.invariants.run import Client, Run

__all__ = ("Commit", "Committed")


class Commit(NamedTuple):
    """A committed offset: possible from one time on, certain from another."""

    at: float
    offset: int
    sure_at: float | None


class Committed:
    """Commits of each group and partition, by time."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @cached_property
    def _commits(self) -> dict[tuple[str, TopicPartition], list[Commit]]:
        found: dict[tuple[str, TopicPartition], list[Commit]] = defaultdict(list)
        for request in self._run.observed.commits or ():
            if request.producer_id >= 0:
                continue
            if request.errors is None:
                continue
            for (tp, offset), error in zip(request.offsets, request.errors, strict=True):
                if not error:
                    commit = Commit(request.at, offset, max(request.at, request.done_at))
                    found[request.group, tp].append(commit)
        self._add_transactions(found)
        for commits in found.values():
            commits.sort(key=lambda each: each.at)
        return found

    def _add_transactions(self, found: dict[tuple[str, TopicPartition], list[Commit]]) -> None:
        """Transactional offsets commit at some time between EndTxn and its response."""
        asked: dict[tuple[str, int], float] = {}
        ended: dict[tuple[str, int], TransactionEnded] = {}
        for event in self._run.of(EndTxnRequested):
            if event.commit:
                asked.setdefault((event.client, event.transaction), event.at)
        for end in self._run.of(TransactionEnded):
            if end.outcome == "committed":
                ended[end.client, end.transaction] = end
        for sent in self._run.of(OffsetsSent):
            key = (sent.client, sent.transaction)
            if key not in asked:
                continue
            sure_at = ended[key].at if key in ended else None
            for tp, offset in sent.offsets:
                found[sent.group, tp].append(Commit(asked[key], offset, sure_at))

    @cached_property
    def _answers(self) -> dict[str, list[float]]:
        found: dict[str, list[float]] = defaultdict(list)
        for assignment in self._run.observed.assignments or ():
            found[assignment.client].append(assignment.at)
        return found

    def assigned_since(self, client: Client, at: float) -> float:
        """Return the earliest time at which a member got the partitions that its listener saw at
        `at`."""
        answers = self._answers.get(str(client.options.get("client_id")), [])
        place = bisect_right(answers, at)
        return answers[place - 1] if place else at

    def newest(self, client: Client, tp: TopicPartition, until: float) -> int:
        """Return the highest offset that the client's group has committed up to then, 0 if none."""
        commits = self._commits.get((client.group or "", tp), ())
        return max((each.offset for each in commits if each.at <= until), default=0)

    def starts(
        self, client: Client, tp: TopicPartition, since: float, until: float
    ) -> tuple[set[int], bool]:
        """Return the offsets at which a member may start, and whether a commit is certain.

        Allowed are the last commit at `since`, commits up to `until`, and any commit whose time is
        uncertain.
        """
        before: Commit | None = None
        starts: set[int] = set()
        for commit in self._commits.get((client.group or "", tp), ()):
            if commit.at > until:
                break
            if commit.sure_at is None or commit.sure_at > since:
                starts.add(commit.offset)
            elif before is None or commit.sure_at >= (before.sure_at or 0.0):
                before = commit
        if before is not None:
            starts.add(before.offset)
        return starts, before is not None
