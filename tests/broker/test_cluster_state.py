"""CreateTopics, DeleteTopics, and the cluster's state behind them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from aiokafkawire.broker import Broker, BrokerConfig, cluster_topics
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.cluster_state import COORDINATOR_PARTITIONS, ClusterState
from aiokafkawire.broker.configs import TOPIC_CONFIGS
from aiokafkawire.broker.storage import DirectoryStore, MemoryStore, Store
from aiokafkawire.broker.topics import check_new_topic_name
from aiokafkawire.errors import KafkaError
from aiokafkawire.wire import ZERO_UUID, ErrorCode
from aiokafkawire.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from aiokafkawire.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

from .raw_client import connected

E = ErrorCode


def cluster(nodes: int = 3, store: Store | None = None) -> ClusterState:
    node_ids = range(1, nodes + 1)
    return ClusterState(node_ids, store or MemoryStore(), BrokerConfig(), random.Random(1))


def topic(
    name: str = "t",
    partitions: int = 1,
    replicas: int = 1,
    *,
    assignments: dict[int, list[int]] | None = None,
    configs: dict[str, str | None] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=-1 if assignments else partitions,
        replication_factor=-1 if assignments else replicas,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=nodes)
            for index, nodes in (assignments or {}).items()
        ],
        configs=[
            CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()
        ],
    )


async def created(*topics: CreatableTopic, nodes: int = 3, **fields: Any) -> tuple[Any, Any]:
    async with Broker(nodes=nodes) as broker, connected(broker) as client:
        response = await client.call(CreateTopicsRequest(topics=list(topics), **fields), 7)
        return response.topics, broker.topics


async def test_topics_are_made_as_asked() -> None:
    (plain, assigned, default), topics = await created(
        topic("plain", 4, 2, configs={"retention.ms": "1"}),
        topic("assigned", assignments={0: [3, 1], 1: [2, 3]}),
        topic("default", -1, -1),
    )
    assert [t.error_code for t in (plain, assigned, default)] == [E.NONE] * 3
    assert (plain.num_partitions, plain.replication_factor) == (4, 2)
    assert [(c.name, c.value) for c in plain.configs if c.config_source == 1] == [
        ("retention.ms", "1")
    ]
    assert {c.name for c in plain.configs} == set(TOPIC_CONFIGS)
    assert (assigned.num_partitions, assigned.replication_factor) == (2, 2)
    assert (default.num_partitions, default.replication_factor) == (1, 3)
    assert topics == {"plain": 4, "assigned": 2, "default": 1}
    assert plain.topic_id not in {ZERO_UUID, assigned.topic_id}


async def test_validate_only_makes_nothing() -> None:
    (good, bad), topics = await created(topic("a", 5), topic("b", 0), validate_only=True)
    assert (good.error_code, good.num_partitions, bad.error_code) == (
        E.NONE,
        5,
        E.INVALID_PARTITIONS,
    )
    assert topics == {}


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (topic("no/name"), E.INVALID_TOPIC_EXCEPTION),
        (topic(""), E.INVALID_TOPIC_EXCEPTION),
        (topic(".."), E.INVALID_TOPIC_EXCEPTION),
        (topic("x" * 250), E.INVALID_TOPIC_EXCEPTION),
        (topic("a_b"), E.INVALID_TOPIC_EXCEPTION),
        (topic("a.b"), E.TOPIC_ALREADY_EXISTS),
        (topic(partitions=0), E.INVALID_PARTITIONS),
        (topic(partitions=-2), E.INVALID_PARTITIONS),
        (topic(partitions=2**31 - 1), E.POLICY_VIOLATION),
        (topic(replicas=4), E.INVALID_REPLICATION_FACTOR),
        (topic(replicas=0), E.INVALID_REPLICATION_FACTOR),
        (topic(assignments={0: [9]}), E.INVALID_REPLICA_ASSIGNMENT),
        (topic(assignments={0: [1, 1]}), E.INVALID_REPLICA_ASSIGNMENT),
        (topic(assignments={0: []}), E.INVALID_REPLICA_ASSIGNMENT),
        (topic(assignments={1: [1]}), E.INVALID_REPLICA_ASSIGNMENT),
        (topic(configs={"retention": "1"}), E.INVALID_CONFIG),
        (topic(configs={"retention.ms": "soon"}), E.INVALID_CONFIG),
        (topic(configs={"retention.ms": None}), E.INVALID_CONFIG),
        (topic(configs={"message.timestamp.type": "Never"}), E.INVALID_CONFIG),
    ],
)
async def test_what_cannot_be_made_is_refused(asked: CreatableTopic, code: ErrorCode) -> None:
    async with Broker(nodes=3) as broker, connected(broker) as client:
        await broker.create_topic("a.b")
        response = await client.call(CreateTopicsRequest(topics=[asked]), 7)
        assert [t.error_code for t in response.topics] == [code]
        assert list(broker.topics) == ["a.b"]


async def test_the_same_name_twice_is_refused_and_both_ways_to_place_too() -> None:
    both = topic("u", assignments={0: [1]})
    both.num_partitions = 1
    (twice, wrong), topics = await created(topic("t"), topic("t"), both)
    assert (twice.name, twice.error_code) == ("t", E.INVALID_REQUEST)
    assert (wrong.name, wrong.error_code) == ("u", E.INVALID_REQUEST)
    assert topics == {}


async def test_topics_are_deleted_by_name_or_id() -> None:
    async with Broker() as broker, connected(broker) as client:
        made = await client.call(CreateTopicsRequest(topics=[topic("a"), topic("b")]), 7)
        b = made.topics[1].topic_id
        states = [
            DeleteTopicState(name="a", topic_id=ZERO_UUID),
            DeleteTopicState(name=None, topic_id=b),
            DeleteTopicState(name="c", topic_id=ZERO_UUID),
            DeleteTopicState(name=None, topic_id=UUID(int=5)),
            DeleteTopicState(name="a", topic_id=b),
        ]
        response = await client.call(DeleteTopicsRequest(topics=states, timeout_ms=1), 6)
        assert [r.error_code for r in response.responses] == [
            E.NONE,
            E.NONE,
            E.UNKNOWN_TOPIC_OR_PARTITION,
            E.UNKNOWN_TOPIC_ID,
            E.INVALID_REQUEST,
        ]
        assert broker.topics == {}
        twice = DeleteTopicsRequest(topics=[states[2]] * 2, timeout_ms=1)
        (answer,) = (await client.call(twice, 6)).responses
        assert (answer.name, answer.error_code) == ("c", E.INVALID_REQUEST)
        again = await client.call(CreateTopicsRequest(topics=[topic("b")]), 7)
        assert again.topics[0].topic_id != b


def test_coordinators_are_spread_and_stay_where_they_live() -> None:
    state = cluster()
    keys = [f"g{i}" for i in range(5 * COORDINATOR_PARTITIONS)]
    before = {key: state.coordinator(key) for key in keys}
    assert set(before.values()) == {1, 2, 3}
    state.on_node_failure(2)
    after = {key: state.coordinator(key) for key in keys}
    assert set(after.values()) == {1, 3}
    assert all(after[key] == node for key, node in before.items() if node != 2)
    state.on_node_startup(2)
    assert {key: state.coordinator(key) for key in keys} == after


def test_without_nodes_there_is_no_leader_and_the_first_restarted_node_leads() -> None:
    state = cluster()
    made = state.create_topic("t", 3, 3)
    for node in (1, 2, 3):
        state.on_node_failure(node)
    assert {p.leader for p in made.partitions} == {-1}
    assert (state.controller_id, state.coordinator("g")) == (-1, -1)
    state.on_node_startup(2)
    assert {p.leader for p in made.partitions} == {2}
    assert (state.controller_id, state.coordinator("g")) == (2, 2)
    assert all(p.isr == [2] for p in made.partitions)


def test_a_leader_can_be_moved_anywhere_that_lives() -> None:
    state = cluster()
    (partition,) = state.create_topic("t", 1, 1).partitions
    other = partition.leader % 3 + 1
    state.move_leader(partition, other)
    assert (partition.leader, partition.leader_epoch, partition.replicas) == (other, 1, [other])
    assert partition.isr == [other]
    state.on_node_failure(other % 3 + 1)
    with pytest.raises(ValueError, match="is not up"):
        state.move_leader(partition, other % 3 + 1)


def test_the_state_comes_back_with_newer_epochs(tmp_path: Path) -> None:
    first = cluster(store=DirectoryStore(tmp_path))
    made = first.create_topic("t", 2, 2, configs={"retention.ms": "5"})
    first.on_node_failure(made.partitions[0].leader)
    epoch = made.partitions[0].leader_epoch
    second = cluster(store=DirectoryStore(tmp_path))
    again = second.topics["t"]
    assert (again.topic_id, again.configs) == (made.topic_id, {"retention.ms": "5"})
    assert again.partitions[0].leader_epoch == epoch + 1
    assert second.topic_by_id(made.topic_id) is again
    fewer = cluster(nodes=1, store=DirectoryStore(tmp_path))
    assert [p.leader for p in fewer.topics["t"].partitions] == [1, 1]


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"format": 99}', '{"format": 1}', '{"format": 1, "cluster_id": "x"}'],
)
def test_a_corrupt_state_is_reported(tmp_path: Path, content: str) -> None:
    (tmp_path / "cluster.json").write_text(content)
    with pytest.raises(KafkaError, match=r"is not a broker's state|is damaged"):
        cluster(store=DirectoryStore(tmp_path))


def test_a_corrupt_topic_is_reported(tmp_path: Path) -> None:
    cluster(store=DirectoryStore(tmp_path)).create_topic("t")
    path = tmp_path / "cluster.json"
    state = json.loads(path.read_text())
    state["topics"][0]["partitions"] = 5
    path.write_text(json.dumps(state))
    with pytest.raises(KafkaError, match="is damaged"):
        cluster(store=DirectoryStore(tmp_path))


def test_the_total_number_of_partitions_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_topics, "MAX_TOTAL_PARTITIONS", 3)
    made = cluster()
    found = made.create_topic("t", 2)
    for refused in (
        lambda: made.create_topic("u", 2),
        lambda: made.create_topic("u", assignments={0: [1], 1: [1]}),
        lambda: made.add_partitions(found, 4),
    ):
        with pytest.raises(ApiError, match="at most 3 partitions in the cluster"):
            refused()
    made.add_partitions(found, 3)
    assert len(found.partitions) == 3


def test_partitions_are_counted_as_they_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_topics, "MAX_TOTAL_PARTITIONS", 5)
    state = cluster()
    for _ in range(3):
        state.create_topic("t", 2)
        state.add_partitions(state.topic("t"), 5)
        with pytest.raises(ApiError):
            state.create_topic("u", 1)
        state.delete_topic(state.topic("t"))


def test_most_new_names_are_not_compared_with_every_topic() -> None:
    class Known(dict[str, None]):
        def __iter__(self) -> Any:
            raise AssertionError("all names are read")

    check_new_topic_name("new-topic", Known(old=None))
    with pytest.raises(ApiError):
        check_new_topic_name("old", Known(old=None))


def test_state_is_put_together_only_where_it_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def state(self: ClusterState) -> None:
        raise AssertionError("nobody keeps it")

    monkeypatch.setattr(ClusterState, "_state", state)
    made = cluster()
    made.create_topic("t", 2)
    assert list(made.topics) == ["t"]
