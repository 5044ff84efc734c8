"""Share groups (KIP-932): invariants 15, 16 and 17."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from verify.invariants.check_result import Violation
from verify.invariants.checks.finding import Finding, NotChecked, group_findings
from verify.invariants.events import (
    Closed,
    Event,
    Fault,
    ShareDecided,
    ShareReceived,
    ShareReported,
)
from verify.invariants.observed import ShareAcquired, ShareLocksEnded
from verify.invariants.run import Run

__all__ = ("each_record_has_one_holder", "each_record_is_finished_once", "results_are_true")

ACCEPT, REJECT, RENEW = "accept", "reject", "renew"


class Place(NamedTuple):
    """A record of a share group."""

    group: str
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset} of {self.group}"


@dataclass(slots=True)
class Record:
    """State of a record in the order of its changes.

    `holder` acquired it last, and `is_locked` says whether it still has the lock. `finished` is the
    change that ended its deliveries.
    """

    holder: ShareAcquired | None = None
    is_locked: bool = False
    finished: ShareLocksEnded | None = None
    finished_by: str = ""


@dataclass(slots=True)
class Followed:
    """All records of share groups at the end, and what was wrong on the way."""

    records: dict[Place, Record] = field(default_factory=dict)
    shared: list[Finding] = field(default_factory=list)
    counts: list[Finding] = field(default_factory=list)
    after_end: list[Finding] = field(default_factory=list)
    given_up: list[tuple[Place, Record]] = field(default_factory=list)


def follow(run: Run) -> Followed:
    """Apply all changes of share groups in their order."""
    changes = run.observed.share_changes
    if not changes:
        raise NotChecked("no share group acquired a record")
    found = Followed()
    for change in changes:
        for offset in range(change.first, change.last + 1):
            place = Place(change.group, change.topic, change.partition, offset)
            record = found.records.setdefault(place, Record())
            if isinstance(change, ShareAcquired):
                _acquired(found, place, record, change)
            else:
                _ended(found, place, record, change)
    return found


def _acquired(found: Followed, place: Place, record: Record, change: ShareAcquired) -> None:
    before = record.holder
    same_memory = before is not None and before.loaded == change.loaded
    if record.finished is not None:
        text = f"{place}, {record.finished.state} by {record.finished_by}, came to {change.client}"
        found.after_end.append((text, change))
    if before is not None and same_memory and record.is_locked:
        text = f"{place} was locked for {before.client} when {change.client} acquired it"
        found.shared.append((text, change))
    count, limit = change.delivery_count, change.limit
    if count > limit:
        found.counts.append((f"{place} has the delivery count {count} of {limit}", change))
    if before is not None and same_memory and count != before.delivery_count + 1:
        text = f"{place} has the delivery count {count} after {before.delivery_count}"
        found.counts.append((text, change))
    record.holder, record.is_locked = change, True


def _ended(found: Followed, place: Place, record: Record, change: ShareLocksEnded) -> None:
    if record.finished is not None:
        text = f"{place} was {record.finished.state}, and is {change.state} now"
        found.after_end.append((text, change))
    record.is_locked = False
    if change.state == "available":
        return
    record.finished = change
    record.finished_by = "" if record.holder is None else record.holder.client
    if change.state == "archived" and not _is_at_limit(record):
        found.given_up.append((place, record))


def each_record_has_one_holder(run: Run) -> Iterator[Violation]:
    """(15) A record of a share group has one lock at a time; its delivery count grows by one and
    never passes the limit; members are given only records that they have locked."""
    found = follow(run)
    yield from group_findings(15, "records were locked for two members", found.shared)
    yield from group_findings(15, "delivery counts are wrong", found.counts)
    locked = {
        (change.client, change.topic, change.partition, offset, change.delivery_count)
        for change in run.observed.share_changes or ()
        if isinstance(change, ShareAcquired)
        for offset in range(change.first, change.last + 1)
    }
    given: list[Finding] = []
    for event in run.of(ShareReceived):
        for (offset, _), count in zip(event.records, event.counts, strict=True):
            if (event.client, event.topic, event.partition, offset, count) not in locked:
                where = f"{event.topic}-{event.partition}@{offset}"
                given.append((f"{event.client} got {where} in delivery {count}", event))
    yield from group_findings(15, "records were given without a lock", given)


def each_record_is_finished_once(run: Run) -> Iterator[Violation]:
    """(16) Each record of a share group ends in one final state: accepted by an application,
    rejected by one, or given up at the delivery limit. It is not delivered again then."""
    found = follow(run)
    yield from group_findings(16, "finished records changed again", found.after_end)
    decided = _decisions(run)
    data = {
        (log.topic, log.partition, record.offset): record
        for log in run.observed.logs
        for record in log.records
    }
    lost: list[Finding] = [
        (f"{place} of {record.finished_by}", record.finished)
        for place, record in found.given_up
        if place[1:] in data
        and data[place[1:]].fate != "aborted"
        and (record.finished_by, *place[1:], REJECT) not in decided
    ]
    yield from group_findings(16, "records were archived before the delivery limit", lost)
    begin = min((event.at for event in run.of(Fault)), default=run.ended_at)
    gaps: list[Finding] = [
        (f"{change.topic}-{change.partition}@{offset} of {change.group}", change)
        for change in run.observed.share_changes or ()
        if isinstance(change, ShareLocksEnded) and change.at < begin
        for offset in range(change.first, change.last + 1)
        if change.state == "available" and (change.topic, change.partition, offset) not in data
    ]
    yield from group_findings(16, "offsets without a record were kept until a lock ended", gaps)
    accepted: list[Finding] = [
        (f"{place} of {record.finished_by}", record.finished)
        for place, record in found.records.items()
        if record.finished is not None
        and record.finished.state == "acknowledged"
        and (record.finished_by, *place[1:], ACCEPT) not in decided
    ]
    yield from group_findings(16, "records were accepted without their application", accepted)
    never: list[Finding] = []
    for group in run.guarantees.share_groups:
        for where, record in data.items():
            end = found.records.get(Place(group, *where), Record()).finished
            if end is None and record.fate in {"none", "committed"}:
                never.append((str(Place(group, *where)), record))
    yield from group_findings(16, "records were never finished", never)


def _decisions(run: Run) -> set[tuple[str, str, int, int, str]]:
    return {
        (event.client, event.topic, event.partition, offset, event.decision)
        for event in run.of(ShareDecided)
        for offset in event.acknowledged
    }


@dataclass(slots=True)
class Delivery:
    """The last delivery of a record to one client."""

    decision: str = ""
    was_renewed: bool = False
    owed: ShareDecided | None = None


def results_are_true(run: Run) -> Iterator[Violation]:
    """(17) An acknowledgement that a client reported as successful is stored by the broker, and
    each acknowledgement of the application has a result when the client is closed."""
    found = follow(run)
    deliveries: dict[tuple[str, str, int, int], Delivery] = {}
    false: list[Finding] = []
    missing: list[Finding] = []
    is_stored = partial(_is_stored, run, found)
    for event in run.history:
        if isinstance(event, ShareReceived):
            for offset, _ in event.records:
                key = (event.client, event.topic, event.partition, offset)
                before = deliveries.get(key, Delivery())
                deliveries[key] = Delivery(owed=before.owed)
        elif isinstance(event, ShareDecided | ShareReported):
            for offset in event.acknowledged:
                key = (event.client, event.topic, event.partition, offset)
                delivery = deliveries.setdefault(key, Delivery())
                if isinstance(event, ShareDecided):
                    _decide(delivery, event)
                elif not _report(run, delivery, event, is_stored(key, event.at)):
                    false.append((f"{event.client}: {key[1]}-{key[2]}@{offset}", event))
        elif isinstance(event, Closed):
            missing += _owed_results(deliveries, event)
    yield from group_findings(17, "acknowledgements succeeded, but are not stored", false)
    yield from group_findings(17, "acknowledgements have no result", missing)


def _decide(delivery: Delivery, event: ShareDecided) -> None:
    delivery.decision = event.decision
    delivery.was_renewed = delivery.was_renewed or event.decision == RENEW
    if event.owed:
        delivery.owed = event


def _report(run: Run, delivery: Delivery, event: ShareReported, stored: str) -> bool:
    """Apply a report; return False if it is not true."""
    client = run.clients.get(event.client)
    delivery.owed = None
    decision = event.decision or delivery.decision
    if event.error is not None or decision not in {ACCEPT, REJECT}:
        return True
    renews = delivery.was_renewed or (
        client is not None and client.options.get("share_renewal_limit_ms")
    )
    if renews and not event.decision:
        return True  # It may be the result of the renewal.
    return stored in {"elsewhere", "acknowledged" if decision == ACCEPT else "archived"}


def _is_stored(run: Run, found: Followed, key: tuple[str, str, int, int], at: float) -> str:
    """Return the final state that a client's acknowledgement has caused up to a time.

    "elsewhere": the record was finished after the client's lock had expired. Kafka responds to a
    late acknowledgement of such a record without an error.
    """
    client = run.clients.get(key[0])
    group = None if client is None else client.group
    record = found.records.get(Place(group or "", *key[1:]))
    end = None if record is None else record.finished
    if record is None or end is None or end.at > at:
        return ""
    return "elsewhere" if record.finished_by != key[0] or _is_at_limit(record) else end.state


def _is_at_limit(record: Record) -> bool:
    end, holder = record.finished, record.holder
    return (
        end is not None
        and holder is not None
        and end.state == "archived"
        and end.delivery_count >= holder.limit
    )


def _owed_results(
    deliveries: dict[tuple[str, str, int, int], Delivery], event: Event
) -> list[Finding]:
    return [
        (f"{key[0]}: {delivery.owed.decision} of {key[1]}-{key[2]}@{key[3]}", delivery.owed)
        for key, delivery in deliveries.items()
        if key[0] == event.client and delivery.owed is not None
    ]
