"""The embedded broker and real Kafka 4.3.0 give equal responses to equal requests."""

from __future__ import annotations

import dataclasses
import re
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.broker.apis import HANDLERS
from aiokafkawire.records.batch import iter_batches
from aiokafkawire.runtime import Address, RealRuntime
from aiokafkawire.wire import ErrorCode, Request
from aiokafkawire.wire.messages import (
    create_partitions,
    create_topics,
    delete_groups,
    describe_cluster,
    describe_configs,
    describe_groups,
    fetch,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    sync_group,
)
from aiokafkawire.wire.messages.api_versions import ApiVersionsRequest
from tests.broker.raw_client import RawClient, batch, produce_request

TIMEOUT_S = 60
OF_EACH_BROKER = {"error_message", "client_host", "host", "port", "cluster_id", "topic_id"}
"""What need not be equal: texts, addresses, and ids that are drawn."""

WITHOUT_ORDER = {
    "DeletableGroupResult",
    "DescribeConfigsResourceResult",
    "DescribedGroupMember",
    "JoinGroupResponseMember",
    "OffsetDeleteResponseTopic",
}
MEMBER_ID = re.compile(r"raw-[0-9a-f-]{36}|[0-9a-z]+-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Conversation:
    """Asks one broker, and keeps its answers in a form that can be compared."""

    def __init__(self, client: RawClient, other: RawClient, name: str) -> None:
        self.group = f"group-{name}"
        self.topic = f"topic-{name}"
        self.answers: list[str] = []
        self._client = client
        self._other = other
        self._ids: dict[str, str] = {}

    async def ask(self, message: Request[Any], version: int) -> Any:
        answer = await self._client.call(message, version)
        self._keep(message, version, answer)
        return answer

    async def begin(self, message: Request[Any], version: int) -> Callable[[], Awaitable[Any]]:
        """Ask on the other connection; what is given back waits for the answer."""
        await self._other.send(message, version)

        async def end() -> Any:
            _, answer = await self._other.receive(message.api_key, version)
            self._keep(message, version, answer)
            return answer

        return end

    async def until(self, message: Request[Any], version: int, code: ErrorCode) -> None:
        """Ask until it is answered so, and so until what was begun has arrived."""
        while True:
            if (await self._client.call(message, version)).error_code == code:
                return
            await anyio.sleep(0.02)

    def _keep(self, message: Request[Any], version: int, answer: Any) -> None:
        shown = self._comparable(answer)
        self.answers.append(f"{type(message).__name__} v{version}: {shown}")

    async def prepare(self) -> None:
        """Make the topic, and wait for the group's coordinator; neither is compared."""
        made = create_topics.CreatableTopic(
            name=self.topic, num_partitions=2, replication_factor=1, assignments=[], configs=[]
        )
        await self._client.call(create_topics.CreateTopicsRequest(topics=[made]), 7)
        await self._settled(
            find_coordinator.FindCoordinatorRequest(coordinator_keys=[self.group]), 6
        )
        await self._settled(describe_groups.DescribeGroupsRequest(groups=[self.group]), 5)
        asked = [
            offset_for_leader_epoch.OffsetForLeaderPartition(partition=index, leader_epoch=0)
            for index in range(2)
        ]
        topic = offset_for_leader_epoch.OffsetForLeaderTopic(topic=self.topic, partitions=asked)
        request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(topics=[topic])
        await self._settled(request, 4)

    async def _settled(self, request: Request[Any], version: int) -> None:
        while True:
            answer = await self._client.call(request, version)
            if set(re.findall(r"error_code=(-?\d+)", repr(answer))) == {"0"}:
                return
            await anyio.sleep(0.05)

    def _comparable(self, value: Any) -> Any:
        if isinstance(value, list):
            shown = [self._comparable(item) for item in value]
            unordered = value and type(value[0]).__name__ in WITHOUT_ORDER
            return sorted(shown, key=repr) if unordered else shown
        if dataclasses.is_dataclass(value):
            fields = [field.name for field in dataclasses.fields(value)]
            shown = {name: self._comparable(getattr(value, name)) for name in fields}
            shown = {name: item for name, item in shown.items() if name not in OF_EACH_BROKER}
            if "session_id" in shown:
                shown["session_id"] = bool(shown["session_id"])
            return shown
        if isinstance(value, memoryview):
            views = [view.columns() for view in iter_batches(value)]
            return [columns.value(index) for columns in views for index in range(len(columns))]
        if isinstance(value, str) and MEMBER_ID.fullmatch(value):
            return self._ids.setdefault(value, f"member {len(self._ids)}")
        return value


# --- what is said ------------------------------------------------------------------------------


def join(
    group: str,
    member_id: str = "",
    *,
    instance: str | None = None,
    protocols: tuple[tuple[str, bytes], ...] = (("range", b"meta"),),
    protocol_type: str = "consumer",
    session_ms: int = 10_000,
) -> join_group.JoinGroupRequest:
    return join_group.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=3_000,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocols=[
            join_group.JoinGroupRequestProtocol(name=name, metadata=metadata)
            for name, metadata in protocols
        ],
    )


