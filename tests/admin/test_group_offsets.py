"""Requests about committed offsets, lag and resets: versions, refusals, odd answers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from aiokafkawire.admin import GroupLag, OffsetReset, PartitionLag
from aiokafkawire.admin.offset_reset import ResetTarget, parse_target
from aiokafkawire.errors import (
    AuthorizationFailed,
    BrokerError,
    PartialFailure,
    UnsupportedVersion,
)
from aiokafkawire.types import OffsetAndMetadata, TopicPartition
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages import describe_groups, list_offsets, offset_fetch
from aiokafkawire.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from aiokafkawire.wire.messages.offset_delete import OffsetDeleteResponse
from tests.admin.scripted import ScriptedAdmin, ScriptedCluster, coordinators_at

E = ErrorCode
TP = TopicPartition("t", 0)


@pytest.fixture
async def cluster(anyio_backend: object) -> ScriptedCluster:
    cluster = ScriptedCluster(leaders={("t", 0): 1, ("t", 1): 2})
    cluster.answer(ApiKey.FIND_COORDINATOR, coordinators_at(2))
    cluster.answer(
        ApiKey.CONSUMER_GROUP_DESCRIBE, lambda _: UnsupportedVersion("classic groups alone")
    )
    cluster.answer(ApiKey.DESCRIBE_GROUPS, described())
    return cluster


def described(*, members: int = 0, code: int = 0) -> Any:
    """Answer DescribeGroups with a group of this number of members, or with an error."""
    member = describe_groups.DescribedGroupMember(
        member_id="m", client_id="c", client_host="/h", member_metadata=b"", member_assignment=b""
    )
    return lambda request: describe_groups.DescribeGroupsResponse(
        groups=[
            describe_groups.DescribedGroup(
                group_id=request.groups[0],
                error_code=code,
                group_state="Stable" if members else "Empty",
                protocol_type="connect",
                protocol_data="",
                members=[member] * members,
            )
        ]
    )


@pytest.fixture
async def admin(cluster: ScriptedCluster) -> ScriptedAdmin:
    return ScriptedAdmin(cluster)


def fetched(**offsets: int) -> Any:
    """Answer with the offset of partition 0 of `t`, or minus an error code, by group."""

    def partition(offset: int) -> Any:
        return offset_fetch.OffsetFetchResponsePartitions(
            partition_index=0,
            committed_offset=max(offset, 0),
            committed_leader_epoch=-1,
            metadata=None,
            error_code=max(-offset, 0),
        )

    return lambda request: offset_fetch.OffsetFetchResponse(
        groups=[
            offset_fetch.OffsetFetchResponseGroup(
                group_id=group,
                topics=[
                    offset_fetch.OffsetFetchResponseTopics(name="t", partitions=[partition(offset)])
                ],
            )
            for group, offset in offsets.items()
            if group in {each.group_id for each in request.groups}
        ]
    )


def ends(**by_timestamp: int) -> Any:
    """Answer ListOffsets with offsets for `start`, `end` and `time`."""
    names = {-2: "start", -1: "end"}

    def answer(request: Any) -> Any:
        return list_offsets.ListOffsetsResponse(
            topics=[
                list_offsets.ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        list_offsets.ListOffsetsPartitionResponse(
                            partition_index=each.partition_index,
                            error_code=0,
                            timestamp=-1,
                            offset=by_timestamp[names.get(each.timestamp, "time")],
                            leader_epoch=0,
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    return answer


async def test_one_request_has_the_groups_of_a_coordinator(
    cluster: ScriptedCluster, admin: ScriptedAdmin
):
    cluster.answer(ApiKey.OFFSET_FETCH, fetched(a=1, b=2))
    assert await admin.list_consumer_group_offsets(["a", "b"]) == {
        "a": {TP: OffsetAndMetadata(1)},
        "b": {TP: OffsetAndMetadata(2)},
    }
    (sent,) = cluster.requests(ApiKey.OFFSET_FETCH)
    assert sent.version == 9


async def test_a_refused_partition_is_not_overlooked(
    cluster: ScriptedCluster, admin: ScriptedAdmin
):
    cluster.answer(ApiKey.OFFSET_FETCH, fetched(a=-E.TOPIC_AUTHORIZATION_FAILED, b=2))
    with pytest.raises(PartialFailure) as caught:
        await admin.list_consumer_group_offsets(["a", "b"])
    assert list(caught.value.succeeded) == ["b"]
    inner = caught.value.failed["a"]
    assert isinstance(inner, PartialFailure)
    assert list(inner.failed) == [TP]


async def test_offsets_of_open_transactions_are_waited_for(
    cluster: ScriptedCluster, admin: ScriptedAdmin
):
    cluster.answer(ApiKey.OFFSET_FETCH, fetched(a=-E.UNSTABLE_OFFSET_COMMIT), fetched(a=3))
    offsets = await admin.list_consumer_group_offsets(["a"], require_stable=True)
    assert offsets == {"a": {TP: OffsetAndMetadata(3)}}
    assert cluster.sent[-1].message.require_stable


async def test_an_old_broker_gets_a_request_per_group(
    cluster: ScriptedCluster, admin: ScriptedAdmin
):
    cluster.versions[ApiKey.OFFSET_FETCH] = 5
    partition = offset_fetch.OffsetFetchResponsePartition(
        partition_index=0, committed_offset=-1, metadata="", error_code=0
    )
    cluster.answer(
        ApiKey.OFFSET_FETCH,
        lambda request: offset_fetch.OffsetFetchResponse(
            topics=[offset_fetch.OffsetFetchResponseTopic(name="t", partitions=[partition])],
            error_code=E.GROUP_AUTHORIZATION_FAILED if request.group_id == "b" else 0,
        ),
    )
    found = await admin.list_consumer_group_offsets({"a": [TP], "b": None}, return_errors=True)
    assert found["a"] == {TP: None}
    assert isinstance(found["b"], BrokerError)
    assert {sent.message.group_id for sent in cluster.requests(ApiKey.OFFSET_FETCH)} == {"a", "b"}
    with pytest.raises(UnsupportedVersion, match=r"2\.5"):
        await admin.list_consumer_group_offsets(["a"], require_stable=True)
    cluster.versions[ApiKey.OFFSET_FETCH] = 1
    with pytest.raises(UnsupportedVersion, match=r"0\.10\.2"):
        await admin.list_consumer_group_offsets(["a"])


@pytest.mark.parametrize("offset", [-1, 2**63, True, "5"])
async def test_only_offsets_are_committed(admin: ScriptedAdmin, offset: Any):
    with pytest.raises((TypeError, ValueError), match="offset"):
        await admin.alter_consumer_group_offsets("g", {TP: offset})


def committed(code: int) -> Any:
    partition = OffsetCommitResponsePartition(partition_index=0, error_code=code)
    topic = OffsetCommitResponseTopic(name="t", partitions=[partition])
    return lambda request: OffsetCommitResponse(throttle_time_ms=0, topics=[topic])


async def test_a_commit_is_repeated_while_the_group_rebalances(
    cluster: ScriptedCluster, admin: ScriptedAdmin
):
    cluster.answer(
        ApiKey.OFFSET_COMMIT,
        committed(E.REBALANCE_IN_PROGRESS),
        committed(E.NOT_COORDINATOR),
        committed(0),
    )
    altered = await admin.alter_consumer_group_offsets("g", {TP: OffsetAndMetadata(1, "m", 4)})
    assert altered == {TP: None}
    assert cluster.forgotten == ["g"]
    (partition,) = cluster.sent[-1].message.topics[0].partitions
    assert (partition.committed_metadata, partition.committed_leader_epoch) == ("m", 4)


async def test_a_group_with_members_is_named_as_the_reason(
    cluster: ScriptedCluster, admin: ScriptedAdmin
):
    cluster.answer(ApiKey.OFFSET_COMMIT, committed(E.UNKNOWN_MEMBER_ID))
    with pytest.raises(PartialFailure, match="the group has members; stop its consumers first"):
        await admin.alter_consumer_group_offsets("g", {TP: 1})


async def test_an_error_of_the_group_is_that_of_each_partition(
    cluster: ScriptedCluster, admin: ScriptedAdmin
):
    cluster.answer(
        ApiKey.OFFSET_DELETE,
        lambda request: OffsetDeleteResponse(error_code=E.GROUP_ID_NOT_FOUND, topics=[]),
    )
    deleted = await admin.delete_consumer_group_offsets("g", [TP, ("t", 1)], return_errors=True)
    assert [getattr(error, "code", 0) for error in deleted.values()] == [E.GROUP_ID_NOT_FOUND] * 2


async def test_the_lag_of_a_partition_whose_leader_fails_is_unknown(
    cluster: ScriptedCluster, admin: ScriptedAdmin
):
    cluster.answer(ApiKey.OFFSET_FETCH, fetched(a=1, b=2))
    cluster.leaders = {}
    lags = await admin.lag(["a", "b"])
    assert lags["a"].partitions[TP].lag is None
    assert lags["a"].lag is None
    assert cluster.requests(ApiKey.LIST_GROUPS) == []


def test_the_lag_of_a_group_is_known_if_that_of_each_partition_is():
    known, unknown = PartitionLag(1, 4), PartitionLag(1, None)
    other = TopicPartition("t", 1)
    assert GroupLag("g", {TP: known, other: known}).lag == 6
    assert GroupLag("g", {TP: known, other: unknown}).lag is None
    assert GroupLag("g", {}).lag is None


async def test_a_lag_is_never_negative(cluster: ScriptedCluster, admin: ScriptedAdmin):
    cluster.answer(ApiKey.OFFSET_FETCH, fetched(a=9))
    cluster.answer(ApiKey.LIST_OFFSETS, ends(end=5))
    lags = await admin.lag(["a"])
    assert isinstance(lags["a"], GroupLag)
    assert lags["a"].lag == 0


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({"to": "earliest"}, 3),
        ({"to": "latest"}, 8),
        ({"to": 5}, 5),
        ({"to": 1}, 3),
        ({"to": 100}, 8),
        ({"to": datetime(2020, 1, 1, tzinfo=UTC)}, 6),
        ({"shift_by": -1}, 3),
        ({"shift_by": 3}, 7),
    ],
)
async def test_resets_stay_within_the_log(
    cluster: ScriptedCluster, admin: ScriptedAdmin, target: dict[str, Any], expected: int
):
    cluster.answer(ApiKey.OFFSET_FETCH, fetched(g=4))
    cluster.answer(ApiKey.LIST_OFFSETS, ends(start=3, end=8, time=6))
    planned = await admin.reset_group_offsets("g", **target, dry_run=True)
    assert planned == {TP: OffsetReset(4, expected)}
    assert cluster.requests(ApiKey.OFFSET_COMMIT) == []


async def test_a_dry_run_fails_for_a_group_with_members(
    cluster: ScriptedCluster, admin: ScriptedAdmin
):
    cluster.answer(ApiKey.OFFSET_FETCH, fetched(g=4))
    cluster.answer(ApiKey.LIST_OFFSETS, ends(start=3, end=8))
    cluster.answer(ApiKey.DESCRIBE_GROUPS, described(members=1))
    cluster.answer(ApiKey.OFFSET_COMMIT, committed(E.UNKNOWN_MEMBER_ID))
    with pytest.raises(PartialFailure) as planned:
        await admin.reset_group_offsets("g", to="latest", dry_run=True)
    assert cluster.requests(ApiKey.OFFSET_COMMIT) == []
    with pytest.raises(PartialFailure) as real:
        await admin.reset_group_offsets("g", to="latest")
    error = planned.value.failed[TP]
    assert error.code == E.UNKNOWN_MEMBER_ID
    assert error.reason == real.value.failed[TP].reason
    cluster.answer(ApiKey.DESCRIBE_GROUPS, described(code=E.GROUP_AUTHORIZATION_FAILED))
    with pytest.raises(AuthorizationFailed):
        await admin.reset_group_offsets("g", to="latest", dry_run=True)


async def test_a_time_after_the_last_record_is_the_end(
    cluster: ScriptedCluster, admin: ScriptedAdmin
):
    cluster.answer(ApiKey.OFFSET_FETCH, fetched(g=4))
    cluster.answer(ApiKey.LIST_OFFSETS, ends(start=3, end=8, time=-1))
    planned = await admin.reset_group_offsets(
        "g", [TP], to=datetime(2020, 1, 1, tzinfo=UTC), dry_run=True
    )
    assert planned == {TP: OffsetReset(4, 8)}


async def test_an_old_broker_resets_the_partitions_that_are_given(
    cluster: ScriptedCluster, admin: ScriptedAdmin
):
    cluster.versions[ApiKey.OFFSET_FETCH] = 1
    partition = offset_fetch.OffsetFetchResponsePartition(
        partition_index=0, committed_offset=4, metadata="", error_code=0
    )
    cluster.answer(
        ApiKey.OFFSET_FETCH,
        lambda request: offset_fetch.OffsetFetchResponse(
            topics=[offset_fetch.OffsetFetchResponseTopic(name="t", partitions=[partition])]
        ),
    )
    cluster.answer(ApiKey.LIST_OFFSETS, ends(start=3, end=8))
    planned = await admin.reset_group_offsets("g", [TP], to="latest", dry_run=True)
    assert planned == {TP: OffsetReset(4, 8)}
    with pytest.raises(UnsupportedVersion, match=r"0\.10\.2"):
        await admin.reset_group_offsets("g", to="latest")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((None, None), "either"),
        (("latest", 3), "either"),
        (("newest", None), "newest"),
        ((datetime(2020, 1, 1), None), "time zone"),
        ((datetime(1960, 1, 1, tzinfo=UTC), None), "1970"),
        ((-5, None), "negative"),
        ((1.5, None), "float"),
    ],
)
def test_impossible_targets(arguments: tuple[Any, Any], error: str):
    with pytest.raises((ValueError, TypeError), match=error):
        parse_target(*arguments)


def test_targets():
    assert parse_target("latest", None) == ResetTarget(timestamp=-1)
    assert parse_target(None, 0) == ResetTarget(shift_by=0)
    assert parse_target(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), None).timestamp == 1_000
