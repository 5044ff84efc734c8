"""Transactions of a producer on an embedded broker, on good days and bad."""

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
    """The APIs of transactions that were called, in their order."""
    ours = {
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.END_TXN,
    }
    return [seen.api_key for seen in broker.requests if seen.api_key in ours]


# --- good days --------------------------------------------------------------------------------


async def test_what_is_committed_is_seen_and_what_is_aborted_is_not(
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


async def test_each_protocol_asks_what_it_needs(
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


async def test_a_transaction_of_nothing_asks_nobody(broker: Broker, new_producer: NewProducer):
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
        # The consumer knows that they are committed.
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


async def test_offsets_may_be_given_as_they_are(broker: Broker, new_producer: NewProducer):
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


async def test_wrong_arguments_of_send_offsets_are_refused(
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


# --- calls out of order -----------------------------------------------------------------------


async def test_calls_out_of_order_say_what_is_the_matter(new_producer: NewProducer):
    async with new_producer() as producer:
        for call in (
            producer.commit_transaction,
            producer.abort_transaction,
            producer.detach_transaction,
        ):
            with pytest.raises(InvalidTxnState, match="no transaction is open: begin one"):
                await call()
        with pytest.raises(InvalidTxnState, match="a record is to be sent"):
            await producer.send("t", b"v")
        with pytest.raises(InvalidTxnState, match="a record is to be sent"):
            producer.send_nowait("t", b"v")
        with pytest.raises(InvalidTxnState, match="no transaction is open"):
            await producer.send_offsets_to_transaction({TP: 5}, GroupMetadata("g"))
        await producer.begin_transaction()
        with pytest.raises(InvalidTxnState, match="one is open already"):
            await producer.begin_transaction()
        await producer.commit_transaction()


async def test_without_a_name_there_are_no_transactions(new_producer: NewProducer):
    async with new_producer(transactional_id=None) as producer:
        with pytest.raises(InvalidTxnState, match="without a transactional_id"):
            await producer.begin_transaction()
        with pytest.raises(InvalidTxnState, match="without a transactional_id"):
            producer.transaction()


# --- errors -----------------------------------------------------------------------------------


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


async def test_records_of_an_aborted_transaction_say_so_and_are_told_once(
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


async def test_who_waits_for_a_record_hears_at_once_that_another_one_failed(
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


async def test_lost_sequence_numbers_cost_the_transaction_and_not_the_producer(
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


async def test_a_member_that_is_gone_fails_the_transaction(
    broker: Broker, new_producer: NewProducer
):
    async with new_producer() as producer:
        await producer.begin_transaction()
        with pytest.raises(TransactionFailed, match="not in that generation") as failed:
            await producer.send_offsets_to_transaction({TP: 5}, GroupMetadata("g", 3, "nobody"))
        assert isinstance(failed.value.__cause__, CommitFailed)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"v")
    assert await visible(broker) == [b"v"]


# --- fencing ----------------------------------------------------------------------------------


async def test_of_two_producers_of_one_name_the_older_is_fenced(
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


async def test_what_is_aborted_by_closing_may_have_been_aborted_by_a_newer_producer(
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


async def test_who_is_fenced_hears_it_from_every_call(broker: Broker, new_producer: NewProducer):
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


async def test_what_a_crashed_application_left_open_is_aborted_by_its_next_start(
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


# --- coordinators and leaders that move, stop or are silent ------------------------------------

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
    """A transaction that is aborted and one that is committed, with offsets."""
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
async def test_each_step_is_made_again(
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


async def test_a_leader_that_is_gone_holds_up_the_commit_and_not_more(
    broker: Broker, new_producer: NewProducer
):
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


# --- time -------------------------------------------------------------------------------------


async def test_a_commit_that_took_too_long_goes_on_and_can_be_asked_again(
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
            with pytest.raises(RequestTimedOut, match="the transaction before has not ended"):
                await producer.begin_transaction()
        silent.remove()
        await producer.commit_transaction()
        with pytest.raises(InvalidTxnState, match="no transaction is open"):
            await producer.commit_transaction()
        await producer.begin_transaction()
        await producer.abort_transaction()
    assert await visible(broker) == [b"v"]


async def test_each_who_waits_is_told_when_its_own_time_is_over(
    broker: Broker, new_producer: NewProducer
):
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


async def test_a_cancelled_commit_goes_on(broker: Broker, new_producer: NewProducer):
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


async def test_the_outcome_of_a_cancelled_commit_can_be_asked_for_later(
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
        # A reader is given what comes behind it when the coordinator has ended it.
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
            with pytest.raises(ProducerFenced, match="most likely for its age"):
                await producer.commit_transaction()
            return
        with pytest.raises(TransactionFailed):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"v", partition=0)
    assert await visible(broker) == [b"behind", b"v"]


async def test_a_timeout_over_the_brokers_limit_is_refused_as_it_is(new_producer: NewProducer):
    producer = new_producer(transaction_timeout_ms=2**31 - 1)
    with pytest.raises(BrokerError, match="INVALID_TRANSACTION_TIMEOUT") as refused:
        await producer.start()
    assert refused.value.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


async def test_no_coordinator_ends_the_start_in_time(broker: Broker, new_producer: NewProducer):
    broker.on(ApiKey.FIND_COORDINATOR, Answer(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    producer = new_producer(max_block_ms=1_200, request_timeout_ms=300)
    with pytest.raises(RequestTimedOut, match=r"no producer id was given.*COORDINATOR_NOT_AVAIL"):
        await producer.start()


async def test_too_old_a_broker_is_named(anyio_backend: object):
    async with Broker(as_of="0.10") as old:
        producer = Producer(bootstrap_servers=old.bootstrap_servers, **QUICK)
        with pytest.raises(
            UnsupportedVersion, match=r"of Kafka 0\.11 or later .*broker 1"
        ) as error:
            await producer.start()
    assert error.value.transactional_id == "id"


# --- the end ----------------------------------------------------------------------------------


async def test_closing_aborts_what_is_open(broker: Broker, new_producer: NewProducer):
    async with new_producer(linger_ms=10_000) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"never", partition=0)
        await producer.send("t", b"never", partition=1)
        await anyio.lowlevel.checkpoint()
    assert await visible(broker) == []


async def test_closing_ends_a_transaction_that_failed(broker: Broker, new_producer: NewProducer):
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


async def test_a_commit_during_which_another_task_aborts_does_not_end_as_if_committed(
    broker: Broker, new_producer: NewProducer
):
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


async def test_a_record_that_waited_does_not_come_into_a_later_transaction(
    broker: Broker, new_producer: NewProducer
):
    async with new_producer() as producer:
        refused = anyio.Event()

        async def late() -> None:
            with pytest.raises(InvalidTxnState, match="has ended meanwhile"):
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


async def test_a_commit_that_fails_unheard_is_told_by_the_next_begin_once(
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
        # Whoever aborts now does nothing wrong.
        await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        await producer.commit_transaction()
    assert await visible(broker) == [b"v"]


async def test_who_waits_for_a_commit_hears_that_the_producer_was_closed(
    broker: Broker, new_producer: NewProducer
):
    broker.on(ApiKey.END_TXN, Drop())
    producer = new_producer(close_timeout_ms=50)
    await producer.start()
    await producer.begin_transaction()
    await producer.send_and_wait("t", b"v", partition=0)
    heard: list[KafkaError] = []

    async def commit() -> None:
        try:
            await producer.commit_transaction()
        except KafkaError as error:
            heard.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(commit)
        await broker.wait_for_request(ApiKey.END_TXN)
        await producer.stop()
    assert [type(error) for error in heard] == [ClientClosed]


# --- releases that differ -----------------------------------------------------------------------


async def test_the_protocol_is_decided_anew_for_each_transaction(anyio_backend: object):
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
        # What was sent under the older protocol is fenced from the newer one's transactions.
        raised = broker.requests.of(ApiKey.INIT_PRODUCER_ID)[-1].message
        assert isinstance(raised, InitProducerIdRequest)
        assert raised.producer_id >= 0


async def test_a_node_that_does_not_know_the_features_yet_takes_part(anyio_backend: object):
    """As one does that has just started: its connections stay as long as any other."""
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
    told = RELEASES["4.3"].advertised
    return ApiVersionsResponse(
        error_code=0,
        api_keys=[
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in told.items()
        ],
    )


async def old_producer(broker: Broker) -> Producer:
    await broker.create_topic("t", partitions=1)
    # A batch for each record, so that several are under way at once.
    options = QUICK | {"batch_size_bytes": 1}
    producer = Producer(bootstrap_servers=broker.bootstrap_servers, **options)
    await producer.start()
    return producer


async def test_brokers_that_raise_no_epoch_go_on_after_what_surely_was_not_written():
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


async def test_brokers_that_raise_no_epoch_end_the_producer_after_what_stays_unknown():
    async with Broker(as_of="1.1") as broker:
        producer = await old_producer(broker)
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"never")
        broker.on(ApiKey.PRODUCE, Answer(ErrorCode.UNKNOWN_SERVER_ERROR), times=1)
        delivery = await producer.send("t", b"unknown")
        with pytest.raises(DeliveryUnknown):
            await delivery
        with pytest.raises(KafkaError, match="make a new producer"):
            await producer.abort_transaction()
        with pytest.raises(KafkaError, match="make a new producer"):
            await producer.begin_transaction()
        await producer.stop()
        async with (
            Producer(bootstrap_servers=broker.bootstrap_servers, **QUICK) as another,
            another.transaction(),
        ):
            await another.send("t", b"v")
        assert await visible(broker) == [b"v"]


async def test_old_brokers_cannot_check_the_member_and_say_so():
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


# --- several tasks --------------------------------------------------------------------------------


async def test_offsets_of_a_transaction_that_another_task_aborts(
    broker: Broker, new_producer: NewProducer
):
    broker.on(ApiKey.TXN_OFFSET_COMMIT, Answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    async with new_producer() as producer:
        await producer.begin_transaction()
        heard: list[KafkaError] = []

        async def send_offsets() -> None:
            try:
                await producer.send_offsets_to_transaction({TP: 1}, GroupMetadata("g"))
            except KafkaError as error:
                heard.append(error)

        async with anyio.create_task_group() as group:
            group.start_soon(send_offsets)
            await broker.wait_for_request(ApiKey.TXN_OFFSET_COMMIT)
            await producer.abort_transaction()
        assert [type(error) for error in heard] == [TransactionAborted]


async def test_a_consumer_that_was_closed_need_not_be_told(
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


async def test_an_abort_that_took_too_long_can_be_asked_again(
    broker: Broker, new_producer: NewProducer
):
    async with new_producer(request_timeout_ms=300) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"never", partition=0)
        silent = broker.on(ApiKey.END_TXN, Drop())
        with (
            max_block(producer, 100),
            pytest.raises(RequestTimedOut, match="has not answered to the abort"),
        ):
            await producer.abort_transaction()
        with pytest.raises(InvalidTxnState, match="being aborted"):
            await producer.commit_transaction()
        silent.remove()
        await producer.abort_transaction()
    assert await visible(broker) == []


async def test_the_next_transaction_waits_for_the_markers_of_the_one_before(
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


async def test_a_record_that_expired_under_way_does_not_come_behind_the_abort(
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
        # It expires during the second attempt.
        broker.on(ApiKey.PRODUCE, Delay(0.2), times=2)
        broker.on(ApiKey.PRODUCE, Answer(ErrorCode.NOT_LEADER_OR_FOLLOWER), times=1)
        broker.on(ApiKey.PRODUCE, take, times=1)
        with pytest.raises(DeliveryUnknown):
            await producer.send_and_wait("t", b"never either", partition=0)
        await producer.abort_transaction()
        # Where the end raises no epoch, what is under way has come to its end before it.
        assert landed.is_set() or release != RELEASE_TV_0
        await landed.wait()
        async with producer.transaction():
            await producer.send("t", b"v", partition=0)
    assert await visible(broker) == [b"v"]


async def test_an_answer_about_a_transaction_that_is_over_does_not_end_the_producer(
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
        # Its requests are answered after the one that was given up.
        async with producer.transaction():
            await producer.send("t", b"v")
        assert await visible(broker) == [b"v"]
