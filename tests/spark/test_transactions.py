"""The exactly-once sink on the embedded broker, with tasks and drivers that are plain calls."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import anyio
import pyarrow
import pytest

from aiokafkawire import Consumer, Producer, blocking
from aiokafkawire.broker import Answer, Close
from aiokafkawire.errors import KafkaError, UnsupportedVersion
from aiokafkawire.spark import transactions
from aiokafkawire.spark.exactly_once import (
    CommittedTask,
    EmptyTask,
    PreparedTask,
    SinkBatch,
    TaskResult,
    build_plan,
)
from aiokafkawire.spark.range_reader import read_range
from aiokafkawire.spark.ranges import OffsetRange
from aiokafkawire.spark.transactions import abort_all, commit_all, write_in_transaction
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ApiKey, ErrorCode
from tests.broker.threaded_broker import ThreadedBroker, threaded_broker
from tests.spark.kafka import create

Rows = list[str]


@pytest.fixture(autouse=True)
def _without_faults(kafka: ThreadedBroker) -> Iterator[None]:
    yield
    kafka.call(kafka.broker.clear_faults)


def options(kafka: ThreadedBroker, **more: Any) -> dict[str, Any]:
    return {"bootstrap_servers": kafka.servers, **more}


def sink(kafka: ThreadedBroker, name: str, partitions: int = 2) -> SinkBatch:
    create(kafka, name, partitions)
    return SinkBatch(name, "q", 0, name)


def write(
    kafka: ThreadedBroker, batch: SinkBatch, task: int, rows: Rows, **more: Any
) -> TaskResult:
    # In two parts, as Spark may give them.
    parts = [pyarrow.RecordBatch.from_pydict({"value": some}) for some in (rows[:2], rows[2:])]
    return write_in_transaction(options(kafka, **more), batch.topic, batch, task, iter(parts))


def run(kafka: ThreadedBroker, batch: SinkBatch, *tasks: Rows, **more: Any) -> list[TaskResult]:
    return [write(kafka, batch, number, rows, **more) for number, rows in enumerate(tasks)]


def visible(kafka: ThreadedBroker, topic: str) -> Counter[str]:
    """Count the rows that a reader of committed records finds before an open transaction."""
    client = options(kafka, isolation_level="read_committed")

    async def ends() -> dict[TopicPartition, int]:
        async with Consumer(**client) as consumer:
            numbers = await consumer.partitions_for(topic)
            return await consumer.end_offsets(*(TopicPartition(topic, n) for n in numbers))

    found: Counter[str] = Counter()
    for tp, end in blocking.call(ends).items():
        given: Any = {"fail_on_data_loss": True, "poll_timeout_ms": 20_000}
        for batch in read_range(client, OffsetRange(tp, 0, end), ["value"], **given):
            found.update(row["value"].decode() for row in batch.to_pylist())
    return found


def stored(kafka: ThreadedBroker, topic: str) -> int:
    """Offsets that a topic has: rows, aborted ones too, and the markers of transactions."""
    partitions = range(kafka.broker.topics[topic])
    return sum(kafka.call(kafka.broker.end_offset, topic, number) for number in partitions)


def record(kafka: ThreadedBroker, batch: SinkBatch, results: list[TaskResult]) -> None:
    """Commit the plan, as the driver does before it ends the first transaction."""
    transactions._commit_plan(options(kafka), batch, build_plan(results)[1], results)


def kinds(results: list[TaskResult]) -> list[type[Any]]:
    return [type(result) for result in results]


def test_rows_are_seen_once_the_driver_has_ended_all(kafka):
    batch = sink(kafka, "all")
    results = run(kafka, batch, ["a", "b", "c"], [], ["d"])
    assert kinds(results) == [PreparedTask, EmptyTask, PreparedTask]
    commit_all(options(kafka), results)
    assert visible(kafka, "all") == Counter("abcd")
    again = run(kafka, batch, ["c", "b", "a"], [], ["d"])
    assert kinds(again) == [CommittedTask, EmptyTask, CommittedTask]
    commit_all(options(kafka), again)
    assert visible(kafka, "all") == Counter("abcd")


def test_nothing_is_seen_before_the_driver_ends_it(kafka):
    batch = sink(kafka, "before")
    results = run(kafka, batch, ["a"], ["b"])
    assert visible(kafka, "before") == Counter()
    commit_all(options(kafka), results)
    assert visible(kafka, "before") == Counter("ab")


def test_a_batch_after_another_is_written(kafka):
    batch = sink(kafka, "next")
    commit_all(options(kafka), run(kafka, batch, ["a"], ["b"]))
    later = replace(batch, number=5)
    commit_all(options(kafka), run(kafka, later, ["c"], ["d"], ["e"]))
    commit_all(options(kafka), run(kafka, replace(batch, number=6), ["f"]))
    assert visible(kafka, "next") == Counter("abcdef")
    with pytest.raises(KafkaError, match="is older than batch 6, which the sink has already"):
        write(kafka, later, 1, ["d"])


def test_more_tasks_than_partitions_have_their_markers(kafka):
    batch = sink(kafka, "many")
    tasks = [[f"{number}"] for number in range(7)]
    commit_all(options(kafka), run(kafka, batch, *tasks))
    # Partitions that come later do not move them.
    kafka.call(kafka.broker.add_partitions, "many", 5)
    again = run(kafka, batch, *tasks)
    assert set(kinds(again)) == {CommittedTask}
    assert visible(kafka, "many") == Counter("0123456")


@pytest.mark.parametrize("ended", [0, 1, 2])
def test_a_driver_that_died_between_two_ends_is_settled_by_the_rerun(kafka, ended, monkeypatch):
    batch = sink(kafka, f"died-{ended}")
    tasks = ["a", "b"], ["c"], ["d"]
    results = run(kafka, batch, *tasks)
    record(kafka, batch, results)
    blocking.call(transactions._end_transactions, options(kafka), results[:ended], True)
    again = run(kafka, batch, *tasks)
    assert kinds(again) == [CommittedTask] * ended + [PreparedTask] * (3 - ended)
    commit_all(options(kafka), again)
    assert visible(kafka, batch.topic) == Counter("abcd")


def test_the_first_task_is_committed_before_any_other(kafka, monkeypatch):
    monkeypatch.setattr(transactions, "MARKER_LOOKUP_S", 0.3)
    batch = sink(kafka, "first")
    seen: list[str] = []

    def refuse(request: Any) -> Any:
        seen.append(request.message.transactional_id)
        return Answer(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

    results = run(kafka, batch, [], ["a"], ["b"])
    kafka.call(kafka.broker.on, ApiKey.END_TXN, refuse)
    with pytest.raises(
        KafkaError, match=r"committed tasks: 2; tasks with unknown outcome: 1\).*AUTHORIZATION"
    ):
        commit_all(options(kafka), results)
    assert seen == ["first-1"]


def test_a_new_attempt_fences_the_one_before(kafka, monkeypatch):
    monkeypatch.setattr(transactions, "MARKER_LOOKUP_S", 0.3)
    batch = sink(kafka, "fenced")
    (older,) = run(kafka, batch, ["a", "b"])
    (newer,) = run(kafka, batch, ["a", "b"])
    with pytest.raises(KafkaError, match=r"no task is committed.*fenced-0"):
        commit_all(options(kafka), [older])
    assert visible(kafka, "fenced") == Counter()
    commit_all(options(kafka), [newer])
    assert visible(kafka, "fenced") == Counter("ab")


def test_one_that_timed_out_is_named_and_written_by_the_rerun(kafka):
    batch = sink(kafka, "late")
    tasks = ["a"], ["b"], ["c"]
    short = {"transaction_timeout_ms": 500}
    results = [
        write(kafka, batch, number, rows, **(short if number == 1 else {}))
        for number, rows in enumerate(tasks)
    ]
    time.sleep(1)
    with pytest.raises(KafkaError, match=r"committed tasks: 0, 2; uncommitted tasks: 1\)\. Run"):
        commit_all(options(kafka), results)
    assert visible(kafka, "late") == Counter("ac")
    again = run(kafka, batch, *tasks)
    assert kinds(again) == [CommittedTask, PreparedTask, CommittedTask]
    commit_all(options(kafka), again)
    assert visible(kafka, "late") == Counter("abc")


def test_an_end_whose_answer_was_lost_is_known_by_its_marker(kafka):
    batch = sink(kafka, "lost")
    results = run(kafka, batch, ["a"], ["b"])
    fault = Answer(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, carried_out=True)
    kafka.call(lambda: kafka.broker.on(ApiKey.END_TXN, fault, times=1))
    commit_all(options(kafka), results)
    assert visible(kafka, "lost") == Counter("ab")


@pytest.mark.parametrize("as_of", ["4.3", "3.9", "2.5"])
def test_an_end_that_was_carried_out_is_repeated_until_it_is_answered(as_of):
    with threaded_broker(as_of=as_of) as kafka:
        batch = sink(kafka, "answered")
        results = run(kafka, batch, ["a"], ["b"])
        # The first task's; then that of the other.
        kafka.call(lambda: kafka.broker.on(ApiKey.END_TXN, Close(carried_out=True), times=2))
        commit_all(options(kafka), results)
        assert visible(kafka, "answered") == Counter("ab")
        asked = kafka.call(lambda: kafka.broker.requests.of(ApiKey.END_TXN))
        assert [request.message.transactional_id for request in asked].count("answered-0") > 1
        assert all(request.message.committed for request in asked)


def test_markers_are_not_looked_for_longer_than_they_may(kafka, monkeypatch):
    monkeypatch.setattr(transactions, "MARKER_LOOKUP_S", 0.5)
    with threaded_broker() as gone:
        batch = sink(gone, "gone")
        results = run(gone, batch, *[["a"]] * 12)
    failed = dict.fromkeys(range(12), KafkaError("gone"))
    began = time.monotonic()
    client = {"bootstrap_servers": gone.servers}
    assert transactions._find_committed_tasks(client, results, failed) == (set(), set(range(12)))
    assert time.monotonic() - began < 3


def test_unknown_outcomes_are_named(kafka, monkeypatch):
    batch = sink(kafka, "unknown")
    results = run(kafka, batch, ["a"], ["b"])
    kafka.call(kafka.broker.on, ApiKey.END_TXN, Close())
    monkeypatch.setattr(transactions, "MARKER_LOOKUP_S", 0.3)
    with pytest.raises(KafkaError, match="uncommitted tasks: 1; tasks with unknown outcome: 0"):
        commit_all(options(kafka, default_api_timeout_ms=500), results)


@pytest.mark.parametrize("again", [["a", "x"], ["a"], ["a", "b", "c"]])
def test_other_rows_for_a_committed_task_fail_it(kafka, again):
    batch = sink(kafka, f"other-{len(again)}-{again[-1]}")
    results = run(kafka, batch, ["a", "b"], ["c"])
    record(kafka, batch, results)
    blocking.call(transactions._end_transactions, options(kafka), results[:1], True)
    with pytest.raises(KafkaError, match=r"task 0 of batch 0 .* gives the same rows"):
        write(kafka, batch, 0, again)
    assert visible(kafka, batch.topic) == Counter("ab")


def test_a_plan_without_the_task_that_is_committed_fails_the_batch(kafka):
    batch = sink(kafka, "moved")
    results = run(kafka, batch, ["a"], ["b"])
    record(kafka, batch, results)
    blocking.call(transactions._end_transactions, options(kafka), results[:1], True)
    moved = run(kafka, batch, [], ["a", "b"])
    with pytest.raises(KafkaError, match="partly committed, with 2 rows in 2 tasks; this run has"):
        commit_all(options(kafka), moved)
    abort_all(options(kafka), moved)
    assert visible(kafka, "moved") == Counter("a")


def test_another_plan_takes_the_place_of_one_of_which_nothing_is_committed(kafka):
    batch = sink(kafka, "replaced")
    results = run(kafka, batch, ["a"], ["b"])
    record(kafka, batch, results)
    abort_all(options(kafka), results)
    commit_all(options(kafka), run(kafka, batch, ["b"], ["a"]))
    assert visible(kafka, "replaced") == Counter("ab")


def test_another_query_is_refused_the_name(kafka):
    batch = sink(kafka, "named")
    commit_all(options(kafka), run(kafka, batch, ["a"]))
    with pytest.raises(KafkaError, match="belongs to the stream q, not to the stream q2"):
        write(kafka, replace(batch, query="q2", number=1), 0, ["b"])


@pytest.mark.parametrize(
    ("changed", "refused"),
    [({"query": "q2"}, "not to the stream q2"), ({"number": 3}, "is older than batch")],
    ids=["another-query", "an-earlier-batch"],
)
def test_a_refused_task_does_not_fence_an_accepted_one(kafka, changed, refused):
    batch = sink(kafka, f"unharmed-{refused[-2:]}")
    commit_all(options(kafka), run(kafka, replace(batch, number=4), ["a"]))
    results = run(kafka, replace(batch, number=5), ["b"], ["c"])
    with pytest.raises(KafkaError, match=refused):
        write(kafka, replace(batch, **changed), 0, ["x"])
    commit_all(options(kafka), results)
    assert visible(kafka, batch.topic) == Counter("abc")


def test_a_plan_that_came_meanwhile_says_where_markers_are(kafka, monkeypatch):
    batch = sink(kafka, "meanwhile")
    results = run(kafka, batch, ["a"], ["b"], ["c"])
    kafka.call(kafka.broker.add_partitions, "meanwhile", 5)
    start = Producer.start

    async def first_the_other(producer: Producer) -> None:
        monkeypatch.undo()
        await anyio.to_thread.run_sync(commit_all, options(kafka), results)
        await start(producer)

    monkeypatch.setattr(Producer, "start", first_the_other)
    assert kinds([write(kafka, batch, 2, ["c"])]) == [CommittedTask]


@pytest.mark.parametrize("as_of", ["2.4", "0.11"])
def test_brokers_that_do_not_wait_for_transactions_are_refused(as_of):
    with threaded_broker(as_of=as_of) as kafka:
        batch = sink(kafka, "old")
        with pytest.raises(UnsupportedVersion, match=r"offsets of open transactions"):
            write(kafka, batch, 0, ["a"])
        assert not stored(kafka, "old")


def test_sinks_whose_names_begin_alike_are_apart(kafka):
    batch = sink(kafka, "twin", 1)
    other = replace(batch, sink="twin-1")
    commit_all(options(kafka), run(kafka, batch, ["a"], ["b"], ["c"]))
    commit_all(options(kafka), run(kafka, other, ["d"], ["e"], ["f"]))
    assert visible(kafka, "twin") == Counter("abcdef")


def test_what_is_aborted_holds_up_no_reader(kafka):
    batch = sink(kafka, "aborted", 1)
    results = run(kafka, batch, ["a"], ["b"])
    abort_all(options(kafka), [*results, None])
    commit_all(options(kafka), run(kafka, replace(batch, number=1), ["c"], []))
    assert visible(kafka, "aborted") == Counter("c")


def test_an_abort_leaves_what_is_committed(kafka, caplog):
    batch = sink(kafka, "stays")
    results = run(kafka, batch, ["a"])
    commit_all(options(kafka), results)
    abort_all(options(kafka), results)
    assert "Aborting the transaction of task 0 failed" in caplog.text
    assert visible(kafka, "stays") == Counter("a")


def test_an_abort_ends_in_time(kafka, caplog, monkeypatch):
    batch = sink(kafka, "stuck")
    results = run(kafka, batch, ["a"])
    kafka.call(kafka.broker.on, ApiKey.END_TXN, Close())
    monkeypatch.setattr(transactions, "ABORT_TIMEOUT_S", 0.3)
    abort_all(options(kafka), results)
    assert "the rest will time out" in caplog.text


def test_a_failed_record_aborts_its_task_with_partition_and_reason(kafka):
    batch = sink(kafka, "failing", 1)
    kafka.call(kafka.broker.on, ApiKey.PRODUCE, Answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(KafkaError, match=r"topic failing, partition 0.*") as caught:
        write(kafka, batch, 0, ["a"])
    assert "TOPIC_AUTHORIZATION_FAILED" in f"{caught.value} {caught.value.__cause__}"
    kafka.call(kafka.broker.clear_faults)
    # Nothing of it is open: readers are not held up.
    commit_all(options(kafka), run(kafka, replace(batch, number=1), [], ["b"]))
    assert visible(kafka, "failing") == Counter("b")


def test_rows_that_cannot_be_read_abort_the_task(kafka):
    batch = sink(kafka, "source", 1)

    def rows() -> Iterator[pyarrow.RecordBatch]:
        yield pyarrow.RecordBatch.from_pydict({"value": ["a"]})
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_in_transaction(options(kafka), "source", batch, 0, rows())
    commit_all(options(kafka), run(kafka, replace(batch, number=1), [], ["b"]))
    assert visible(kafka, "source") == Counter("b")


def test_a_task_without_rows_sends_no_request():
    batch = SinkBatch("s", "q", 0, "t")
    nowhere = {"bootstrap_servers": "127.0.0.1:1"}
    nothing = pyarrow.RecordBatch.from_pydict({"value": pyarrow.array([], pyarrow.string())})
    assert write_in_transaction(nowhere, "t", batch, 3, iter([nothing])) == EmptyTask(3)
    commit_all(nowhere, [EmptyTask(0), EmptyTask(1)])
    abort_all(nowhere, [])
