"""The scenario of workers, and the checks of its ledger."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

from aiokafkawire.types import TopicPartition
from aiokafkawire.worker.finished_records import FinishedRecords, encode_metadata
from verify.simulation.scenarios import worker
from verify.simulation.single_run import draw
from verify.simulation.worker_ledger import KINDS, WorkerLedger

SOURCE, RETRY, DEAD = "orders", "billing.retry.2s", "billing.dead"


class FakeHarness:
    """Has logs, and takes violations."""

    def __init__(self, **logs: list[bytes]) -> None:
        self.logs = {SOURCE: [], RETRY: [], DEAD: [], **logs}
        self.violations: list[int] = []
        self.committed: dict[TopicPartition, Any] = {}
        offsets = SimpleNamespace(committed=lambda group: self.committed)
        running = SimpleNamespace(
            group_coordinator=SimpleNamespace(offsets=offsets),
            cluster=SimpleNamespace(topics={}),
        )
        self.broker = SimpleNamespace(
            topics=dict.fromkeys(self.logs, 1),
            end_offset=lambda topic, _: len(self.logs[topic]),
            _running=running,
        )

    def log(self, topic: str, partition: int) -> Any:
        records = [
            SimpleNamespace(offset=offset, value=value, fate="committed")
            for offset, value in enumerate(self.logs[topic])
        ]
        return SimpleNamespace(records=records, end_offset=len(records))

    def records(self, topic: str) -> list[Any]:
        return self.log(topic, 0).records

    def violated(self, invariant: int, text: str) -> None:
        self.violations.append(invariant)


def value(number: int, kind: str = "fine", key: str = "k") -> bytes:
    return f"sender-{number}|{kind},{key}".encode()


def ledger(harness: FakeHarness, order_by: str | None = "key") -> WorkerLedger:
    return WorkerLedger(harness, "billing", (SOURCE, RETRY), DEAD, order_by)  # type: ignore[arg-type]


def record(offset: int, of: bytes, topic: str = SOURCE) -> Any:
    tp = TopicPartition(topic, 0)
    return SimpleNamespace(
        topic=topic,
        partition=0,
        offset=offset,
        topic_partition=tp,
        record=SimpleNamespace(value=of),
    )


def commit(topic: str, offset: int, *finished: int) -> Any:
    ranges = tuple((number, number + 1) for number in finished)
    partition = SimpleNamespace(
        partition_index=0,
        committed_offset=offset,
        committed_metadata=encode_metadata(FinishedRecords(offset, 0, ranges)) or None,
    )
    topics = [SimpleNamespace(name=topic, topic_id=None, partitions=[partition])]
    message = SimpleNamespace(group_id="billing", topics=topics)
    return SimpleNamespace(message=message, client_id="worker-1")


def test_plans_have_every_kind_of_handler_and_step():
    plans = [draw(worker.SCENARIO, seed) for seed in range(200)]
    kinds = Counter(step.kind for plan in plans for step in plan.steps)
    assert kinds.keys() >= {"leave", "die", "stall", "jump", "kill", "refusal"}
    for name, values in {
        "order_by": {"partition", "key", None},
        "batch": {0, 2, 7},
        "delays_ms": {(), (500,), (500, 2_000)},
    }.items():
        assert {plan.options[name] for plan in plans} == values
    assert len(worker.WEIGHTS) == len(KINDS)


def test_many_of_60_plans_have_each_failure():
    plans = [draw(worker.SCENARIO, seed) for seed in range(60)]
    places = Counter(plan.options["poison"] for plan in plans)
    assert min(places["first"], places["last"], places["alone"]) > 1
    assert all(plan.records == 1 for plan in plans if plan.options["poison"] == "alone")
    limits = Counter(plan.options["timeout_ms"] for plan in plans)
    assert min(limits[None], limits[1_000], limits[4_000]) > 5


def test_no_stall_alone_lets_an_attempt_time_out():
    plans = [draw(worker.SCENARIO, seed) for seed in range(200)]
    stalls = [
        (step.arguments["for_s"], plan.options["timeout_ms"])
        for plan in plans
        for step in plan.steps
        if step.kind == "stall"
    ]
    assert max(for_s for for_s, limit_ms in stalls if limit_ms is None) > 6
    limited = [(for_s, limit_ms) for for_s, limit_ms in stalls if limit_ms is not None]
    assert limited
    assert all(2_000 * for_s < limit_ms for for_s, limit_ms in limited)


def test_a_record_before_an_unfinished_one_of_its_key_is_found():
    harness = FakeHarness(orders=[value(1), value(2, key="other"), value(3)])
    checked = ledger(harness)
    checked.begin("w", record(1, value(2, key="other")))
    assert harness.violations == []
    checked.begin("w", record(2, value(3)))
    assert harness.violations == [3]
    checked.processed.add(value(1))
    checked.begin("other", record(2, value(3)))
    assert harness.violations == [3]


def test_two_running_records_of_a_key_are_found():
    harness = FakeHarness(orders=[value(1)])
    checked = ledger(harness)
    checked.begin("w", record(0, value(1)))
    checked.begin("other", record(0, value(1)))
    assert harness.violations == []
    checked.begin("w", record(0, value(1)))
    assert harness.violations == [3]


def test_a_commit_of_unfinished_records_is_found():
    harness = FakeHarness(orders=[value(1), value(2, "poison"), value(3)])
    harness.logs[RETRY] = [value(2, "poison")]
    checked = ledger(harness)
    checked.processed.add(value(1))
    checked.check_commit(commit(SOURCE, 2))  # the second is in the retry topic
    assert harness.violations == []
    checked.check_commit(commit(SOURCE, 3))
    checked.check_commit(commit(RETRY, 1))
    assert harness.violations == [6, 6]


def test_metadata_that_names_unfinished_records_is_found():
    harness = FakeHarness(orders=[value(number) for number in range(4)])
    checked = ledger(harness)
    checked.processed |= {value(1), value(3)}
    checked.check_commit(commit(SOURCE, 0, 1, 3))
    assert not harness.violations
    checked.check_commit(commit(SOURCE, 0, 2))
    assert harness.violations == [6]


def test_the_end_has_everything_processed_or_dead_and_committed():
    harness = FakeHarness(orders=[value(1), value(2, "poison")])
    checked = ledger(harness)
    checked.processed.add(value(2, "poison"))
    assert len(checked.unfinished()) == 3
    checked.processed.add(value(1))
    harness.logs[DEAD] = [value(2, "poison")]
    harness.committed[TopicPartition(SOURCE, 0)] = SimpleNamespace(offset=2)
    assert checked.unfinished() == []
    checked.check_dead_letters()
    harness.logs[DEAD].append(value(1))
    checked.check_dead_letters()
    assert harness.violations == [11]


def test_deleted_dead_letters_count_as_written():
    harness = FakeHarness(orders=[value(1, "poison")])
    harness.logs[DEAD] = [value(1, "poison")]
    checked = ledger(harness)
    checked.keep_dead_letters()
    harness.logs[DEAD] = []
    checked.check_commit(commit(SOURCE, 1))
    harness.committed[TopicPartition(SOURCE, 0)] = SimpleNamespace(offset=1)
    assert checked.unfinished() == []
    assert harness.violations == []


def test_output_that_is_missing_or_written_twice_is_found():
    harness = FakeHarness(orders=[value(1), value(2, "drop")], bills=[])
    checked = WorkerLedger(harness, "billing", (SOURCE, RETRY), DEAD, "key", "bills")  # type: ignore[arg-type]
    checked.processed |= {value(1), value(2, "drop")}
    harness.committed[TopicPartition(SOURCE, 0)] = SimpleNamespace(offset=2)
    assert checked.unfinished() == [f"{value(1)!r}"]
    harness.logs["bills"].append(value(1))
    assert checked.unfinished() == []
    checked.check_output()
    assert harness.violations == []
    harness.logs["bills"] += [value(1), value(2, "drop")]
    checked.check_output()
    assert harness.violations == [2, 11]


def test_the_offsets_of_a_transaction_are_checked_when_it_is_committed():
    harness = FakeHarness(orders=[value(1)])
    checked = ledger(harness)
    for committed, violations in ((False, []), (True, [6])):
        seen = commit(SOURCE, 1)
        seen.message.producer_id = 7
        checked.keep_offsets(seen)
        end = SimpleNamespace(producer_id=7, committed=committed)
        checked.check_transaction(SimpleNamespace(message=end))  # type: ignore[arg-type]
        assert harness.violations == violations