def sync(group: str, member_id: str, generation: int, **more: Any) -> Request[Any]:
    assignment = sync_group.SyncGroupRequestAssignment(member_id=member_id, assignment=b"mine")
    return sync_group.SyncGroupRequest(
        **{
            "group_id": group,
            "generation_id": generation,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [assignment],
            **more,
        }
    )


def beat(group: str, member_id: str, generation: int, instance: str | None = None) -> Request[Any]:
    return heartbeat.HeartbeatRequest(
        group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance
    )


def leave(group: str, member_id: str, instance: str | None = None) -> Request[Any]:
    member = leave_group.MemberIdentity(member_id=member_id, group_instance_id=instance)
    return leave_group.LeaveGroupRequest(group_id=group, members=[member])


def commit(
    group: str, topic: str, member_id: str = "", generation: int = -1, instance: str | None = None
) -> Request[Any]:
    partition = offset_commit.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    asked = offset_commit.OffsetCommitRequestTopic(name=topic, partitions=[partition])
    return offset_commit.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance,
        topics=[asked],
    )


def committed(group: str) -> Request[Any]:
    asked = offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=None)
    return offset_fetch.OffsetFetchRequest(groups=[asked])


def describe(*groups: str) -> Request[Any]:
    return describe_groups.DescribeGroupsRequest(groups=list(groups))


def delete(*groups: str) -> Request[Any]:
    return delete_groups.DeleteGroupsRequest(groups_names=list(groups))


def forget(group: str, *topics: str, partition: int = 0) -> Request[Any]:
    asked = offset_delete.OffsetDeleteRequestPartition(partition_index=partition)
    return offset_delete.OffsetDeleteRequest(
        group_id=group,
        topics=[
            offset_delete.OffsetDeleteRequestTopic(name=topic, partitions=[asked])
            for topic in topics
        ],
    )


# --- the conversations -------------------------------------------------------------------------


async def a_member_and_a_stranger(say: Conversation) -> None:
    group, topic = say.group, say.topic
    given = (await say.ask(join(group), 9)).member_id
    me = (await say.ask(join(group, given), 9)).member_id
    await say.ask(describe(group), 5)
    await say.ask(commit(group, topic, me, 1), 8)
    await say.ask(sync(group, me, 9), 5)
    await say.ask(sync(group, me, 1, protocol_name="other"), 5)
    await say.ask(join(group, me), 9)
    await say.ask(sync(group, me, 1), 5)
    await say.ask(describe(group), 5)
    await say.ask(beat(group, me, 1), 4)
    await say.ask(beat(group, me, 2), 4)
    await say.ask(beat(group, "stranger", 1), 4)
    await say.ask(commit(group, topic), 8)
    await say.ask(commit(group, topic, "stranger", 1), 8)
    await say.ask(commit(group, topic, me, 1), 8)
    await say.ask(join(group, "stranger"), 9)
    await say.ask(join(group, protocols=(("other", b""),)), 9)
    await say.ask(join(group, protocol_type="connect"), 9)
    await say.ask(join(group, protocols=()), 9)
    await say.ask(join(group, session_ms=10), 9)
    await say.ask(join(""), 9)
    await say.ask(delete(group, "nobody", group), 2)
    await say.ask(forget(group, topic), 0)
    await say.ask(leave(group, "stranger"), 5)
    await say.ask(leave(group, me), 5)
    await say.ask(describe(group), 5)
    await say.ask(committed(group), 8)
    await say.ask(forget(group, topic, "nowhere"), 0)
    await say.ask(forget(group, topic, partition=9), 0)
    await say.ask(committed(group), 8)
    await say.ask(delete(group), 2)
    for version in (5, 6):
        await say.ask(describe(group), version)
    for version in (8, 9):
        await say.ask(commit(group, topic, "stranger", 1), version)
    await say.ask(forget(group, topic), 0)
    await say.ask(forget("", topic), 0)
    await say.ask(leave(group, "stranger"), 5)
    await say.ask(beat(group, "stranger", 1), 4)


