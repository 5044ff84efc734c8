"""What a consumer does about each error of its group's coordinator."""

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
from aiokafkawire.wire.messages.heartbeat import HeartbeatRequest
from aiokafkawire.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from aiokafkawire.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from aiokafkawire.wire.messages.sync_group import SyncGroupRequest

from .seeing import VALUES, WITHIN_S, Answering, Seen, answering
from .table import Does, Row, rows_of

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
    """Notes how partitions went."""

    def __init__(self) -> None:
        self.lost = 0
        self.revoked = 0

    async def on_partitions_revoked(self, partitions: Any) -> None:
        self.revoked += 1

    async def on_partitions_lost(self, partitions: Any) -> None:
        self.lost += 1


@asynccontextmanager
async def alone(seen: Seen, **options: Any) -> AsyncIterator[Consumer]:
    """A consumer that commits for a group and is no member of it."""
    options = seen.options | options
    async with Consumer(**options, group_id=seen.group_id, enable_auto_commit=False) as consumer:
        consumer.assign(seen.partition)
        # So it asks for what is committed only when it is told to.
        consumer.seek(seen.partition, 0)
        yield consumer


def member(seen: Seen, row: Row) -> Consumer:
    """A member that reads from the beginning."""
    anew = row.does is Does.REJOIN_ANEW
    keeps = row.does is Does.AFTER_REBALANCE
    return Consumer(
        **seen.options,
        group_id=seen.group_id,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=HEARTBEAT_MS,
        # The default would be tried again with a lower one. Whoever joins anew waits for the end of
        # the member that the broker still has, whatever it was told to say.
        session_timeout_ms=BRIEF_SESSION_MS if anew else 10_000,
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
    """Be an application that calls, until something holds; give what came."""
    found: list[bytes | None] = []
    while not holds():
        for records in (await consumer.getmany(timeout_ms=5)).values():
            found += records.values()
    return found


# --- finding the coordinator ------------------------------------------------------------------


@pytest.mark.parametrize("row", rows_of(ApiKey.FIND_COORDINATOR), ids=lambda row: row.name)
async def test_find_coordinator(seen: Seen, row: Row) -> None:
    async with member(seen, row) as consumer:
        seen.fault(row)
        consumer.subscribe(seen.topic)
        with anyio.fail_after(WITHIN_S):
            if row.does is Does.FAIL:
                with pytest.raises(KafkaError) as caught:
                    await read(consumer)
                seen.says(caught.value, row, "broker", "group")
            assert await read(consumer) == [*VALUES]
        assert len(seen.after(row.api)) == 1


# --- membership -------------------------------------------------------------------------------


def id_of(request: SeenRequest) -> str:
    assert isinstance(request.message, JoinGroupRequest | SyncGroupRequest | HeartbeatRequest)
    return request.message.member_id


def joined_again(seen: Seen, row: Row) -> bool:
    """Whether a JoinGroup came after the answer; checks as whom, and what came before it."""
    joins = seen.after(ApiKey.JOIN_GROUP)
    if not joins:
        return False
    assert seen.answered is not None
    before, after = id_of(seen.answered), id_of(joins[0])
    if row.does is Does.REJOIN_ANEW:
        assert before, "the code is about a member with an id"
        assert after == ""
    elif row.does is Does.JOIN_AS_TOLD:
        assert after == ID_GIVEN
    else:
        assert after == before != ""
    apis = [each.api_key for each in seen.after()]
    looked = ApiKey.FIND_COORDINATOR in apis[: apis.index(ApiKey.JOIN_GROUP)]
    assert looked == (row.does is Does.FIND)
    return True


ID_GIVEN = "the-id-given"


def giving_an_id(seen: SeenRequest) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=ErrorCode.MEMBER_ID_REQUIRED,
        protocol_name=None,
        leader="",
        member_id=ID_GIVEN,
        members=[],
    )


@pytest.mark.parametrize("row", rows_of(ApiKey.JOIN_GROUP), ids=lambda row: row.name)
async def test_join_group(seen: Seen, row: Row) -> None:
    # The first JoinGroup of a member only gets it an id.
    action: Answering = answering(row.code, lambda message: message.member_id)
    if row.does is Does.JOIN_AS_TOLD:
        action = giving_an_id
    async with member(seen, row) as consumer:
        seen.fault(row, action)
        consumer.subscribe(seen.topic)
        with anyio.fail_after(WITHIN_S):
            if row.does is Does.FAIL:
                with pytest.raises(KafkaError) as caught:
                    await read(consumer)
                seen.says(caught.value, row, "broker", "group")
                assert isinstance(caught.value, GroupFailed) == (row.code in GROUP_CODES)
            assert await read(consumer) == [*VALUES]
        assert row.does is Does.FAIL or joined_again(seen, row)


@pytest.mark.parametrize("row", rows_of(ApiKey.SYNC_GROUP), ids=lambda row: row.name)
async def test_sync_group(seen: Seen, row: Row) -> None:
    async with member(seen, row) as consumer:
        seen.fault(row)
        consumer.subscribe(seen.topic)
        with anyio.fail_after(WITHIN_S):
            if row.does is Does.FAIL:
                with pytest.raises(KafkaError) as caught:
                    await read(consumer)
                seen.says(caught.value, row, "broker", "group")
            assert await read(consumer) == [*VALUES]
        assert row.does is Does.FAIL or joined_again(seen, row)


