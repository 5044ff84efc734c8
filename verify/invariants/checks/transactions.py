"""Transactions: invariant 14."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from aiokafkawire.types import TopicPartition
from verify.invariants.check_result import Violation
from verify.invariants.checks.finding import Finding, NotChecked, group_findings
from verify.invariants.events import (
    Ending,
    EndTxnRequested,
    OffsetsSent,
    Polled,
    TransactionBegan,
    TransactionEnded,
)
from verify.invariants.run import Run, Sent

__all__ = ("transactions_are_whole",)

Key = tuple[str, int]


@dataclass(slots=True)
class _Transaction:
    """`asked_at`: time of the first EndTxn, if any; `outcome` None: not known."""

    client: str
    number: int
    began: TransactionBegan
    asked_at: float | None = None
    outcome: Ending | None = None
    ended_at: float | None = None
    records: list[Sent] = field(default_factory=list)
    offsets: list[OffsetsSent] = field(default_factory=list)

    def __str__(self) -> str:
        return f"transaction {self.number} of {self.client}"

    def ended(self, event: TransactionEnded) -> None:
        """Once a commit is in doubt, only its success may be reported later."""
        if self.outcome == "unknown" and event.outcome != "committed":
            return
        self.outcome, self.ended_at = event.outcome, event.at

    @property
    def may_be_committed(self) -> bool:
        return self.asked_at is not None and self.outcome in {None, "unknown", "committed"}


def transactions_are_whole(run: Run) -> Iterator[Violation]:
    """(14) A transaction is visible completely or not at all; never if it was aborted or its
    producer fenced.

    `read_committed` consumers see no record before EndTxn, and nothing behind an open transaction.
    The offsets of a transaction commit with it.
    """
    transactions = _transactions(run)
    if not transactions:
        raise NotChecked("there are no transactions")
    whole = _Whole(run)
    for transaction in transactions.values():
        whole.judge(transaction)
    for kind, found in whole.found.items():
        yield from group_findings(14, kind, found)
    early, passing = _read_too_early(run, transactions)
    yield from group_findings(14, "records were read before EndTxn", early)
    yield from group_findings(14, "readers passed an open transaction", passing)
    offsets = list(_offsets(run, list(transactions.values())))
    yield from group_findings(14, "offsets are not those of the last transaction", offsets)


def _transactions(run: Run) -> dict[Key, _Transaction]:
    found: dict[Key, _Transaction] = {}
    for event in run.history:
        if type(event) is TransactionBegan:
            key = (event.client, event.transaction)
            found[key] = _Transaction(*key, event)
        elif type(event) is EndTxnRequested and event.commit:
            asked = found.get((event.client, event.transaction))
            if asked is not None and asked.asked_at is None:
                asked.asked_at = event.at
        elif type(event) is TransactionEnded:
            ended = found.get((event.client, event.transaction))
            if ended is not None:
                ended.ended(event)
        elif type(event) is OffsetsSent:
            sent = found.get((event.client, event.transaction))
            if sent is not None:
                sent.offsets.append(event)
    for record in run.sent.values():
        number = record.sending.transaction
        if number is not None and (record.client, number) in found:
            found[record.client, number].records.append(record)
    return found


class _Whole:
    """Checks that a transaction is visible completely or not at all."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.found: dict[str, list[Finding]] = defaultdict(list)
        begun_later = {log.topic for log in run.observed.logs if log.start_offset}
        remade = {topic for topic, times in run.made_at.items() if len(times) > 1}
        known = {log.topic for log in run.observed.logs}
        self._whole_topics = known - begun_later - remade

    def judge(self, transaction: _Transaction) -> None:
        self._plain(transaction)
        self._late(transaction)
        seen = {sent.value: sent for sent in transaction.records if self._visible(sent)}
        if not transaction.may_be_committed:
            for sent in seen.values():
                outcome = transaction.outcome or "never ended"
                self._report("records of uncommitted transactions are visible", sent, outcome)
            return
        missing = [
            sent for sent in transaction.records if sent.value not in seen and self._taken(sent)
        ]
        failed = [sent for sent in transaction.records if _failed(sent)]
        if transaction.outcome == "committed":
            for sent in missing:
                self._report("records of committed transactions are not visible", sent)
            for sent in failed:
                self._report("records failed in committed transactions", sent)
        elif missing and seen:
            self._report("transactions are partly visible", missing[0], f"{len(seen)} are visible")

    def _plain(self, transaction: _Transaction) -> None:
        for sent in transaction.records:
            for _, record in self._run.stored.get(sent.value, ()):
                if record.fate == "none":
                    self._report("records are outside their transactions", sent)

    def _late(self, transaction: _Transaction) -> None:
        """A call that waited longer than its transaction must not add its record to the next
        one."""
        ended_at = transaction.ended_at
        for sent in transaction.records if ended_at is not None else ():
            if (
                sent.handed_at is not None
                and sent.handed_at > ended_at + self._run.guarantees.slack_s
            ):
                self._report("records were accepted after the end of their transactions", sent)

    def _visible(self, sent: Sent) -> bool:
        places = self._run.stored.get(sent.value, ())
        return any(record.fate in {"committed", "none"} for _, record in places)

    def _taken(self, sent: Sent) -> bool:
        """Return whether the record surely is part of its transaction and its log is known."""
        if sent.handed_at is None and sent.acknowledged is None:
            return False
        if sent.failed is not None:
            return False
        return sent.sending.topic in self._whole_topics

    def _report(self, kind: str, sent: Sent, more: str = "") -> None:
        name = sent.value.decode("latin-1")
        text = f"{name} in transaction {sent.sending.transaction} of {sent.client}"
        self.found[kind].append((f"{text} ({more})" if more else text, sent.sending))


