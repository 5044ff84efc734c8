from __future__ import annotations

import pickle
from dataclasses import replace
from itertools import product

import pytest

from aiokafkawire.errors import KafkaError
from aiokafkawire.producer import DetachedTransaction
from aiokafkawire.spark.exactly_once import (
    CHECKSUM_MODULUS,
    BatchPlan,
    CommittedBatchMarker,
    CommittedTask,
    EmptyTask,
    Fingerprint,
    PreparedTask,
    SinkBatch,
    TaskResult,
    build_plan,
    find_committed_marker,
    must_commit_plan,
    partial_commit_error,
    task_slot,
    verify_fingerprint,
)
from aiokafkawire.types import OffsetAndMetadata

BATCH = SinkBatch("sink", "q1", 7, "out")
ROWS = Fingerprint(10, 99)


def opened(
    task: int, rows: Fingerprint = ROWS, batch: SinkBatch = BATCH, width: int = 4
) -> PreparedTask:
    prepared = DetachedTransaction(batch.transactional_id(task), 1, 2, 2)
    return PreparedTask(task, batch, width, rows, prepared)


def planned(*results: TaskResult) -> BatchPlan:
    built = build_plan(results)
    assert built is not None
    return built[1]


def test_markers_and_plans_come_back_from_their_offsets():
    marker = CommittedBatchMarker.for_batch(BATCH, ROWS)
    offset = marker.to_offset()
    assert offset.offset == 7
    assert CommittedBatchMarker.from_offset(offset) == marker
    plan = planned(opened(0), opened(1))
    assert BatchPlan.from_offset(plan.to_offset()) == plan
    assert CommittedBatchMarker.from_offset(None) is BatchPlan.from_offset(None) is None
    # Brokers accept 4,096 bytes of metadata by default.
    assert max(len(what.to_offset().metadata) for what in (marker, plan)) < 400


@pytest.mark.parametrize("metadata", ["", "{", "[]", "7", '{"query":"q"}', '{"a":1}'])
def test_an_offset_of_another_application_is_refused(metadata):
    for kind in (CommittedBatchMarker, BatchPlan):
        with pytest.raises(KafkaError, match=r"another application.*set txnAppId"):
            kind.from_offset(OffsetAndMetadata(1, metadata))


def test_results_reach_the_driver():
    for result in (EmptyTask(1), opened(1), CommittedTask(1, BATCH, 4, ROWS)):
        assert pickle.loads(pickle.dumps(result)) == result


def test_no_two_tasks_share_a_place():
    for width in (1, 3, 50):
        slots = [task_slot(BATCH, width, task) for task in range(120)]
        assert len(set(slots)) == 120
        assert all(partition < width for _, partition in slots)
        assert slots[0] == ("sink-0", 0)
    assert task_slot(BATCH, 4, 3) == ("sink-0", 3)
    assert task_slot(BATCH, 4, 4) == ("sink-1", 0)
    groups = {task_slot(BATCH, 1, task)[0] for task in range(200)} | {BATCH.plan_group}
    assert len(groups) == 201
    for name in ("sink-0", "sink-1", "sink-plan", "sin"):
        other = replace(BATCH, sink=name)
        assert other.plan_group not in groups
        assert groups.isdisjoint(task_slot(other, 1, task)[0] for task in range(200))


def test_fingerprints_do_not_hang_on_the_order():
    one, other = Fingerprint(1, CHECKSUM_MODULUS - 1), Fingerprint(2, 5)
    assert one + other == other + one == Fingerprint(3, 4)


@pytest.mark.parametrize(("number", "expected"), [(None, None), (6, None), (7, 7)])
def test_a_task_is_written_unless_its_marker_has_the_batch(number, expected):
    marker = None if number is None else CommittedBatchMarker("q1", number, 10, 99)
    found = find_committed_marker(BATCH, None, marker)
    assert (found and found.number) == expected


def test_neither_another_query_nor_an_earlier_batch_writes():
    plan = planned(opened(0))
    for known in (CommittedBatchMarker("q2", 1, 0, 0), replace(plan, query="", number=1)):
        given = (known, None) if isinstance(known, BatchPlan) else (None, known)
        with pytest.raises(KafkaError, match=r"belongs to .*, not to the stream q1"):
            find_committed_marker(BATCH, *given)
    for known in (CommittedBatchMarker("q1", 8, 0, 0), replace(plan, number=8)):
        given = (known, None) if isinstance(known, BatchPlan) else (None, known)
        with pytest.raises(
            KafkaError, match="older than batch 8, which the sink has already written"
        ):
            find_committed_marker(BATCH, *given)


