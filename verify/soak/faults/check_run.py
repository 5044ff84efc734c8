"""Check the applications' histories and the final contents of the brokers."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from aiokafkawire.types import TopicPartition
from verify.invariants.checker import CheckResult, Guarantees, judge
from verify.invariants.events import (
    Acknowledged,
    Called,
    Closed,
    Committed,
    Committing,
    Crashed,
    Event,
    Failed,
    Opened,
    Polled,
    Returned,
    TransactionEnded,
    from_lines,
    merged,
)
from verify.invariants.observed import Log, LogRecord, Observed
from verify.soak import confluent_reader, own_reader
from verify.soak.application import original
from verify.soak.checker import PartitionOffset, check_commits
from verify.soak.faults.load import COPIES, FINALS, GROUPS, ORDERS, PARTITIONS, TOPICS, Killed

SLACK_SECONDS = 5.0
"""Tolerance for the end of calls, where two cores run three brokers and all applications."""
SHOWN = 5

Records = dict[int, list[tuple[int, bytes]]]


def history_of(folder: Path, killed: Iterable[Killed], world: Sequence[Event]) -> list[Event]:
    """Return all histories of a folder as one; a killed client counts as crashed."""
    ends = {each.name: each.at for each in killed}
    histories: list[Sequence[Event]] = [world]
    for file in sorted(folder.glob("*.jsonl")):
        with file.open(encoding="ascii") as lines:
            events = list(from_lines(lines))
        if file.stem in ends:
            left = {event.client for event in events if isinstance(event, Closed)}
            events += [
                Crashed(ends[file.stem], event.client)
                for event in events
                if isinstance(event, Opened) and event.client not in left
            ]
        histories.append(events)
    return merged(histories)


@dataclass(slots=True)
class FinalContents:
    """Final contents of the brokers, read with another client, and the problems found."""

    records: dict[str, Records] = field(default_factory=dict)
    committed_records: dict[str, Records] = field(default_factory=dict)
    group_commits: dict[str, list[PartitionOffset]] = field(default_factory=dict)
    observed: Observed = field(default_factory=Observed)
    problems: list[str] = field(default_factory=list)


def read_contents(servers: str) -> FinalContents:
    """Read all contents; our own consumer must read the same."""
    found = FinalContents()
    for topic in TOPICS:
        for committed, into in ((False, found.records), (True, found.committed_records)):
            by_other = confluent_reader.records(servers, topic, committed=committed)
            into[topic] = by_other
            if own_reader.records(servers, topic, PARTITIONS, committed=committed) != by_other:
                what = "committed records" if committed else "all records"
                found.problems.append(f"{topic}: our reader of {what} and another client differ")
    offsets: dict[str, tuple[tuple[TopicPartition, int], ...]] = {}
    commits = confluent_reader.all_commits(servers)
    for group, topic in GROUPS.items():
        found.group_commits[group] = commits.get((group, topic), [])
        last = confluent_reader.committed_offsets(servers, group, topic, PARTITIONS)
        offsets[group] = tuple(
            (TopicPartition(topic, number), offset)
            for number, offset in sorted(last.items())
            if offset is not None
        )
    logs = tuple(_logs(found, {topic: confluent_reader.ends(servers, topic) for topic in TOPICS}))
    found.observed = Observed(logs=logs, committed=offsets)
    return found


def _logs(found: FinalContents, ends: Mapping[str, Mapping[int, int]]) -> Iterable[Log]:
    for topic in TOPICS:
        for partition in range(PARTITIONS):
            visible = {o for o, _ in found.committed_records[topic].get(partition, ())}
            yield Log(
                topic,
                partition,
                tuple(
                    LogRecord(
                        offset,
                        value,
                        "none"
                        if topic == ORDERS
                        else "committed"
                        if offset in visible
                        else "aborted",
                    )
                    for offset, value in found.records[topic].get(partition, ())
                ),
                end_offset=ends[topic].get(partition, 0),
            )


def check_chain(source: Records, copy: Records, name: str) -> list[str]:
    """Check that a copy has the committed records of the source, each once and in order."""
    problems = []
    for partition in range(PARTITIONS):
        there = [original(value) for _, value in source.get(partition, ())]
        copied = [original(value) for _, value in copy.get(partition, ())]
        if copied == there:
            continue
        missing, counts = set(there) - set(copied), Counter(copied)
        again = [value for value, count in counts.items() if count > 1]
        problems.append(
            f"{name}, partition {partition}: {len(there):,} records, {len(copied):,} copies;"
            f" {len(missing)} without one {sorted(missing)[:SHOWN]},"
            f" {len(again)} with several {sorted(again)[:SHOWN]}"
        )
    return problems


def in_doubt(history: Iterable[Event], group: str) -> set[PartitionOffset]:
    """Find commits of a group's members with unknown outcome."""
    doubtful: set[PartitionOffset] = set()
    asked: dict[tuple[str, int], set[PartitionOffset]] = {}
    for event in history:
        if isinstance(event, Committing) and group_of(event) == group:
            asked[event.client, event.call] = {
                PartitionOffset(tp.partition, offset) for tp, offset in event.offsets or ()
            }
        elif isinstance(event, Committed):
            places = asked.pop((event.client, event.call), set())
            if event.outcome == "unknown":
                doubtful |= places
    return doubtful.union(*asked.values())