def _failed(sent: Sent) -> bool:
    """Return whether the record failed after it was handed over."""
    return sent.failed is not None and sent.handed_at is not None and sent.acknowledged is None


# --- readers -------------------------------------------------------------------------------------


def _read_too_early(
    run: Run, transactions: dict[Key, _Transaction]
) -> tuple[list[Finding], list[Finding]]:
    """Find records that `read_committed` consumers were given too early, and those behind them."""
    asked = _Asked(run, transactions)
    early: list[Finding] = []
    passing: list[Finding] = []
    for event in run.of(Polled):
        client = run.clients.get(event.client)
        if client is None or not client.read_committed:
            continue
        where = f"{event.client} at {event.topic}-{event.partition}"
        too_early = False
        for offset, value in event.records:
            transaction = asked.of_value(value)
            if transaction is None:
                continue
            if transaction.asked_at is None or transaction.asked_at > event.at:
                early.append((f"{where}@{offset}: {transaction}", event))
                too_early = True
        if too_early or not event.records:
            continue
        tp = TopicPartition(event.topic, event.partition)
        open_until = asked.before(tp, event.records[-1][0])
        if open_until > event.at:
            text = f"{where}@{event.records[-1][0]}: open until {open_until:.3f} s"
            passing.append((text, event))
    return early, passing


class _Asked:
    """Return the times of EndTxn of the transactions in a partition."""

    def __init__(self, run: Run, transactions: dict[Key, _Transaction]) -> None:
        self._run = run
        self._transactions = transactions
        self._by_partition: dict[TopicPartition, tuple[list[int], list[float]]] = {}
        for tp, logs in run.logs.items():
            if len(logs) > 1:
                continue
            offsets: list[int] = []
            latest: list[float] = []
            for record in logs[0].records:
                transaction = self.of_value(record.value)
                if transaction is None or record.fate != "committed":
                    continue
                at = transaction.asked_at or 0.0
                offsets.append(record.offset)
                latest.append(max(at, latest[-1]) if latest else at)
            self._by_partition[tp] = (offsets, latest)

    def of_value(self, value: bytes) -> _Transaction | None:
        sent = self._run.sent.get(value)
        if sent is None or sent.sending.transaction is None:
            return None
        return self._transactions.get((sent.client, sent.sending.transaction))

    def before(self, tp: TopicPartition, offset: int) -> float:
        """Return until when a transaction with a record before an offset was open."""
        offsets, latest = self._by_partition.get(tp, ([], []))
        place = bisect_left(offsets, offset)
        return latest[place - 1] if place else 0.0


# --- offsets -------------------------------------------------------------------------------------


def _offsets(run: Run, transactions: list[_Transaction]) -> Iterator[Finding]:
    """Check the final offsets of groups that commit in transactions only."""
    if run.observed.committed is None:
        return
    plain = {
        request.group
        for request in run.observed.commits or ()
        if request.producer_id < 0 and request.errors is not None
    }
    ends: dict[tuple[str, TopicPartition], list[tuple[_Transaction, int]]] = defaultdict(list)
    for transaction in transactions:
        if not transaction.may_be_committed:
            continue
        for event in transaction.offsets:
            for tp, offset in event.offsets:
                ends[event.group, tp].append((transaction, offset))
    final = {
        (group, tp): offset
        for group, offsets in run.observed.committed.items()
        for tp, offset in offsets
    }
    for (group, tp), candidates in ends.items():
        if group in plain or len(run.made_at.get(tp.topic, ())) > 1:
            continue
        # A transaction commits at some time between EndTxn and its response: only those that surely
        # ended before another one are superseded.
        begun = [
            transaction.asked_at or 0.0
            for transaction, _ in candidates
            if transaction.outcome == "committed"
        ]
        latest = max(begun, default=0.0)
        right = {
            offset
            for transaction, offset in candidates
            if transaction.outcome != "committed" or (transaction.ended_at or 0.0) >= latest
        }
        found = final.get((group, tp))
        if found is None and not begun:
            continue
        if found not in right:
            text = f"{group} has {found} for {tp}, committed: {sorted(right)}"
            yield text, candidates[-1][0].began
