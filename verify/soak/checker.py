"""Checks of written, read and committed data. Each returns a list of problems.

They do no I/O, and are tested with wrong results.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

SHOWN = 5
"""Number of examples that a problem lists."""


class PartitionOffset(NamedTuple):
    partition: int
    offset: int


class Span(NamedTuple):
    """Offsets of one partition from `first` up to, but not including, `end`."""

    partition: int
    first: int
    end: int


def _some(found: Sequence[object]) -> str:
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return ", ".join(map(str, found[:SHOWN])) + more


def check_log(
    acknowledged: Mapping[int, PartitionOffset],
    unknown: Iterable[int],
    log: Mapping[int, Sequence[tuple[int, int]]],
) -> list[str]:
    """Compare a producer's outcomes with the contents of the partitions, as (offset, number) each.

    Numbers were sent in ascending order. What is acknowledged must be there once and at its
    acknowledged offset; what has an unknown outcome may be there once; nothing else may be."""
    problems = []
    found: dict[int, list[PartitionOffset]] = defaultdict(list)
    for partition, entries in log.items():
        numbers = [number for _, number in entries]
        if numbers != sorted(numbers):
            problems.append(f"partition {partition} is not in the order in which it was sent")
        for offset, number in entries:
            found[number].append(PartitionOffset(partition, offset))
    missing = sorted(acknowledged.keys() - found.keys())
    if missing:
        problems.append(f"{len(missing)} acknowledged and not there: {_some(missing)}")
    twice = sorted(number for number, places in found.items() if len(places) > 1)
    if twice:
        problems.append(f"{len(twice)} there more than once: {_some(twice)}")
    elsewhere = sorted(
        number for number, place in acknowledged.items() if found.get(number, [place])[0] != place
    )
    if elsewhere:
        problems.append(f"{len(elsewhere)} not at their acknowledged offset: {_some(elsewhere)}")
    strange = sorted(found.keys() - acknowledged.keys() - set(unknown))
    if strange:
        problems.append(f"{len(strange)} present although reported as failed: {_some(strange)}")
    return problems


def check_copies(
    messages: int, partitions: int, log: Mapping[int, Sequence[tuple[int, int]]]
) -> list[str]:
    """Check that the numbers from 0 up to `messages` are there, each once and in order.

    Number n belongs to partition n modulo `partitions`; `log` is as in `check_log`.
    """
    problems = []
    counts = Counter(number for entries in log.values() for _, number in entries)
    missing = [number for number in range(messages) if number not in counts]
    if missing:
        problems.append(f"{len(missing)} not there: {_some(missing)}")
    twice = sorted(number for number, count in counts.items() if count > 1)
    if twice:
        problems.append(f"{len(twice)} there more than once: {_some(twice)}")
    strange = sorted(number for number in counts if not 0 <= number < messages)
    if strange:
        problems.append(f"{len(strange)} that were not sent: {_some(strange)}")
    for partition, entries in sorted(log.items()):
        numbers = [number for _, number in sorted(entries)]
        if any(number % partitions != partition for number in numbers):
            problems.append(f"partition {partition} has records of another one")
        if any(later <= earlier for earlier, later in pairwise(numbers)):
            problems.append(f"partition {partition} is not in order")
    return problems


def check_processed(spans: Iterable[Span], ends: Mapping[int, int]) -> list[str]:
    """Check that all offsets of each partition, from 0 up to its end, were processed."""
    by_partition: dict[int, list[Span]] = defaultdict(list)
    for span in spans:
        by_partition[span.partition].append(span)
    skipped = []
    for partition, end in sorted(ends.items()):
        reached = 0
        for span in sorted(by_partition[partition]):
            if span.first > reached:
                skipped.append(Span(partition, reached, span.first))
            reached = max(reached, span.end)
        if reached < end:
            skipped.append(Span(partition, reached, end))
    if not skipped:
        return []
    count = sum(span.end - span.first for span in skipped)
    where = _some([f"{span.partition}@{span.first}-{span.end - 1}" for span in skipped])
    return [f"{count} messages were not processed: {where}"]


def processed_again(spans: Iterable[Span]) -> int:
    """Return the number of messages processed more than once: allowed, but reported."""
    by_partition: dict[int, list[Span]] = defaultdict(list)
    for span in spans:
        by_partition[span.partition].append(span)
    again = 0
    for some in by_partition.values():
        reached = 0
        for span in sorted(some):
            again += max(min(span.end, reached) - span.first, 0)
            reached = max(reached, span.end)
    return again


def check_commits(
    history: Iterable[PartitionOffset], in_doubt: Iterable[PartitionOffset] = ()
) -> list[str]:
    """Check that the committed offsets of each partition never went back.

    `history` is in the order in which the coordinator wrote it. Commits `in_doubt`, whose sender
    never learned the outcome, may have been written late."""
    doubtful = set(in_doubt)
    newest: dict[int, int] = {}
    back = []
    for place in history:
        partition, offset = place
        before = newest.get(partition, 0)
        if offset < before and place not in doubtful:
            back.append(f"partition {partition} from {before} to {offset}")
        newest[partition] = offset
    return [f"{len(back)} commits went back: {_some(back)}"] if back else []


def check_owners(owned: Mapping[str, Iterable[int]], partitions: int) -> list[str]:
    """Check that each partition has exactly one owner."""
    owners = Counter(partition for some in owned.values() for partition in some)
    shared = [partition for partition, count in sorted(owners.items()) if count > 1]
    alone = [partition for partition in range(partitions) if partition not in owners]
    problems = []
    if shared:
        problems.append(f"{len(shared)} partitions have more than one owner: {_some(shared)}")
    if alone:
        problems.append(f"{len(alone)} partitions have no owner: {_some(alone)}")
    return problems


def longest_gap(times: Iterable[float], begin: float, end: float) -> float:
    """Return the longest time from `begin` to `end` without any of `times`, in their unit."""
    inside = sorted(time for time in times if begin < time < end)
    edges = [begin, *inside, end]
    return max(later - earlier for earlier, later in pairwise(edges))


class ShareEvent(NamedTuple):
    """Records that were delivered to a member of a share group, or accepted by it.

    `delivery_count` is None if the acceptance of the records was confirmed.
    """

    at: float
    member: str
    delivery_count: int | None
    places: frozenset[PartitionOffset]


def expand(spans: Iterable[Span]) -> frozenset[PartitionOffset]:
    """Return the single offsets of spans."""
    return frozenset(
        PartitionOffset(span.partition, offset)
        for span in spans
        for offset in range(span.first, span.end)
    )


def check_accepted(history: Iterable[ShareEvent]) -> list[str]:
    """Check that no record was delivered again after its acceptance was confirmed.

    `history` is in the order of time. A member that was stopped reports a delivery late; its count
    is then not above that of the accepted one.
    """
    counts: dict[tuple[str, PartitionOffset], int] = {}
    accepted: dict[PartitionOffset, int] = {}
    again = set()
    for _, member, count, places in history:
        for place in places:
            if count is None:
                accepted[place] = counts[member, place]
            else:
                counts[member, place] = count
                if count > accepted.get(place, count):
                    again.add(place)
    if not again:
        return []
    return [f"{len(again)} delivered again after they were accepted: {_some(sorted(again))}"]


class JobResult(NamedTuple):
    """Results of records that are numbered from 0; the key of a number is its remainder.

    Attributes:
        records: Number of records.
        done: Numbers that were processed, in the order of time.
        failures: Failed attempts.
        dead: Numbers in the dead letter topic.
    """

    records: int
    done: Sequence[int]
    failures: int
    dead: frozenset[int]

    @property
    def missing(self) -> set[int]:
        """Numbers that were neither processed nor written to the dead letter topic."""
        return set(range(self.records)) - set(self.done) - self.dead


def out_of_order(done: Iterable[int], keys: int) -> list[int]:
    """Return the numbers that were first processed after a later number with the same key."""
    seen: set[int] = set()
    last: dict[int, int] = {}
    found = []
    for number in done:
        if number in seen:
            continue
        seen.add(number)
        key = number % keys
        if number < last.get(key, number):
            found.append(number)
        else:
            last[key] = number
    return found


def check_job(result: JobResult, is_poison: Callable[[int], bool], keys: int) -> list[str]:
    """Check that all records were processed in the order of keys, and that poison alone is dead."""
    problems = []
    poison = {number for number in range(result.records) if is_poison(number)}
    if missing := sorted(result.missing):
        problems.append(f"{len(missing)} records were lost: {_some(missing)}")
    if wrong := sorted(result.dead - poison):
        problems.append(f"{len(wrong)} dead letters should have been processed: {_some(wrong)}")
    if moved := out_of_order(result.done, keys):
        problems.append(f"{len(moved)} records are out of order: {_some(moved)}")
    return problems
