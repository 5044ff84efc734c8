"""Groups over real sockets: waiting requests, several connections, moving coordinators."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.broker.groups import group_coordinator
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages.describe_groups import DescribeGroupsRequest
from aiokafkawire.wire.messages.find_coordinator import FindCoordinatorRequest
from aiokafkawire.wire.messages.init_producer_id import InitProducerIdRequest
from aiokafkawire.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from aiokafkawire.wire.messages.list_groups import ListGroupsRequest

from .group_requests import heartbeat, join, sync
from .raw_client import RawClient, connected

E = ErrorCode


async def joined(client: RawClient, version: int = 9) -> Any:
    """Join as a new member, with the id from the first response."""
    refused = await client.call(join(metadata=b"meta"), version)
    assert refused.error_code == E.MEMBER_ID_REQUIRED
    return await client.call(join(refused.member_id, metadata=b"meta"), version)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(nodes=2) as broker:
        yield broker


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[RawClient]:
    async with connected(broker, broker.coordinator("g")) as client:
        yield client


async def test_a_member_joins_syncs_and_leaves(client: RawClient) -> None:
    me = await joined(client)
    assert (me.error_code, me.generation_id, me.leader) == (E.NONE, 1, me.member_id)
    assert me.member_id.startswith("raw-")
    assert (me.protocol_type, me.protocol_name) == ("consumer", "range")
    assert [m.metadata for m in me.members] == [b"meta"]
    mine = await client.call(sync(me.member_id, 1, **{me.member_id: b"all"}), 5)
    assert (mine.error_code, mine.assignment, mine.protocol_name) == (E.NONE, b"all", "range")
    assert (await client.call(heartbeat(me.member_id, 1), 4)).error_code == E.NONE
    leave = LeaveGroupRequest(
        group_id="g",
        members=[MemberIdentity(member_id=me.member_id), MemberIdentity(member_id="ghost")],
    )
    left = await client.call(leave, 4)
    assert [m.error_code for m in left.members] == [E.NONE, E.UNKNOWN_MEMBER_ID]
    assert (await client.call(heartbeat(me.member_id, 1), 4)).error_code == E.UNKNOWN_MEMBER_ID


async def test_a_parked_join_waits_for_the_others(broker: Broker, client: RawClient) -> None:
    first = await joined(client)
    await client.call(sync(first.member_id, 1, **{first.member_id: b"all"}), 5)
    async with connected(broker, broker.coordinator("g")) as other:
        given = (await other.call(join(), 9)).member_id
        await other.send(join(given), 9)
        await broker.wait_for_request(ApiKey.JOIN_GROUP, count=4)
        heartbeat_request = await client.call(heartbeat(first.member_id, 1), 4)
        assert heartbeat_request.error_code == E.REBALANCE_IN_PROGRESS
        again = await client.call(join(first.member_id), 9)
        _, second = await other.receive(ApiKey.JOIN_GROUP, 9)
        assert again.generation_id == second.generation_id == 2
        assert [m.member_id for m in again.members] == [first.member_id, given]
        assert second.members == []
        await other.send(sync(given, 2), 5)
        await broker.wait_for_request(ApiKey.SYNC_GROUP, count=2)
        await client.call(sync(first.member_id, 2, **{given: b"half"}), 5)
        _, half = await other.receive(ApiKey.SYNC_GROUP, 5)
        assert half.assignment == b"half"


async def test_a_client_that_leaves_while_parked_keeps_its_place(
    broker: Broker, client: RawClient
) -> None:
    first = await joined(client)
    async with connected(broker, broker.coordinator("g")) as other:
        given = (await other.call(join(), 9)).member_id
        await other.send(join(given), 9)
        await broker.wait_for_request(ApiKey.JOIN_GROUP, count=4)
    again = await client.call(join(first.member_id), 9)
    assert [m.member_id for m in again.members] == [first.member_id, given]


async def test_a_session_ends_by_the_clock() -> None:
    async with (
        Broker(group_min_session_timeout_ms=10) as broker,
        connected(broker) as client,
    ):
        given = (await client.call(join(session_ms=30), 9)).member_id
        me = await client.call(join(given, session_ms=30), 9)
        state = broker._running
        group = state.group_coordinator.get("g")
        assert group is not None
        with anyio.fail_after(20):
            while group.members:
                await anyio.lowlevel.checkpoint()
        heartbeat_request = await client.call(heartbeat(me.member_id, 1), 4)
        assert heartbeat_request.error_code == E.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001, 0, -1])
async def test_session_timeouts_have_limits(client: RawClient, session_ms: int) -> None:
    answer = await client.call(join(session_ms=session_ms), 9)
    assert answer.error_code == E.INVALID_SESSION_TIMEOUT


async def test_an_unnamed_group_is_refused(broker: Broker) -> None:
    async with connected(broker, 1) as client:
        assert (await client.call(join(group=""), 9)).error_code == E.INVALID_GROUP_ID
        heartbeat_request = await client.call(heartbeat("m", 1, ""), 4)
        assert heartbeat_request.error_code == E.INVALID_GROUP_ID


async def test_a_sync_without_protocol_name_is_rejected(client: RawClient) -> None:
    unnamed = sync("stranger", 1)
    unnamed.protocol_name = None
    assert (await client.call(unnamed, 5)).error_code == E.INCONSISTENT_GROUP_PROTOCOL


async def test_the_coordinator_is_found(broker: Broker) -> None:
    async with connected(broker, 1) as client:
        old = await client.call(FindCoordinatorRequest(key="g"), 3)
        assert old.node_id == broker.coordinator("g")
        assert old.port == broker.nodes[old.node_id].port
        new = await client.call(FindCoordinatorRequest(coordinator_keys=["g", "h"]), 4)
        assert [(c.key, c.node_id) for c in new.coordinators] == [
            (key, broker.coordinator(key)) for key in "gh"
        ]
        share = FindCoordinatorRequest(coordinator_keys=["g"], key_type=2)
        assert (await client.call(share, 6)).coordinators[0].error_code == E.INVALID_REQUEST


async def test_members_outlive_their_coordinator(broker: Broker) -> None:
    home = broker.coordinator("g")
    async with connected(broker, home) as client:
        me = await joined(client)
        await client.call(sync(me.member_id, 1, **{me.member_id: b"all"}), 5)
        await broker.kill(home)
        assert await client.closed()
    assert broker.coordinator("g") == 3 - home
    async with connected(broker, 3 - home) as client:
        assert (await client.call(heartbeat(me.member_id, 1), 4)).error_code == E.NONE
        again = await client.call(sync(me.member_id, 1), 5)
        assert again.assignment == b"all"
    await broker.restart(home)
    assert broker.coordinator("g") == 3 - home


async def test_groups_are_described_and_listed(broker: Broker, client: RawClient) -> None:
    me = await joined(client)
    describe = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
    before = (await client.call(describe, 5)).groups[0]
    assert (before.group_state, before.protocol_data) == ("CompletingRebalance", "")
    await client.call(sync(me.member_id, 1, **{me.member_id: b"all"}), 5)
    (group,) = (await client.call(describe, 5)).groups
    assert (group.group_state, group.protocol_type, group.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    (member,) = group.members
    assert (member.member_id, member.client_id) == (me.member_id, "raw")
    assert (member.client_host, member.member_metadata) == ("/127.0.0.1", b"meta")
    assert member.member_assignment == b"all"
    await client.send(join(me.member_id), 9)
    await client.receive(ApiKey.JOIN_GROUP, 9)
    (group,) = (await client.call(describe, 5)).groups
    # The earlier assignment stays visible during the rebalance.
    assert (group.group_state, group.protocol_data) == ("CompletingRebalance", "")
    (member,) = group.members
    assert (member.member_metadata, member.member_assignment) == (b"", b"all")
    await client.call(sync(me.member_id, 2, **{me.member_id: b"all"}), 5)
    for request, found in (
        (ListGroupsRequest(), ["g"]),
        (ListGroupsRequest(states_filter=["stable"]), ["g"]),
        (ListGroupsRequest(states_filter=["Empty"]), []),
        (ListGroupsRequest(types_filter=["Classic"]), ["g"]),
        (ListGroupsRequest(types_filter=["consumer"]), []),
    ):
        response = await client.call(request, 5)
        assert [g.group_id for g in response.groups] == found
    async with connected(broker, 3 - broker.coordinator("g")) as other:
        assert (await other.call(ListGroupsRequest(), 5)).groups == []


async def test_groups_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_coordinator, "MAX_GROUPS", 2)
    async with Broker() as broker, connected(broker) as client:
        for name in ("a", "b"):
            await client.call(join(group=name), 3)
        full = await client.call(join(group="c"), 3)
        assert full.error_code == E.COORDINATOR_NOT_AVAILABLE
        (member,) = broker._running.group_coordinator.get("a").members  # type: ignore[union-attr]
        await client.call(LeaveGroupRequest(group_id="a", member_id=member), 2)
        assert (await client.call(join(group="c"), 3)).error_code == E.NONE


async def test_producer_ids(broker: Broker) -> None:
    def request(name: str | None, timeout_ms: int = 1_000, **f: int) -> InitProducerIdRequest:
        return InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms, **f)

    async with connected(broker, broker.coordinator("tx")) as client:
        plain = [await client.call(request(None), 4) for _ in range(2)]
        assert plain[0].producer_id != plain[1].producer_id
        first = await client.call(request("tx"), 4)
        assert (first.error_code, first.producer_epoch) == (E.NONE, 0)
        ids = {"producer_id": first.producer_id, "producer_epoch": 0}
        assert (await client.call(request("tx", **ids), 4)).producer_epoch == 1
        await client.call(request("tx"), 4)
        assert (await client.call(request("tx", **ids), 4)).error_code == E.PRODUCER_FENCED
        assert (await client.call(request("tx", **ids), 3)).error_code == E.INVALID_PRODUCER_EPOCH
        late = await client.call(request("tx", timeout_ms=0), 4)
        assert late.error_code == E.INVALID_TRANSACTION_TIMEOUT
    async with connected(broker, 3 - broker.coordinator("tx")) as client:
        assert (await client.call(request("tx"), 4)).error_code == E.NOT_COORDINATOR
