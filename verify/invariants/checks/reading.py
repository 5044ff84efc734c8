"""Records that consumers were given, their order and start positions: invariant 5."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from aiokafkawire.types import TopicPartition
from verify.invariants.check_result import Violation
from verify.invariants.checks.committed_offsets import Committed
from verify.invariants.checks.finding import Finding, NotChecked, group_findings
from verify.invariants.events import (
    Assigned,
    Event,
    Lost,
    PartitionsAssignedManually,
    Paused,
    Polled,
    PositionSought,
    Resumed,
    Revoked,
    Subscribed,
    Unsubscribed,
)
from verify.invariants.observed import Log
from verify.invariants.run import Client, Run

__all__ = ("Visible", "reading_is_continuous", "visible")

OUT_OF_RANGE = 1
"""Error code that always ends a position; others do where topics are recreated."""


@dataclass(frozen=True, slots=True)
class Visible:
    """Records of a log that a reader may see, in order."""

    log: Log
    offsets: list[int]
    pairs: list[tuple[int, bytes]]

    def place(self, offset: int) -> int:
        """Return the number of visible records before an offset."""
        return bisect_left(self.offsets, offset)


def visible(log: Log, *, committed: bool) -> Visible:
    """Return the log as `read_committed` consumers see it, or as others do."""
    pairs = [
        (record.offset, record.value)
        for record in log.records
        if not committed or record.fate in {"none", "committed"}
    ]
    return Visible(log, [offset for offset, _ in pairs], pairs)


@dataclass(frozen=True, slots=True)
class Start:
    """Reading starts at the group's commit, or else at the place of the policy.

    `since`: the earliest time of the lookup; `reset`: only the policy counts.
    """

    since: float
    reset: bool = False


@dataclass(slots=True)
class _Position:
    """Position of one reader in a partition: an offset, a start not known yet, or None for any.

    `looked_at` is the time of the last known position, `fell_in` the incarnation of the topic in
    which it started again without a reason reported by brokers.
    """

    at: int | Start | None
    looked_at: float
    incarnation: int = -1
    fell_in: int = 0
    paused: bool = False


def reading_is_continuous(run: Run) -> Iterator[Violation]:
    """(5) No poll skips records or goes back without a seek, a reset or a rebalance.

    A poll returns the records of the log from the position on. After a rebalance the position is
    the group's committed offset, or else that of `auto_offset_reset`. A position is reset only
    after OFFSET_OUT_OF_RANGE, or when the topic was recreated.
    """
    readers = [client for client in run.clients.values() if client.kind == "consumer"]
    if not any(True for _ in run.of(Polled)):
        raise NotChecked("no record was read")
    judge = _Judge(run)
    for client in readers:
        judge.follow(client)
    for kind, found in judge.found.items():
        yield from group_findings(5, kind, found)


class _Poll(NamedTuple):
    client: Client
    event: Polled
    tp: TopicPartition
    position: _Position


class _Judge:
    """Checks the events of each reader."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.found: dict[str, list[Finding]] = defaultdict(list)
        self._committed = Committed(run)
        self._visible: dict[tuple[int, bool], Visible] = {}
        self._lost: dict[tuple[str, TopicPartition], list[tuple[float, int]]] = defaultdict(list)
        for lost in run.observed.positions_lost or ():
            tp = TopicPartition(lost.topic, lost.partition)
            self._lost[lost.client, tp].append((lost.at, lost.code))

    # --- what happens to a reader ---

    def follow(self, client: Client) -> None:
        positions: dict[TopicPartition, _Position] = {}
        member = False
        everything: float | None = None
        for event in self.run.by_client.get(client.name, ()):
            if type(event) is Polled:
                tp = TopicPartition(event.topic, event.partition)
                position = positions.get(tp)
                if position is None and everything is not None:
                    start = Start(everything, reset=client.group is None)
                    position = positions[tp] = _Position(start, everything)
                if position is None:
                    if member:
                        self._report("records of partitions not owned by the reader", event)
                    continue
                self._polled(_Poll(client, event, tp, position))
            elif type(event) is Subscribed:
                member = client.group is not None
                everything = None if member else event.at
                for position in positions.values():
                    position.at = position.at if member else None
            elif type(event) is PartitionsAssignedManually:
                member, everything = False, None
                positions = self._by_hand(client, event, positions)
            else:
                self._moved(client, event, positions)

    def _by_hand(
        self,
        client: Client,
        event: PartitionsAssignedManually,
        before: dict[TopicPartition, _Position],
    ) -> dict[TopicPartition, _Position]:
        """Partitions that stay keep their position, or look it up again."""
        start = Start(event.at, reset=client.group is None)
        return {tp: _Position(None if tp in before else start, event.at) for tp in event.partitions}

    def _moved(
        self, client: Client, event: Event, positions: dict[TopicPartition, _Position]
    ) -> None:
        if type(event) is Assigned:
            since = self._committed.assigned_since(client, event.at)
            for tp in event.partitions:
                positions[tp] = _Position(Start(since), event.at)
        elif type(event) is Revoked or type(event) is Lost:
            for tp in event.partitions:
                positions.pop(tp, None)
        elif type(event) is Unsubscribed:
            positions.clear()
        elif type(event) is PositionSought:
            for tp in event.partitions:
                if tp in positions:
                    positions[tp].at = _sought(event)
                    positions[tp].looked_at = event.at
        elif type(event) is Paused or type(event) is Resumed:
            for tp in event.partitions:
                if tp in positions:
                    positions[tp].paused = type(event) is Paused

    # --- what it was given ---

    def _polled(self, poll: _Poll) -> None:
        client, event, tp, position = poll
        offsets = [offset for offset, _ in event.records]
        if position.paused:
            self._report("records of paused partitions", event)
        if any(later <= earlier for earlier, later in pairwise([*offsets, event.next_offset])):
            self._report("polls with offsets out of order", event)
        log = self._log(event, tp, position)
        if log is not None:
            seen = self._seen(log, committed=client.read_committed)
            if log.incarnation != position.incarnation:
                if position.incarnation >= 0:
                    # Without ids a recreated topic cannot be distinguished from the one before.
                    known = self.run.guarantees.in_fetches
                    position.at = Start(position.looked_at, reset=True) if known else None
                position.incarnation = log.incarnation
            first = seen.place(offsets[0] if offsets else event.next_offset)
            end = seen.place(event.next_offset)
            if self.run.guarantees.durable and offsets and offsets[0] >= log.start_offset:
                given = list(event.records)
                if seen.pairs[first:end] != given:
                    self._differs(event, seen.pairs[first:end], given)
            self._begins(poll, seen, seen.offsets[first - 1] if first else -1)
        position.at, position.looked_at = event.next_offset, event.at

    def _log(self, event: Polled, tp: TopicPartition, position: _Position) -> Log | None:
        """Return the log that the records come from; None if it is not known."""
        logs = self.run.logs.get(tp)
        if not logs:
            return None
        if len(logs) == 1 and len(self.run.made_at.get(tp.topic, [0.0])) <= 1:
            return logs[0]
        for offset, value in event.records[:1]:
            for log, record in self.run.stored.get(value, ()):
                if record.offset == offset and log in logs:
                    if log.incarnation < position.incarnation:
                        self._report(
                            "records of a topic that is no more, after some of a new", event
                        )
                    return log
        return None

    def _seen(self, log: Log, *, committed: bool) -> Visible:
        key = (id(log), committed)
        if key not in self._visible:
            self._visible[key] = visible(log, committed=committed)
        return self._visible[key]

    def _differs(
        self, event: Polled, there: list[tuple[int, bytes]], given: list[tuple[int, bytes]]
    ) -> None:
        missing = sorted(set(there) - set(given))
        strange = sorted(set(given) - set(there))
        if missing and not strange:
            what = f"without {missing[0][1].decode('latin-1')}@{missing[0][0]}"
            self._report("polls omit records", event, what)
        else:
            which = strange[0] if strange else given[0]
            what = f"{which[1].decode('latin-1')}@{which[0]}"
            self._report("polls return records that are not visible in the log", event, what)

    # --- where it begins ---

    def _begins(self, poll: _Poll, seen: Visible, low: int) -> None:
        """Check the first record against the position; `low` is the record before it in the log."""
        client, event, tp, position = poll
        at = position.at
        high = event.records[0][0] if event.records else event.next_offset
        unknown = isinstance(at, Start) and not at.reset and self.run.observed.commits is None
        if at is None or (unknown and client.group is not None):
            return
        if isinstance(at, int):
            if low < at <= high or self._lost_it(poll, low):
                return
            begins = f"at {high}, the position was {at}"
            self._report("polls skip records" if low >= at else "polls go back", event, begins)
            return
        starts, certain = self._starts(client, tp, at, event.at)
        if any(low < start <= high for start in starts):
            return
        remade = self._remade(tp)
        if (not certain or remade) and _by_policy(client, seen, low):
            return
        if remade and not self.run.guarantees.in_fetches:
            return
        if self._lost_it(poll, low):
            return
        known = f"{sorted(starts)}" if certain else f"{sorted(starts)} or nothing"
        self._report("reading starts at a wrong offset", event, f"at {high}, committed: {known}")

    def _starts(
        self, client: Client, tp: TopicPartition, at: Start, until: float
    ) -> tuple[set[int], bool]:
        """Return the allowed start positions, and whether the list is complete."""
        if at.reset or client.group is None:
            return set(), False
        return self._committed.starts(client, tp, at.since, until)

    def _remade(self, tp: TopicPartition) -> bool:
        return len(self.run.made_at.get(tp.topic, ())) > 1

    def _lost_it(self, poll: _Poll, low: int) -> bool:
        """Return whether the position was reset for a reason and to the place of the policy."""
        client, event, tp, position = poll
        guarantees = self.run.guarantees
        if guarantees.resets:
            return True
        if self.run.observed.positions_lost is None:
            return guarantees.topics_remade
        reasons = self._lost.get((str(client.options.get("client_id")), tp), [])
        begin = bisect_left(reasons, (position.looked_at, -1))
        end = bisect_right(reasons, (event.at, 10**6))
        if not any(
            code == OUT_OF_RANGE or guarantees.topics_remade for _, code in reasons[begin:end]
        ):
            # Metadata may bring the topic's new id when reading by name has begun already.
            if position.fell_in >= position.incarnation:
                return False
            position.fell_in = position.incarnation
        return client.options.get("auto_offset_reset") != "earliest" or low < 0

    def _report(self, kind: str, event: Polled, more: str = "") -> None:
        first = event.records[0][0] if event.records else event.next_offset
        text = f"{event.client} at {event.topic}-{event.partition}@{first}"
        self.found[kind].append((f"{text}: {more}" if more else text, event))


def _sought(event: PositionSought) -> int | Start | None:
    if isinstance(event.to, int):
        return event.to
    if event.to == "committed":
        return Start(event.at)
    return 0 if event.to == "beginning" else None


def _by_policy(client: Client, seen: Visible, low: int) -> bool:
    """Return whether the reset policy allows to start behind the offset `low`."""
    policy = str(client.options.get("auto_offset_reset", "latest"))
    if policy == "earliest":
        return low < 0
    return policy != "none"
