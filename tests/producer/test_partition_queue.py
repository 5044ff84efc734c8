"""The effect of a result on its batch and on the other batches of the partition."""

from __future__ import annotations

import pytest

from aiokafkawire.connection import LARGE_REQUEST_BYTES
from aiokafkawire.errors import (
    BrokerError,
    ClientClosed,
    ConnectionLost,
    DeliveryTimedOut,
    DeliveryUnknown,
    RecordTooLarge,
)
from aiokafkawire.producer.attempt_result import result_from_failure
from aiokafkawire.producer.batch_actions import action_for
from aiokafkawire.producer.partition_queue import MAX_OVERSIZE_DISCONNECTS, PRODUCER_ID_EXPIRATION_S
from aiokafkawire.runtime import NEVER
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire.error_codes import ErrorCode
from tests.producer.model import Cluster, ProducerState, go_near_the_wrap

PARTITION = TopicPartition("t", 0)
FIRST = b"00000000"


@pytest.fixture
def cluster() -> Cluster:
    """One partition, one node, one record already in the log; each record is a batch."""
    cluster = Cluster(partitions=1, nodes=1, batch_size_bytes=1)
    cluster.warm_up()
    return cluster


@pytest.fixture
def three(cluster: Cluster):
    """Three batches in flight: their deliveries and requests."""
    deliveries = [cluster.append(0, b"%08d" % number) for number in (1, 2, 3)]
    return deliveries, cluster.send_all()


def log(cluster: Cluster) -> list[int]:
    return [int(value) for value in cluster.logs[PARTITION].values]


def epoch(cluster: Cluster) -> int:
    assert cluster.producer_id_state.current is not None
    return cluster.producer_id_state.current.epoch


def test_batches_are_sent_in_order_without_waiting_for_responses(cluster, three):
    deliveries, requests = three
    assert len(requests) == 3
    assert [r.sent[0].sequence.base_sequence for r in requests] == [1, 2, 3]
    for request in requests:
        cluster.reply(request)
    assert [d.result().offset for d in deliveries] == [1, 2, 3]


def test_the_first_batch_of_a_producer_id_is_sent_alone():
    cluster = Cluster(partitions=1, nodes=1, batch_size_bytes=1)
    cluster.producer_id_state.set_producer_id(7, 0)
    for number in range(3):
        cluster.append(0, b"%d" % number)
    [request] = cluster.send_all()
    cluster.reply(request)
    assert len(cluster.send_all()) == 2


def test_nothing_is_sent_without_a_producer_id():
    cluster = Cluster(partitions=1, nodes=1, batch_size_bytes=1)
    cluster.append(0, b"1")
    assert cluster.send_all() == []
    assert cluster.accumulator.sendable_at(1) == NEVER
    cluster.producer_id_state.set_producer_id(7, 0)
    assert len(cluster.send_all()) == 1


def test_no_more_than_five_batches_of_a_partition_are_in_flight(cluster):
    for number in range(1, 9):
        cluster.append(0, b"%08d" % number)
    cluster.connections[1].clear()
    assert len(cluster.send_all()) == 5


def test_a_retry_waits_for_earlier_batches_and_its_backoff(cluster, three):
    _, (first, second, third) = three
    cluster.reply(second, ErrorCode.CORRUPT_MESSAGE)
    cluster.now += 1
    assert cluster.send_all() == []
    cluster.reply(first)
    [again] = cluster.send_all()
    assert again.sent[0].values == second.sent[0].values
    cluster.reply(again)
    cluster.reply(third)
    assert log(cluster) == [0, 1, 2, 3]


def test_batches_behind_a_retried_one_keep_their_sequence_numbers(cluster, three):
    _, requests = three
    cluster.reply(requests[0], ErrorCode.CORRUPT_MESSAGE)
    cluster.reply(requests[1])
    cluster.reply(requests[2])
    cluster.settle_all()
    assert log(cluster) == [0, 1, 2, 3]
    assert epoch(cluster) == 0


def test_retried_batches_go_one_at_a_time(cluster, three):
    _, requests = three
    for request in requests:
        cluster.lose(request)
    cluster.now += 1
    assert len(cluster.send_all()) == 1


