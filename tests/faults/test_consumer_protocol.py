"""Members of the consumer protocol (KIP-848) under faults and errors of the coordinator."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
import pytest

from aiokafkawire.admin import Admin
from aiokafkawire.broker import Acl, Answer, Broker, Close, Delay, SeenRequest
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import (
    AuthorizationFailed,
    GroupFailed,
    UnknownServerError,
    UnsupportedVersion,
)
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ApiKey, ErrorCode
from tests.behaviour.support import WITHIN_S, committed, fill, numbered, poll_until, take
from tests.faults.support import IMPATIENT

pytestmark = pytest.mark.slow

NewTopic = Callable[..., Awaitable[str]]

HEARTBEAT = ApiKey.CONSUMER_GROUP_HEARTBEAT

MEMBER: dict[str, Any] = IMPATIENT | {
    "group_protocol": "consumer",
    "auto_offset_reset": "earliest",
    "fetch_max_wait_ms": 50,
    "enable_auto_commit": False,
}


@pytest.fixture
async def broker(anyio_backend: object) -> AsyncIterator[Broker]:
    """Three nodes with short heartbeat intervals."""
    async with Broker(
        nodes=3,
        group_consumer_min_heartbeat_interval_ms=50,
        group_consumer_heartbeat_interval_ms=50,
        group_consumer_assignment_interval_ms=0,
    ) as broker:
        yield broker


def member(broker: Broker, topic: str, group_id: str, **options: Any) -> Consumer:
    return Consumer(
        topic, bootstrap_servers=broker.bootstrap_servers, group_id=group_id, **(MEMBER | options)
    )


def heartbeats(broker: Broker) -> list[Any]:
    return [seen.message for seen in broker.requests.of(HEARTBEAT)]


# --- committed offsets ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code", [ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID], ids=lambda code: code.name
)
async def test_a_refused_epoch_never_resets_a_position(
    broker: Broker, topic: str, group_id: str, code: ErrorCode
):
    await fill(broker.bootstrap_servers, topic, numbered(10))
    async with member(broker, topic, group_id) as consumer:
        await take(consumer, 4)
        await consumer.commit({TopicPartition(topic, 0): 4})
    fault = broker.on(ApiKey.OFFSET_FETCH, Answer(code), times=3)
    async with member(broker, topic, group_id, auto_offset_reset="latest") as consumer:
        records = await take(consumer, 6)
    assert [record.offset for record in records] == [4, 5, 6, 7, 8, 9]
    assert fault.hits == 3


async def test_committed_offsets_are_fetched_with_the_epoch_of_the_member(
    broker: Broker, topic: str, group_id: str
):
    await fill(broker.bootstrap_servers, topic, numbered(1))
    async with member(broker, topic, group_id) as consumer:
        await take(consumer, 1)
    joined = heartbeats(broker)[0]
    [fetched, *_] = broker.requests.of(ApiKey.OFFSET_FETCH)
    assert fetched.version >= 9
    [group] = fetched.message.groups
    assert (group.member_id, group.member_epoch > 0) == (joined.member_id, True)


async def test_a_commit_with_a_stale_epoch_is_sent_again_with_the_next_one(
    broker: Broker, topic: str, group_id: str
):
    await fill(broker.bootstrap_servers, topic, numbered(3))
    async with member(broker, topic, group_id) as consumer:
        await take(consumer, 3)
        fault = broker.on(ApiKey.OFFSET_COMMIT, Answer(ErrorCode.STALE_MEMBER_EPOCH), times=2)
        with anyio.fail_after(WITHIN_S):
            await consumer.commit()
        assert fault.hits == 2
        assert await committed(consumer, TopicPartition(topic, 0)) == 3


# --- the protocol is not available ------------------------------------------------------------


def fallbacks(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for text in caplog.messages if "using the classic protocol" in text]


@pytest.mark.parametrize("code", ["UNSUPPORTED_VERSION", "GROUP_ID_NOT_FOUND"])
async def test_auto_falls_back_once_when_the_coordinator_refuses(
    broker: Broker, topic: str, group_id: str, code: str, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, "aiokafkawire")
    await fill(broker.bootstrap_servers, topic, numbered(3))
    fault = broker.on(HEARTBEAT, Answer(ErrorCode[code]))
    async with member(broker, topic, group_id, group_protocol="auto") as consumer:
        assert len(await take(consumer, 3)) == 3
        assert consumer.metrics()['group_protocol{protocol="classic"}'] == 1
    assert fault.hits == 1
    assert len(fallbacks(caplog)) == 1


@pytest.mark.parametrize("connect_on_start", [True, False])
async def test_auto_asks_no_coordinator_that_lacks_the_feature(
    group_id: str, connect_on_start: bool, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, "aiokafkawire")
    async with Broker(as_of="3.9") as broker:
        await broker.create_topic("orders")
        await fill(broker.bootstrap_servers, "orders", numbered(3))
        async with member(
            broker,
            "orders",
            group_id,
            group_protocol="auto",
            connect_on_start=connect_on_start,
        ) as consumer:
            assert len(await take(consumer, 3)) == 3
        assert not heartbeats(broker)
    assert len(fallbacks(caplog)) == 1


async def test_auto_does_not_fall_back_after_a_join(broker: Broker, topic: str, group_id: str):
    async with member(broker, topic, group_id, group_protocol="auto") as consumer:
        await poll_until(consumer, lambda: bool(consumer.assignment()))
        assert consumer.metrics()['group_protocol{protocol="consumer"}'] == 1
        broker.on(HEARTBEAT, Answer(ErrorCode.UNSUPPORTED_VERSION), times=1)
        with anyio.fail_after(WITHIN_S), pytest.raises(UnsupportedVersion):
            await consumer.getone()
        # The error was raised: the next call joins again.
        await poll_until(consumer, lambda: bool(consumer.assignment()))
        assert consumer.metrics()['group_protocol{protocol="consumer"}'] == 1


async def test_auto_joins_a_classic_group_that_the_coordinator_does_not_convert(group_id: str):
    async with Broker(group_consumer_migration_policy="disabled") as broker:
        await broker.create_topic("orders", partitions=2)
        classic = member(broker, "orders", group_id, group_protocol="classic")
        auto = member(broker, "orders", group_id, group_protocol="auto")
        async with classic, auto:
            await poll_until(classic, lambda: bool(classic.assignment()))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(poll_until, classic, lambda: len(classic.assignment()) == 1)
                await poll_until(auto, lambda: len(auto.assignment()) == 1)


# --- errors -----------------------------------------------------------------------------------


REFUSALS: dict[ErrorCode, tuple[type[Exception], str]] = {
    ErrorCode.UNSUPPORTED_VERSION: (UnsupportedVersion, r"Kafka 4\.0.*'classic' or 'auto'"),
    ErrorCode.GROUP_ID_NOT_FOUND: (GroupFailed, "another type.*use another group_id"),
    ErrorCode.UNSUPPORTED_ASSIGNOR: (GroupFailed, "group_remote_assignor"),
    ErrorCode.INVALID_REGULAR_EXPRESSION: (GroupFailed, "pattern"),
    ErrorCode.GROUP_MAX_SIZE_REACHED: (GroupFailed, r"group\.consumer\.max\.size"),
    ErrorCode.INVALID_REQUEST: (GroupFailed, "refused the heartbeat"),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (AuthorizationFailed, "lacks Read on the group"),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (AuthorizationFailed, "lacks Describe on the topic"),
}
"""Type of the error, and its advice."""


@pytest.mark.parametrize("code", REFUSALS, ids=lambda code: code.name)
async def test_errors_that_do_not_pass_are_raised_at_once(
    broker: Broker, topic: str, group_id: str, code: ErrorCode
):
    kind, advice = REFUSALS[code]
    broker.on(HEARTBEAT, Answer(code))
    async with member(broker, topic, group_id) as consumer:
        with anyio.fail_after(WITHIN_S), pytest.raises(kind, match=advice) as caught:
            await consumer.getone()
        assert type(caught.value) is kind
        assert group_id in str(caught.value)


async def test_permissions_that_are_missing_and_granted(group_id: str):
    reader = Acl("User:ANONYMOUS", "Read", topic="orders")
    others = [Acl("User:ANONYMOUS", "Read", topic="secret").binding]
    group = Acl("User:ANONYMOUS", "Read", group=group_id).binding
    setup = [Acl("User:ANONYMOUS", each, cluster=True) for each in ("Alter", "Describe")]
    async with Broker(
        acls=[reader, *setup],
        group_consumer_heartbeat_interval_ms=50,
    ) as broker:
        for topic in ("orders", "secret"):
            await broker.create_topic(topic)
        async with (
            Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
            member(broker, "orders", group_id) as consumer,
        ):
            with anyio.fail_after(WITHIN_S), pytest.raises(AuthorizationFailed, match="group"):
                await consumer.getone()
            await admin.create_acls([group])
            await poll_until(consumer, lambda: bool(consumer.assignment()))
            consumer.subscribe(["orders", "secret"])
            with anyio.fail_after(WITHIN_S), pytest.raises(AuthorizationFailed, match="secret"):
                await consumer.getone()
            assert len(consumer.assignment()) == 1
            await admin.create_acls(others)
            with anyio.fail_after(WITHIN_S):
                while len(consumer.assignment()) != 2:
                    with contextlib.suppress(AuthorizationFailed):
                        await consumer.getmany(timeout_ms=100)


async def test_a_topic_that_becomes_visible_is_read_without_a_new_consumer(
    broker: Broker, topic: str, group_id: str
):
    await fill(broker.bootstrap_servers, topic, numbered(3))
    fault = broker.on(HEARTBEAT, Answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    async with member(broker, topic, group_id) as consumer:
        with anyio.fail_after(WITHIN_S):
            for _ in range(3):
                with pytest.raises(AuthorizationFailed, match=topic):
                    await consumer.getone()
        fault.remove()
        # The last refusal may not have been raised yet.
        with contextlib.suppress(AuthorizationFailed):
            await consumer.getmany(timeout_ms=500, max_records=1)
        assert consumer.assignment()


async def test_a_member_that_subscribes_to_an_invisible_topic_keeps_its_partitions(
    broker: Broker, topic: str, group_id: str
):
    await fill(broker.bootstrap_servers, topic, numbered(3))

    def refuse_secret(seen: SeenRequest) -> Answer | None:
        names = getattr(seen.message, "subscribed_topic_names", None) or ()
        return Answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED) if "secret" in names else None

    async with member(broker, topic, group_id) as consumer:
        await take(consumer, 3)
        broker.on(HEARTBEAT, refuse_secret)
        consumer.subscribe([topic, "secret"])
        with anyio.fail_after(WITHIN_S), pytest.raises(AuthorizationFailed, match="secret"):
            await consumer.getone()
        consumer.subscribe([topic])
        await fill(broker.bootstrap_servers, topic, [b"next"])
        assert [record.value for record in await take(consumer, 1)] == [b"next"]
        assert [each.member_epoch for each in heartbeats(broker)].count(0) == 1


async def test_an_unknown_server_error_is_raised_after_the_api_timeout(
    broker: Broker, topic: str, group_id: str, caplog: pytest.LogCaptureFixture
):
    broker.on(HEARTBEAT, Answer(ErrorCode.UNKNOWN_SERVER_ERROR))
    async with member(broker, topic, group_id, default_api_timeout_ms=1_000) as consumer:
        with anyio.fail_after(WITHIN_S), pytest.raises(UnknownServerError) as caught:
            await consumer.getone()
        assert caught.value.api == "ConsumerGroupHeartbeat"
    [logged] = [text for text in caplog.messages if "heartbeat failed" in text]
    assert "retrying for up to 1 s" in logged
    assert "broker" in logged


# --- leaving and static members ---------------------------------------------------------------


async def test_a_static_member_whose_join_response_is_lost_joins_at_once(
    broker: Broker, topic: str, group_id: str
):
    await fill(broker.bootstrap_servers, topic, numbered(3))
    fault = broker.on(HEARTBEAT, Close(carried_out=True), times=1)
    async with member(broker, topic, group_id, group_instance_id="a") as consumer:
        with anyio.fail_after(WITHIN_S):
            assert len(await take(consumer, 3)) == 3
    assert fault.hits == 1
    assert [each.member_epoch for each in heartbeats(broker)][:4] == [0, 0, -2, 0]


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("a", -2)])
async def test_a_leave_without_polls_comes_before_the_next_join(
    broker: Broker, topic: str, group_id: str, instance_id: str | None, epoch: int
):
    await fill(broker.bootstrap_servers, topic, numbered(3))
    options = {"max_poll_interval_ms": 500, "group_instance_id": instance_id}
    async with member(broker, topic, group_id, **options) as consumer:
        await take(consumer, 3)
        # The leave waits for a coordinator that does not respond.
        broker.on(
            HEARTBEAT,
            lambda seen: Delay(0.3) if seen.message.member_epoch == epoch else None,
            times=1,
        )
        await anyio.sleep(0.7)
        await fill(broker.bootstrap_servers, topic, numbered(3))
        with anyio.fail_after(WITHIN_S):
            await take(consumer, 3)
        before_close = [each.member_epoch for each in heartbeats(broker)]
    first_leave = before_close.index(epoch)
    assert before_close[first_leave + 1] == 0
    assert before_close.count(0) == 2


async def test_the_log_of_a_static_member_says_that_it_keeps_its_partitions(
    broker: Broker, topic: str, group_id: str, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, "aiokafkawire.group")
    async with member(broker, topic, group_id, group_instance_id="a") as consumer:
        await poll_until(consumer, lambda: bool(consumer.assignment()))
    [text] = [text for text in caplog.messages if "left" in text]
    assert text.endswith(
        "left for now (the consumer is being closed); its partitions are kept for it until the"
        " session times out"
    )


async def test_a_refused_leave_is_logged(
    broker: Broker, topic: str, group_id: str, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, "aiokafkawire.group")
    async with member(broker, topic, group_id) as consumer:
        await poll_until(consumer, lambda: bool(consumer.assignment()))
        broker.on(HEARTBEAT, Answer(ErrorCode.NOT_COORDINATOR))
    [text] = [text for text in caplog.messages if ": left" in text]
    assert "NOT_COORDINATOR" in text


# --- bugs of other clients; see tests/group/consumer_protocol/test_known_bugs.py --------------


async def test_a_stale_epoch_does_not_make_lookups_spin(broker: Broker, topic: str, group_id: str):
    await fill(broker.bootstrap_servers, topic, numbered(1))
    fault = broker.on(ApiKey.OFFSET_FETCH, Answer(ErrorCode.STALE_MEMBER_EPOCH))
    async with member(broker, topic, group_id) as consumer:
        await poll_until(consumer, lambda: fault.hits > 1)
        before = fault.hits, len(heartbeats(broker))
        await anyio.sleep(1.0)
        # The backoff is 100 ms, less jitter; each failure asks for one heartbeat.
        assert fault.hits - before[0] <= 20
        assert len(heartbeats(broker)) - before[1] <= 60
        fault.remove()
        assert len(await take(consumer, 1)) == 1


async def test_members_that_come_and_go_fail_no_commit(
    broker: Broker, new_topic: NewTopic, group_id: str
):
    topic, stop = await new_topic(4), anyio.Event()
    for partition in range(4):
        await fill(broker.bootstrap_servers, topic, numbered(50), partition)

    async def work(consumer: Consumer) -> None:
        while not stop.is_set():
            await consumer.getmany(timeout_ms=20, max_records=1)
            await consumer.commit()

    async with member(broker, topic, group_id) as stays, anyio.create_task_group() as tasks:
        await poll_until(stays, lambda: len(stays.assignment()) == 4)
        tasks.start_soon(work, stays)
        for _ in range(4):
            async with member(broker, topic, group_id) as guest:
                await poll_until(guest, lambda guest=guest: len(guest.assignment()) == 2)
                await guest.getmany(timeout_ms=20, max_records=1)
                await guest.commit()
        with anyio.fail_after(WITHIN_S):
            # The member polls in a task of its own.
            while len(stays.assignment()) != 4:  # noqa: ASYNC110
                await anyio.sleep(0.05)
        stop.set()
        assert stays.metrics()["commit_failures_total"] == 0
