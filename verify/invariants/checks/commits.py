"""Offsets that groups commit: invariant 6."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from aiokafkawire.types import TopicPartition
from verify.invariants.check_result import Violation
from verify.invariants.checks.calls import fault_free_since, recovery_s
from verify.invariants.checks.committed_offsets import Committed
from verify.invariants.checks.finding import Finding, NotChecked, group_findings
from verify.invariants.checks.going_back import ANYWHERE, going_back
from verify.invariants.checks.groups import follow
from verify.invariants.checks.reading import Visible, visible
from verify.invariants.events import (
    Assigned,
    Called,
    Closed,
    Committing,
    Event,
    Fault,
    Lost,
    OffsetsSent,
    PartitionsAssignedManually,
    Polled,
    PositionSought,
    Revoked,
)
from verify.invariants.events import Committed as CommitOutcome
from verify.invariants.observed import CommitRequest
from verify.invariants.run import Client, Run

__all__ = ("commits_are_correct",)

HARMLESS = ("leave", "upgrade", "grow")
"""Kinds of steps that are no fault."""

Key = tuple[str, TopicPartition]


def commits_are_correct(run: Run) -> Iterator[Violation]:
    """(6) Committed offsets never go back and never pass processed records.

    Exceptions for going back: a seek, a reset, a commit of the same member that overtook another,
    or a partition that a conversion of the group gave to a second member. With auto-commit, a
    member has committed its processed records when it leaves in good order, and when partitions are
    revoked without a fault. Records of one task count as processed when it calls again; explicitly
    committed offsets are up to the application.
    """
    if run.observed.commits is None and run.observed.committed is None:
        raise NotChecked("commits were not observed")
    if not any(client.group for client in run.clients.values()):
        raise NotChecked("no consumer has a group")
    yield from group_findings(6, "commits went back", list(going_back(run)))
    seen = _Seen(run)
    left: dict[Key, int] = {}
    yield from group_findings(
        6, "commits pass the processed records", list(_passing(run, seen, left))
    )
    forgotten = list(_not_committed_at_end(run, seen, left))
    yield from group_findings(
        6, "members did not commit their processed records when leaving", forgotten
    )
    yield from group_findings(
        6, "acknowledged commits are not stored", list(_commits_not_stored(run))
    )
    kept = list(_not_auto_committed(run, seen))
    yield from group_findings(6, "members did not commit processed records on revocation", kept)


# --- going too far -------------------------------------------------------------------------------


@dataclass(slots=True)
class _Reading:
    """Progress of one member in a partition.

    `cap` is the highest offset that may be committed now; `given` are the first offsets of records
    that tasks still process.
    """

    position: int = 0
    cap: int = 0
    given: dict[str, int] = field(default_factory=dict)

    def settle(self) -> None:
        """Count everything as processed that no task works on any more."""
        running = min(self.given.values(), default=self.position)
        self.cap = max(self.cap, min(running, self.position))


class _Progress:
    """Records that one member was given and has processed, event by event."""

    def __init__(self, run: Run, client: Client, committed: Committed) -> None:
        self._run = run
        self._client = client
        self._committed = committed
        self.readings: dict[TopicPartition, _Reading] = {}
        self._tasks: dict[str, set[TopicPartition]] = defaultdict(set)
        self._owned: set[TopicPartition] = set()
        # Lost and not read since: it may own them again, from the committed offset on.
        self._lost: set[TopicPartition] = set()

    def reading(self, tp: TopicPartition) -> _Reading:
        found = self.readings.get(tp)
        if found is None:
            found = self.readings[tp] = _Reading()
            self._begin(found, tp, 0.0, 0.0)
        return found

    def _begin(self, reading: _Reading, tp: TopicPartition, since: float, at: float) -> None:
        """Start at a commit, or at the place of the reset policy."""
        if self._client.options.get("auto_offset_reset") != "earliest":
            reading.position = reading.cap = ANYWHERE
            return
        if self._run.observed.commits is None:
            reading.cap = max(reading.cap, 0)
            return
        starts, _ = self._committed.starts(self._client, tp, since, at)
        reading.cap = max([reading.cap, *starts])

    def happened(self, event: Event) -> None:
        follow(self._owned, event)
        if type(event) is Called:
            self._called(event)
        elif type(event) is Polled:
            self._lost.discard(TopicPartition(event.topic, event.partition))
            self._polled(event)
        elif type(event) is Lost:
            self._lost.update(event.partitions)
        elif type(event) is Assigned:
            since = self._committed.assigned_since(self._client, event.at)
            for tp in event.partitions:
                reading = self.readings.setdefault(tp, _Reading())
                # Records that were not processed before the revocation are read again.
                reading.position = min([reading.position, *reading.given.values()])
                reading.given.clear()
                self._begin(reading, tp, since, event.at)
        elif type(event) is PartitionsAssignedManually:
            for tp in event.partitions:
                self._begin(self.readings.setdefault(tp, _Reading()), tp, event.at, event.at)
        elif type(event) is PositionSought:
            for tp in event.partitions:
                reading = self.reading(tp)
                reading.position = event.to if isinstance(event.to, int) else ANYWHERE
                # A consumer that polls again has processed the earlier records.
                reading.given.clear()
                reading.settle()
        elif type(event) is Committing:
            self._committing(event)

    def leaves(self, left: dict[Key, int]) -> None:
        """Require that a leaving member commits its processed records."""
        group = self._client.group or ""
        for tp, processed in self.processed(self._owned - self._lost).items():
            left[group, tp] = max(left.get((group, tp), 0), processed)

    def processed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the processed offset of each of these partitions, where it is known."""
        found: dict[TopicPartition, int] = {}
        for tp in sorted(partitions):
            reading = self.reading(tp)
            offset = min([reading.position, *reading.given.values()])
            if offset < ANYWHERE:
                found[tp] = offset
        return found

    def _called(self, event: Called) -> None:
        for tp in sorted(self._tasks.pop(event.task, ())) if event.task else ():
            reading = self.readings[tp]
            reading.given.pop(event.task, None)
            reading.settle()

    def _polled(self, event: Polled) -> None:
        tp = TopicPartition(event.topic, event.partition)
        reading = self.reading(tp)
        begins = event.records[0][0] if event.records else event.next_offset
        if reading.position == ANYWHERE:
            # It started or resumed here, wherever that is.
            reading.cap = begins
        if event.task not in reading.given:
            reading.given[event.task] = begins
        reading.position = event.next_offset
        self._tasks[event.task].add(tp)
        reading.settle()

    def _committing(self, event: Committing) -> None:
        if event.offsets is None:
            for reading in self.readings.values():
                reading.cap = max(reading.cap, reading.position)
        for tp, offset in event.offsets or ():
            reading = self.reading(tp)
            reading.cap = max(reading.cap, offset)