async def a_static_member_comes_back(say: Conversation) -> None:
    group, topic = say.group, say.topic
    first = (await say.ask(join(group, instance="one"), 9)).member_id
    await say.ask(sync(group, first, 1, group_instance_id="one"), 5)
    second = (await say.ask(join(group, instance="one"), 9)).member_id
    await say.ask(beat(group, first, 1, "one"), 4)
    await say.ask(beat(group, second, 1, "one"), 4)
    await say.ask(beat(group, second, 1, "two"), 4)
    await say.ask(sync(group, second, 1, group_instance_id="one"), 5)
    other = (("range", b"other"),)
    await say.ask(join(group, instance="one", protocols=other), 9)
    await say.ask(describe(group), 5)
    await say.ask(join(group, instance="one", protocols=other), 8)
    await say.ask(join(group, instance="one", protocols=(("else", b""),)), 9)
    both = (("range", b"1"), ("else", b"2"))
    await say.ask(join(group, instance="one", protocols=both), 9)
    await say.ask(commit(group, topic, first, 1, "one"), 8)
    await say.ask(leave(group, first, "one"), 5)
    await say.ask(leave(group, "", "two"), 5)
    await say.ask(leave(group, "", "one"), 5)
    await say.ask(describe(group), 5)


async def two_members_share(say: Conversation) -> None:
    group, topic = say.group, say.topic
    given = (await say.ask(join(group), 9)).member_id
    first = (await say.ask(join(group, given), 9)).member_id
    await say.ask(sync(group, first, 1), 5)
    second = (await (await say.begin(join(group), 9))()).member_id
    joined = await say.begin(join(group, second), 9)
    await say.until(beat(group, first, 1), 4, ErrorCode.REBALANCE_IN_PROGRESS)
    await say.ask(commit(group, topic, first, 1), 8)
    await say.ask(sync(group, first, 1), 5)
    await say.ask(describe(group), 5)
    await say.ask(delete(group), 2)
    await say.ask(join(group, first), 9)
    await joined()
    synced = await say.begin(sync(group, second, 2, assignments=[]), 5)
    await say.ask(beat(group, first, 2), 4)
    await say.ask(beat(group, first, 1), 4)
    await say.ask(commit(group, topic, first, 2), 8)
    await say.ask(describe(group), 5)
    await say.ask(sync(group, first, 2), 5)
    await synced()
    await say.ask(describe(group), 5)
    await (await say.begin(join(group, second), 9))()
    changed = (("range", b"other"),)
    joined = await say.begin(join(group, second, protocols=changed), 9)
    await say.until(beat(group, first, 2), 4, ErrorCode.REBALANCE_IN_PROGRESS)
    await say.ask(leave(group, first), 5)
    await joined()
    await say.ask(describe(group), 5)
    await say.ask(beat(group, first, 3), 4)
    await say.ask(sync(group, second, 3), 5)
    await say.ask(leave(group, second), 5)
    await say.ask(describe(group), 5)


async def what_cannot_be_is_asked_of_topics(say: Conversation) -> None:
    for count, assignments in (
        (2, None),
        (0, None),
        (-1, None),
        (4, [[1]]),
        (3, [[9]]),
        (3, [[1, 1]]),
        (3, [[]]),
        (3, []),
        (3, [[1]]),
    ):
        given = assignments and [
            create_partitions.CreatePartitionsAssignment(broker_ids=nodes) for nodes in assignments
        ]
        asked = create_partitions.CreatePartitionsTopic(
            name=say.topic, count=count, assignments=given
        )
        for topics in ([asked], [asked, asked]):
            request = create_partitions.CreatePartitionsRequest(
                topics=topics, timeout_ms=1_000, validate_only=True
            )
            await say.ask(request, 3)
    for kind, name in (
        (2, "nowhere"),
        (2, "a b"),
        (2, ""),
        (4, "77"),
        (4, "x"),
        (8, "9"),
        (99, ""),
    ):
        resource = describe_configs.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=None
        )
        await say.ask(describe_configs.DescribeConfigsRequest(resources=[resource]), 4)
    keys = ["retention.ms", "max.message.bytes", "cleanup.policy", "message.timestamp.type", "nil"]
    resource = describe_configs.DescribeConfigsResource(
        resource_type=2, resource_name=say.topic, configuration_keys=sorted(keys)
    )
    await say.ask(describe_configs.DescribeConfigsRequest(resources=[resource]), 4)
    for kind in (1, 2, 3):
        request = describe_cluster.DescribeClusterRequest(
            include_cluster_authorized_operations=True, endpoint_type=kind
        )
        await say.ask(request, 2)


