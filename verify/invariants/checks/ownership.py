"""Owners of partitions over time: part of invariant 8."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator

from aiokafkawire.types import TopicPartition
from verify.invariants.checks.finding import Finding
from verify.invariants.events import (
    Assigned,
    CallbackEnded,
    Closed,
    Crashed,
    Event,
    Lost,
    PartitionsAssignedManually,
    Revoked,
    TopicDeleted,
    Unsubscribed,
)
from verify.invariants.observed import Assignment
from verify.invariants.run import Run

__all__ = ("owned_twice",)

REVOKED = "on_partitions_revoked"


def owned_twice(run: Run) -> Iterator[Finding]:
    """Return partitions that a member got while another one owned them.

    A member owns a partition until its listener has been called, and has returned. A member that
    the coordinator has removed meanwhile may not know it yet.
    """
    owners = _Owners(run)
    for event in run.history:
        yield from owners.happened(event)


class _Owners:
    """Owners of each partition by group, since when they own it."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._owned: dict[tuple[str, TopicPartition], dict[str, float]] = defaultdict(dict)
        self._by_client: dict[str, set[TopicPartition]] = defaultdict(set)
        self._revoking: dict[str, tuple[Revoked, dict[TopicPartition, float]]] = {}
        self._given_at: dict[tuple[str, TopicPartition], tuple[float, str]] = {}
        self._answers: dict[str, list[Assignment]] = defaultdict(list)
        for answer in run.observed.assignments or ():
            self._answers[answer.client].append(answer)
        self._removed: dict[str, list[float]] = defaultdict(list)
        for removed in run.observed.removed or ():
            client = run.by_client_id.get(removed.client)
            if client is not None:
                self._removed[client.name].append(removed.at)

    def happened(self, event: Event) -> Iterator[Finding]:
        client = self._run.clients.get(event.client)
        if client is None or client.group is None:
            return
        group = client.group
        if isinstance(event, Assigned):
            for tp in event.partitions:
                yield from self._assigned(group, tp, event)
        elif isinstance(event, Revoked | Lost):
            since = self._release(group, event.client, event.partitions)
            if isinstance(event, Revoked):
                self._revoking[event.client] = event, since
        elif isinstance(event, CallbackEnded):
            if event.name == REVOKED and event.client in self._revoking:
                began, since = self._revoking.pop(event.client)
                yield from self._revoked(group, began, since, event)
        elif isinstance(event, Unsubscribed | PartitionsAssignedManually | Closed | Crashed):
            self._revoking.pop(event.client, None)
            self._release(group, event.client, tuple(self._by_client[event.client]))

    def _assigned(self, group: str, tp: TopicPartition, event: Assigned) -> Iterator[Finding]:
        owners = self._owned[group, tp]
        for other, since in owners.items():
            if other != event.client and not self._excused(other, tp, since, event.at):
                yield f"{tp} by {other} and {event.client}", event
        owners[event.client] = event.at
        self._by_client[event.client].add(tp)
        self._given_at[group, tp] = event.at, event.client

    def _revoked(
        self,
        group: str,
        began: Revoked,
        since: dict[TopicPartition, float],
        ended: CallbackEnded,
    ) -> Iterator[Finding]:
        for tp in began.partitions:
            at, other = self._given_at.get((group, tp), (began.at, began.client))
            if at <= began.at or other == began.client:
                continue
            if not self._excused(began.client, tp, since.get(tp, began.at), at):
                yield f"{tp} by {began.client}, whose listener runs, and {other}", ended

    def _release(
        self, group: str, client: str, partitions: tuple[TopicPartition, ...]
    ) -> dict[TopicPartition, float]:
        """Remove an owner; return since when it owned its partitions."""
        found: dict[TopicPartition, float] = {}
        for tp in partitions:
            since = self._owned[group, tp].pop(client, None)
            self._by_client[client].discard(tp)
            if since is not None:
                found[tp] = since
        return found

    def _excused(self, client: str, tp: TopicPartition, since: float, until: float) -> bool:
        """Return whether a member was removed, or the topic deleted, between two times.

        A static member of the classic protocol may miss a generation without being removed.
        """
        options = self._run.clients[client].options
        if options.get("group_instance_id") and options.get("group_protocol") != "consumer":
            return True
        removed = self._removed.get(client, [])
        if bisect_left(removed, since) < bisect_right(removed, until):
            return True
        given = self._given(client, tp, since)
        return any(
            event.topic == tp.topic and given <= event.at <= until
            for event in self._run.of(TopicDeleted)
        )

    def _given(self, client: str, tp: TopicPartition, since: float) -> float:
        """Return when the coordinator sent the assignment that made a member an owner at `since`.

        The topic may have been deleted before the assignment arrived.
        """
        client_id = str(self._run.clients[client].options.get("client_id"))
        answers = [each for each in self._answers[client_id] if each.at <= since]
        return answers[-1].at if answers and tp in answers[-1].partitions else since
