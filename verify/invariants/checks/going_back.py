"""Committed offsets that are lower than the ones before: part of invariant 6."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate

from aiokafkawire.types import TopicPartition
from verify.invariants.checks.finding import Finding
from verify.invariants.events import (
    Committing,
    EndTxnRequested,
    OffsetsSent,
    PositionSought,
    TopicDeleted,
    TransactionEnded,
)
from verify.invariants.observed import Assignment, CommitRequest
from verify.invariants.run import ASKING_S, Run

__all__ = ("ANYWHERE", "going_back")

ANYWHERE = 2**62
"""Highest allowed commit where the position is unknown."""

Key = tuple[str, TopicPartition]


def going_back(run: Run) -> Iterator[Finding]:
    """Return commits, and transactional offsets, that are lower than earlier ones."""
    yield from _commits_going_back(run)
    yield from _transactions_going_back(run)


def _commits_going_back(run: Run) -> Iterator[Finding]:
    newest: dict[Key, tuple[CommitRequest, int]] = {}
    reasons = _Reasons(run)
    for request in run.observed.commits or ():
        if request.errors is None or request.producer_id >= 0:
            continue
        for (tp, offset), error in zip(request.offsets, request.errors, strict=True):
            if error:
                continue
            before = newest.get((request.group, tp))
            newest[request.group, tp] = (request, offset)
            if before is None or offset >= before[1]:
                continue
            if reasons.excuse(tp, offset, request, before[0]):
                continue
            who = request.client or request.member
            yield f"{request.group} {tp} from {before[1]} to {offset} by {who}", request


class _Reasons:
    """Reasons for which a commit may be lower than the previous one."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._deleted: dict[str, list[float]] = defaultdict(list)
        for event in run.of(TopicDeleted):
            self._deleted[event.topic].append(event.at)
        self._moved: dict[tuple[str, TopicPartition], list[float]] = defaultdict(list)
        for sought in run.of(PositionSought):
            for tp in sought.partitions:
                self._moved[sought.client, tp].append(sought.at)
        for lost in run.observed.positions_lost or ():
            client = run.by_client_id.get(lost.client)
            if client is not None:
                tp = TopicPartition(lost.topic, lost.partition)
                self._moved[client.name, tp].append(lost.at)
        for times in self._moved.values():
            times.sort()
        self._asked: dict[tuple[str, TopicPartition], list[tuple[float, int]]] = defaultdict(list)
        for event in run.of(Committing):
            for tp, offset in event.offsets or ():
                self._asked[event.client, tp].append((event.at, offset))
        self._given: dict[tuple[str, str], list[Assignment]] = defaultdict(list)
        for answer in run.observed.assignments or ():
            self._given[answer.group, answer.client].append(answer)
        self._converted: dict[tuple[str, str], list[float]] = defaultdict(list)
        for removed in run.observed.removed or ():
            if removed.by_conversion:
                self._converted[removed.group, removed.client].append(removed.at)

    def excuse(
        self, tp: TopicPartition, offset: int, request: CommitRequest, before: CommitRequest
    ) -> bool:
        client = self._run.by_client_id.get(request.client)
        # Until a member learns of a recreated topic, it commits offsets of the old one.
        delay_s = ASKING_S if client is None else client.learns_of_topics_within_s
        if _between(self._deleted.get(tp.topic, []), before.at - delay_s, request.at):
            return True
        if self._outlives_conversion(tp, before, request):
            return True
        if self._outlives_conversion(tp, request, before):
            return True
        overtaken = request.connected_at < before.connected_at
        if request.client == before.client and overtaken:
            return True
        if client is None:
            return request.client in self._run.by_client_id  # several clients have this name
        # A moved position is committed as long as no other records were requested.
        moved = self._moved.get((client.name, tp), [])
        if moved and moved[0] <= request.at:
            return True
        asked = self._asked.get((client.name, tp), [])
        place = bisect_right(asked, (request.at, ANYWHERE))
        return place > 0 and asked[place - 1][1] == offset

    def _outlives_conversion(
        self, tp: TopicPartition, commit: CommitRequest, other: CommitRequest
    ) -> bool:
        """Return whether a member commits a partition that it had before a conversion of its group,
        and that the other member was given since.

        The coordinator does not know what a cooperative member has yet to revoke, and accepts the
        commits of both.
        """
        had = [
            each
            for each in self._given[commit.group, commit.client]
            if each.at <= commit.at and tp in each.partitions
        ]
        until = min(commit.at, other.at)
        given = [each for each in self._given[other.group, other.client] if each.at <= until]
        if commit.client == other.client or not had or not given or tp not in given[-1].partitions:
            return False
        return _between(self._converted[commit.group, commit.client], had[-1].at, given[-1].at)


def _between(times: list[float], begin: float, end: float) -> bool:
    return bisect_left(times, begin) < bisect_right(times, end)


def _transactions_going_back(run: Run) -> Iterator[Finding]:
    """Return transactional offsets that are lower than those of an earlier transaction.

    A transaction commits at some time between EndTxn and its response; only transactions that
    surely ended before are compared.
    """
    asked: dict[tuple[str, int], float] = {}
    for event in run.of(EndTxnRequested):
        asked.setdefault((event.client, event.transaction), event.at)
    over = {
        (e.client, e.transaction): e.at
        for e in run.of(TransactionEnded)
        if e.outcome == "committed"
    }
    by_partition: dict[Key, list[tuple[float, float, int, OffsetsSent]]] = defaultdict(list)
    for sent in run.of(OffsetsSent):
        key = (sent.client, sent.transaction)
        for tp, offset in sent.offsets if key in over else ():
            entry = (asked.get(key, sent.at), over[key], offset, sent)
            by_partition[sent.group, tp].append(entry)
    moved = {
        tp for each in run.of(PositionSought) if each.to != "committed" for tp in each.partitions
    }
    for (group, tp), entries in by_partition.items():
        if tp in moved or len(run.made_at.get(tp.topic, ())) > 1:
            continue
        ended = sorted((entry[1], entry[2]) for entry in entries)
        times = [at for at, _ in ended]
        highest = list(accumulate((offset for _, offset in ended), max))
        for begin, _, offset, sent in entries:
            place = bisect_left(times, begin)
            if place and highest[place - 1] > offset:
                yield f"{group} {tp} from {highest[place - 1]} to {offset} in a transaction", sent