def _passing(run: Run, seen: _Seen, left: dict[Key, int]) -> Iterator[Finding]:
    """Return commits beyond the processed records. `left` collects the processed offsets of members
    that left."""
    committed = Committed(run)
    well = fault_free_since(run)
    requests: dict[str, list[CommitRequest]] = defaultdict(list)
    for request in run.observed.commits or ():
        client = run.by_client_id.get(request.client)
        if client is not None and request.producer_id < 0:
            requests[client.name].append(request)
    caps: dict[Key, int] = {}
    for client in run.clients.values():
        if client.kind != "consumer" or client.group is None:
            continue
        progress = _Progress(run, client, committed)
        waiting = iter(requests.get(client.name, ()))
        request = next(waiting, None)
        for event in run.by_client.get(client.name, ()):
            while request is not None and request.at < event.at:
                yield from _judge(request, progress, seen)
                request = next(waiting, None)
            progress.happened(event)
            if _leaves_group(event) and well is not None and event.at >= well:
                progress.leaves(left if _left_in_good_order(run, client) else {})
        while request is not None:
            yield from _judge(request, progress, seen)
            request = next(waiting, None)
        for tp, reading in progress.readings.items():
            key = (client.group, tp)
            caps[key] = max(caps.get(key, 0), reading.cap, min(reading.position, ANYWHERE))
    yield from _final_commits(run, caps, seen)


def _judge(request: CommitRequest, progress: _Progress, seen: _Seen) -> Iterator[Finding]:
    for tp, offset in request.offsets:
        reading = progress.reading(tp)
        if seen.passes(tp, reading.cap, offset):
            text = f"{request.client} {tp}: {offset}, processed up to {reading.cap}"
            yield text, request


def _final_commits(run: Run, caps: dict[Key, int], seen: _Seen) -> Iterator[Finding]:
    """Check that the final offset of a group is not beyond the records given to its members."""
    transactional = {event.group for event in run.of(OffsetsSent)}
    for group, offsets in (run.observed.committed or {}).items():
        for tp, offset in offsets:
            cap = caps.get((group, tp))
            if cap is None or group in transactional:
                continue
            if seen.passes(tp, cap, offset):
                yield f"{group} {tp} has {offset} at the end, records were given up to {cap}", group


def _leaves_group(event: Event) -> bool:
    """Return whether the application closes a member in good order, with its work done."""
    return type(event) is Called and event.name == "stop" and bool(event.task)


def _left_in_good_order(run: Run, client: Client) -> bool:
    """Return whether a member uses auto-commit and closing it raised nothing."""
    closed = [event for event in run.by_client[client.name] if type(event) is Closed]
    automatic = bool(client.options.get("enable_auto_commit"))
    return automatic and len(closed) == 1 and closed[0].error is None


