"""After the heal everything is consumed, and calls succeed again: invariant 11."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from aiokafkawire.types import TopicPartition
from verify.invariants.check_result import Violation
from verify.invariants.checks.calls import fault_free_since, recovery_s
from verify.invariants.checks.finding import Finding, NotChecked, group_findings
from verify.invariants.events import (
    Called,
    EndTxnRequested,
    PartitionsAssignedManually,
    Polled,
    Returned,
    Subscribed,
)
from verify.invariants.run import Client, Run

__all__ = ("everything_is_consumed",)

OWN_DOING = {
    "BufferFull",
    "Cancelled",
    "ClientClosed",
    "DeliveriesFailed",
    "IllegalState",
    "InvalidOption",
    "OwnError",
    "ProducerFenced",
    "RecordTooLarge",
    "TransactionAborted",
    "TransactionFailed",
    "InvalidTxnState",
}
"""Errors of a send without a fault: caused by the application, or by another producer."""

OUTAGES = {"ConnectionFailed", "ConnectionLost", "NoBrokerAvailable", "RequestTimedOut"}
"""Errors that no call raises without a fault, except by the caller's own deadline."""

SHORT_BY_CHOICE = {"flush"}
"""Calls with an explicit deadline, which raise after it."""


def everything_is_consumed(run: Run) -> Iterator[Violation]:
    """(11) After the heal every complete reader consumes everything in time, sends succeed, and no
    call fails as if the cluster were down.

    A client has one request timeout to notice the end of the faults.
    """
    readers = [*run.guarantees.complete_groups, *run.guarantees.complete_readers]
    begin = fault_free_since(run)
    if not readers and begin is None:
        raise NotChecked("there is no complete reader, and no heal")
    for group in run.guarantees.complete_groups:
        members = [client for client in run.clients.values() if client.group == group]
        yield from _judge(run, f"group {group}", members)
    for name in run.guarantees.complete_readers:
        yield from _judge(run, name, [run.clients[name]] if name in run.clients else [])
    if begin is not None:
        sends, calls = _failures(run, begin)
        yield from group_findings(11, "sends failed after all faults had ended", sends)
        yield from group_findings(11, "calls failed after all faults had ended", calls)


# --- what is read --------------------------------------------------------------------------------


def _judge(run: Run, who: str, readers: list[Client]) -> Iterator[Violation]:
    """Check that each record visible to these readers was given to one of them in time."""
    names = {client.name for client in readers}
    given: dict[bytes, float] = {}
    for event in run.of(Polled):
        if event.client in names:
            for _, value in event.records:
                given.setdefault(value, event.at)
    wanted = _wanted(run, names)
    committed = bool(readers) and all(client.read_committed for client in readers)
    since = run.healed_at
    # A partition that moves to another broker waits for the Fetch in flight there.
    fetch_s = max((client.options.get("fetch_max_wait_ms", 0) for client in readers), default=0)
    within_s = run.guarantees.consumed_within_s + fetch_s / 1_000 + run.guarantees.slack_s
    opened_at = min((client.opened.at for client in readers), default=0.0)
    asked = _commits_asked(run)
    outdated = _outdated_commits(run, names)
    missing: list[Finding] = []
    late: list[Finding] = []
    for tp in wanted:
        log = run.logs[tp][-1] if run.logs.get(tp) else None
        if log is None or log.incarnation < len(run.made_at.get(tp.topic, ())) - 1:
            continue
        for record in log.records:
            if committed and record.fate not in {"none", "committed"}:
                continue
            at = given.get(record.value)
            where = f"{record.value.decode('latin-1')} at {tp}@{record.offset}"
            if at is None and record.offset < outdated.get(tp, 0):
                continue
            if at is None:
                missing.append((where, record))
            elif since is not None:
                due = max(since, opened_at, _there_since(run, record.value, asked))
                if at > due + within_s:
                    late.append((f"{where} {at - due:.1f} s later", record))
    yield from group_findings(11, f"records were never given to {who}", missing)
    yield from group_findings(11, f"records were given late to {who}", late)


def _wanted(run: Run, names: set[str]) -> list[TopicPartition]:
    """Return the existing partitions that these readers ever wanted.

    Recreated topics are left out where clients cannot detect that.
    """
    found: dict[TopicPartition, None] = {}
    for subscribed in run.of(Subscribed):
        if subscribed.client not in names:
            continue
        pattern = None if subscribed.pattern is None else re.compile(subscribed.pattern)
        for tp in run.logs:
            if tp.topic in subscribed.topics or (pattern and pattern.fullmatch(tp.topic)):
                found[tp] = None
    for by_hand in run.of(PartitionsAssignedManually):
        if by_hand.client in names:
            found |= dict.fromkeys(by_hand.partitions)
    made = run.made_at
    return [
        tp
        for tp in found
        if (not made or tp.topic in run.partitions)
        and (run.guarantees.in_metadata or len(made.get(tp.topic, ())) <= 1)
    ]


