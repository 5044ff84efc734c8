"""A producer's transactions on an embedded broker, with and without faults."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from aiokafkawire.broker import Answer, Broker, Close, Delay, Drop, SeenRequest
from aiokafkawire.broker.releases import RELEASES
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import (
    BrokerError,
    ClientClosed,
    CommitFailed,
    DeliveryUnknown,
    InvalidTxnState,
    KafkaError,
    ProducerFenced,
    RequestTimedOut,
    TransactionAborted,
    TransactionFailed,
    UnsupportedVersion,
)
from aiokafkawire.producer import Producer
from aiokafkawire.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from aiokafkawire.wire.messages.init_producer_id import InitProducerIdRequest
from tests.producer.short_timeouts import max_block
from tests.producer.transactions.conftest import QUICK, RELEASE_TV_0, NewProducer, visible

pytestmark = pytest.mark.slow

TP = TopicPartition("t", 0)


def keys(broker: Broker) -> list[int]:
    """Return the transactional API keys of the requests, in order."""
    ours = {
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.END_TXN,
    }
    return [seen.api_key for seen in broker.requests if seen.api_key in ours]


# --- without faults ---


async def test_committed_records_are_visible_and_aborted_ones_are_not(
    broker: Broker, new_producer: NewProducer
):
    async with new_producer() as producer:
        for number in range(4):
            await producer.begin_transaction()
            kept = await producer.send_and_wait("t", b"%d" % number, partition=number % 2)
            assert kept.offset >= 0
            await producer.send("t", b"%d'" % number, partition=number % 2)
            if number == 1:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
        metrics = producer.metrics()
    assert await visible(broker) == [b"0", b"0'", b"2", b"2'", b"3", b"3'"]
    assert metrics["transactions_begun_total"] == 4
    assert metrics["transactions_committed_total"] == 3
    assert metrics["transactions_aborted_total"] == 1


async def test_the_requests_of_each_transaction_version(
    broker: Broker, new_producer: NewProducer, release: str
):
    async with new_producer() as producer:
        await producer.begin_transaction()
        await producer.send_many("t", [b"a", b"b"], partition=0)
        await producer.send_offsets_to_transaction({TP: 5}, GroupMetadata("g"))
        await producer.send_many("t", [b"c", b"d"], partition=0)
        await producer.commit_transaction()
    assert keys(broker) == [
        ApiKey.INIT_PRODUCER_ID,
        *(
            [ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN]
            if release == RELEASE_TV_0
            else []
        ),
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.END_TXN,
    ]


async def test_an_empty_transaction_sends_no_request(broker: Broker, new_producer: NewProducer):
    async with new_producer() as producer:
        for _ in range(2):
            await producer.begin_transaction()
            await producer.commit_transaction()
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction({}, GroupMetadata("g"))
            await producer.abort_transaction()
    assert keys(broker) == [ApiKey.INIT_PRODUCER_ID]


async def test_a_commit_sends_at_once(broker: Broker, new_producer: NewProducer):
    async with new_producer(linger_ms=10_000) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"v")
        with anyio.fail_after(20):
            await producer.commit_transaction()
    assert await visible(broker) == [b"v"]


async def test_offsets_of_a_consumer_go_with_the_transaction(
    broker: Broker, new_producer: NewProducer
):
    options = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    async with (
        new_producer() as producer,
        Consumer("t", bootstrap_servers=broker.bootstrap_servers, **options) as consumer,
    ):
        await producer.begin_transaction()
        await producer.send_many("t", [b"a", b"b", b"c"], partition=0)
        await producer.commit_transaction()
        await consumer.getone()
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction(consumer)
        await producer.abort_transaction()
        assert (await consumer.committed(TP))[TP] is None
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction(consumer)
        await producer.commit_transaction()
        found = (await consumer.committed(TP))[TP]
        assert found is not None
        assert found.offset == 1
        # The consumer has noted the committed offsets.
        assert consumer.positions() == {}


async def test_a_consumer_keeps_the_last_offsets_of_a_transaction(
    broker: Broker, new_producer: NewProducer
):
    options = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    async with (
        new_producer() as producer,
        Consumer("t", bootstrap_servers=broker.bootstrap_servers, **options) as consumer,
    ):
        async with producer.transaction():
            await producer.send_many("t", [b"a", b"b", b"c"], partition=0)
        async with producer.transaction():
            for _ in range(3):
                await consumer.getone()
                await producer.send_offsets_to_transaction(consumer)
        assert consumer.positions() == {}


async def test_offsets_can_be_passed_without_a_consumer(broker: Broker, new_producer: NewProducer):
    async with new_producer() as producer:
        await producer.begin_transaction()
        offsets = {TP: OffsetAndMetadata(7, "note"), TopicPartition("t", 1): 3}
        await producer.send_offsets_to_transaction(offsets, GroupMetadata("g"))
        await producer.commit_transaction()
    async with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="g") as consumer:
        consumer.assign(TP)
        found = (await consumer.committed(TP))[TP]
    assert found is not None
    assert (found.offset, found.metadata) == (7, "note")


async def test_wrong_arguments_of_send_offsets_to_transaction_are_rejected(
    broker: Broker, new_producer: NewProducer
):
    consumer = Consumer("t", bootstrap_servers=broker.bootstrap_servers, group_id="g")
    async with new_producer() as producer:
        await producer.begin_transaction()
        with pytest.raises(ValueError, match="enable_auto_commit=False"):
            await producer.send_offsets_to_transaction(consumer)
        with pytest.raises(TypeError, match="knows its group"):
            await producer.send_offsets_to_transaction(consumer, GroupMetadata("g"))  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="GroupMetadata"):
            await producer.send_offsets_to_transaction({TP: 5}, "g")  # type: ignore[call-overload]
        await producer.send_offsets_to_transaction({TP: 5}, GroupMetadata("g"))
        with pytest.raises(ValueError, match="committed_offset"):
            await producer.send_offsets_to_transaction({TP: 2**63}, GroupMetadata("g"))
        await producer.send("t", b"v")
        await producer.commit_transaction()
    assert await visible(broker) == [b"v"]


# --- calls in the wrong state ---


async def test_calls_in_the_wrong_state_say_what_to_do(new_producer: NewProducer):
    async with new_producer() as producer:
        for call in (
            producer.commit_transaction,
            producer.abort_transaction,
            producer.detach_transaction,
        ):
            with pytest.raises(
                InvalidTxnState, match="no transaction is open, call begin_transaction"
            ):
                await call()
        with pytest.raises(InvalidTxnState, match="cannot send a record"):
            await producer.send("t", b"v")
        with pytest.raises(InvalidTxnState, match="cannot send a record"):
            producer.send_nowait("t", b"v")
        with pytest.raises(InvalidTxnState, match="no transaction is open"):
            await producer.send_offsets_to_transaction({TP: 5}, GroupMetadata("g"))
        await producer.begin_transaction()
        with pytest.raises(InvalidTxnState, match="a transaction is already open"):
            await producer.begin_transaction()
        await producer.commit_transaction()


async def test_transactions_need_a_transactional_id(new_producer: NewProducer):
    async with new_producer(transactional_id=None) as producer:
        with pytest.raises(InvalidTxnState, match="transactions need a transactional_id"):
            await producer.begin_transaction()
        with pytest.raises(InvalidTxnState, match="transactions need a transactional_id"):
            producer.transaction()


# --- errors ---


async def fail_next_record(broker: Broker) -> None:
    broker.on(ApiKey.PRODUCE, Answer(ErrorCode.INVALID_RECORD), times=1)


async def test_a_failed_record_fails_the_commit_and_the_next_transaction_works(
    broker: Broker, new_producer: NewProducer
):
    async with new_producer() as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"lost", partition=0)
        await fail_next_record(broker)
        await producer.send("t", b"refused", partition=0)
        with pytest.raises(TransactionFailed, match="INVALID_RECORD") as failed:
            await producer.commit_transaction()
        assert isinstance(failed.value.__cause__, BrokerError)
        assert failed.value.transactional_id == "id"
        for call in (producer.commit_transaction, producer.begin_transaction, producer.flush):
            with pytest.raises(TransactionFailed):
                await call()
        with pytest.raises(TransactionFailed):
            await producer.send("t", b"late")
        await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.send_many("t", [b"a", b"b"], partition=0)
        await producer.commit_transaction()
    assert await visible(broker) == [b"a", b"b"]


async def test_records_of_an_aborted_transaction_are_reported_once(
    broker: Broker, new_producer: NewProducer
):
    async with new_producer(linger_ms=10_000) as producer:
        await producer.begin_transaction()
        awaited = await producer.send("t", b"never", partition=0)
        await producer.send("t", b"never", partition=1)
        await producer.abort_transaction()
        with pytest.raises(TransactionAborted, match="transactional_id id, topic t, partition 0"):
            await awaited
        await producer.flush()
    assert await visible(broker) == []


async def test_a_failed_record_fails_the_other_deliveries_at_once(
    broker: Broker, new_producer: NewProducer
):
    async with new_producer() as producer:
        await producer.partitions_for("t")
        await producer.begin_transaction()
        await fail_next_record(broker)
        with pytest.raises(BrokerError, match="INVALID_RECORD"):
            await producer.send_and_wait("t", b"refused", partition=0)
        with pytest.raises(TransactionFailed):
            producer.send_nowait("t", b"v", partition=1)
        await producer.abort_transaction()


async def test_lost_sequence_numbers_fail_the_transaction_but_not_the_producer(
    broker: Broker, new_producer: NewProducer
):
    async with new_producer() as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"never", partition=0)
        code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        broker.on(ApiKey.PRODUCE, Answer(code), times=1)
        with pytest.raises(BrokerError, match="OUT_OF_ORDER"):
            await producer.send_and_wait("t", b"never", partition=0)
        with pytest.raises(TransactionFailed):
            await producer.commit_transaction()
        await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"a", partition=0)
        await producer.commit_transaction()
    assert await visible(broker) == [b"a"]


@pytest.mark.parametrize("release", [RELEASE_TV_0], indirect=True)
async def test_a_partition_that_cannot_be_added_fails_the_transaction(
    broker: Broker, new_producer: NewProducer
):
    async with new_producer() as producer:
        broker.on(
            ApiKey.ADD_PARTITIONS_TO_TXN, Answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED), times=1
        )
        await producer.begin_transaction()
        delivery = await producer.send("t", b"v", partition=0)
        with pytest.raises(TransactionAborted) as aborted:
            await delivery
        assert "TOPIC_AUTHORIZATION_FAILED" in str(aborted.value.__cause__)
        await producer.abort_transaction()
    assert ApiKey.END_TXN not in keys(broker), "there was nothing to end"


async def test_a_lost_group_membership_fails_the_transaction(
    broker: Broker, new_producer: NewProducer
):
    async with new_producer() as producer:
        await producer.begin_transaction()
        with pytest.raises(TransactionFailed, match="membership is outdated") as failed:
            await producer.send_offsets_to_transaction({TP: 5}, GroupMetadata("g", 3, "nobody"))
        assert isinstance(failed.value.__cause__, CommitFailed)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"v")
    assert await visible(broker) == [b"v"]


# --- fencing ---


async def test_the_older_of_two_producers_with_one_transactional_id_is_fenced(
    broker: Broker, new_producer: NewProducer
):
    older = new_producer()
    await older.start()
    await older.begin_transaction()
    await older.send_and_wait("t", b"never", partition=0)
    async with new_producer() as newer, newer.transaction():
        await newer.send("t", b"new", partition=0)
    await older.send("t", b"never either", partition=0)
    with pytest.raises((ProducerFenced, TransactionFailed)):
        await older.commit_transaction()
    with pytest.raises(ProducerFenced):
        await older.abort_transaction()
    await older.stop()
    assert await visible(broker) == [b"new"]


async def test_closing_tolerates_that_a_newer_producer_has_aborted(
    broker: Broker, new_producer: NewProducer
):
    older = new_producer()
    await older.start()
    await older.begin_transaction()
    await older.send_and_wait("t", b"never", partition=0)
    async with new_producer():
        pass
    await older.stop()
    assert await visible(broker) == []


async def test_every_call_of_a_fenced_producer_raises(broker: Broker, new_producer: NewProducer):
    async with new_producer() as older:
        await older.begin_transaction()
        await older.send_and_wait("t", b"never", partition=0)
        async with new_producer():
            pass
        with pytest.raises(ProducerFenced, match="took over") as fenced:
            await older.commit_transaction()
        assert (fenced.value.transactional_id, fenced.value.api) == ("id", "EndTxn")
        for call in (older.begin_transaction, older.commit_transaction, older.abort_transaction):
            with pytest.raises(ProducerFenced):
                await call()
        with pytest.raises(ProducerFenced):
            await older.send("t", b"never")
    assert await visible(broker) == []


async def test_the_next_start_aborts_what_a_crash_left_open(
    broker: Broker, new_producer: NewProducer
):
    crashed = new_producer()
    await crashed.start()
    await crashed.begin_transaction()
    await crashed.send_and_wait("t", b"never", partition=0)
    crashed._lifecycle.abort()
    async with new_producer() as producer, producer.transaction():
        await producer.send("t", b"again", partition=0)
    assert await visible(broker) == [b"again"]
    await crashed.stop()


# --- coordinators and leaders that move, stop or do not answer ---

STEPS = [
    ApiKey.FIND_COORDINATOR,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.PRODUCE,
    ApiKey.END_TXN,
]


async def one_of_each(producer: Producer) -> None:
    """Abort one transaction and commit another one, with offsets."""
    await producer.begin_transaction()
    await producer.send("t", b"never", partition=0)
    await producer.send_offsets_to_transaction({TP: 1}, GroupMetadata("g"))
    await producer.abort_transaction()
    await producer.begin_transaction()
    for number in range(4):
        await producer.send("t", b"%d" % number, partition=number % 2)
    await producer.send_offsets_to_transaction({TP: 2}, GroupMetadata("g"))
    await producer.commit_transaction()


@pytest.mark.parametrize(
    "fault",
    [
        Answer(ErrorCode.NOT_COORDINATOR),
        Answer(ErrorCode.CONCURRENT_TRANSACTIONS),
        Close(),
        Close(carried_out=True),
    ],
    ids=["moved", "concurrent", "closed", "closed after it"],
)
@pytest.mark.slow
async def test_each_request_is_retried(
    broker: Broker, new_producer: NewProducer, fault: Answer | Close
):
    elsewhere = {
        ApiKey.FIND_COORDINATOR: Answer(ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ApiKey.PRODUCE: Answer(ErrorCode.NOT_LEADER_OR_FOLLOWER),
    }
    for step in STEPS:
        suited = elsewhere.get(step, fault) if isinstance(fault, Answer) else fault
        broker.on(step, suited, times=2)
        with anyio.fail_after(30):
            async with new_producer() as producer:
                await one_of_each(producer)
        broker.clear_faults()
    seen = sorted(value or b"" for value in await visible(broker))
    assert seen == sorted([b"0", b"1", b"2", b"3"] * len(STEPS))
    async with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="g") as consumer:
        consumer.assign(TP)
        found = (await consumer.committed(TP))[TP]
    assert found is not None
    assert found.offset == 2


@pytest.mark.parametrize("step", [ApiKey.TXN_OFFSET_COMMIT, ApiKey.PRODUCE, ApiKey.END_TXN])
async def test_a_coordinator_that_stops_in_each_state_is_found_again(
    broker: Broker, new_producer: NewProducer, step: ApiKey
):
    stopped: list[int] = []

    async def stop(seen: SeenRequest) -> None:
        if not stopped:
            stopped.append(seen.node_id)
            await broker.kill(broker.coordinator("id"))

    broker.on(step, stop)
    with anyio.fail_after(30):
        async with new_producer() as producer:
            await one_of_each(producer)
    assert stopped
    assert sorted(value or b"" for value in await visible(broker)) == [b"0", b"1", b"2", b"3"]


async def test_a_missing_leader_only_delays_the_commit(broker: Broker, new_producer: NewProducer):
    async with new_producer() as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"a", partition=0)
        leader = broker.leader("t", 0)
        broker.pause(leader)
        await producer.send("t", b"b", partition=0)
        async with anyio.create_task_group() as group:
            group.start_soon(producer.commit_transaction)
            await broker.kill(leader)
    assert await visible(broker) == [b"a", b"b"]


# --- timeouts and cancellation ---


async def test_a_commit_that_timed_out_continues_and_can_be_awaited_again(
    broker: Broker, new_producer: NewProducer
):
    async with new_producer(request_timeout_ms=300) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"v", partition=0)
        silent = broker.on(ApiKey.END_TXN, Drop(carried_out=True))
        with max_block(producer, 100):
            with pytest.raises(RequestTimedOut, match="whether the transaction is committed is"):
                await producer.commit_transaction()
            with pytest.raises(InvalidTxnState, match="being committed"):
                await producer.abort_transaction()
            with pytest.raises(RequestTimedOut, match="the previous transaction has not ended"):
                await producer.begin_transaction()
        silent.remove()
        await producer.commit_transaction()
        with pytest.raises(InvalidTxnState, match="no transaction is open"):
            await producer.commit_transaction()
        await producer.begin_transaction()
        await producer.abort_transaction()
    assert await visible(broker) == [b"v"]


async def test_each_waiting_call_has_its_own_timeout(broker: Broker, new_producer: NewProducer):
    async with new_producer() as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"v", partition=0)
        late = broker.on(ApiKey.END_TXN, Delay(1.0))
        async with anyio.create_task_group() as group:
            group.start_soon(producer.commit_transaction)
            while not late.hits:  # noqa: ASYNC110 - of the broker
                await anyio.sleep(0.01)
            for wait_ms in (200, 100):
                with (
                    max_block(producer, wait_ms),
                    pytest.raises(RequestTimedOut, match="whether the transaction is committed is"),
                ):
                    await producer.commit_transaction()
    assert await visible(broker) == [b"v"]


async def test_a_cancelled_commit_continues(broker: Broker, new_producer: NewProducer):
    async with new_producer() as producer:
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        slow = broker.on(ApiKey.END_TXN, Delay(0.2))
        with anyio.CancelScope() as scope:
            scope.cancel()
            await producer.commit_transaction()
        assert scope.cancelled_caught
        slow.remove()
        await producer.begin_transaction()
        await producer.abort_transaction()
    assert await visible(broker) == [b"v"]


async def test_the_outcome_of_a_cancelled_commit_can_be_awaited_later(
    broker: Broker, new_producer: NewProducer
):
    async with new_producer() as producer:
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await producer.commit_transaction()
        await broker.wait_for_request(ApiKey.END_TXN)
        await producer.commit_transaction()
    assert await visible(broker) == [b"v"]


async def test_a_transaction_that_was_open_too_long_is_aborted(
    broker: Broker, new_producer: NewProducer, release: str
):
    async with new_producer(transaction_timeout_ms=150) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"never", partition=0)
        # Consumers read later records once the coordinator has aborted it.
        async with (
            new_producer(transactional_id=None) as other,
            Consumer(
                bootstrap_servers=broker.bootstrap_servers,
                isolation_level="read_committed",
                auto_offset_reset="earliest",
            ) as consumer,
        ):
            consumer.assign(TP)
            await other.send("t", b"behind", partition=0)
            assert (await consumer.getone(timeout_ms=10_000)).value == b"behind"
        if release == RELEASE_TV_0:
            with pytest.raises(ProducerFenced, match="probably because it timed out"):
                await producer.commit_transaction()
            return
        with pytest.raises(TransactionFailed):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"v", partition=0)
    assert await visible(broker) == [b"behind", b"v"]


async def test_a_transaction_timeout_over_the_brokers_limit_raises(new_producer: NewProducer):
    producer = new_producer(transaction_timeout_ms=2**31 - 1)
    with pytest.raises(BrokerError, match="INVALID_TRANSACTION_TIMEOUT") as refused:
        await producer.start()
    assert refused.value.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


async def test_start_times_out_without_a_coordinator(broker: Broker, new_producer: NewProducer):
    broker.on(ApiKey.FIND_COORDINATOR, Answer(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    producer = new_producer(max_block_ms=1_200, request_timeout_ms=300)
    with pytest.raises(RequestTimedOut, match=r"returned no producer id.*COORDINATOR_NOT_AVAIL"):
        await producer.start()


async def test_a_broker_without_transactions_is_named(anyio_backend: object):
    async with Broker(as_of="0.10") as old:
        producer = Producer(bootstrap_servers=old.bootstrap_servers, **QUICK)
        with pytest.raises(
            UnsupportedVersion, match=r"of Kafka 0\.11 or later .*broker 1"
        ) as error:
            await producer.start()
    assert error.value.transactional_id == "id"


# --- close ---


async def test_closing_aborts_what_is_open(broker: Broker, new_producer: NewProducer):
    async with new_producer(linger_ms=10_000) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"never", partition=0)
        await producer.send("t", b"never", partition=1)
        await anyio.lowlevel.checkpoint()
    assert await visible(broker) == []


async def test_closing_aborts_a_failed_transaction(broker: Broker, new_producer: NewProducer):
    async with new_producer() as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"never", partition=0)
        await fail_next_record(broker)
        with pytest.raises(BrokerError):
            await producer.send_and_wait("t", b"refused", partition=1)
    assert await visible(broker) == []
    async with new_producer() as producer, producer.transaction():
        await producer.send("t", b"v", partition=0)
    assert await visible(broker) == [b"v"]


async def test_a_commit_raises_when_another_task_aborts(broker: Broker, new_producer: NewProducer):
    async with new_producer() as producer:
        broker.on(ApiKey.PRODUCE, Answer(ErrorCode.INVALID_RECORD), times=1)
        await producer.begin_transaction()
        delivery = await producer.send("t", b"never", partition=0)
        committing = anyio.Event()

        async def abort() -> None:
            committing.set()
            with pytest.raises(BrokerError):
                await delivery
            await producer.abort_transaction()

        async with anyio.create_task_group() as group:
            group.start_soon(abort)
            await committing.wait()
            with pytest.raises(TransactionFailed):
                await producer.commit_transaction()
        assert producer.metrics()["transactions_committed_total"] == 0


async def test_a_waiting_record_does_not_join_a_later_transaction(
    broker: Broker, new_producer: NewProducer
):
    async with new_producer() as producer:
        refused = anyio.Event()

        async def late() -> None:
            with pytest.raises(InvalidTxnState, match="ended while the call was waiting"):
                await producer.send("later", b"never")
            refused.set()

        async with anyio.create_task_group() as group:
            await producer.begin_transaction()
            group.start_soon(late)
            await broker.wait_for_request(
                ApiKey.METADATA, matching=lambda seen: "later" in str(seen.message)
            )
            await producer.abort_transaction()
            await producer.begin_transaction()
            await broker.create_topic("later", partitions=1)
            with anyio.fail_after(20):
                await refused.wait()
            await producer.commit_transaction()
    assert await visible(broker, "later") == []


async def test_a_commit_that_fails_unawaited_is_raised_once_by_the_next_begin(
    broker: Broker, new_producer: NewProducer
):
    given_up = anyio.Event()

    async def refuse_late(_: SeenRequest) -> Answer:
        await given_up.wait()
        return Answer(ErrorCode.INVALID_RECORD)

    async with new_producer(request_timeout_ms=10_000) as producer:
        broker.on(ApiKey.PRODUCE, refuse_late, times=1)
        await producer.begin_transaction()
        await producer.send("t", b"never", partition=0)
        with anyio.move_on_after(0.02):
            await producer.commit_transaction()
        given_up.set()
        with pytest.raises(TransactionFailed):
            await producer.begin_transaction()
        # An abort is allowed, though there is nothing left to abort.
        await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        await producer.commit_transaction()
    assert await visible(broker) == [b"v"]


async def test_closing_the_producer_ends_a_waiting_commit(
    broker: Broker, new_producer: NewProducer
):
    broker.on(ApiKey.END_TXN, Drop())
    producer = new_producer(close_timeout_ms=50)
    await producer.start()
    await producer.begin_transaction()
    await producer.send_and_wait("t", b"v", partition=0)
    raised: list[KafkaError] = []

    async def commit() -> None:
        try:
            await producer.commit_transaction()
        except KafkaError as error:
            raised.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(commit)
        await broker.wait_for_request(ApiKey.END_TXN)
        await producer.stop()
    assert [type(error) for error in raised] == [ClientClosed]


# --- older and mixed releases ---


async def test_the_transaction_version_is_chosen_for_each_transaction(anyio_backend: object):
    async with Broker(as_of="3.9") as broker:
        await broker.create_topic("t")
        async with Producer(bootstrap_servers=broker.bootstrap_servers, **QUICK) as producer:
            async with producer.transaction():
                await producer.send("t", b"classic")
            await broker.restart(1, as_of="4.3")
            await producer.begin_transaction()
            await producer.send("t", b"in between")
            await producer.commit_transaction()
            async with producer.transaction():
                await producer.send("t", b"implicit")
        assert await visible(broker) == [b"classic", b"in between", b"implicit"]
        ends = [seen.version for seen in broker.requests.of(ApiKey.END_TXN)]
        assert ends[0] < 5 <= ends[-1]
        # The epoch bump fences late requests of the older version.
        raised = broker.requests.of(ApiKey.INIT_PRODUCER_ID)[-1].message
        assert isinstance(raised, InitProducerIdRequest)
        assert raised.producer_id >= 0


async def test_a_node_without_finalized_features_takes_part(anyio_backend: object):
    """Answer as a node that has just started and knows no finalized features yet."""
    async with Broker(nodes=3, auto_create_topics=False) as broker:
        await broker.create_topic("t", partitions=3, replication_factor=3)
        broker.on(ApiKey.API_VERSIONS, without_features, node=broker.leader("t", 1))
        async with Producer(bootstrap_servers=broker.bootstrap_servers, **QUICK) as producer:
            for number in range(3):
                async with producer.transaction():
                    for partition in range(3):
                        await producer.send("t", b"%d" % number, partition=partition)
        assert len(await visible(broker)) == 9
        last = broker.requests.of(ApiKey.END_TXN)[-1]
    assert last.version >= 5, "decided by the nodes that know"


async def without_features(seen: SeenRequest) -> ApiVersionsResponse:
    advertised = RELEASES["4.3"].advertised
    return ApiVersionsResponse(
        error_code=0,
        api_keys=[
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in advertised.items()
        ],
    )


async def old_producer(broker: Broker) -> Producer:
    await broker.create_topic("t", partitions=1)
    # One batch per record, so that several are in flight at once.
    options = QUICK | {"batch_size_bytes": 1}
    producer = Producer(bootstrap_servers=broker.bootstrap_servers, **options)
    await producer.start()
    return producer


async def test_without_epoch_bump_the_producer_continues_after_a_certain_failure():
    async with Broker(as_of="1.1") as broker:
        producer = await old_producer(broker)
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"never")
        broker.on(ApiKey.PRODUCE, Answer(ErrorCode.INVALID_RECORD), times=1)
        await producer.send_many("t", [b"refused", b"never", b"never"])
        with pytest.raises(TransactionFailed):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_many("t", [b"v", b"w"])
        await producer.stop()
        assert await visible(broker) == [b"v", b"w"]


async def test_without_epoch_bump_an_unknown_outcome_fails_the_producer():
    async with Broker(as_of="1.1") as broker:
        producer = await old_producer(broker)
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"never")
        broker.on(ApiKey.PRODUCE, Answer(ErrorCode.UNKNOWN_SERVER_ERROR), times=1)
        delivery = await producer.send("t", b"unknown")
        with pytest.raises(DeliveryUnknown):
            await delivery
        with pytest.raises(KafkaError, match="create a new producer"):
            await producer.abort_transaction()
        with pytest.raises(KafkaError, match="create a new producer"):
            await producer.begin_transaction()
        await producer.stop()
        async with (
            Producer(bootstrap_servers=broker.bootstrap_servers, **QUICK) as another,
            another.transaction(),
        ):
            await another.send("t", b"v")
        assert await visible(broker) == [b"v"]


async def test_offsets_of_a_member_need_brokers_that_check_it():
    async with Broker(as_of="1.1") as broker:
        producer = await old_producer(broker)
        await producer.begin_transaction()
        with pytest.raises(TransactionFailed, match=r"before Kafka 2\.5") as failed:
            await producer.send_offsets_to_transaction({TP: 1}, GroupMetadata("g", 1, "member"))
        assert isinstance(failed.value.__cause__, UnsupportedVersion)
        await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({TP: 1}, GroupMetadata("g"))
        await producer.commit_transaction()
        await producer.stop()


# --- several tasks ---


async def test_send_offsets_raises_when_another_task_aborts(
    broker: Broker, new_producer: NewProducer
):
    broker.on(ApiKey.TXN_OFFSET_COMMIT, Answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    async with new_producer() as producer:
        await producer.begin_transaction()
        raised: list[KafkaError] = []

        async def send_offsets() -> None:
            try:
                await producer.send_offsets_to_transaction({TP: 1}, GroupMetadata("g"))
            except KafkaError as error:
                raised.append(error)

        async with anyio.create_task_group() as group:
            group.start_soon(send_offsets)
            await broker.wait_for_request(ApiKey.TXN_OFFSET_COMMIT)
            await producer.abort_transaction()
        assert [type(error) for error in raised] == [TransactionAborted]


async def test_committed_offsets_of_a_closed_consumer_are_ignored(
    broker: Broker, new_producer: NewProducer
):
    options = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    async with new_producer() as producer:
        async with producer.transaction():
            await producer.send("t", b"v", partition=0)
        consumer = Consumer("t", bootstrap_servers=broker.bootstrap_servers, **options)
        async with consumer:
            await consumer.getone()
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction(consumer)
        await producer.commit_transaction()
        async with producer.transaction():
            await producer.send("t", b"w", partition=0)
    assert await visible(broker) == [b"v", b"w"]


async def test_an_abort_that_timed_out_can_be_awaited_again(
    broker: Broker, new_producer: NewProducer
):
    async with new_producer(request_timeout_ms=300) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"never", partition=0)
        silent = broker.on(ApiKey.END_TXN, Drop())
        with (
            max_block(producer, 100),
            pytest.raises(RequestTimedOut, match="has not confirmed the abort"),
        ):
            await producer.abort_transaction()
        with pytest.raises(InvalidTxnState, match="being aborted"):
            await producer.commit_transaction()
        silent.remove()
        await producer.abort_transaction()
    assert await visible(broker) == []


async def test_the_next_transaction_waits_for_the_previous_markers(
    anyio_backend: object, release: str
):
    async with Broker(as_of=release, transaction_marker_delay_ms=60) as broker:
        await broker.create_topic("t", partitions=1)
        async with Producer(bootstrap_servers=broker.bootstrap_servers, **QUICK) as producer:
            for number in range(3):
                async with producer.transaction():
                    await producer.send("t", b"%d" % number)
                    await producer.send_offsets_to_transaction({TP: number}, GroupMetadata("g"))
        async with Consumer(
            bootstrap_servers=broker.bootstrap_servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        ) as consumer:
            consumer.assign(TP)
            assert [(await consumer.getone()).value for _ in range(3)] == [b"0", b"1", b"2"]


async def test_an_expired_in_flight_record_is_not_appended_after_the_abort(
    broker: Broker, new_producer: NewProducer, release: str
):
    landed = anyio.Event()

    def take(_: SeenRequest) -> None:
        landed.set()

    # The coordinator answers while the leader does not.
    leader = broker.leader("t", 0)
    name = next(f"id-{n}" for n in range(100) if broker.coordinator(f"id-{n}") != leader)
    options = {"delivery_timeout_ms": 300, "request_timeout_ms": 300}
    async with new_producer(transactional_id=name, **options) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"never", partition=0)
        # The record expires during the second attempt.
        broker.on(ApiKey.PRODUCE, Delay(0.2), times=2)
        broker.on(ApiKey.PRODUCE, Answer(ErrorCode.NOT_LEADER_OR_FOLLOWER), times=1)
        broker.on(ApiKey.PRODUCE, take, times=1)
        with pytest.raises(DeliveryUnknown):
            await producer.send_and_wait("t", b"never either", partition=0)
        await producer.abort_transaction()
        # With TV_0 the abort waits for requests in flight.
        assert landed.is_set() or release != RELEASE_TV_0
        await landed.wait()
        async with producer.transaction():
            await producer.send("t", b"v", partition=0)
    assert await visible(broker) == [b"v"]


async def test_a_late_response_of_an_ended_transaction_does_not_fail_the_producer(
    anyio_backend: object,
):
    aborting = anyio.Event()

    async def fence_late(_: SeenRequest) -> Answer:
        await aborting.wait()
        return Answer(ErrorCode.PRODUCER_FENCED)

    options = QUICK | {"request_timeout_ms": 10_000}
    async with (
        Broker(as_of="4.3") as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers, **options) as producer,
    ):
        await producer.partitions_for("t")
        broker.on(ApiKey.PRODUCE, fence_late, times=1)
        await producer.begin_transaction()
        await producer.send("t", b"never")
        await broker.wait_for_request(ApiKey.PRODUCE)
        async with anyio.create_task_group() as group:
            group.start_soon(producer.abort_transaction)
            await anyio.wait_all_tasks_blocked()
            aborting.set()
        # Its requests are answered after the abandoned one.
        async with producer.transaction():
            await producer.send("t", b"v")
        assert await visible(broker) == [b"v"]
