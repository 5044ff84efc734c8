"""The group coordinator with consumer groups, without a network."""

from __future__ import annotations

import random
from typing import Any

import pytest

from aiokafkawire.broker.api_error import ApiError, StorageError
from aiokafkawire.broker.cluster_state import ClusterState
from aiokafkawire.broker.configs.definitions import ConfigResourceType
from aiokafkawire.broker.groups import GroupCoordinator, OffsetStore
from aiokafkawire.broker.groups.classic_group import ClassicGroup
from aiokafkawire.broker.groups.consumer_group.coordination import (
    ConsumerGroups,
    is_every_topic_visible,
)
from aiokafkawire.broker.groups.consumer_group.events import ConsumerGroupHeartbeat
from aiokafkawire.broker.groups.consumer_group.group import ConsumerGroup
from aiokafkawire.broker.groups.consumer_group.record_log import GroupRecordLog
from aiokafkawire.broker.groups.events import (
    GroupDeadlineReached,
    Heartbeat,
    HeartbeatResult,
    Join,
)
from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.broker.releases import get_release
from aiokafkawire.broker.storage import MemoryStore
from aiokafkawire.runtime import Future
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.consumer_protocol import encode_subscription

E = ErrorCode


class Store(MemoryStore):
    is_full = False
    rewritten: list[dict[str, Any]] | None = None
    is_stale = False

    def append_group_records(self, lines: list[dict[str, Any]], live: int) -> bool:
        if self.is_full:
            raise StorageError(E.KAFKA_STORAGE_ERROR, "disk full")
        return self.is_stale

    def rewrite_group_records(self, lines: list[dict[str, Any]]) -> None:
        self.rewritten = lines


class Clock:
    seconds = 1_000.0

    def now(self) -> float:
        return self.seconds

    def wall_ms(self) -> int:
        return int(self.seconds * 1_000)

    def wall_ns(self) -> int:
        return int(self.seconds * 1_000_000_000)

    async def sleep_until(self, deadline: float) -> None:
        raise AssertionError("nothing here sleeps")


class Given:
    """A coordinator, and the topic `t` with three partitions."""

    def __init__(self, **options: Any) -> None:
        self.clock, self.store = Clock(), Store()
        config = BrokerConfig(**options)
        self.cluster = cluster = ClusterState([1], self.store, config, random.Random(1))
        cluster.create_topic("t", 3, 1)
        self.consumer_groups = ConsumerGroups(
            config,
            self.clock,
            cluster,
            GroupRecordLog(self.store),
            release=lambda: get_release("4.3", []),
        )
        self.groups = GroupCoordinator(
            config, self.clock, random.Random(2), OffsetStore(self.store), self.consumer_groups
        )

    def heartbeat(self, member_id: str, epoch: int, **fields: Any) -> HeartbeatResult:
        if epoch == 0:
            fields = {"rebalance_timeout_ms": 5_000, "subscribed_names": ("t",), "owned": {}}
        event = ConsumerGroupHeartbeat(
            reply=Future[HeartbeatResult](), member_id=member_id, member_epoch=epoch, **fields
        )
        return self.groups.heartbeat("g", event, is_every_topic_visible)

    def classic(self, event_type: Any, **fields: Any) -> Any:
        reply: Future[Any] = Future()
        group = self.groups.get("g")
        assert group is not None
        self.groups.handle(group, event_type(reply=reply, **fields))
        return reply.result()

    def joining(self, member_id: str, new_member_id: str, reply: Future[Any]) -> Join:
        return Join(
            reply=reply,
            member_id=member_id,
            new_member_id=new_member_id,
            protocol_type="consumer",
            protocols=(("range", encode_subscription(["t"])),),
            session_timeout_s=10.0,
            rebalance_timeout_s=10.0,
        )

    def join(self, member_id: str, new_member_id: str = "c") -> Any:
        reply: Future[Any] = Future()
        group = self.groups.get("g")
        assert group is not None
        self.groups.handle(group, self.joining(member_id, new_member_id, reply))
        return reply.result()


def group_of(given: Given) -> ConsumerGroup:
    group = given.groups.get("g")
    assert isinstance(group, ConsumerGroup)
    return group