def test_batches_in_flight_stay_within_the_deduplicated_ones(cluster):
    """A broker deduplicates the last five; a batch rejected as out of order is not in the log."""
    for number in range(1, 20):
        cluster.append(0, b"%08d" % number)
    for _ in range(4):
        cluster.send_all()
        cluster.refuse_next(1, ErrorCode.REQUEST_TIMED_OUT, True)
        while cluster.connections[1]:
            cluster.process_next(1)
            cluster.deliver_response(1)
        cluster.now += 1
    cluster.settle_all()
    assert log(cluster) == list(range(20))
    assert epoch(cluster) == 0


@pytest.mark.parametrize("processed", [0, 1, 2, 3])
def test_a_disconnect_causes_no_duplicate(cluster, three, processed):
    deliveries, requests = three
    for request in requests:
        cluster.lose(request)
    for number in range(processed):
        cluster.process_stale(number)
    cluster.settle_all()
    assert log(cluster) == [0, 1, 2, 3]
    assert [d.result().offset for d in deliveries] == [1, 2, 3]
    assert epoch(cluster) == 0


def test_a_failure_in_the_middle_moves_the_others_to_a_new_epoch(cluster, three):
    deliveries, requests = three
    cluster.reply(requests[0], ErrorCode.INVALID_RECORD)
    cluster.reply(requests[1])
    cluster.reply(requests[2])
    assert log(cluster) == [0]
    cluster.settle_all()
    with pytest.raises(BrokerError, match="INVALID_RECORD"):
        deliveries[0].result()
    assert log(cluster) == [0, 2, 3]
    assert epoch(cluster) == 1


def test_a_failure_at_the_end_leaves_its_sequence_numbers_to_the_next(cluster, three):
    _, requests = three
    cluster.reply(requests[0])
    cluster.reply(requests[1])
    cluster.reply(requests[2], ErrorCode.INVALID_RECORD)
    cluster.append(0, b"00000004")
    [request] = cluster.send_all()
    assert request.sent[0].sequence.base_sequence == 3
    cluster.reply(request)
    assert log(cluster) == [0, 1, 2, 4]
    assert epoch(cluster) == 0


def test_expiry_in_flight_is_unknown_and_bumps_the_epoch(cluster):
    unknown = cluster.append(0, b"00000001")
    [request] = cluster.send_all()
    cluster.pass_time(11)
    with pytest.raises(DeliveryUnknown, match="delivery_timeout_ms"):
        unknown.result()
    cluster.append(0, b"00000002")
    [following] = cluster.send_all()
    sequence = following.sent[0].sequence
    assert (sequence.identity.producer_id, sequence.identity.epoch, sequence.base_sequence) == (
        7,
        1,
        0,
    )
    cluster.reply(following)
    # The request in flight is refused for its old epoch, and changes nothing.
    cluster.reply(request)
    assert log(cluster) == [0, 2]


def test_expiry_before_sending_is_delivery_timed_out(cluster):
    cluster.accumulator.set_leaders(lambda _: None)
    delivery = cluster.append(0, b"00000001")
    cluster.pass_time(11)
    with pytest.raises(DeliveryTimedOut, match="the record was not written"):
        delivery.result()
    assert epoch(cluster) == 0


def test_expiry_without_a_producer_id_has_the_reason():
    cluster = Cluster(partitions=1, nodes=1, batch_size_bytes=1)
    delivery = cluster.append(0, b"1")
    cluster.producer_id_state.failure = ConnectionLost("nobody there")
    cluster.pass_time(11)
    with pytest.raises(DeliveryTimedOut, match="no producer id was assigned: nobody there"):
        delivery.result()


def test_expiry_after_refusals_has_the_last_error_as_cause(cluster):
    delivery = cluster.append(0, b"00000001")
    [request] = cluster.send_all()
    cluster.reply(request, ErrorCode.NOT_ENOUGH_REPLICAS)
    cluster.pass_time(11)
    with pytest.raises(DeliveryTimedOut) as caught:
        delivery.result()
    assert isinstance(caught.value.__cause__, BrokerError)


