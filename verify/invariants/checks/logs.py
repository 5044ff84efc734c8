"""Producer outcomes against the contents of the partitions: invariants 1 to 4."""

from __future__ import annotations

import math
from collections.abc import Iterator

from aiokafkawire.types import TopicPartition
from verify.invariants.check_result import Violation
from verify.invariants.checks.finding import Finding, NotChecked, group_findings
from verify.invariants.events import Fault, parse_value
from verify.invariants.observed import Log, LogRecord
from verify.invariants.run import Run, Sent

__all__ = ("acknowledged_is_readable", "failed_records_are_absent", "in_order", "no_duplicates")

ABORTED = "TransactionAborted"
"""Error of records that may be in the log, where no `read_committed` consumer sees them."""


def acknowledged_is_readable(run: Run) -> Iterator[Violation]:
    """(1) An acknowledged record is at its offset, in a batch with the correct maximum timestamp.

    For acks=all. A record without a known offset may be anywhere in its partition. Records removed
    by retention or with a deleted topic are ignored.
    """
    if not run.guarantees.durable:
        raise NotChecked("brokers may lose acknowledged records")
    if not any(sent.acknowledged for sent in run.sent.values()):
        raise NotChecked("no record was acknowledged")
    misdated: list[Finding] = [
        (f"{log.topic}-{log.partition}@{offset}", log)
        for log in run.observed.logs
        for offset in log.misdated
    ]
    yield from group_findings(1, "batches have a wrong maximum timestamp", misdated)
    promised = {
        client.name
        for client in run.clients.values()
        if client.options.get("required_acks", -1) == -1
    }
    missing: list[Finding] = []
    elsewhere: list[Finding] = []
    for sent in run.sent.values():
        event = sent.acknowledged
        if event is None or sent.client not in promised:
            continue
        tp = TopicPartition(event.topic, event.partition)
        places = [(log, found) for log, found in run.stored.get(sent.value, ()) if _is(log, tp)]
        if any(sent.offset in {-1, found.offset} for _, found in places):
            continue
        if _excused(run, tp, sent):
            continue
        name = sent.value.decode("latin-1")
        if places:
            text = f"{name} is at {tp}@{places[0][1].offset}, acknowledged at {sent.offset}"
            elsewhere.append((text, event))
        else:
            missing.append((f"{name} acknowledged at {tp}@{sent.offset}", event))
    yield from group_findings(1, "acknowledged records are not in the log", missing)
    yield from group_findings(1, "records are not at their acknowledged offsets", elsewhere)


def _is(log: Log, tp: TopicPartition) -> bool:
    return log.topic == tp.topic and log.partition == tp.partition


def _excused(run: Run, tp: TopicPartition, sent: Sent) -> bool:
    """Return whether the record may be gone: by retention, or with a deleted topic."""
    logs = run.logs.get(tp, [])
    incarnations = len(run.made_at.get(tp.topic, [0.0]))
    gone_unseen = len(logs) < incarnations or tp.topic not in run.partitions
    if run.made_at and gone_unseen and run.guarantees.topics_remade:
        return True
    if sent.offset < 0:
        return any(log.start_offset > 0 for log in logs)
    return any(sent.offset < log.start_offset for log in logs)


def no_duplicates(run: Run) -> Iterator[Violation]:
    """(2) With idempotence, no record is in a topic twice, in any partition."""
    if not _numbered(run):
        raise NotChecked("no producer is idempotent")
    twice: list[Finding] = []
    for value, places in run.stored.items():
        if len(places) < 2:
            continue
        sent = run.sent.get(value)
        if sent is None or sent.client not in _numbered(run):
            continue
        seen: dict[tuple[str, int], tuple[Log, LogRecord]] = {}
        for log, record in places:
            before = seen.setdefault((log.topic, log.incarnation), (log, record))
            if before[1] is not record:
                both_places = f"{_where(*before)} and {_where(log, record)}"
                twice.append((f"{_name(sent)} at {both_places}", sent.sending))
    yield from group_findings(2, "records are stored twice", twice)


def _numbered(run: Run) -> set[str]:
    """Return producers whose records must be written once."""
    if not run.guarantees.numbers:
        return set()
    return {client.name for client in run.clients.values() if client.idempotent}


def _in_line(run: Run) -> set[str]:
    """Return producers whose acknowledged records must keep their order."""
    alone = {
        client.name
        for client in run.clients.values()
        if client.options.get("max_in_flight_requests_per_connection") == 1
        and client.kind == "producer"
    }
    return _numbered(run) | (alone - _without_responses(run))