async def epochs_are_asked_for(say: Conversation) -> None:
    await say.ask(produce_request(say.topic, 0, batch(b"v")), 9)
    for epoch, current, partition, replica in (
        (0, -1, 0, -1),
        (1, -1, 0, -1),
        (-1, -1, 0, -1),
        (0, 0, 0, -1),
        (0, 5, 0, -1),
        (0, -1, 9, -1),
        (0, -1, 1, -2),
    ):
        asked = offset_for_leader_epoch.OffsetForLeaderPartition(
            partition=partition, current_leader_epoch=current, leader_epoch=epoch
        )
        topic = offset_for_leader_epoch.OffsetForLeaderTopic(topic=say.topic, partitions=[asked])
        request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            replica_id=replica, topics=[topic]
        )
        await say.ask(request, 4)


async def a_fetch_session(say: Conversation) -> None:
    session = 0

    async def read(
        epoch: int,
        wanted: dict[int, int] | None = None,
        *,
        forgotten: tuple[int, ...] = (),
        version: int = 12,
        session_id: int | None = None,
        **fields: Any,
    ) -> Any:
        partitions = [
            fetch.FetchPartition(
                partition=index, fetch_offset=offset, partition_max_bytes=100_000, **fields
            )
            for index, offset in (wanted or {}).items()
        ]
        request = fetch.FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            session_id=session if session_id is None else session_id,
            session_epoch=epoch,
            topics=[fetch.FetchTopic(topic=say.topic, partitions=partitions)] if wanted else [],
        )
        if forgotten:
            gone = fetch.ForgottenTopic(topic=say.topic, partitions=list(forgotten))
            request.forgotten_topics_data = [gone]
        return await say.ask(request, version)

    session = (await read(0, {0: 0, 1: 0})).session_id
    await read(1)
    await say.ask(produce_request(say.topic, 1, batch(b"v")), 9)
    await read(2)
    await read(3)
    await read(4, {1: 1})
    await read(4)
    await read(5, version=13)
    await read(5, {1: 99})
    await read(6)
    await read(7, {1: 1})
    await read(8, {1: 1}, current_leader_epoch=99)
    await read(9, {1: 1})
    await read(10, forgotten=(0,))
    await read(11, {9: 0})
    await read(12, forgotten=(0, 1, 9))
    await read(13)
    await read(-1, {1: 1}, session_id=0, last_fetched_epoch=7)
    await read(-1, {1: 5}, session_id=0, last_fetched_epoch=0)
    await read(-1, {1: -5}, session_id=0)
    await read(-1, {1: 0}, session_id=0, version=6)


CONVERSATIONS = [
    a_member_and_a_stranger,
    a_static_member_comes_back,
    two_members_share,
    what_cannot_be_is_asked_of_topics,
    epochs_are_asked_for,
    a_fetch_session,
]


async def answers(
    address: Address, hold: Callable[[Conversation], Awaitable[None]], name: str
) -> list[str]:
    runtime = RealRuntime()
    transport, other = [await runtime.connect(address) for _ in range(2)]
    try:
        say = Conversation(RawClient(transport), RawClient(other), name)
        with anyio.fail_after(TIMEOUT_S):
            await say.prepare()
            await hold(say)
    finally:
        await transport.aclose()
        await other.aclose()
    return say.answers


@pytest.mark.parametrize("hold", CONVERSATIONS, ids=lambda hold: hold.__name__)
async def test_both_give_equal_responses(
    kafka_43: str, hold: Callable[[Conversation], Awaitable[None]]
) -> None:
    host, port = kafka_43.rsplit(":", 1)
    name = uuid.uuid4().hex[:8]
    real = await answers(Address(host, int(port)), hold, name)
    async with Broker() as broker:
        ours = await answers(broker.nodes[1], hold, name)
    assert ours == real
    assert len(real) > 5


async def test_both_advertise_the_same_versions(kafka_43: str) -> None:
    host, port = kafka_43.rsplit(":", 1)
    asked = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    versions = []
    async with Broker(as_of="4.3") as broker:
        for address in (Address(host, int(port)), broker.nodes[1]):
            transport = await RealRuntime().connect(address)
            try:
                response = await RawClient(transport).call(asked, 4)
            finally:
                await transport.aclose()
            assert response.error_code == ErrorCode.NONE
            versions.append(
                {
                    api.api_key: (api.min_version, api.max_version)
                    for api in response.api_keys
                    if api.api_key in HANDLERS
                }
            )
    assert versions[0] == versions[1]
