"""Producing under faults: nothing lost or duplicated, and a typed error where that is unknown."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import pytest

from aiokafkawire.broker import Answer, Broker, Close, Delay, Drop, SeenRequest
from aiokafkawire.errors import (
    BrokerError,
    BufferFull,
    DeliveriesFailed,
    DeliveryTimedOut,
    DeliveryUnknown,
    KafkaError,
)
from aiokafkawire.producer import Delivery, Producer
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages import produce
from tests.behaviour.support import WITHIN_S, numbered
from tests.elapsed import ends_within
from tests.faults.support import IMPATIENT, stored

pytestmark = pytest.mark.slow

NewTopic = Callable[..., Awaitable[str]]

SHORT = IMPATIENT | {"delivery_timeout_ms": 1_200, "close_timeout_ms": 300}


def producer_on(broker: Broker, **options: object) -> Producer:
    return Producer(bootstrap_servers=broker.bootstrap_servers, **(IMPATIENT | options))


@pytest.mark.parametrize("carried_out", [True, False])
async def test_a_dropped_answer_is_asked_for_again(broker: Broker, topic: str, carried_out: bool):
    fault = broker.on(ApiKey.PRODUCE, Drop(carried_out=carried_out), times=1)
    async with producer_on(broker) as producer:
        assert (await producer.send_and_wait(topic, b"once")).offset == 0
    assert fault.hits == 1
    assert await stored(broker.bootstrap_servers, topic) == [b"once"]


@pytest.mark.parametrize("carried_out", [True, False])
async def test_connections_that_close_instead_of_answers_cost_nothing(
    broker: Broker, topic: str, carried_out: bool
):
    fault = broker.on(ApiKey.PRODUCE, Close(carried_out=carried_out), times=5)
    async with producer_on(broker, batch_size_bytes=100, linger_ms=0) as producer:
        deliveries = [await producer.send(topic, value) for value in numbered(100)]
        offsets = [(await delivery).offset for delivery in deliveries]
    assert fault.hits == 5
    assert offsets == list(range(100))
    assert await stored(broker.bootstrap_servers, topic) == numbered(100)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
async def test_retriable_errors_are_retried(broker: Broker, topic: str, code: ErrorCode):
    fault = broker.on(ApiKey.PRODUCE, Answer(code), times=2)
    async with producer_on(broker) as producer:
        assert (await producer.send_and_wait(topic, b"value")).offset == 0
    assert fault.hits == 2
    assert await stored(broker.bootstrap_servers, topic) == [b"value"]


async def test_errors_in_the_middle_of_a_stream_do_not_disturb_its_order(
    broker: Broker, topic: str
):
    async with producer_on(broker, batch_size_bytes=60, linger_ms=0) as producer:
        await producer.send_and_wait(topic, numbered(1)[0])
        for number, value in enumerate(numbered(200, start=1)):
            if number % 20 == 0:
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                broker.on(ApiKey.PRODUCE, Answer(code), times=1)
            await producer.send(topic, value)
    assert await stored(broker.bootstrap_servers, topic) == numbered(201)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ],
)
async def test_other_errors_fail_the_delivery_at_once(broker: Broker, topic: str, code: ErrorCode):
    broker.on(ApiKey.PRODUCE, Answer(code), times=1)
    async with producer_on(broker) as producer:
        with ends_within(5), pytest.raises(BrokerError) as caught:
            await producer.send_and_wait(topic, b"refused")
        assert caught.value.code == code
        assert (caught.value.topic, caught.value.partition) == (topic, 0)
        assert not caught.value.retriable
        assert (await producer.send_and_wait(topic, b"accepted")).offset == 0
    assert await stored(broker.bootstrap_servers, topic) == [b"accepted"]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    ],
)
async def test_a_broker_that_forgot_the_sequence_gets_a_new_epoch(
    broker: Broker, topic: str, code: ErrorCode
):
    async with producer_on(broker, batch_size_bytes=60, linger_ms=0) as producer:
        for value in numbered(20):
            await producer.send_and_wait(topic, value)
        fault = broker.on(ApiKey.PRODUCE, Answer(code), times=1)
        for value in numbered(20, start=20):
            await producer.send(topic, value)
        await producer.flush()
        assert fault.hits == 1
    assert await stored(broker.bootstrap_servers, topic) == numbered(40)


@pytest.mark.parametrize("code", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE])
async def test_a_batch_that_is_refused_for_its_size_is_split_in_order(
    broker: Broker, topic: str, code: ErrorCode
):
    async with producer_on(broker, linger_ms=5_000) as producer:
        await producer.send(topic, numbered(1)[0])
        await producer.flush()
        fault = broker.on(ApiKey.PRODUCE, Answer(code), times=3)
        deliveries = [await producer.send(topic, value) for value in numbered(20, start=1)]
        await producer.flush()
        assert fault.hits == 3
        assert [(await delivery).offset for delivery in deliveries] == list(range(1, 21))
        metrics = producer.metrics()
        assert metrics["batches_split_total"] == 3
        assert metrics["epochs_raised_total"] == 0
    assert await stored(broker.bootstrap_servers, topic) == numbered(21)


async def test_a_duplicate_is_a_success(broker: Broker, topic: str):
    async with producer_on(broker) as producer:
        broker.on(ApiKey.PRODUCE, Answer(ErrorCode.DUPLICATE_SEQUENCE_NUMBER), times=1)
        assert (await producer.send_and_wait(topic, b"again")).offset == -1


async def test_a_leader_that_is_named_is_asked_at_once(broker: Broker, topic: str):
    # Metadata is asked for after the first loss; waiting for it would take a minute.
    patient = {"retry_backoff_ms": 60_000, "retry_backoff_max_ms": 60_000}
    async with producer_on(broker, **patient) as producer:
        await producer.send_and_wait(topic, b"first")
        for number in range(4):
            broker.move_leader(topic, 0, broker.leader(topic, 0) % 3 + 1)
            with ends_within(5):
                assert (await producer.send_and_wait(topic, b"%d" % number)).offset == number + 1


async def test_a_fenced_leader_epoch_brings_the_new_leader(broker: Broker, topic: str):
    old = broker.leader(topic, 0)
    new = old % 3 + 1

    def fenced(seen: SeenRequest) -> produce.ProduceResponse:
        (topic_data,) = seen.message.topic_data
        partition = produce.PartitionProduceResponse(
            index=0,
            error_code=ErrorCode.FENCED_LEADER_EPOCH,
            base_offset=-1,
            current_leader=produce.LeaderIdAndEpoch(leader_id=new, leader_epoch=100),
        )
        topic = produce.TopicProduceResponse(
            name=topic_data.name, topic_id=topic_data.topic_id, partition_responses=[partition]
        )
        return produce.ProduceResponse(responses=[topic])

    async with producer_on(
        broker, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000
    ) as producer:
        await producer.partitions_for(topic)
        broker.on(ApiKey.PRODUCE, fenced, times=1)
        broker.move_leader(topic, 0, new)
        with ends_within(5):
            assert (await producer.send_and_wait(topic, b"v")).offset == 0
    assert [seen.node_id for seen in broker.requests.of(ApiKey.PRODUCE)] == [old, new]


async def test_no_answer_until_the_deadline_leaves_the_outcome_unknown(broker: Broker, topic: str):
    async with Producer(bootstrap_servers=broker.bootstrap_servers, **SHORT) as producer:
        fault = broker.on(ApiKey.PRODUCE, Drop(carried_out=True))
        with ends_within(4), pytest.raises(DeliveryUnknown) as caught:
            await producer.send_and_wait(topic, b"who knows")
        assert (caught.value.topic, caught.value.partition) == (topic, 0)
        assert not caught.value.retriable
        fault.remove()
        # The next record has a new epoch: it is neither rejected nor taken for a duplicate.
        assert (await producer.send_and_wait(topic, b"after")).offset == 1
    assert await stored(broker.bootstrap_servers, topic) == [b"who knows", b"after"]


async def test_after_an_unknown_outcome_other_partitions_go_on(broker: Broker, new_topic: NewTopic):
    topic = await new_topic(partitions=3)
    async with Producer(
        bootstrap_servers=broker.bootstrap_servers, linger_ms=0, **SHORT
    ) as producer:
        for partition in range(3):
            await producer.send_and_wait(topic, b"first", partition=partition)
        node = broker.leader(topic, 0)
        fault = broker.on(ApiKey.PRODUCE, Drop(carried_out=True), node=node)
        lost = await producer.send(topic, b"unknown", partition=0)
        for value in numbered(50):
            await producer.send_and_wait(topic, value, partition=1)
        with pytest.raises(DeliveryUnknown):
            await lost
        fault.remove()
        for partition in range(3):
            await producer.send_and_wait(topic, b"last", partition=partition)
    values = await stored(broker.bootstrap_servers, topic, 3)
    assert values == [
        *(b"first", b"unknown", b"last"),
        *(b"first", *numbered(50), b"last"),
        *(b"first", b"last"),
    ]


async def test_a_record_that_no_broker_ever_got_has_timed_out(broker: Broker, topic: str):
    async with Producer(bootstrap_servers=broker.bootstrap_servers, **SHORT) as producer:
        await producer.send_and_wait(topic, b"first")
        for node in (1, 2, 3):
            await broker.kill(node)
        with ends_within(4), pytest.raises(DeliveryTimedOut) as caught:
            await producer.send_and_wait(topic, b"never sent")
        assert caught.value.topic == topic
        for node in (1, 2, 3):
            await broker.restart(node)
        with anyio.fail_after(WITHIN_S):
            await producer.send_and_wait(topic, b"second")
    assert await stored(broker.bootstrap_servers, topic) == [b"first", b"second"]


async def test_a_hanging_broker_ends_every_call_by_its_deadline(broker: Broker, topic: str):
    async with Producer(
        bootstrap_servers=broker.bootstrap_servers,
        **(SHORT | {"buffer_memory_bytes": 20_000, "max_block_ms": 400}),
    ) as producer:
        await producer.send_and_wait(topic, b"first")
        for node in (1, 2, 3):
            broker.pause(node)
        deliveries: list[Delivery] = []

        async def fill_up() -> None:
            while len(deliveries) < 1_000:
                deliveries.append(await producer.send(topic, b"x" * 1_000))

        with ends_within(5):
            with pytest.raises(BufferFull):
                await fill_up()
            assert len(deliveries) >= 10
            for delivery in deliveries:
                with pytest.raises((DeliveryUnknown, DeliveryTimedOut)):
                    await delivery
        for node in (1, 2, 3):
            broker.resume(node)


async def test_leaving_ends_by_the_close_timeout_when_nothing_answers(broker: Broker, topic: str):
    producer = Producer(
        bootstrap_servers=broker.bootstrap_servers, **(IMPATIENT | {"close_timeout_ms": 300})
    )

    async def send_and_leave() -> None:
        async with producer:
            await producer.send_and_wait(topic, b"first")
            for node in (1, 2, 3):
                broker.pause(node)
            await producer.send(topic, b"cannot be delivered")

    with ends_within(4), pytest.raises(DeliveriesFailed) as caught:
        await send_and_leave()
    assert caught.value.count == 1
    assert isinstance(caught.value.first, KafkaError)


async def test_flush_may_be_cancelled_and_nothing_is_lost(broker: Broker, topic: str):
    broker.on(ApiKey.PRODUCE, Delay(0.2), times=1)
    async with producer_on(broker) as producer:
        await producer.send(topic, b"slow")
        with anyio.move_on_after(0.05) as scope:
            await producer.flush()
        assert scope.cancelled_caught
        await producer.flush()
    assert await stored(broker.bootstrap_servers, topic) == [b"slow"]


async def test_a_cancelled_send_in_flight_is_neither_lost_nor_repeated(broker: Broker, topic: str):
    broker.on(ApiKey.PRODUCE, Delay(0.2), times=1)
    async with producer_on(broker, linger_ms=0) as producer:
        async with anyio.create_task_group() as group:
            group.start_soon(producer.send_and_wait, topic, b"cancelled")
            await broker.wait_for_request(ApiKey.PRODUCE)
            group.cancel_scope.cancel()
        await producer.send_and_wait(topic, b"next")
    assert await stored(broker.bootstrap_servers, topic) == [b"cancelled", b"next"]


async def test_leaders_that_move_while_producing(broker: Broker, new_topic: NewTopic):
    topic = await new_topic(partitions=2)
    async with producer_on(broker, batch_size_bytes=100, linger_ms=0) as producer:
        for number, value in enumerate(numbered(400)):
            await producer.send(topic, value, partition=number % 2)
            if number % 40 == 20:
                leader = broker.leader(topic, 0)
                broker.move_leader(topic, 0, leader % 3 + 1)
    values = await stored(broker.bootstrap_servers, topic, 2)
    assert values == numbered(400)[0::2] + numbered(400)[1::2]


@pytest.mark.parametrize("idempotent", [True, False])
async def test_nodes_that_die_and_come_back_while_producing(
    broker: Broker, new_topic: NewTopic, idempotent: bool
):
    topic = await new_topic(partitions=3)
    options = {} if idempotent else {"enable_idempotence": False}
    async with producer_on(broker, batch_size_bytes=100, linger_ms=0, **options) as producer:
        with anyio.fail_after(WITHIN_S):
            for number, value in enumerate(numbered(900)):
                await producer.send(topic, value, partition=number % 3)
                if number % 300 == 100:
                    await broker.kill(number // 300 + 1)
                elif number % 300 == 200:
                    await broker.restart(number // 300 + 1)
            await producer.flush()
    values = await stored(broker.bootstrap_servers, topic, 3)
    wanted = [value for partition in range(3) for value in numbered(900)[partition::3]]
    if idempotent:
        assert values == wanted
    else:
        assert set(values) == set(wanted)


async def test_all_nodes_down_and_back_while_producing(broker: Broker, topic: str):
    async with producer_on(broker, batch_size_bytes=100, linger_ms=0) as producer:
        await producer.send_and_wait(topic, numbered(1)[0])
        for node in (1, 2, 3):
            await broker.kill(node)
        deliveries = [await producer.send(topic, value) for value in numbered(50, start=1)]
        for node in (1, 2, 3):
            await broker.restart(node)
        with anyio.fail_after(WITHIN_S):
            offsets = [(await delivery).offset for delivery in deliveries]
    assert offsets == list(range(1, 51))
    assert await stored(broker.bootstrap_servers, topic) == numbered(51)


async def test_nodes_last_known_as_down_are_found_when_only_they_are_up(broker: Broker, topic: str):
    async with producer_on(broker, linger_ms=0) as producer:
        await producer.send_and_wait(topic, b"first")
        for node in (2, 3):
            await broker.kill(node)
        # Metadata contains live nodes only: from now on the producer knows of one.
        broker.on(ApiKey.PRODUCE, Answer(ErrorCode.NOT_LEADER_OR_FOLLOWER), times=1)
        await producer.send_and_wait(topic, b"second")
        for node in (2, 3):
            await broker.restart(node)
        await broker.kill(1)
        with anyio.fail_after(WITHIN_S):
            await producer.send_and_wait(topic, b"third")
    assert await stored(broker.bootstrap_servers, topic) == [b"first", b"second", b"third"]


async def test_a_producer_id_that_is_not_given_at_once(broker: Broker, topic: str):
    fault = broker.on(
        ApiKey.INIT_PRODUCER_ID, Answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), times=3
    )
    async with producer_on(broker) as producer:
        assert (await producer.send_and_wait(topic, b"value")).offset == 0
    assert fault.hits == 3


async def test_without_acknowledgement_a_restart_does_not_stop_the_producer(
    broker: Broker, topic: str
):
    async with producer_on(broker, acks=0, linger_ms=0) as producer:
        # Records in flight to a dead node are lost: they were not acknowledged.
        await producer.send_and_wait(topic, b"maybe lost")
        await broker.restart(broker.leader(topic, 0))
        with anyio.fail_after(WITHIN_S):
            while b"again" not in await stored(broker.bootstrap_servers, topic):
                receipt = await producer.send_and_wait(topic, b"again")
                assert receipt.offset == -1


async def test_slow_answers_keep_up_to_five_requests_in_flight_and_the_order(
    broker: Broker, topic: str
):
    broker.on(ApiKey.PRODUCE, Delay(0.01))
    async with producer_on(broker, batch_size_bytes=60, linger_ms=0) as producer:
        for value in numbered(60):
            await producer.send(topic, value)
    assert await stored(broker.bootstrap_servers, topic) == numbered(60)


async def test_a_request_that_the_broker_closes_the_connection_on_is_given_up(
    broker: Broker,
):
    topic = "large"
    await broker.create_topic(topic, partitions=3, configs={"max.message.bytes": "8000000"})
    for partition in range(3):
        broker.move_leader(topic, partition, 1)

    def too_large(seen: SeenRequest) -> Close | None:
        sizes = [len(p.records) for t in seen.message.topic_data for p in t.partition_data]
        return Close() if sum(sizes) > 2_000_000 else None

    fault = broker.on(ApiKey.PRODUCE, too_large)
    async with producer_on(
        broker, max_request_size_bytes=8_000_000, batch_size_bytes=4_000_000, linger_ms=100
    ) as producer:
        # Together they are too large; alone only one of them is.
        sizes = (1_200_000, 3_000_000, 1_200_000)
        deliveries = [
            await producer.send(topic, b"x" * size, partition=partition)
            for partition, size in enumerate(sizes)
        ]
        with ends_within(WITHIN_S):
            with pytest.raises(DeliveryUnknown, match=r"socket\.request\.max\.bytes") as caught:
                await deliveries[1]
            assert "3000" in str(caught.value)
            for partition in (0, 2):
                assert (await deliveries[partition]).offset == 0
        assert fault.hits < 12
        assert (await producer.send_and_wait(topic, b"small", partition=1)).offset == 0


async def test_leaving_names_what_could_not_be_sent(broker: Broker, new_topic: NewTopic):
    topic = await new_topic(partitions=3)

    async def send_and_leave() -> None:
        async with producer_on(broker, close_timeout_ms=200) as producer:
            await producer.send_and_wait(topic, b"first", partition=0)
            for node in (1, 2, 3):
                await broker.kill(node)
            for partition, count in ((0, 2), (2, 3)):
                for _ in range(count):
                    await producer.send(topic, b"v", partition=partition)

    with ends_within(5), pytest.raises(DeliveriesFailed) as caught:
        await send_and_leave()
    assert caught.value.counts == {(topic, 0): 2, (topic, 2): 3}
    assert f"2 of {topic}-0, 3 of {topic}-2" in str(caught.value)


async def test_an_idle_producer_knows_the_new_leader_before_it_sends(broker: Broker, topic: str):
    async with producer_on(broker) as producer:
        await producer.send_and_wait(topic, b"first")
        old = broker.leader(topic, 0)
        cluster = producer._lifecycle.session.cluster
        await broker.kill(old)
        with anyio.fail_after(WITHIN_S):
            while cluster.metadata.leader(TopicPartition(topic, 0))[0] == old:
                await cluster.wait_update(cluster.metadata.version, anyio.current_time() + 20)
        broker.requests.clear()
        await producer.send_and_wait(topic, b"second")
        assert len(broker.requests.of(ApiKey.PRODUCE)) == 1


async def test_keyless_records_pass_over_a_broker_that_takes_nothing(
    broker: Broker, new_topic: NewTopic
):
    topic = await new_topic(partitions=3)
    for partition in range(3):
        broker.move_leader(topic, partition, partition + 1)
    async with producer_on(
        broker,
        request_timeout_ms=10_000,
        linger_ms=0,
        batch_size_bytes=200,
        max_in_flight_requests_per_connection=1,
        partitioner_availability_timeout_ms=30_000,
    ) as producer:
        await producer.send_and_wait(topic, b"v", partition=0)
        broker.pause(1)
        for _ in range(2):  # one is in flight, one waits
            await producer.send(topic, b"x" * 200, partition=0)
        accumulator = producer._lifecycle.session.sender.accumulator
        queue = accumulator.topics[topic].by_partition[0]
        with anyio.fail_after(WITHIN_S):
            while not queue.in_flight:
                await anyio.lowlevel.checkpoint()
        # As if that were long ago.
        accumulator._drained_at[1] -= 60
        queue.waiting[0].linger_until -= 60
        deliveries = [await producer.send(topic, b"x" * 200) for _ in range(60)]
        for delivery in deliveries:
            assert (await delivery).partition in {1, 2}
        broker.resume(1)


async def test_an_idle_topic_leaves_the_metadata_requests_and_can_be_used_again(
    broker: Broker, topic: str, new_topic: NewTopic
):
    other = await new_topic()
    async with producer_on(broker) as producer:
        for name in (topic, other):
            await producer.send_and_wait(name, b"first")
        session = producer._lifecycle.session
        session.sender.accumulator.topics[topic].last_used_at -= 1_000
        for _ in range(2):
            session.cluster.request_update()
            deadline = anyio.current_time() + WITHIN_S
            assert await session.cluster.wait_update(session.cluster.metadata.version, deadline)
        assert set(session.cluster.metadata.topics) == {other}
        assert (await producer.send_and_wait(topic, b"second")).offset == 1
        assert producer.metrics()["epochs_raised_total"] == 0
    assert await stored(broker.bootstrap_servers, topic) == [b"first", b"second"]


async def test_a_lasting_condition_is_logged_once_and_once_when_it_ends(
    broker: Broker, topic: str, caplog: pytest.LogCaptureFixture
):
    broker.on(ApiKey.INIT_PRODUCER_ID, Answer(ErrorCode.NOT_COORDINATOR), times=12)
    with caplog.at_level("INFO"):
        async with producer_on(broker, client_id="mine") as producer:
            with anyio.fail_after(WITHIN_S):
                await producer.send_and_wait(topic, b"v")
    topic_data = [record.getMessage() for record in caplog.records]
    assert len([text for text in topic_data if "no producer id yet" in text]) == 1
    assert "broker" in next(text for text in topic_data if "no producer id yet" in text)
    assert any(text.startswith("producer mine: producer id ") for text in topic_data)