def _without_responses(run: Run) -> set[str]:
    """Return producers with acks=0: of their records, only those of one connection have an order.

    Which connection carried a record is not observed. Until the first fault, none is lost.
    """
    return {
        client.name for client in run.clients.values() if client.options.get("required_acks") == 0
    }


def in_order(run: Run) -> Iterator[Violation]:
    """(3) The records of a producer are in each partition in the order of sending.

    The order of two records is known if one was handed over before the call for the other began, or
    if one call sent both. Without sequence numbers (one request in flight), a record with unknown
    outcome may come late, and duplicates are ignored. With acks=0, so may every record that was not
    written before the first fault.
    """
    until = dict.fromkeys(_in_line(run), math.inf)
    first_fault_at = min((event.at for event in run.of(Fault)), default=math.inf)
    until |= dict.fromkeys(_without_responses(run), first_fault_at)
    if not until:
        raise NotChecked("no producer guarantees an order")
    numbered = _numbered(run)
    wrong: list[Finding] = []
    for log in run.observed.logs:
        wrong += _disorder(run, log, until, numbered)
    yield from group_findings(3, "records are behind later ones", wrong)


def _disorder(run: Run, log: Log, until: dict[str, float], numbered: set[str]) -> Iterator[Finding]:
    """Yield the records of a log that are behind later ones.

    `until` has the producers that keep an order; without sequence numbers, only of records that
    were acknowledged before this time.
    """
    made = run.made_at.get(log.topic, [])
    made_at = made[log.incarnation] if log.incarnation and log.incarnation < len(made) else None
    latest: dict[str, Sent] = {}
    last_of_call: dict[tuple[str, int], Sent] = {}
    met: set[bytes] = set()
    for record in log.records:
        sent = run.sent.get(record.value)
        if sent is None or sent.client not in until or record.value in met:
            continue
        met.add(record.value)
        if made_at is not None and sent.sending.at <= made_at:
            continue  # sent to the topic before: brokers before 4.0 cannot detect it
        if sent.client not in numbered and not _acknowledged(sent, until[sent.client]):
            continue
        call = (sent.client, sent.sending.send)
        mate = last_of_call.get(call)
        before = latest.get(sent.client)
        if mate is not None and sent.index < mate.index:
            behind = f"{_name(mate)}, in one call"
            yield f"{_name(sent)} at {_where(log, record)} behind {behind}", sent.sending
        elif before is not None and sent.over < before.began:
            yield f"{_name(sent)} at {_where(log, record)} behind {_name(before)}", sent.sending
        last_of_call[call] = sent
        if before is None or sent.began > before.began:
            latest[sent.client] = sent


def _acknowledged(sent: Sent, until: float) -> bool:
    return sent.acknowledged is not None and sent.acknowledged.at < until


def _where(log: Log, record: LogRecord) -> str:
    return f"{log.topic}-{log.partition}@{record.offset}"


def _name(sent: Sent) -> str:
    return sent.value.decode("latin-1")


def failed_records_are_absent(run: Run) -> Iterator[Violation]:
    """(4) A failed record is not in the log, unless its outcome is unknown.

    A record of an aborted transaction may be there, where no `read_committed` consumer sees it. A
    log that was deleted with its topic before the failure is not searched. Records that no producer
    sent are reported too.
    """
    if not run.observed.logs:
        raise NotChecked("the logs are not known")
    failed: list[Finding] = []
    strange: list[Finding] = []
    for value, places in run.stored.items():
        sent = run.sent.get(value)
        if sent is None:
            identity = parse_value(value)
            if identity is not None and identity.producer in run.clients:
                strange.append((f"{value.decode('latin-1')} at {_where(*places[0])}", places[0]))
            continue
        sending, event = sent.sending, sent.failed
        for log, record in places:
            if log.topic != sending.topic or sending.partition not in {None, log.partition}:
                strange.append((f"{_name(sent)} at {_where(log, record)}", sending))
            if event is None or event.may_be_written:
                continue
            if event.error == ABORTED and record.fate in {"aborted", "open"}:
                continue
            if any(at <= event.at for at in run.deleted_at[log.topic][log.incarnation :]):
                continue
            failed.append((f"{_name(sent)} at {_where(log, record)} after {event.error}", event))
    yield from group_findings(4, "failed records are in the log", failed)
    yield from group_findings(4, "records that were not sent there are in the log", strange)
    repeated = [
        (f"{event.client} sends {event.values[0]!r} again", event) for event in run.repeated
    ]
    yield from group_findings(4, "values were sent more than once (by the scenario)", repeated)