@pytest.mark.parametrize("found", [Fingerprint(11, 99), Fingerprint(10, 98)])
def test_a_committed_task_must_have_the_same_rows_again(found):
    marker = CommittedBatchMarker.for_batch(BATCH, ROWS)
    verify_fingerprint(BATCH, 3, marker, ROWS)
    with pytest.raises(KafkaError, match=r"task 3 of batch 7 .* is committed with 10 rows"):
        verify_fingerprint(BATCH, 3, marker, found)


def test_a_batch_without_rows_has_no_plan():
    assert build_plan([]) is None
    assert build_plan([EmptyTask(0), EmptyTask(1)]) is None


def test_the_digest_of_a_plan_depends_on_the_rows_of_each_task():
    plan = planned(EmptyTask(0), opened(2, Fingerprint(1, 5)), opened(1, Fingerprint(2, 6)))
    assert (plan.tasks, plan.first, plan.rows, plan.width) == (3, 1, 3, 4)
    same = planned(opened(1, Fingerprint(2, 6)), CommittedTask(2, BATCH, 4, Fingerprint(1, 5)))
    assert same.digest == plan.digest
    moved = planned(opened(1, Fingerprint(1, 5)), opened(2, Fingerprint(2, 6)))
    assert moved.digest != plan.digest


@pytest.mark.parametrize("number", [6, 7])
def test_a_plan_that_has_the_markers_elsewhere_is_not_replaced(number):
    mine, known = planned(opened(0, width=4)), planned(opened(0, width=2))
    with pytest.raises(KafkaError, match=r"its plan and its tasks disagree .*2 and 4 part"):
        must_commit_plan(BATCH, replace(known, number=number), mine, has_commits=False)


def test_tasks_that_know_of_other_markers_are_refused():
    with pytest.raises(KafkaError, match="tasks 0 and 1 disagree"):
        build_plan([opened(0), opened(1, width=5)])
    with pytest.raises(KafkaError, match="tasks 0 and 1 disagree"):
        build_plan([opened(0), opened(1, batch=replace(BATCH, number=8))])


def test_a_plan_is_replaced_only_while_nothing_of_it_is_committed():
    mine, other = planned(opened(0), opened(1)), planned(opened(0))
    assert must_commit_plan(BATCH, None, mine, has_commits=False)
    assert must_commit_plan(BATCH, replace(other, number=6), mine, has_commits=True)
    assert not must_commit_plan(BATCH, mine, mine, has_commits=True)
    assert must_commit_plan(BATCH, other, mine, has_commits=False)
    with pytest.raises(KafkaError, match="partly committed, with 10 rows in 1 tasks; this run"):
        must_commit_plan(BATCH, other, mine, has_commits=True)
    with pytest.raises(KafkaError, match="is older than batch 8"):
        must_commit_plan(BATCH, replace(other, number=8), mine, has_commits=False)


def test_every_row_is_committed_once_after_any_failure():
    """All runs of three tasks that die after some ends, each followed by one that ends all."""
    rows = {0: Fingerprint(1, 1), 1: Fingerprint(2, 2), 2: Fingerprint(3, 3)}
    for ended, changed in product(([], [0], [0, 1], [0, 2], [0, 1, 2]), (False, True)):
        markers = {task: CommittedBatchMarker.for_batch(BATCH, rows[task]) for task in ended}
        known = planned(*(opened(task, rows[task]) for task in rows))
        # Another plan: all rows are in one task now.
        again = {1: Fingerprint(6, 6)} if changed else rows
        committed = dict.fromkeys(ended, 1)
        try:
            results: list[TaskResult] = []
            for task, found in again.items():
                marker = find_committed_marker(BATCH, known, markers.get(task))
                if marker is None:
                    results.append(opened(task, found))
                else:
                    verify_fingerprint(BATCH, task, marker, found)
                    results.append(CommittedTask(task, BATCH, 4, found))
            must_commit_plan(BATCH, known, planned(*results), has_commits=known.first in markers)
        except KafkaError:
            assert changed
            assert ended
            continue
        assert not (changed and ended), "two plans were mixed"
        for result in results:
            if isinstance(result, PreparedTask):
                committed[result.task] = committed.get(result.task, 0) + 1
        assert committed == dict.fromkeys(again, 1)


def test_the_error_names_what_is_committed_and_what_is_not():
    why = KafkaError("timed out")
    error = partial_commit_error(BATCH, {2, 0}, [4, 1], {3}, why)
    text = str(error)
    assert "batch 7 of the sink 'sink' is not fully written (committed tasks: 0, 2" in text
    assert "; uncommitted tasks: 1, 4; tasks with unknown outcome: 3). Run" in text
    assert "First error: timed out" in text
    assert error.__cause__ is why
    text = str(partial_commit_error(BATCH, [], range(30), [], why))
    assert "fully written (no task is committed). Run the query again" in text
    text = str(partial_commit_error(BATCH, range(30), [], {40}, why))
    assert "18, 19 and 10 more; tasks with unknown outcome: 40)." in text