def _commits_not_stored(run: Run) -> Iterator[Finding]:
    """Find acknowledged commits of explicit offsets that are not stored."""
    if run.observed.commits is None:
        return
    kept: dict[tuple[str, TopicPartition], list[tuple[float, int]]] = defaultdict(list)
    for request in run.observed.commits:
        for (tp, offset), error in zip(request.offsets, request.errors or (), strict=False):
            if not error and request.producer_id < 0:
                kept[request.client, tp].append((request.at, offset))
    asked = {(event.client, event.call): event.offsets or () for event in run.of(Committing)}
    for outcome in run.of(CommitOutcome):
        client = run.clients.get(outcome.client)
        if outcome.outcome != "ok" or client is None:
            continue
        client_id = str(client.options.get("client_id"))
        for tp, offset in asked.get((outcome.client, outcome.call), ()):
            if len(run.made_at.get(tp.topic, ())) > 1:
                continue
            if not any(at <= outcome.at and there >= offset for at, there in kept[client_id, tp]):
                yield f"{outcome.client} {tp}: {offset}", outcome


def _not_auto_committed(run: Run, seen: _Seen) -> Iterator[Finding]:
    """Find processed offsets of revoked partitions that auto-commit did not store before the next
    assignment. Only without faults."""
    committed = Committed(run)
    broken_at = min((event.at for event in run.of(Fault) if _breaks(event)), default=run.ended_at)
    well = fault_free_since(run)
    for client in run.clients.values():
        automatic = client.group is not None and client.options.get("enable_auto_commit")
        if client.kind != "consumer" or not automatic or client.crashed:
            continue
        progress = _Progress(run, client, committed)
        begin = run.ended_at if well is None else well + recovery_s(client)
        processed: dict[TopicPartition, int] = {}
        moved: set[TopicPartition] = set()
        for event in run.by_client.get(client.name, ()):
            if type(event) is Revoked and (event.at < broken_at or event.at > begin):
                processed = progress.processed(event.partitions)
            elif type(event) is Assigned:
                for tp, offset in processed.items():
                    found = committed.newest(client, tp, event.at)
                    if tp not in moved and seen.between(tp, found, offset):
                        yield f"{client.name} {tp}: {found}, processed: {offset}", event
                processed = {}
            elif type(event) is PositionSought:
                moved.update(event.partitions)
            progress.happened(event)


def _breaks(fault: Fault) -> bool:
    return not any(f" {kind}(" in fault.text for kind in HARMLESS)


def _not_committed_at_end(run: Run, seen: _Seen, left: dict[Key, int]) -> Iterator[Finding]:
    if run.observed.committed is None:
        return
    moved = {tp for event in run.of(PositionSought) for tp in event.partitions}
    for (group, tp), processed in left.items():
        # A commit that went back is reported as such: a request of an abandoned connection may be
        # handled after one of the next connection.
        found = max(
            dict(run.observed.committed.get(group, ())).get(tp, 0), _reached(run, group, tp)
        )
        if tp not in moved and seen.between(tp, found, processed):
            yield f"{group} {tp} has {found} at the end, processed: {processed}", group


class _Seen:
    """The logs as any reader sees them."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._logs: dict[TopicPartition, Visible | None] = {}
        self._committed_only = {
            client.group for client in run.clients.values() if client.read_committed
        } and all(
            client.read_committed
            for client in run.clients.values()
            if client.kind == "consumer" and client.group is not None
        )

    def passes(self, tp: TopicPartition, cap: int, offset: int) -> bool:
        """Return whether there is a record from `cap` up to `offset`, or no such offset at all."""
        if offset <= cap:
            return False
        seen = self._of(tp)
        if seen is None:
            return False
        return offset > seen.log.end_offset or seen.place(offset) > seen.place(cap)

    def between(self, tp: TopicPartition, low: int, high: int) -> bool:
        """Return whether there is a record from `low` up to `high`."""
        seen = self._of(tp)
        return seen is not None and seen.place(high) > seen.place(low)

    def _of(self, tp: TopicPartition) -> Visible | None:
        if tp not in self._logs:
            logs = self._run.logs.get(tp, [])
            alone = len(logs) == 1 and len(self._run.made_at.get(tp.topic, ())) <= 1
            committed = bool(self._committed_only)
            self._logs[tp] = visible(logs[0], committed=committed) if alone else None
        return self._logs[tp]


def _reached(run: Run, group: str, tp: TopicPartition) -> int:
    """Return the group's highest committed offset in the topic's current incarnation."""
    made_at = max(run.made_at.get(tp.topic, ()), default=0.0)
    return max(
        (
            offset
            for request in run.observed.commits or ()
            if request.group == group and request.at >= made_at
            for (of, offset), error in zip(request.offsets, request.errors or (), strict=False)
            if of == tp and not error
        ),
        default=0,
    )
