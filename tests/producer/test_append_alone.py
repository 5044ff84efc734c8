"""`append_alone` is equivalent to appending to the queue and draining it."""

from __future__ import annotations

import random
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from aiokafkawire.producer.batch import Batch, SentTopic
from aiokafkawire.producer.record_args import RECORD_OVERHEAD_BYTES
from aiokafkawire.producer.sequences import MAX_EPOCH
from aiokafkawire.wire.error_codes import ErrorCode
from tests.producer.model import Cluster

NODES = st.sampled_from([1, 2])
PARTITIONS = st.sampled_from([0, 0, 0, 1, 2])
CODES = st.sampled_from(
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ]
)
VALUES = st.sampled_from([b"", b"8 bytes.", b"x" * 39, b"x" * 200])
Step = Callable[[Cluster], object]


def step(name: str, *arguments: st.SearchStrategy[object]) -> st.SearchStrategy[Step]:
    return st.tuples(*arguments).map(lambda given: lambda cluster: getattr(cluster, name)(*given))


def append_without_key(cluster: Cluster, value: bytes, has_user_timestamp: bool) -> None:
    accumulator, now = cluster.accumulator, cluster.now
    queue = accumulator.choose_sticky_queue(cluster.topic, random.Random(1), now)
    size = len(value) + RECORD_OVERHEAD_BYTES
    cluster.append_to(queue, b"k", value, 7, size, has_user_timestamp=has_user_timestamp)


def retry_without_wakeup(cluster: Cluster) -> None:
    """Let a batch wait for a retry whose backoff is over."""
    cluster.append(2, b"again")
    cluster.refuse_next(1, ErrorCode.NOT_LEADER_OR_FOLLOWER, False)
    cluster.deliver_response(1)
    cluster.pass_time(1.0)


def append_together(cluster: Cluster) -> None:
    queue = cluster.topic.by_partition[0]
    for value in (b"1" * 8, b"2" * 8):
        cluster.accumulator.append(
            queue, None, value, (), 1, size_bytes=len(value), now=cluster.now
        )
    cluster.perform()


def disable_idempotence(cluster: Cluster) -> None:
    cluster.accumulator.disable_idempotence()
    cluster.perform()


STEPS = st.lists(
    st.one_of(
        step("append", PARTITIONS, VALUES),
        st.tuples(VALUES, st.booleans()).map(
            lambda given: lambda cluster: append_without_key(cluster, *given)
        ),
        step("process_next", NODES),
        step("deliver_response", NODES),
        step("refuse_next", NODES, CODES, st.booleans()),
        step("break_connection", NODES),
        step("drain", NODES),
        step("move_leader", PARTITIONS, NODES),
        step("recreate_topic"),
        step("learn_topic"),
        step("pass_time", st.sampled_from([0.01, 1.0, 9.0, 4_000.0])),
        step("grant"),
        st.sampled_from([-1, 1]).map(lambda by: lambda cluster: change_flushes(cluster, by)),
        st.just(append_together),
        st.just(retry_without_wakeup),
        st.just(disable_idempotence),
    ),
    max_size=40,
)


def change_flushes(cluster: Cluster, by: int) -> None:
    if cluster.accumulator.flushes_in_progress + by >= 0:
        accumulator = cluster.accumulator
        (accumulator.begin_flush if by > 0 else accumulator.end_flush)()
        cluster.perform()


def state_of(batch: Batch) -> object:
    records = batch.records
    said = None if records is None else (records.encode(), records.has_user_timestamp)
    kept = [
        getattr(batch, name)
        for name in Batch.__slots__
        if name not in {"builder", "future", "records", "last_error", "sent_topic"}
    ]
    kept += [getattr(batch.sent_topic, name) for name in SentTopic.__slots__]
    future = batch.future
    error = None if batch.last_error is None else str(batch.last_error)
    return kept, said, error, future.count, str(future.value)


def full_state(cluster: Cluster) -> object:
    """Return the whole state that a test can compare."""
    accumulator, topic = cluster.accumulator, cluster.topic
    queues = [
        (
            [state_of(batch) for batch in queue.waiting],
            [state_of(batch) for batch in queue.in_flight],
            [
                state_of(batch)
                for batch in sorted(queue.expired_in_flight, key=lambda batch: batch.order)
            ],
            queue.open is None,
            queue.last_order,
            None if queue.sequences is None else queue.sequences.state,
        )
        for queue in topic.all_queues.values()
    ]
    under_way = {
        node: [
            [(sent.topic_partition, sent.values, sent.sequence) for sent in request.sent]
            for request in requests
        ]
        for node, requests in cluster.connections.items()
    }
    return (
        queues,
        under_way,
        accumulator.pool.used_bytes,
        accumulator.totals,
        len(accumulator.incomplete),
        accumulator.unreported_failures.count,
        accumulator.yield_budget.calls_left,
        accumulator.leader_missing,
        accumulator._drained_at,
        [accumulator.sendable_at(node) for node in cluster.nodes],
        topic.last_used_at,
        topic.sticky_bytes,
        [log.values for log in cluster.logs.values()],
        cluster.producer_id_state.current,
    )


@settings(max_examples=300, deadline=None)
@given(steps=STEPS, warm=st.booleans(), epoch=st.sampled_from([0, MAX_EPOCH]))
def test_the_fast_path_is_equivalent_to_the_queue(steps: list[Step], warm: bool, epoch: int):
    clusters = [Cluster(3, linger_s=0, eager=True, direct=direct) for direct in (False, True)]
    for cluster in clusters:
        if warm:
            cluster.warm_up(epoch)
    for one in steps:
        for cluster in clusters:
            one(cluster)
        assert full_state(clusters[0]) == full_state(clusters[1])


def test_a_record_is_sent_in_the_call_that_appends_it():
    cluster = Cluster(linger_s=0, direct=True)  # A ready batch would stay in its queue.
    cluster.warm_up()
    delivery = cluster.append(0, b"v")
    assert not cluster.accumulator.topics["t"].by_partition[0].waiting
    [request] = cluster.connections[cluster.leaders[cluster.topic.queues[0].topic_partition]]
    assert [sent.values for sent in request.sent] == [[b"v"]]
    cluster.settle_all()
    assert delivery.result().offset == 1
