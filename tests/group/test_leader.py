from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.cluster import Cluster, MetadataSnapshot, TopicMetadata
from aiokafkawire.cluster.metadata import NodeInfo, PartitionMetadata
from aiokafkawire.config import ConsumerConfig, make_config
from aiokafkawire.errors import GroupFailed, MalformedMessage
from aiokafkawire.group.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    MemberSubscription,
    RangeAssignor,
)
from aiokafkawire.group.leader import (
    GroupLeader,
    compute_assignments,
    decode_subscriptions,
    encode_assignments,
    replica_racks,
)
from aiokafkawire.group.membership.states import JoinedMember
from aiokafkawire.runtime import Address, RealRuntime, Supervisor
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ZERO_UUID
from aiokafkawire.wire.consumer_protocol import (
    decode_assignment,
    encode_subscription,
    flatten_by_topic,
)

P0 = TopicPartition("orders", 0)
P1 = TopicPartition("orders", 1)


def test_subscriptions_are_decoded() -> None:
    data = encode_subscription(
        ["b", "a"], user_data=b"u", owned_partitions=[P0], generation_id=4, rack_id="r"
    )
    (subscription,), unreadable = decode_subscriptions([JoinedMember("me", "i", data)])
    assert (subscription.member_id, subscription.topics, subscription.group_instance_id) == (
        "me",
        ("a", "b"),
        "i",
    )
    assert (
        subscription.user_data,
        subscription.owned,
        subscription.generation,
        subscription.rack,
    ) == (b"u", (P0,), 4, "r")
    assert not unreadable


def test_a_malformed_subscription_becomes_an_empty_one() -> None:
    good = JoinedMember("me", None, encode_subscription(["orders"]))
    members, unreadable = decode_subscriptions([JoinedMember("odd", "i", b"\0"), good])
    assert members[0] == MemberSubscription("odd", (), "i")
    assert members[1].topics == ("orders",)
    assert isinstance(unreadable["odd"], MalformedMessage)


class Fixed(Assignor):
    """Returns a fixed assignment."""

    name = "fixed"

    def __init__(
        self, given: Mapping[str, Sequence[TopicPartition]], *, cooperative: bool = False
    ) -> None:
        self.given = given
        self.cooperative = cooperative

    def assign(
        self,
        partitions: Mapping[str, int],
        members: Sequence[MemberSubscription],
        racks: Mapping[TopicPartition, tuple[str, ...]],
    ) -> Mapping[str, Sequence[TopicPartition]]:
        return self.given


def member(member_id: str, *owned: TopicPartition, generation: int = -1) -> MemberSubscription:
    return MemberSubscription(member_id, ("orders",), owned=owned, generation=generation)


@pytest.mark.parametrize(
    "given", [{"a": [P0], "b": [P0]}, {"stranger": [P0]}, {"a": [P0, P1], "b": [P1]}]
)
def test_an_invalid_assignment_raises_group_failed(
    given: dict[str, list[TopicPartition]],
) -> None:
    with pytest.raises(GroupFailed, match="'fixed' assigned orders-"):
        compute_assignments(Fixed(given), {"orders": 2}, [member("a"), member("b")], {})


def test_a_failed_assignor_is_named_in_the_error() -> None:
    class Broken(Fixed):
        def assign(self, *args: object) -> dict[str, list[TopicPartition]]:
            raise ZeroDivisionError("none left")

    with pytest.raises(GroupFailed, match=r"'fixed' failed: ZeroDivisionError\('none left'\)"):
        compute_assignments(Broken({}), {}, [], {})


def test_members_missing_in_the_result_get_no_partitions() -> None:
    members = [member("a"), member("b")]
    encoded = encode_assignments(
        compute_assignments(Fixed({"a": [P0]}), {"orders": 1}, members, {})
    )
    assert flatten_by_topic(decode_assignment(encoded["a"]).assigned_partitions) == [P0]
    assert flatten_by_topic(decode_assignment(encoded["b"]).assigned_partitions) == []