def _outdated_commits(run: Run, names: set[str]) -> dict[TopicPartition, int]:
    """Return the highest position in the old log that was stored for a recreated topic.

    Before Kafka 4.1, OffsetCommit has no topic id. Until a member learns that the topic was
    recreated, it may commit the records that it was given from the old log, and the coordinator
    stores their offsets for the new topic.
    """
    found: dict[TopicPartition, int] = {}
    if run.guarantees.in_commits:
        return found
    old = _given_from_old_logs(run, names)
    for request in run.observed.commits or ():
        client = run.by_client_id.get(request.client)
        if client is None or request.errors is None:
            continue
        for (tp, offset), error in zip(request.offsets, request.errors, strict=True):
            if error or offset not in old.get((client.name, tp), ()):
                continue
            made_at = run.made_at[tp.topic][-1]
            if made_at <= request.at <= _known_at(run, client, tp, made_at):
                found[tp] = max(offset, found.get(tp, 0))
    return found


def _given_from_old_logs(run: Run, names: set[str]) -> dict[tuple[str, TopicPartition], set[int]]:
    """Return the offsets after records of older logs that were given to these readers."""
    found: dict[tuple[str, TopicPartition], set[int]] = defaultdict(set)
    for event in run.of(Polled):
        latest = len(run.made_at.get(event.topic, ())) - 1
        if latest < 1 or event.client not in names:
            continue
        tp = TopicPartition(event.topic, event.partition)
        for offset, value in event.records:
            if all(log.incarnation < latest for log, _ in run.stored.get(value, ())):
                found[event.client, tp].add(offset + 1)
    return found


def _known_at(run: Run, client: Client, tp: TopicPartition, made_at: float) -> float:
    """Return the time at which a reader knows that a topic was recreated.

    The first error of a fetch makes it refresh the metadata.
    """
    lost = [
        each.at + run.guarantees.slack_s
        for each in run.observed.positions_lost or ()
        if run.by_client_id.get(each.client) is client
        and (each.topic, each.partition) == tp
        and each.at >= made_at
    ]
    return min([made_at + client.learns_of_topics_within_s, *lost])


def _commits_asked(run: Run) -> dict[tuple[str, int], float]:
    """Return the time of EndTxn of each transaction."""
    found: dict[tuple[str, int], float] = {}
    for event in run.of(EndTxnRequested):
        found[event.client, event.transaction] = event.at
    return found


def _there_since(run: Run, value: bytes, asked: dict[tuple[str, int], float]) -> float:
    """Return the time from which a record can be read, as far as its producer knows."""
    sent = run.sent.get(value)
    if sent is None:
        return 0.0
    at = sent.handed_at or sent.sending.at
    if sent.acknowledged is not None:
        at = max(at, sent.acknowledged.at)
    if sent.sending.transaction is not None:
        at = max(at, asked.get((sent.client, sent.sending.transaction), at))
    return at


# --- what fails ----------------------------------------------------------------------------------


def _failures(run: Run, begin: float) -> tuple[list[Finding], list[Finding]]:
    """Return sends and calls that started without a fault and failed as in an outage."""
    remade = {topic for topic, times in run.made_at.items() if len(times) > 1}
    gone = {topic for topic in run.made_at if topic not in run.partitions}
    sends: list[Finding] = []
    for sent in run.sent.values():
        failed = sent.failed
        client = run.clients.get(sent.client)
        if failed is None or client is None or failed.error in OWN_DOING:
            continue
        if sent.sending.at <= begin + recovery_s(client) or sent.sending.topic in remade | gone:
            continue
        sends.append((f"{sent.value.decode('latin-1')}: {failed.error}: {failed.text}", failed))
    calls: list[Finding] = []
    called: dict[tuple[str, int], Called] = {}
    for event in run.history:
        if type(event) is Called:
            called[event.client, event.call] = event
        elif type(event) is Returned and event.error in OUTAGES:
            call = called.get((event.client, event.call))
            client = run.clients.get(event.client)
            if call is None or client is None or call.name in SHORT_BY_CHOICE or remade:
                continue
            if call.at > begin + recovery_s(client):
                text = f"{call.name} of {event.client}: {event.error}: {event.text}"
                calls.append((text, event))
    return sends, calls
