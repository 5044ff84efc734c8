"""Reaction of a consumer to each error of the group coordinator."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from aiokafkawire.broker import ApiKey, ErrorCode, SeenRequest
from aiokafkawire.consumer import Consumer, RebalanceListener
from aiokafkawire.errors import CommitFailed, GroupFailed, KafkaError
from aiokafkawire.types import OffsetAndMetadata
from aiokafkawire.wire.messages import heartbeat, join_group, offset_fetch, sync_group

from .observer import VALUES, WITHIN_S, FaultAction, Observer, respond_with
from .table import Reaction, Row, rows_of

pytestmark = pytest.mark.slow

HEARTBEAT_MS = 20
BRIEF_SESSION_MS = 300

GROUP_CODES = (
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.INVALID_SESSION_TIMEOUT,
)
FENCING_CODES = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)


class Notes(RebalanceListener):
    """Counts lost and revoked partitions."""

    def __init__(self) -> None:
        self.lost = 0
        self.revoked = 0

    async def on_partitions_revoked(self, partitions: Any) -> None:
        self.revoked += 1

    async def on_partitions_lost(self, partitions: Any) -> None:
        self.lost += 1


@asynccontextmanager
async def alone(observer: Observer, **options: Any) -> AsyncIterator[Consumer]:
    """Consumer that commits for a group without being a member."""
    options = observer.options | options
    async with Consumer(
        **options, group_id=observer.group_id, enable_auto_commit=False
    ) as consumer:
        consumer.assign(observer.partition)
        # With a position, it fetches committed offsets only on request.
        consumer.seek(observer.partition, 0)
        yield consumer


def member(observer: Observer, row: Row) -> Consumer:
    """Return a group member that reads from the beginning."""
    as_new_member = row.reaction is Reaction.REJOIN_AS_NEW_MEMBER
    keeps = row.reaction is Reaction.RETRY_AFTER_REBALANCE
    return Consumer(
        **observer.options,
        group_id=observer.group_id,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=HEARTBEAT_MS,
        # The default would be retried with a lower one. A new member must wait until the session of
        # its old member id expires at the broker.
        session_timeout_ms=BRIEF_SESSION_MS if as_new_member else 10_000,
        partition_assignment_strategy="cooperative-sticky" if keeps else "range",
        fetch_max_wait_ms=10,
    )


async def read(consumer: Consumer) -> list[bytes | None]:
    found: list[bytes | None] = []
    while len(found) < len(VALUES):
        for records in (await consumer.getmany(timeout_ms=1_000)).values():
            found += records.values()
    return found


async def poll_until(consumer: Consumer, holds: Callable[[], object]) -> list[bytes | None]:
    """Poll until a condition holds; return the values that were delivered."""
    found: list[bytes | None] = []
    while not holds():
        for records in (await consumer.getmany(timeout_ms=5)).values():
            found += records.values()
    return found


# --- finding the coordinator ------------------------------------------------------------------


@pytest.mark.parametrize("row", rows_of(ApiKey.FIND_COORDINATOR), ids=lambda row: row.name)
async def test_find_coordinator(observer: Observer, row: Row) -> None:
    async with member(observer, row) as consumer:
        observer.fault(row)
        consumer.subscribe(observer.topic)
        with anyio.fail_after(WITHIN_S):
            if row.reaction is Reaction.RAISE:
                with pytest.raises(KafkaError) as caught:
                    await read(consumer)
                observer.check_error(caught.value, row, "broker", "group")
            assert await read(consumer) == [*VALUES]
        assert len(observer.after(row.api)) == 1


# --- membership -------------------------------------------------------------------------------


def id_of(request: SeenRequest) -> str:
    assert isinstance(
        request.message,
        join_group.JoinGroupRequest | sync_group.SyncGroupRequest | heartbeat.HeartbeatRequest,
    )
    return request.message.member_id


def joined_again(observer: Observer, row: Row) -> bool:
    """Return True after a JoinGroup; check its member id and the requests before it."""
    joins = observer.after(ApiKey.JOIN_GROUP)
    if not joins:
        return False
    assert observer.faulted_request is not None
    before, after = id_of(observer.faulted_request), id_of(joins[0])
    if row.reaction is Reaction.REJOIN_AS_NEW_MEMBER:
        assert before, "the code concerns a member with an id"
        assert after == ""
    elif row.reaction is Reaction.JOIN_WITH_GIVEN_ID:
        assert after == ID_GIVEN
    else:
        assert after == before != ""
    apis = [each.api_key for each in observer.after()]
    looked = ApiKey.FIND_COORDINATOR in apis[: apis.index(ApiKey.JOIN_GROUP)]
    assert looked == (row.reaction is Reaction.FIND_COORDINATOR)
    return True


ID_GIVEN = "the-id-given"


def giving_an_id(request: SeenRequest) -> join_group.JoinGroupResponse:
    return join_group.JoinGroupResponse(
        error_code=ErrorCode.MEMBER_ID_REQUIRED,
        protocol_name=None,
        leader="",
        member_id=ID_GIVEN,
        members=[],
    )


@pytest.mark.parametrize("row", rows_of(ApiKey.JOIN_GROUP), ids=lambda row: row.name)
async def test_join_group(observer: Observer, row: Row) -> None:
    # The first JoinGroup of a member only obtains a member id.
    action: FaultAction = respond_with(row.code, lambda message: message.member_id)
    if row.reaction is Reaction.JOIN_WITH_GIVEN_ID:
        action = giving_an_id
    async with member(observer, row) as consumer:
        observer.fault(row, action)
        consumer.subscribe(observer.topic)
        with anyio.fail_after(WITHIN_S):
            if row.reaction is Reaction.RAISE:
                with pytest.raises(KafkaError) as caught:
                    await read(consumer)
                observer.check_error(caught.value, row, "broker", "group")
                assert isinstance(caught.value, GroupFailed) == (row.code in GROUP_CODES)
            assert await read(consumer) == [*VALUES]
        assert row.reaction is Reaction.RAISE or joined_again(observer, row)


@pytest.mark.parametrize("row", rows_of(ApiKey.SYNC_GROUP), ids=lambda row: row.name)
async def test_sync_group(observer: Observer, row: Row) -> None:
    async with member(observer, row) as consumer:
        observer.fault(row)
        consumer.subscribe(observer.topic)
        with anyio.fail_after(WITHIN_S):
            if row.reaction is Reaction.RAISE:
                with pytest.raises(KafkaError) as caught:
                    await read(consumer)
                observer.check_error(caught.value, row, "broker", "group")
            assert await read(consumer) == [*VALUES]
        assert row.reaction is Reaction.RAISE or joined_again(observer, row)


@pytest.mark.parametrize("row", rows_of(ApiKey.HEARTBEAT), ids=lambda row: row.name)
async def test_heartbeat(observer: Observer, row: Row) -> None:
    notes = Notes()
    async with member(observer, row) as consumer:
        consumer.subscribe(observer.topic, listener=notes)
        with anyio.fail_after(WITHIN_S):
            assert await read(consumer) == [*VALUES]
            await consumer.commit()
            observer.fault(row)
            if row.reaction is Reaction.RAISE:
                with pytest.raises(KafkaError) as caught:
                    await poll_until(consumer, lambda: False)
                observer.check_error(caught.value, row, "broker", "group")
            elif row.reaction is Reaction.FIND_COORDINATOR:
                await observer.check_reaction(row)
                assert not observer.after(ApiKey.JOIN_GROUP)
            else:
                again = await poll_until(consumer, lambda: joined_again(observer, row))
                again += await poll_until(consumer, consumer.assignment)
                assert again == [], "committed records are not delivered again"
                assert (notes.lost > 0, notes.revoked > 0) == WENT[row.code]


WENT = {
    ErrorCode.ILLEGAL_GENERATION: (True, False),
    ErrorCode.UNKNOWN_MEMBER_ID: (True, False),
    ErrorCode.REBALANCE_IN_PROGRESS: (False, True),
}
"""(lost, revoked) partitions after an error response to a heartbeat."""


@pytest.mark.parametrize("row", rows_of(ApiKey.LEAVE_GROUP), ids=lambda row: row.name)
async def test_leave_group(observer: Observer, row: Row) -> None:
    async with member(observer, row) as consumer:
        consumer.subscribe(observer.topic)
        with anyio.fail_after(WITHIN_S):
            assert await read(consumer) == [*VALUES]
            observer.fault(row)
            await consumer.stop()
    if row.reaction is Reaction.IGNORE:
        assert observer.after() == []
    else:
        await observer.check_reaction(row)


# --- offsets ----------------------------------------------------------------------------------


@pytest.mark.parametrize("row", rows_of(ApiKey.OFFSET_COMMIT), ids=lambda row: row.name)
async def test_offset_commit(observer: Observer, row: Row) -> None:
    async with member(observer, row) as consumer:
        consumer.subscribe(observer.topic)
        with anyio.fail_after(WITHIN_S):
            assert await read(consumer) == [*VALUES]
            if row.reaction is Reaction.RETRY_AFTER_REBALANCE:
                # A heartbeat returns the code too, and the application keeps polling.
                observer.broker.on(ApiKey.HEARTBEAT, respond_with(row.code), times=1)
            observer.fault(row)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(poll_until, consumer, lambda: False)
                if row.reaction is Reaction.RAISE:
                    with pytest.raises(KafkaError) as caught:
                        await consumer.commit({observer.partition: 1})
                    observer.check_error(caught.value, row, "broker", "group", "topic", "partition")
                    assert isinstance(caught.value, CommitFailed) == (row.code in FENCING_CODES)
                    if row.code in FENCING_CODES:
                        await observer.wait_for(ApiKey.HEARTBEAT)
                else:
                    await consumer.commit({observer.partition: 1})
                tasks.cancel_scope.cancel()
            if row.reaction is Reaction.RETRY_AFTER_REBALANCE:
                apis = [each.api_key for each in observer.after()]
                assert apis.index(ApiKey.SYNC_GROUP) < apis.index(ApiKey.OFFSET_COMMIT)
            elif row.reaction is not Reaction.RAISE:
                await observer.check_reaction(row)
    async with alone(observer) as consumer:
        kept = await consumer.committed(observer.partition)
    assert kept == {observer.partition: None if row.reaction is Reaction.RAISE else committed(1)}


def committed(offset: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, "", -1)


def of_a_partition(code: ErrorCode) -> FaultAction:
    """Return a fault action that responds to OffsetFetch with a code for each partition."""

    def answer(request: SeenRequest) -> offset_fetch.OffsetFetchResponse:
        assert isinstance(request.message, offset_fetch.OffsetFetchRequest)
        (group,) = request.message.groups
        return offset_fetch.OffsetFetchResponse(
            groups=[
                offset_fetch.OffsetFetchResponseGroup(
                    group_id=group.group_id,
                    topics=[
                        offset_fetch.OffsetFetchResponseTopics(
                            name=topic.name,
                            topic_id=topic.topic_id,
                            partitions=[
                                offset_fetch.OffsetFetchResponsePartitions(
                                    partition_index=index,
                                    committed_offset=-1,
                                    metadata="",
                                    error_code=code,
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in group.topics or []
                    ],
                )
            ]
        )

    return answer


@pytest.mark.parametrize("row", rows_of(ApiKey.OFFSET_FETCH), ids=lambda row: row.name)
async def test_offset_fetch(observer: Observer, row: Row) -> None:
    of_topic = row.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    async with alone(observer) as consumer:
        await consumer.commit({observer.partition: 1})
        observer.fault(row, of_a_partition(row.code) if of_topic else None)
        with anyio.fail_after(WITHIN_S):
            if row.reaction is Reaction.TREAT_AS_SUCCESS:
                await nothing_in_zookeeper(observer, row)
            elif row.reaction is Reaction.RAISE:
                with pytest.raises(KafkaError) as caught:
                    await consumer.committed(observer.partition)
                known = ("topic", "partition") if of_topic else ()
                observer.check_error(caught.value, row, "broker", "group", *known)
            else:
                found = await consumer.committed(observer.partition)
                assert found == {observer.partition: committed(1)}
                await observer.check_reaction(row)


async def nothing_in_zookeeper(observer: Observer, row: Row) -> None:
    async with alone(observer, offsets_storage="zookeeper") as consumer:
        assert await consumer.committed(observer.partition) == {observer.partition: None}
        assert [each.version for each in observer.requests(row.api)] == [0]


async def test_a_position_is_found_after_each_error(observer: Observer) -> None:
    rows = [
        row
        for row in rows_of(ApiKey.OFFSET_FETCH)
        if row.reaction in {Reaction.RETRY, Reaction.FIND_COORDINATOR}
    ]
    async with alone(observer) as consumer:
        await consumer.commit({observer.partition: 1})
    for row in rows:
        observer.fault(row)
        options = observer.options | {"group_id": observer.group_id, "enable_auto_commit": False}
        async with Consumer(**options) as consumer:
            consumer.assign(observer.partition)
            with anyio.fail_after(WITHIN_S):
                assert (await consumer.getone()).offset == 1