@pytest.mark.parametrize(
    ("members", "given", "fits"),
    [
        ([member("a", P0, generation=3), member("b", generation=3)], {"b": [P0]}, False),
        ([member("a", P0, generation=3), member("b", generation=3)], {"a": [P0]}, True),
        ([member("a", P0, generation=3), member("b", generation=3)], {}, True),
        # The newer generation owns it.
        ([member("a", P0, generation=2), member("b", P0, generation=3)], {"b": [P0]}, True),
        # Two members of the same generation claim it.
        ([member("a", P0, generation=3), member("b", P0, generation=3)], {"b": [P0]}, True),
    ],
)
def test_a_cooperative_assignor_must_not_assign_owned_partitions(
    members: list[MemberSubscription], given: dict[str, list[TopicPartition]], fits: bool
) -> None:
    assert compute_assignments(Fixed(given), {"orders": 1}, members, {})
    if fits:
        assert compute_assignments(Fixed(given, cooperative=True), {"orders": 1}, members, {})
    else:
        with pytest.raises(GroupFailed, match="orders-0 while another member still owns it"):
            compute_assignments(Fixed(given, cooperative=True), {"orders": 1}, members, {})


def test_replica_racks_are_the_known_racks_of_the_replicas() -> None:
    def metadata(*racks: str | None) -> MetadataSnapshot:
        address = Address("localhost", 9092)
        nodes = {n: NodeInfo(n, address, rack) for n, rack in enumerate(racks)}
        partition = PartitionMetadata(0, 0, replicas=(0, 1, 2))
        topics = {"orders": TopicMetadata("orders", ZERO_UUID, {0: partition})}
        return MetadataSnapshot(nodes=nodes, topics=topics)

    assert replica_racks(metadata("a", None, "a"), ["orders", "others"]) == {P0: ("a",)}
    assert replica_racks(metadata("a", "b"), ["orders"]) == {P0: ("a", "b")}
    assert replica_racks(metadata(None, None), ["orders"]) == {}


@asynccontextmanager
async def running_leader(
    broker: Broker, *assignors: Assignor
) -> AsyncIterator[tuple[GroupLeader, Cluster]]:
    supervisor, runtime = Supervisor("test"), RealRuntime()
    await supervisor.start()
    servers = {"bootstrap_servers": broker.bootstrap_servers, "metadata_max_age_ms": 20}
    cluster = Cluster(make_config(ConsumerConfig, servers), runtime, supervisor)
    await cluster.start(runtime.clock.now() + 20)
    named = {assignor.name: assignor for assignor in assignors}
    leader = GroupLeader(cluster, runtime.clock, "g", named, {"kafka_client_id": "c"})
    yield leader, cluster
    leader.stop_watching()
    await cluster.aclose()
    await supervisor.stop()


async def test_a_leader_assigns_and_notices_changed_partition_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        Broker(auto_create_topics=False) as broker,
        running_leader(broker, RangeAssignor()) as (leader, cluster),
    ):
        clock = RealRuntime().clock
        await broker.create_topic("orders", 2)
        joined = [
            JoinedMember("me", None, encode_subscription(["orders", "to-come"])),
            JoinedMember("odd", None, b""),
        ]
        with caplog.at_level(logging.WARNING):
            encoded = await leader.assign("range", joined)
        assert "Group g: member odd gets no partitions" in caplog.text
        assert flatten_by_topic(decode_assignment(encoded["me"]).assigned_partitions) == [P0, P1]
        assert leader.find_changed_topic() is None
        await broker.create_topic("to-come", 1)
        version = cluster.metadata.version
        while leader.find_changed_topic() is None:
            assert await cluster.wait_update(version, clock.now() + 20)
            version = cluster.metadata.version
        assert leader.find_changed_topic() == "topic 'to-come' has 1 partition instead of 0"
        await leader.watch(joined)
        assert leader.find_changed_topic() is None
        leader.stop_watching()
        assert leader.find_changed_topic() is None


def joining(*member_ids: str, topics: Sequence[str] = ("orders",)) -> list[JoinedMember]:
    return [JoinedMember(each, None, encode_subscription(topics)) for each in member_ids]