def test_expiry_after_a_lost_connection_is_unknown(cluster):
    delivery = cluster.append(0, b"00000001")
    [request] = cluster.send_all()
    cluster.lose(request)
    cluster.pass_time(11)
    with pytest.raises(DeliveryUnknown):
        delivery.result()


def test_a_request_that_was_not_written_is_not_unknown(cluster):
    delivery = cluster.append(0, b"00000001")
    [request] = cluster.send_all()
    cluster.lose(request, sent=False)
    cluster.pass_time(11)
    with pytest.raises(DeliveryTimedOut):
        delivery.result()


def test_out_of_order_behind_an_unknown_batch_leaves_an_uncertain_one_unknown(cluster):
    cluster.append(0, b"00000001")
    [first] = cluster.send_all()
    cluster.now = 5.0
    later = cluster.append(0, b"00000002")
    [second] = cluster.send_all()
    cluster.lose(first)
    cluster.lose(second)
    cluster.pass_time(6)  # only the first one expires
    [again] = cluster.send_all()
    cluster.reply(again)  # out of order: the first is not in the log yet
    # Both requests were delayed, and are appended after all.
    cluster.process_stale(0)
    cluster.process_stale(1)
    with pytest.raises(DeliveryUnknown):
        later.result()
    cluster.append(0, b"00000003")
    cluster.settle_all()
    assert log(cluster) == [0, 1, 2, 3]


def test_while_draining_sequenced_batches_are_sent_first(cluster):
    cluster.append(0, b"00000001")
    [_] = cluster.send_all()
    cluster.now = 5.0
    middle, last = cluster.append(0, b"00000002"), cluster.append(0, b"00000003")
    second, third = cluster.send_all()
    cluster.pass_time(6)
    cluster.reply(second, ErrorCode.CORRUPT_MESSAGE)
    cluster.lose(third)
    cluster.now += 1
    [request] = cluster.send_all()
    assert request.sent[0].values == [b"00000003"]
    cluster.reply(request)
    cluster.settle_all()
    # The third was out of order, and an earlier attempt may still be in flight.
    assert middle.result().offset == 2
    with pytest.raises(DeliveryUnknown):
        last.result()
    assert log(cluster) == [0, 1, 2]