def check_stored_commits(history: Sequence[Event], found: FinalContents) -> dict[str, list[str]]:
    """Check that the offsets stored by the coordinators never went back, by group."""
    return {
        group: check_commits(places, in_doubt(history, group))
        for group, places in found.group_commits.items()
    }


def check_result(history: Sequence[Event], found: FinalContents) -> CheckResult:
    guarantees = Guarantees(complete_groups=tuple(GROUPS), slack_s=SLACK_SECONDS)
    return judge(history, found.observed, guarantees)


@dataclass(slots=True)
class Counts:
    """Amounts of checked events."""

    acknowledged: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    delivered: Counter[str] = field(default_factory=Counter)
    again: Counter[str] = field(default_factory=Counter)
    transactions: Counter[str] = field(default_factory=Counter)
    commits: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    longest: dict[str, float] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)


def counts_of(history: Iterable[Event]) -> Counts:
    """Count the events of a history."""
    found = Counts()
    reached: dict[tuple[str, str, int], int] = {}
    calls: dict[tuple[str, int], Called] = {}
    for event in history:
        if isinstance(event, Acknowledged):
            found.acknowledged[event.topic] += len(event.records)
        elif isinstance(event, Failed):
            kind = "unknown" if event.may_be_written else "failed"
            found.failed[f"{kind}: {event.error}"] += len(event.values)
        elif isinstance(event, Polled):
            group = group_of(event)
            found.delivered[group] += len(event.records)
            place = (group, event.topic, event.partition)
            before = reached.get(place, 0)
            found.again[group] += sum(offset < before for offset, _ in event.records)
            reached[place] = max(before, event.next_offset)
        elif isinstance(event, TransactionEnded):
            found.transactions[event.outcome] += 1
        elif isinstance(event, Committed):
            found.commits[event.outcome] += 1
        elif isinstance(event, Called):
            calls[event.client, event.call] = event
        elif isinstance(event, Returned):
            _ended(found, calls.pop((event.client, event.call), None), event)
    return found


def _ended(found: Counts, call: Called | None, event: Returned) -> None:
    if call is None:
        return
    found.calls += 1
    took = event.at - call.at
    found.longest[call.name] = max(took, found.longest.get(call.name, 0.0))
    if event.error is not None:
        found.errors[f"{call.name}: {event.error}"] += 1


class Silences:
    """Longest times without progress: no record of a partition had an outcome, or a group was given
    none."""

    def __init__(self, history: Iterable[Event]) -> None:
        self._sent: dict[int, list[float]] = {number: [] for number in range(PARTITIONS)}
        self._read: dict[str, list[float]] = {group: [] for group in GROUPS}
        for event in history:
            if isinstance(event, Acknowledged):
                if event.topic == ORDERS:
                    self._sent[event.partition].append(event.at)
            elif isinstance(event, Polled):
                self._read[group_of(event)].append(event.at)

    def sending(self, began: float, ended: float) -> float:
        """Return the longest time of any partition."""
        return max(_longest(times, began, ended) for times in self._sent.values())

    def reading(self, began: float, ended: float) -> tuple[float, str]:
        """Return the longest time of any group, and the group."""
        return max((_longest(times, began, ended), group) for group, times in self._read.items())


def _longest(times: Sequence[float], began: float, ended: float) -> float:
    inside = times[bisect_left(times, began) : bisect_right(times, ended)]
    return max(later - earlier for earlier, later in pairwise([began, *inside, ended]))


def group_of(event: Event) -> str:
    """Return the group of a client, by the names of clients."""
    return event.client.partition("-")[0]


def check_copies(found: FinalContents) -> list[str]:
    """Check the whole chain: the records of the first topic are in the last one once."""
    visible = found.committed_records
    return [
        *check_chain(found.records[ORDERS], visible[COPIES], f"{ORDERS} to {COPIES}"),
        *check_chain(visible[COPIES], visible[FINALS], f"{COPIES} to {FINALS}"),
    ]