def idle_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the lines about members without partitions, and clear `caplog`."""
    lines = [
        each.getMessage() for each in caplog.records if "no partition for" in each.getMessage()
    ]
    caplog.clear()
    return lines


async def test_members_beyond_the_partitions_are_logged_once_until_the_numbers_change(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "aiokafkawire.group")
    async with (
        Broker() as broker,
        running_leader(broker, RangeAssignor()) as (leader, _),
    ):
        await broker.create_topic("orders", 2)
        await leader.assign("range", joining("a", "b"))
        assert idle_lines(caplog) == []
        await leader.assign("range", joining("a", "b", "c"))
        record = caplog.records[-1]
        fields = {name: value for name, value in vars(record).items() if "kafka" in name}
        assert (record.name, record.levelname) == ("aiokafkawire.group", "INFO")
        assert fields == {
            "kafka_client_id": "c",
            "kafka_group": "g",
            "kafka_idle_members": 1,
            "kafka_members": 3,
            "kafka_partitions": 2,
        }
        line = "Group g: no partition for 1 of 3 members: topic orders has only 2 partitions"
        assert idle_lines(caplog) == [line]
        leader.stop_watching()
        await leader.assign("range", joining("a", "b", "d"))
        assert idle_lines(caplog) == []
        await leader.assign("range", joining("a", "b", "c", "d"))
        assert idle_lines(caplog) == [line.replace("1 of 3", "2 of 4")]
        await leader.assign("range", joining("a", "b"))
        await leader.assign("range", joining("a", "b", "c", "d"))
        assert idle_lines(caplog) == [line.replace("1 of 3", "2 of 4")]


async def test_members_that_are_idle_for_another_reason_are_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "aiokafkawire.group")
    async with (
        Broker(auto_create_topics=False) as broker,
        running_leader(broker, RangeAssignor()) as (leader, _),
    ):
        await broker.create_topic("orders", 1)
        await broker.create_topic("refunds", 1)
        # The assignor gives both topics to the first member.
        await leader.assign("range", joining("a", "b", topics=["orders", "refunds"]))
        # The subscription of one member cannot be decoded.
        await leader.assign("range", [*joining("a"), JoinedMember("odd", None, b"")])
        # No topic exists.
        await leader.assign("range", joining("a", "b", topics=["missing"]))
        # The topic of one member does not exist.
        await leader.assign("range", [*joining("a"), *joining("b", topics=["missing"])])
        assert idle_lines(caplog) == []


async def test_only_partitions_of_the_members_topics_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "aiokafkawire.group")
    async with (
        Broker() as broker,
        running_leader(broker, RangeAssignor()) as (leader, _),
    ):
        for topic, partitions in (("orders", 1), ("refunds", 10), ("visits", 1)):
            await broker.create_topic(topic, partitions)
        joined = [*joining("a", "b"), *joining("c", topics=["refunds"])]
        await leader.assign("range", joined)
        line = "Group g: no partition for 1 of 2 members: topic orders has only 1 partition"
        assert idle_lines(caplog) == [line]
        await leader.assign("range", joined)
        assert idle_lines(caplog) == []
        both = ["orders", "visits"]
        await leader.assign("range", joining("a", "b", "c", topics=both))
        text = "no partition for 2 of 3 members: topics orders, visits have only 2 partitions"
        assert idle_lines(caplog) == [f"Group g: {text}"]


async def test_members_that_wait_for_a_revocation_are_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The generation after it, which assigns all partitions, has the numbers that stay."""
    caplog.set_level(logging.INFO, "aiokafkawire.group")

    def owning(member_id: str, *owned: TopicPartition) -> JoinedMember:
        data = encode_subscription(["orders"], owned_partitions=owned, generation_id=1)
        return JoinedMember(member_id, None, data)

    assignor = CooperativeStickyAssignor()
    async with Broker() as broker, running_leader(broker, assignor) as (leader, _):
        await broker.create_topic("orders", 2)
        await leader.assign(assignor.name, [owning("a", P0, P1), *joining("b", "c")])
        assert idle_lines(caplog) == []
        await leader.assign(assignor.name, [owning("a", P0), *joining("b", "c")])
        (line,) = idle_lines(caplog)
        assert "no partition for 1 of 3 members" in line
