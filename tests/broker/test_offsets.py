"""OffsetCommit and OffsetFetch over real sockets, and the store behind them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from aiokafkawire.broker import Broker, json_lines
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.groups import CommittedOffset, OffsetStore, offsets
from aiokafkawire.broker.groups.offsets import OffsetsStorage
from aiokafkawire.broker.storage import DirectoryStore, MemoryStore
from aiokafkawire.errors import KafkaError
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ZERO_UUID, ErrorCode
from aiokafkawire.wire.messages import offset_commit, offset_fetch

from .raw_client import RawClient, build_update_metadata_request, connected, only

E = ErrorCode
TP = TopicPartition("t", 0)


def commit(
    offset: int,
    *,
    topic: str = "t",
    topic_id: UUID = ZERO_UUID,
    partition: int = 0,
    metadata: str | None = None,
    epoch: int = -1,
    **fields: Any,
) -> offset_commit.OffsetCommitRequest:
    asked = offset_commit.OffsetCommitRequestPartition(
        partition_index=partition,
        committed_offset=offset,
        committed_leader_epoch=epoch,
        committed_metadata=metadata,
    )
    given = offset_commit.OffsetCommitRequestTopic(
        name=topic, topic_id=topic_id, partitions=[asked]
    )
    return offset_commit.OffsetCommitRequest(group_id="g", topics=[given], **fields)


def fetch(*partitions: int) -> offset_fetch.OffsetFetchRequest:
    topics = [offset_fetch.OffsetFetchRequestTopic(name="t", partition_indexes=list(partitions))]
    return offset_fetch.OffsetFetchRequest(group_id="g", topics=topics)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(nodes=2) as broker:
        await broker.create_topic("t", partitions=2)
        yield broker


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[RawClient]:
    async with connected(broker, broker.coordinator("g")) as client:
        yield client


async def test_what_was_committed_is_fetched(client: RawClient) -> None:
    answer = only(await client.call(commit(5, metadata="note", epoch=2), 8))
    assert answer.error_code == E.NONE
    response = await client.call(fetch(0, 1), 7)
    known, unknown = response.topics[0].partitions
    assert (known.committed_offset, known.metadata, known.committed_leader_epoch) == (5, "note", 2)
    assert (unknown.committed_offset, unknown.metadata, unknown.error_code) == (-1, "", E.NONE)


async def test_several_groups_and_all_their_topics(client: RawClient, broker: Broker) -> None:
    await client.call(commit(5), 8)
    topic_id = (await client.call(build_update_metadata_request("t"), 12)).topics[0].topic_id
    group = offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=None)
    by_name = (await client.call(offset_fetch.OffsetFetchRequest(groups=[group]), 9)).groups[0]
    assert [(t.name, [p.committed_offset for p in t.partitions]) for t in by_name.topics] == [
        ("t", [5])
    ]
    by_id = (await client.call(offset_fetch.OffsetFetchRequest(groups=[group]), 10)).groups[0]
    assert by_id.topics[0].topic_id == topic_id
    everything = offset_fetch.OffsetFetchRequest(group_id="g", topics=None)
    assert (await client.call(everything, 7)).topics[0].name == "t"
    unknown = offset_fetch.OffsetFetchRequestTopics(topic_id=UUID(int=9), partition_indexes=[0])
    group = offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=[unknown])
    answer = (await client.call(offset_fetch.OffsetFetchRequest(groups=[group]), 10)).groups[0]
    assert answer.topics[0].partitions[0].error_code == E.UNKNOWN_TOPIC_ID


async def test_commits_by_topic_id(client: RawClient) -> None:
    topic_id = (await client.call(build_update_metadata_request("t"), 12)).topics[0].topic_id
    answer = only(await client.call(commit(6, topic="", topic_id=topic_id), 10))
    assert answer.error_code == E.NONE
    unknown = only(await client.call(commit(6, topic="", topic_id=UUID(int=9)), 10))
    assert unknown.error_code == E.UNKNOWN_TOPIC_ID
    assert (await client.call(fetch(0), 7)).topics[0].partitions[0].committed_offset == 6


@pytest.mark.parametrize(
    ("request_", "version", "code"),
    [
        (commit(1, topic="nowhere"), 8, E.UNKNOWN_TOPIC_OR_PARTITION),
        (commit(1, partition=7), 8, E.UNKNOWN_TOPIC_OR_PARTITION),
        (commit(1, metadata="x" * 5_000), 8, E.OFFSET_METADATA_TOO_LARGE),
        (commit(1, generation_id_or_member_epoch=3, member_id="m"), 8, E.ILLEGAL_GENERATION),
        (commit(1, generation_id_or_member_epoch=3, member_id="m"), 9, E.GROUP_ID_NOT_FOUND),
    ],
)
async def test_bad_commits_are_refused(
    client: RawClient, request_: offset_commit.OffsetCommitRequest, version: int, code: ErrorCode
) -> None:
    assert only(await client.call(request_, version)).error_code == code
    assert (await client.call(fetch(0), 7)).topics[0].partitions[0].committed_offset == -1


async def test_a_stranger_in_a_known_group_is_refused(client: RawClient) -> None:
    await client.call(commit(1), 8)
    stranger = commit(2, generation_id_or_member_epoch=0, member_id="m")
    assert only(await client.call(stranger, 8)).error_code == E.UNKNOWN_MEMBER_ID


async def test_version_0_keeps_offsets_apart_and_at_any_node(broker: Broker) -> None:
    async with connected(broker, 3 - broker.coordinator("g")) as client:
        before = (await client.call(fetch(0), 0)).topics[0].partitions[0]
        assert (before.error_code, before.committed_offset) == (E.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert only(await client.call(commit(9), 0)).error_code == E.NONE
        after = (await client.call(fetch(0), 0)).topics[0].partitions[0]
        assert (after.error_code, after.committed_offset) == (E.NONE, 9)
    async with connected(broker, broker.coordinator("g")) as client:
        assert (await client.call(fetch(0), 1)).topics[0].partitions[0].committed_offset == -1


async def test_offsets_go_with_their_topic(broker: Broker, client: RawClient) -> None:
    await client.call(commit(5), 8)
    await broker.delete_topic("t")
    assert (await client.call(fetch(0), 7)).topics[0].partitions[0].committed_offset == -1


async def test_offsets_survive_a_restart(tmp_path: Path) -> None:
    async with Broker(data_dir=tmp_path) as broker, connected(broker) as client:
        await broker.create_topic("t")
        await client.call(commit(5, metadata="ñ"), 8)
        await client.call(commit(7, metadata="ñ"), 8)
    async with Broker(data_dir=tmp_path) as broker, connected(broker) as client:
        answer = (await client.call(fetch(0), 7)).topics[0].partitions[0]
        assert (answer.committed_offset, answer.metadata) == (7, "ñ")
        assert only(await client.call(commit(8), 8)).error_code == E.NONE


def stored(store: OffsetStore) -> dict[TopicPartition, CommittedOffset]:
    return dict(store.committed("g"))


def test_the_store_is_rewritten_when_most_of_it_is_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_lines, "COMPACT_AFTER_LINES", 10)
    store = OffsetStore(DirectoryStore(tmp_path))
    store.commit("old", {TP: CommittedOffset(1, -1, "")}, OffsetsStorage.ZOOKEEPER)
    for offset in range(100):
        store.commit("g", {TP: CommittedOffset(offset, -1, "")})
    assert len((tmp_path / "offsets.jsonl").read_text().splitlines()) < 20
    again = OffsetStore(DirectoryStore(tmp_path))
    assert stored(again) == {TP: CommittedOffset(99, -1, "")}
    assert again.committed("old", OffsetsStorage.ZOOKEEPER) == {TP: CommittedOffset(1, -1, "")}
    assert list(again.groups()) == ["g"]


def test_a_deleted_topic_stays_deleted(tmp_path: Path) -> None:
    store = OffsetStore(DirectoryStore(tmp_path))
    store.commit(
        "g", {TP: CommittedOffset(1, -1, ""), TopicPartition("u", 0): CommittedOffset(2, -1, "")}
    )
    store.delete_topic("t")
    assert stored(OffsetStore(DirectoryStore(tmp_path))) == {
        TopicPartition("u", 0): CommittedOffset(2, -1, "")
    }


def test_a_torn_line_is_left_out_and_a_wrong_one_is_said(tmp_path: Path) -> None:
    OffsetStore(DirectoryStore(tmp_path)).commit("g", {TP: CommittedOffset(1, -1, "")})
    path = tmp_path / "offsets.jsonl"
    path.write_text(path.read_text() + '{"storage": "kafk')
    torn = OffsetStore(DirectoryStore(tmp_path))
    assert stored(torn) == {TP: CommittedOffset(1, -1, "")}
    torn.commit("g", {TP: CommittedOffset(2, -1, "")})
    assert stored(OffsetStore(DirectoryStore(tmp_path))) == {TP: CommittedOffset(2, -1, "")}
    path.write_text(json.dumps({"storage": "kafka", "group": "g"}) + "\n")
    with pytest.raises(KafkaError, match="stored offsets are damaged"):
        OffsetStore(DirectoryStore(tmp_path))


def test_so_many_groups_may_have_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "MAX_KEYS", 1)
    store = OffsetStore(MemoryStore())
    given = {TopicPartition("t", 0): CommittedOffset(1, 0, "")}
    store.commit("a", given)
    store.commit("a", given)
    store.commit("b", {})
    for place in OffsetsStorage:
        with pytest.raises(ApiError, match="too many groups"):
            store.commit("b", given, place)


async def test_a_commit_too_many_is_refused(
    monkeypatch: pytest.MonkeyPatch, client: RawClient
) -> None:
    monkeypatch.setattr(offsets, "MAX_KEYS", 0)
    response = await client.call(commit(1), 8)
    assert only(response).error_code == E.COORDINATOR_NOT_AVAILABLE