@pytest.mark.parametrize("row", rows_of(ApiKey.HEARTBEAT), ids=lambda row: row.name)
async def test_heartbeat(seen: Seen, row: Row) -> None:
    notes = Notes()
    async with member(seen, row) as consumer:
        consumer.subscribe(seen.topic, listener=notes)
        with anyio.fail_after(WITHIN_S):
            assert await read(consumer) == [*VALUES]
            await consumer.commit()
            seen.fault(row)
            if row.does is Does.FAIL:
                with pytest.raises(KafkaError) as caught:
                    await poll_until(consumer, lambda: False)
                seen.says(caught.value, row, "broker", "group")
            elif row.does is Does.FIND:
                await seen.acts(row)
                assert not seen.after(ApiKey.JOIN_GROUP)
            else:
                again = await poll_until(consumer, lambda: joined_again(seen, row))
                again += await poll_until(consumer, consumer.assignment)
                assert again == [], "what was committed does not come again"
                assert (notes.lost > 0, notes.revoked > 0) == WENT[row.code]


WENT = {
    ErrorCode.ILLEGAL_GENERATION: (True, False),
    ErrorCode.UNKNOWN_MEMBER_ID: (True, False),
    ErrorCode.REBALANCE_IN_PROGRESS: (False, True),
}
"""Whether partitions were lost, and revoked, after an answer to a heartbeat."""


@pytest.mark.parametrize("row", rows_of(ApiKey.LEAVE_GROUP), ids=lambda row: row.name)
async def test_leave_group(seen: Seen, row: Row) -> None:
    async with member(seen, row) as consumer:
        consumer.subscribe(seen.topic)
        with anyio.fail_after(WITHIN_S):
            assert await read(consumer) == [*VALUES]
            seen.fault(row)
            await consumer.stop()
    if row.does is Does.IGNORE:
        assert seen.after() == []
    else:
        await seen.acts(row)


# --- offsets ----------------------------------------------------------------------------------


@pytest.mark.parametrize("row", rows_of(ApiKey.OFFSET_COMMIT), ids=lambda row: row.name)
async def test_offset_commit(seen: Seen, row: Row) -> None:
    async with member(seen, row) as consumer:
        consumer.subscribe(seen.topic)
        with anyio.fail_after(WITHIN_S):
            assert await read(consumer) == [*VALUES]
            if row.does is Does.AFTER_REBALANCE:
                # A heartbeat says so, too; and the application goes on calling.
                seen.broker.on(ApiKey.HEARTBEAT, answering(row.code), times=1)
            seen.fault(row)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(poll_until, consumer, lambda: False)
                if row.does is Does.FAIL:
                    with pytest.raises(KafkaError) as caught:
                        await consumer.commit({seen.partition: 1})
                    seen.says(caught.value, row, "broker", "group", "topic", "partition")
                    assert isinstance(caught.value, CommitFailed) == (row.code in FENCING_CODES)
                    if row.code in FENCING_CODES:
                        await seen.sent(ApiKey.HEARTBEAT)
                else:
                    await consumer.commit({seen.partition: 1})
                tasks.cancel_scope.cancel()
            if row.does is Does.AFTER_REBALANCE:
                apis = [each.api_key for each in seen.after()]
                assert apis.index(ApiKey.SYNC_GROUP) < apis.index(ApiKey.OFFSET_COMMIT)
            elif row.does is not Does.FAIL:
                await seen.acts(row)
    async with alone(seen) as consumer:
        kept = await consumer.committed(seen.partition)
    assert kept == {seen.partition: None if row.does is Does.FAIL else committed(1)}


def committed(offset: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, "", -1)


def of_a_partition(code: ErrorCode) -> Answering:
    """Answer an OffsetFetch with a code of each partition."""

    def answer(seen: SeenRequest) -> OffsetFetchResponse:
        assert isinstance(seen.message, OffsetFetchRequest)
        (group,) = seen.message.groups
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(
                    group_id=group.group_id,
                    topics=[
                        OffsetFetchResponseTopics(
                            name=topic.name,
                            topic_id=topic.topic_id,
                            partitions=[
                                OffsetFetchResponsePartitions(
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
async def test_offset_fetch(seen: Seen, row: Row) -> None:
    of_topic = row.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    async with alone(seen) as consumer:
        await consumer.commit({seen.partition: 1})
        seen.fault(row, of_a_partition(row.code) if of_topic else None)
        with anyio.fail_after(WITHIN_S):
            if row.does is Does.AS_NONE:
                await nothing_in_zookeeper(seen, row)
            elif row.does is Does.FAIL:
                with pytest.raises(KafkaError) as caught:
                    await consumer.committed(seen.partition)
                known = ("topic", "partition") if of_topic else ()
                seen.says(caught.value, row, "broker", "group", *known)
            else:
                found = await consumer.committed(seen.partition)
                assert found == {seen.partition: committed(1)}
                await seen.acts(row)


async def nothing_in_zookeeper(seen: Seen, row: Row) -> None:
    async with alone(seen, offsets_storage="zookeeper") as consumer:
        assert await consumer.committed(seen.partition) == {seen.partition: None}
        assert [each.version for each in seen.requests(row.api)] == [0]


async def test_a_position_is_found_after_each_error(seen: Seen) -> None:
    rows = [row for row in rows_of(ApiKey.OFFSET_FETCH) if row.does in {Does.REPEAT, Does.FIND}]
    async with alone(seen) as consumer:
        await consumer.commit({seen.partition: 1})
    for row in rows:
        seen.fault(row)
        options = seen.options | {"group_id": seen.group_id, "enable_auto_commit": False}
        async with Consumer(**options) as consumer:
            consumer.assign(seen.partition)
            with anyio.fail_after(WITHIN_S):
                assert (await consumer.getone()).offset == 1