def test_change_that_is_not_stored_is_undone() -> None:
    given = Given()
    given.heartbeat("m1", 0)
    given.store.is_full = True
    assert given.heartbeat("m2", 0).code is E.NOT_COORDINATOR
    assert list(group_of(given).data.members) == ["m1"]
    assert group_of(given).data.epoch == 2
    # A heartbeat without a change needs no storage.
    assert given.heartbeat("m1", 2).code is E.NONE
    assert given.join("", "c").code is E.NOT_COORDINATOR
    given.store.is_full = False
    assert given.heartbeat("m2", 0).member_epoch == 3
    given.join("", "c")
    given.store.is_full = True
    assert given.classic(Heartbeat, member_id="m1", generation=2) is E.UNKNOWN_MEMBER_ID
    given.clock.seconds += 100
    given.groups.handle(group_of(given), GroupDeadlineReached())
    assert len(group_of(given).data.members) == 3


def test_new_group_that_is_not_stored_is_not_there() -> None:
    given = Given()
    given.store.is_full = True
    assert given.heartbeat("m1", 0).code is E.NOT_COORDINATOR
    assert given.groups.get("g") is None


def test_classic_group_stays_if_the_conversion_is_not_stored() -> None:
    given = Given()
    given.groups.create("g")
    given.join("")
    given.store.is_full = True
    assert given.heartbeat("m1", 0).code is E.NOT_COORDINATOR
    assert isinstance(given.groups.get("g"), ClassicGroup)
    given.store.is_full = False
    assert given.heartbeat("m1", 0).code is E.NONE
    assert set(group_of(given).data.members) == {"c", "m1"}


def test_consumer_group_stays_if_the_downgrade_is_not_stored() -> None:
    given = Given()
    given.heartbeat("m1", 0)
    given.join("")
    given.store.is_full = True
    assert given.heartbeat("m1", -1).code is E.NOT_COORDINATOR
    assert set(group_of(given).data.members) == {"c", "m1"}
    given.store.is_full = False
    assert given.heartbeat("m1", -1).code is E.NONE
    assert isinstance(given.groups.get("g"), ClassicGroup)
    assert list(given.consumer_groups.log.groups()) == []


def test_members_that_wait_rejoin_the_converted_group() -> None:
    given = Given()
    given.groups.create("g")
    joined = given.join("")
    assert joined.generation == 1
    waiting: Future[Any] = Future()
    group = given.groups.get("g")
    assert group is not None
    given.groups.handle(group, given.joining("", "c2", waiting))
    assert given.heartbeat("m1", 0).code is E.NONE
    assert waiting.result().code is E.REBALANCE_IN_PROGRESS
    assert given.classic(Heartbeat, member_id="c", generation=1) is E.REBALANCE_IN_PROGRESS


def test_group_is_deleted_with_its_records() -> None:
    given = Given()
    given.heartbeat("m1", 0)
    assert given.groups.delete("g") is E.NON_EMPTY_GROUP
    given.heartbeat("m1", -1)
    assert given.groups.delete("g") is E.NONE
    assert list(given.consumer_groups.log.groups()) == []
    assert given.groups.get("g") is None


def test_configs_of_broker_and_group() -> None:
    given = Given(group_consumer_heartbeat_interval_ms=700)
    assert given.heartbeat("m1", 0).heartbeat_interval_ms == 700
    configs = given.cluster.dynamic_configs
    interval = "assignment.interval.ms"
    configs.replace(ConfigResourceType.BROKER, "", {f"group.consumer.{interval}": "5000"})
    assert given.heartbeat("m2", 0).member_epoch == 2
    configs.replace(
        ConfigResourceType.GROUP,
        "g",
        {f"consumer.{interval}": "0", "consumer.heartbeat.interval.ms": "900"},
    )
    answer = given.heartbeat("m2", 2)
    assert (answer.member_epoch, answer.heartbeat_interval_ms) == (3, 900)
    assert configs.broker_value("group.consumer.heartbeat.interval.ms", 1) == "700"


def test_unknown_groups() -> None:
    given = Given()
    for epoch, message in ((1, "Consumer group g not found."), (-1, "Group g not found.")):
        with pytest.raises(ApiError) as caught:
            given.heartbeat("m1", epoch)
        assert (caught.value.code, caught.value.message) == (E.GROUP_ID_NOT_FOUND, message)
    given.groups.create("g")
    with pytest.raises(ApiError, match="Group g is not a consumer group"):
        given.heartbeat("m1", 1)


def test_log_is_compacted() -> None:
    given = Given()
    given.store.is_stale = True
    given.heartbeat("m1", 0)
    given.heartbeat("m1", -1)
    assert given.store.rewritten is not None
    assert len(given.store.rewritten) == 2