def test_a_broker_that_lost_its_state_gets_a_new_epoch(cluster, three):
    deliveries, requests = three
    cluster.reply(requests[0], ErrorCode.UNKNOWN_PRODUCER_ID)
    cluster.reply(requests[1], ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    cluster.reply(requests[2], ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    cluster.settle_all()
    assert log(cluster) == [0, 1, 2, 3]
    assert epoch(cluster) == 1
    assert [d.result().offset for d in deliveries] == [1, 2, 3]


def test_a_recreated_topic_gets_new_sequence_numbers(cluster, three):
    _, requests = three
    for request in requests:
        cluster.reply(request, ErrorCode.UNKNOWN_TOPIC_ID)
    cluster.accumulator.topic_recreated("t")
    cluster.logs[PARTITION].values.clear()
    cluster.logs[PARTITION].producers.clear()
    cluster.settle_all()
    assert log(cluster) == [1, 2, 3]


def test_a_duplicate_is_a_success_without_an_offset(cluster):
    delivery = cluster.append(0, b"00000001")
    [request] = cluster.send_all()
    cluster.reply(request, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert delivery.result().offset == -1


def test_other_partitions_keep_their_epoch_until_they_are_drained():
    cluster = Cluster(partitions=2, nodes=1, batch_size_bytes=1)
    cluster.warm_up()
    cluster.append(1, b"a")
    cluster.settle_all()
    unknown = cluster.append(0, b"b")
    cluster.send_all()
    cluster.now = 9.0
    cluster.append(1, b"c")
    [other] = cluster.send_all()
    cluster.pass_time(2)
    with pytest.raises(DeliveryUnknown):
        unknown.result()
    cluster.append(0, b"d")
    cluster.append(1, b"e")
    [mine] = cluster.send_all()
    assert mine.sent[0].topic_partition == PARTITION
    assert mine.sent[0].sequence.identity.epoch == 1
    cluster.reply(other)
    [following] = cluster.send_all()
    assert following.sent[0].sequence.identity.epoch == 1
    assert following.sent[0].sequence.base_sequence == 0


# --- a recreated topic, a stale epoch, large requests ---


def test_batches_sent_by_topic_id_are_retried_in_order_in_a_recreated_topic(cluster, three):
    deliveries, requests = three
    cluster.recreate_topic()
    cluster.reply(requests[0])  # refused: the topic id does not exist
    cluster.lose(requests[1])
    cluster.learn_topic()
    cluster.lose(requests[2])
    cluster.settle_all()
    assert log(cluster) == [1, 2, 3]
    assert [d.result().offset for d in deliveries] == [0, 1, 2]


def test_batches_sent_by_topic_name_that_may_be_in_a_recreated_topic_are_unknown(cluster, three):
    deliveries, requests = three
    for request in requests:
        request.sent[0].batch.sent_topic.by_name = True
    cluster.reply(requests[0], ErrorCode.NOT_ENOUGH_REPLICAS)
    cluster.lose(requests[1])
    cluster.recreate_topic()
    cluster.learn_topic()
    cluster.lose(requests[2])
    cluster.settle_all()
    assert deliveries[0].result().offset == 0
    for delivery in deliveries[1:]:
        with pytest.raises(DeliveryUnknown, match="recreated"):
            delivery.result()


@pytest.mark.parametrize("learned", ["while waiting", "in flight"])
@pytest.mark.parametrize("end", ["refused", "expired", "aborted"])
def test_a_record_that_may_be_in_the_deleted_topic_is_unknown(cluster, learned, end):
    """It was never written to the new topic, but a consumer of the old one may have read it."""
    delivery = cluster.append(0, b"00000001")
    [request] = cluster.send_all()
    cluster.process(request)
    cluster.recreate_topic()
    if learned == "in flight":
        cluster.learn_topic()
        cluster.lose(request)
    else:
        cluster.lose(request)
        cluster.learn_topic()
    if end == "refused":
        cluster.pass_time(0.2)
        [request] = cluster.send_all()
        cluster.reply(request, ErrorCode.INVALID_RECORD)
    elif end == "expired":
        cluster.pass_time(11)
    else:
        cluster.topic.by_partition[0].abort(ClientClosed("closed"))
    with pytest.raises(DeliveryUnknown):
        delivery.result()


def test_an_acknowledgement_of_the_deleted_topic_does_not_count_for_the_new_one(cluster, three):
    _, requests = three
    cluster.recreate_topic()
    cluster.learn_topic()
    requests[0].results = [cluster.result(requests[0].sent[0], ErrorCode.NONE, 1)]
    cluster.deliver_response(1)
    assert cluster.topic.by_partition[0].sequences.first_batch_pending


def test_a_stale_epoch_is_bumped_until_the_log_accepts_it(cluster, three):
    deliveries, requests = three
    state = cluster.logs[PARTITION].producers[7] = ProducerState(2)
    state.batches.append((50, 1, 0))
    for request in requests:
        cluster.reply(request)
    cluster.settle_all()
    assert log(cluster) == [0, 1, 2, 3]
    assert epoch(cluster) == 3
    assert [d.result().offset for d in deliveries] == [1, 2, 3]


def test_behind_a_stale_epoch_an_uncertain_batch_stays_unknown(cluster):
    delivery = cluster.append(0, b"00000001")
    [request] = cluster.send_all()
    cluster.lose(request)
    cluster.now += 1
    [again] = cluster.send_all()
    cluster.reply(again, ErrorCode.INVALID_PRODUCER_EPOCH)
    with pytest.raises(DeliveryUnknown):
        delivery.result()
    cluster.append(0, b"00000002")
    [following] = cluster.send_all()
    assert following.sent[0].sequence.identity.epoch == 1


def disconnect_after_large_request(cluster: Cluster) -> None:
    """Send the due batch; the broker closes the connection after a large request."""
    [request] = cluster.send_all()
    cluster.connections[1].clear()
    lost = result_from_failure(
        ConnectionLost("the broker closed the connection"), LARGE_REQUEST_BYTES
    )
    batch = request.sent[0].batch
    cluster.accumulator.handle_result(batch, lost, cluster.now, cluster.now + 0.1)
    cluster.now += 1


def test_a_large_batch_fails_after_several_disconnects(cluster):
    delivery = cluster.append(0, b"00000001")
    for _ in range(MAX_OVERSIZE_DISCONNECTS - 1):
        disconnect_after_large_request(cluster)
    assert not delivery.done
    disconnect_after_large_request(cluster)
    with pytest.raises(DeliveryUnknown, match=r"4 times.*1048576 bytes.*socket.request.max.bytes"):
        delivery.result()
    cluster.append(0, b"00000002")
    cluster.settle_all()
    assert log(cluster) == [0, 2]


def test_a_partition_without_acknowledgements_for_long_starts_with_one_batch(cluster):
    cluster.now += PRODUCER_ID_EXPIRATION_S + 1
    for number in (1, 2, 3):
        cluster.append(0, b"%08d" % number)
    [request] = cluster.send_all()
    cluster.reply(request)
    assert len(cluster.send_all()) == 2


def test_sequence_numbers_wrap_to_zero(cluster):
    go_near_the_wrap(cluster)
    deliveries = [cluster.append(0, b"%08d" % number) for number in range(1, 9)]
    requests = cluster.send_all()
    assert [r.sent[0].sequence.base_sequence for r in requests] == [
        2**31 - 4 + n for n in range(4)
    ] + [0]
    for request in requests:
        cluster.lose(request)
    cluster.process_stale(0)
    cluster.settle_all()
    assert log(cluster) == list(range(9))
    assert [d.result().offset for d in deliveries] == list(range(1, 9))
    assert epoch(cluster) == 0


def test_sequence_numbers_wrap_inside_a_batch_and_its_parts():
    cluster = Cluster(partitions=1, nodes=1, batch_size_bytes=4096)
    cluster.warm_up()
    go_near_the_wrap(cluster)
    cluster.logs[PARTITION].max_batch_records = 3
    for number in range(1, 13):
        cluster.append(0, b"%08d" % number)
    cluster.settle_all()
    assert log(cluster) == list(range(13))
    assert epoch(cluster) == 0


# --- splitting ---


@pytest.fixture
def large() -> Cluster:
    cluster = Cluster(partitions=1, nodes=1, batch_size_bytes=4096)
    cluster.warm_up()
    return cluster


def test_a_batch_that_is_too_large_is_split_until_it_fits(large):
    large.logs[PARTITION].max_batch_records = 3
    deliveries = [large.append(0, b"%08d" % number) for number in range(1, 21)]
    large.settle_all()
    assert log(large) == list(range(21))
    assert [d.result().offset for d in deliveries] == list(range(1, 21))
    assert epoch(large) == 0
    assert large.accumulator.pool.used_bytes == 0


def test_a_batch_behind_a_split_one_waits_for_all_its_parts(large):
    large.logs[PARTITION].max_batch_records = 5
    for number in range(1, 11):
        large.append(0, b"%08d" % number)
    large.pass_time(0.01)
    large.send_all()
    large.append(0, b"00000011")
    large.pass_time(0.01)
    large.send_all()
    large.settle_all()
    assert log(large) == list(range(12))
    assert epoch(large) == 0


def test_a_single_record_that_is_too_large_fails(cluster):
    cluster.logs[PARTITION].max_batch_records = 0
    delivery = cluster.append(0, b"00000001")
    [request] = cluster.send_all()
    cluster.reply(request)
    with pytest.raises(RecordTooLarge):
        delivery.result()


def test_a_batch_that_may_be_in_the_log_is_not_split(large):
    deliveries = [large.append(0, b"%08d" % number) for number in (1, 2)]
    large.pass_time(0.01)
    [request] = large.send_all()
    large.lose(request)
    large.pass_time(1)
    [again] = large.send_all()
    large.reply(again, ErrorCode.MESSAGE_TOO_LARGE)
    for delivery in deliveries:
        with pytest.raises(DeliveryUnknown):
            delivery.result()


# --- every error code in every state ---

CODES = [*ErrorCode, 9999]


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("lost_before", [True, False])
def test_the_partition_continues_after_every_error_code(idempotent, lost_before):
    for code in CODES:
        check_that_it_continues(code, idempotent, lost_before)


def check_that_it_continues(code, idempotent, lost_before):
    cluster = Cluster(partitions=1, nodes=1, batch_size_bytes=1)
    if idempotent:
        cluster.warm_up()
    else:
        cluster.accumulator.disable_idempotence()
    first, second = cluster.append(0, b"1"), cluster.append(0, b"2")
    requests = cluster.send_all()
    if lost_before:
        for request in requests:
            cluster.lose(request)
        cluster.now += 1
        requests = cluster.send_all()
    cluster.reply(requests[0], code)
    cluster.settle_all()
    third = cluster.append(0, b"3")
    cluster.settle_all()
    assert third.result().offset == len(cluster.logs[PARTITION].values) - 1, code
    assert first.done, code
    assert second.done, code
    assert cluster.accumulator.pool.used_bytes == 0, code
    outcome = _outcome(first)
    assert outcome in _expected(code, idempotent, lost_before), code


def _outcome(delivery) -> str:
    try:
        delivery.result()
    except DeliveryUnknown:
        return "unknown"
    except (BrokerError, RecordTooLarge):
        return "failed"
    except Exception as error:
        return type(error).__name__
    return "delivered"


def _expected(code: int, idempotent: bool, uncertain: bool) -> set[str]:
    action = action_for(code).name
    if action in {"APPENDED", "RETRY", "RETRY_UNCERTAIN"}:
        return {"delivered"}
    if action == "OUT_OF_ORDER" and idempotent:
        return {"delivered"}
    if action == "STALE_EPOCH" and idempotent and not uncertain:
        return {"delivered"}
    if action == "FAIL_UNKNOWN" or uncertain:
        return {"unknown"}
    return {"ProducerFenced"} if code == ErrorCode.PRODUCER_FENCED else {"failed"}


def test_too_many_retries_fail_with_the_last_error():
    cluster = Cluster(partitions=1, nodes=1, batch_size_bytes=1, retries=1)
    cluster.warm_up()
    delivery = cluster.append(0, b"1")
    for _ in range(2):
        [request] = cluster.send_all()
        cluster.reply(request, ErrorCode.NOT_ENOUGH_REPLICAS)
        cluster.now += 1
    with pytest.raises(BrokerError, match="NOT_ENOUGH_REPLICAS"):
        delivery.result()


def test_abort_distinguishes_sent_from_unsent_batches(cluster):
    sent = cluster.append(0, b"00000001")
    cluster.send_all()
    kept = cluster.append(0, b"00000002")
    cluster.accumulator.abort(ClientClosed("closed"))
    with pytest.raises(DeliveryUnknown, match="closed"):
        sent.result()
    with pytest.raises(ClientClosed) as caught:
        kept.result()
    assert (caught.value.topic, caught.value.partition) == PARTITION
    assert cluster.accumulator.pool.used_bytes == 0


def test_one_request_in_flight_keeps_the_order_without_idempotence():
    cluster = Cluster(partitions=1, nodes=1, batch_size_bytes=1, max_in_flight=1)
    cluster.accumulator.disable_idempotence()
    for number in range(3):
        cluster.append(0, b"%d" % number)
    [request] = cluster.send_all()
    cluster.reply(request, ErrorCode.NOT_ENOUGH_REPLICAS)
    cluster.settle_all()
    assert log(cluster) == [0, 1, 2]


@pytest.mark.parametrize("without_ids", [True, False])
def test_a_log_without_producer_ids_gets_unsequenced_batches_or_none(without_ids):
    cluster = Cluster(partitions=1, nodes=1, batch_size_bytes=1)
    cluster.warm_up()
    deliveries = [cluster.append(0, b"%d" % number) for number in range(3)]
    requests = cluster.send_all()
    if without_ids:
        cluster.accumulator.disable_idempotence()
    for request in requests:
        cluster.reply(request, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)
    if without_ids:
        cluster.settle_all()
        assert [_outcome(delivery) for delivery in deliveries] == ["delivered"] * 3
    else:
        assert [_outcome(delivery) for delivery in deliveries] == ["failed"] * 3
