"""Observations of an embedded broker."""

from __future__ import annotations

import logging

import pytest

from aiokafkawire import Consumer, Producer, TopicPartition
from aiokafkawire.broker import Answer, Broker
from aiokafkawire.errors import KafkaError
from aiokafkawire.wire import ApiKey, ErrorCode
from verify.invariants.broker_observer import BrokerObserver, read_log

T0 = TopicPartition("t", 0)


async def test_a_log_is_read_with_the_fates_of_its_records() -> None:
    async with Broker() as broker:
        await broker.create_topic("t", partitions=2)
        servers = broker.bootstrap_servers
        async with Producer(bootstrap_servers=servers) as producer:
            await producer.send_and_wait("t", b"plain", partition=0)
        async with Producer(bootstrap_servers=servers, transactional_id="x") as producer:
            async with producer.transaction():
                await producer.send("t", b"committed", partition=0)
            await producer.begin_transaction()
            await (await producer.send("t", b"aborted", partition=0))
            await producer.abort_transaction()
            await producer.begin_transaction()
            await (await producer.send("t", b"open", partition=0))
            found = read_log(broker, "t", 0)
            assert [(each.value, each.fate) for each in found.records] == [
                (b"plain", "none"),
                (b"committed", "committed"),
                (b"aborted", "aborted"),
                (b"open", "open"),
            ]
            assert [each.offset for each in found.records] == [0, 1, 3, 5]
            assert (found.start_offset, found.end_offset) == (0, 6)
            assert read_log(broker, "t", 1).records == ()


async def test_what_a_group_did_is_seen() -> None:
    async with Broker() as broker:
        await broker.create_topic("t", partitions=1)
        watch = BrokerObserver(broker)
        servers = broker.bootstrap_servers
        async with Producer(bootstrap_servers=servers) as producer:
            await producer.send_and_wait("t", b"1")
        async with Consumer(
            "t",
            bootstrap_servers=servers,
            client_id="c",
            group_id="g",
            auto_offset_reset="earliest",
        ) as consumer:
            await consumer.getone()
            await consumer.commit()
            consumer.seek(T0, 50)
            await consumer.getmany(timeout_ms=200)
            await consumer.getone()
            assert watch.observed().members == (("g", "c"),)
        watch.topic_gone("t")
        await broker.delete_topic("t")
        await broker.create_topic("t", partitions=1)
        watch.end()
        seen = watch.observed()
    assert seen.assignments is not None
    assert seen.commits is not None
    assert seen.positions_lost is not None
    assert seen.generations is not None
    [assignment] = seen.assignments
    assert (assignment.client, assignment.group, assignment.partitions) == ("c", "g", (T0,))
    [generation] = seen.generations
    assert generation.members == ((assignment.member, (T0,)),)
    commit = seen.commits[0]
    assert (commit.client, commit.member) == ("c", assignment.member)
    assert (commit.generation, commit.offsets) == (assignment.generation, ((T0, 1),))
    assert commit.errors == (0,)
    assert commit.connected_at <= commit.at
    assert {(each.client, each.topic) for each in seen.positions_lost} == {("c", "t")}
    assert [(log.incarnation, len(log.records)) for log in seen.logs] == [(0, 1), (1, 0)]
    assert seen.members == ()
    [(client_id, joined_at)] = seen.joined
    assert client_id == "c"
    assert joined_at <= assignment.at
    assert seen.unreadable == ()
    assert seen.crashes == ()
    assert seen.rejected_requests == ()


async def test_what_brokers_take_for_a_mistake() -> None:
    async with Broker() as broker:
        await broker.create_topic("t", partitions=1)
        watch = BrokerObserver(broker)
        broker.on(ApiKey.PRODUCE, Answer(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), times=1)
        broker.on(ApiKey.INIT_PRODUCER_ID, Answer(ErrorCode.INVALID_REQUEST), times=1)
        servers = broker.bootstrap_servers
        async with Producer(bootstrap_servers=servers, client_id="p", acks=1) as producer:
            with pytest.raises(KafkaError):
                await producer.send_and_wait("t", b"1")
        with pytest.raises(KafkaError):
            async with Producer(bootstrap_servers=servers, client_id="q") as producer:
                await producer.send_and_wait("t", b"1")
        watch.end()
        rejected_requests = watch.observed().rejected_requests
    assert rejected_requests is not None
    assert [(each.client, each.api, each.code) for each in rejected_requests] == [
        ("p", "PRODUCE", ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ("q", "INIT_PRODUCER_ID", ErrorCode.INVALID_REQUEST),
    ]


async def test_a_topic_that_is_gone_keeps_its_name() -> None:
    async with Broker() as broker:
        await broker.create_topic("t", partitions=1)
        watch = BrokerObserver(broker)
        topic_id = broker._running.cluster.topics["t"].topic_id
        watch.topic_gone("t")
        await broker.delete_topic("t")
        assert watch._name(topic_id, "") == "t"
        assert watch._name(topic_id, "by name") == "by name"
        watch.end()


async def test_unreported_failures_are_seen(caplog: pytest.LogCaptureFixture) -> None:
    async with Broker() as broker:
        watch = BrokerObserver(broker)
        try:
            raise KeyError("k")
        except KeyError:
            logging.getLogger("aiokafkawire.x").exception("a task failed")
        logging.getLogger("aiokafkawire.x").warning("that happens")
        watch.end()
        logging.getLogger("aiokafkawire.x").warning("later")
        seen = watch.observed()
    assert seen.crashes == ("aiokafkawire.x: a task failed: KeyError('k')",)
    assert seen.log_lines is not None
    assert seen.log_lines[-1] == "aiokafkawire.x: that happens"


async def test_members_of_the_consumer_protocol_are_observed() -> None:
    async with Broker() as broker:
        await broker.create_topic("t", partitions=1)
        observer = BrokerObserver(broker)
        options = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "g"}
        async with Consumer("t", **options, client_id="c", group_protocol="consumer") as consumer:
            await broker.wait_for_request(ApiKey.OFFSET_FETCH)
            await consumer.commit({T0: 0})
            assert observer.observed().members == (("g", "c"),)
        observer.end()
        seen = observer.observed()
    assert seen.assignments is not None
    assert seen.commits is not None
    assert seen.removed is not None
    assignment = seen.assignments[0]
    assert (assignment.client, assignment.partitions) == ("c", (T0,))
    assert seen.commits[0].generation == assignment.generation
    # It joined with epoch 0, and left.
    assert [(each.client, each.group) for each in seen.removed] == [("c", "g")] * 2
    assert (seen.shared, seen.members) == ((), ())
    assert [client for client, _ in seen.joined] == ["c"]
