"""The scenario of workers of share groups, and the checks of its ledger."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from aiokafkawire.broker.share.in_flight import RecordState
from verify.invariants.events import ShareDecided, ShareReceived
from verify.invariants.observed import ShareAcquired
from verify.simulation.scenarios import share, share_worker
from verify.simulation.share_worker_ledger import ShareWorkerLedger
from verify.simulation.single_run import draw

TOPIC, DEAD, QUEUE = "orders", "billing.dead", "dlq.billing"
FINE, POISON, ONCE = b"sender-1|fine,k", b"sender-2|poison,k", b"sender-3|once,k"


class FakeHarness:
    """Has logs and states of a share group, and takes events and violations."""

    def __init__(self, *values: bytes, dead: tuple[bytes, ...] = ()) -> None:
        self.logs = {TOPIC: values, DEAD: dead, QUEUE: ()}
        self.violations: list[int] = []
        self.events: list[Any] = []
        self.recorder = SimpleNamespace(note=self.events.append)
        self.changes: list[Any] = []
        self.persister = SimpleNamespace(write=lambda *_: None)
        running = SimpleNamespace(
            share_partitions=SimpleNamespace(persister=self.persister),
            cluster=SimpleNamespace(topics={TOPIC: SimpleNamespace(topic_id="id")}),
        )
        self.broker = SimpleNamespace(topics=dict.fromkeys(self.logs, 1), _running=running)

    def now(self) -> float:
        return 1.0

    def log(self, topic: str, partition: int) -> Any:
        return SimpleNamespace(
            records=[
                SimpleNamespace(offset=offset, value=value)
                for offset, value in enumerate(self.logs[topic])
            ]
        )

    def records(self, topic: str) -> list[Any]:
        return self.log(topic, 0).records

    def share_changes(self) -> list[Any]:
        return self.changes

    def violated(self, invariant: int, text: str) -> None:
        self.violations.append(invariant)

    def acquire(self, offset: int, count: int = 1, at: float = 0.0) -> None:
        """Let a worker acquire a record."""
        place = "billing", TOPIC, 0, offset, offset
        self.changes.append(ShareAcquired(at, "worker-1.1", *place, count, 5, 0))

    def store(self, offset: int, state: RecordState) -> None:
        """Let a broker store the state of a record."""
        batch = SimpleNamespace(first=offset, last=offset, state=state)
        key = SimpleNamespace(topic_id="id", partition=0)
        self.persister.write(key, SimpleNamespace(batches=[batch]), 0)


def ledger(harness: FakeHarness, **options: bool) -> ShareWorkerLedger:
    made = ShareWorkerLedger(
        harness,  # type: ignore[arg-type]
        TOPIC,
        DEAD,
        attempts=2,
        lock_s=1.0,
        **({"rejects": False, "is_quiet": False} | options),
    )
    made.watch()
    return made


def delivered(value: bytes, delivery_count: int = 1, *, is_locked: bool = True) -> Any:
    """Return a record as brokers deliver it."""
    expires_at = 9.0 if is_locked else None
    return SimpleNamespace(value=value, delivery_count=delivery_count, lock_expires_at=expires_at)


def attempt(of: Any, number: int) -> Any:
    """Return what a handler is called with."""
    return SimpleNamespace(topic=TOPIC, partition=0, offset=0, record=of, attempt=number)


def test_plans_have_every_kind_of_fault_and_some_have_none() -> None:
    plans = [draw(share_worker.SCENARIO, seed) for seed in range(300)]
    kinds = Counter(step.kind for plan in plans for step in plan.steps)
    assert kinds.keys() >= {
        *("leave", "die", "stall", "cancel", "jump", "move leader", "move coordinator", "reset"),
        *("close instead of an answer", "no answer", "late answer", "refusal"),
    }
    codes = {step.arguments.get("code") for plan in plans for step in plan.steps}
    assert not codes.intersection(share.REJOINS)
    assert 30 < sum(not plan.steps for plan in plans) < 90
    for name, values in {"on_exhausted": 2, "attempts": 3, "concurrency": 3}.items():
        assert len({plan.options[name] for plan in plans}) == values


@pytest.mark.parametrize(
    ("value", "is_done", "expected"), [(FINE, True, []), (FINE, False, [16]), (POISON, False, [16])]
)
def test_only_finished_records_may_be_accepted(
    value: bytes, is_done: bool, expected: list[int]
) -> None:
    harness = FakeHarness(value)
    checks = ledger(harness)
    if is_done:
        checks.processed.add(value)
    harness.acquire(0)
    harness.store(0, RecordState.ACKNOWLEDGED)
    assert harness.violations == expected
    accepted = ShareDecided(1.0, "worker-1.1", TOPIC, 0, (0,), "accept")
    assert harness.events == ([] if expected else [accepted])


def test_a_dead_letter_may_be_accepted() -> None:
    harness = FakeHarness(POISON, dead=(POISON,))
    checks = ledger(harness)
    harness.acquire(0)
    harness.store(0, RecordState.ACKNOWLEDGED)
    checks.check_records()
    assert harness.violations == []


def test_only_failed_records_may_be_archived_before_the_limit() -> None:
    harness = FakeHarness(FINE, POISON, FINE)
    checks = ledger(harness, rejects=True)
    harness.acquire(0)
    harness.acquire(1)
    harness.acquire(2, count=5)
    for offset in range(3):
        harness.store(offset, RecordState.ARCHIVED)
    assert harness.violations == [16]
    assert checks.rejected == {POISON}
    assert checks.given_up == {FINE}


def test_without_rejections_failed_records_are_not_archived() -> None:
    harness = FakeHarness(POISON)
    ledger(harness)
    harness.acquire(0)
    harness.store(0, RecordState.ARCHIVED)
    assert harness.violations == [16]


def test_a_released_record_is_not_finished() -> None:
    harness = FakeHarness(FINE)
    ledger(harness)
    harness.acquire(0)
    harness.store(0, RecordState.AVAILABLE)
    assert harness.violations == []


def test_attempts_count_deliveries_and_failures() -> None:
    harness = FakeHarness(ONCE)
    checks, record = ledger(harness), delivered(ONCE, 2)
    checks.begin("worker-1.1", attempt(record, 2))
    checks.begin("worker-1.1", attempt(record, 3))
    assert harness.violations == []
    assert [type(event) for event in harness.events] == [ShareReceived]
    checks.begin("worker-1.1", attempt(record, 1))
    assert harness.violations == [15]


def test_a_handler_needs_the_lock_of_its_record() -> None:
    harness = FakeHarness(FINE)
    ledger(harness).begin("worker-1.1", attempt(delivered(FINE, is_locked=False), 1))
    assert harness.violations == [18]


@pytest.mark.parametrize(
    ("acquired_at", "is_quiet", "expected"), [(0.0, True, [18]), (0.9, True, []), (0.0, False, [])]
)
def test_without_faults_no_lock_expires(
    acquired_at: float, is_quiet: bool, expected: list[int]
) -> None:
    harness = FakeHarness(FINE)
    ledger(harness, is_quiet=is_quiet)
    harness.acquire(0, at=acquired_at)
    harness.store(0, RecordState.AVAILABLE)
    assert harness.violations == expected


def test_dead_letters_are_the_records_that_have_failed() -> None:
    harness = FakeHarness(FINE, POISON, ONCE, dead=(FINE, POISON, ONCE))
    checks = ledger(harness)
    checks.begin("worker-1.1", attempt(delivered(ONCE, 2), 2))
    checks.check_records()
    assert harness.violations == [11]


@pytest.mark.parametrize("value", [FINE, POISON])
def test_every_record_is_processed_or_failed(value: bytes) -> None:
    harness = FakeHarness(value)
    ledger(harness).check_records()
    assert harness.violations == [11]


def test_rejected_records_have_no_dead_letter_of_the_worker() -> None:
    harness = FakeHarness(POISON, dead=(POISON,))
    checks = ledger(harness, rejects=True)
    checks.rejected.add(POISON)
    checks.check_records()
    assert harness.violations == [11]


@pytest.mark.parametrize("is_quiet", [False, True])
def test_brokers_write_dead_letters_of_archived_records(is_quiet: bool) -> None:
    harness = FakeHarness(FINE, POISON)
    checks = ledger(harness, rejects=True, is_quiet=is_quiet)
    checks.rejected.add(POISON)
    checks.check_dead_letter_queue(QUEUE)
    assert harness.violations == [11] * is_quiet
    harness.logs[QUEUE] = (FINE, POISON)
    checks.check_dead_letter_queue(QUEUE)
    assert harness.violations == [11] * (is_quiet + 1)
