"""Snapshots from metadata responses, including hostile ones."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.cluster import metadata
from aiokafkawire.cluster.metadata import (
    EMPTY_SNAPSHOT,
    MAX_WARNINGS,
    MetadataSnapshot,
    MetadataUpdate,
    NodeInfo,
    valid_address,
)
from aiokafkawire.runtime import Address
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ZERO_UUID, ErrorCode
from aiokafkawire.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from tests.compare_counter import CountedName

from .scripted import brokers_at, partition_of, topic_of

HOSTS = (Address("one", 9092), Address("two", 9092))
FIRST, SECOND = uuid.UUID(int=1), uuid.UUID(int=2)
T0 = TopicPartition("t", 0)


def response(*topics: MetadataResponseTopic, **fields: Any) -> MetadataResponse:
    fields.setdefault("brokers", brokers_at(*HOSTS))
    fields.setdefault("controller_id", 1)
    return MetadataResponse(topics=list(topics), cluster_id="c", **fields)


def led(epoch: int, leader: int = 1, topic_id: uuid.UUID = ZERO_UUID) -> MetadataResponse:
    topic = MetadataResponseTopic(
        error_code=0, name="t", topic_id=topic_id, partitions=[partition_of(0, leader, epoch)]
    )
    return response(topic)


def after(*responses: MetadataResponse, wanted: tuple[str, ...] | None = None) -> MetadataUpdate:
    update = MetadataUpdate(EMPTY_SNAPSHOT)
    for each in responses:
        update = update.snapshot.with_response(each, wanted)
    return update


def test_a_response_is_read():
    update = after(response(topic_of("t", 1, 2, is_internal=True)))
    snapshot = update.snapshot
    assert update.changed
    assert update.warnings == ()
    assert snapshot.version == 1
    assert snapshot.cluster_id == "c"
    assert snapshot.controller_id == 1
    assert snapshot.nodes[2] == NodeInfo(2, HOSTS[1])
    assert snapshot.partitions("t") == (0, 1)
    assert snapshot.partitions("u") == ()
    assert snapshot.leader(TopicPartition("t", 1)) == (2, 0)
    assert snapshot.leader(TopicPartition("t", 2)) is None
    assert snapshot.leader(TopicPartition("u", 0)) is None
    assert snapshot.topic_id("t") == snapshot.topic_id("u") == ZERO_UUID
    assert snapshot.topics["t"].is_internal


def test_a_partial_response_keeps_the_other_topics():
    missing = topic_of("gone", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    known = after(response(topic_of("t", 1), topic_of("u", 2), missing)).snapshot
    update = known.with_response(response(topic_of("t", 2)), ["t", "new"], partial=True)
    snapshot = update.snapshot
    assert update.topics == ("t", "new")
    assert snapshot.leader(T0) == (2, 0)
    assert snapshot.topics["u"] is known.topics["u"]
    assert set(snapshot.errors) == {"gone", "new"}
    # Other nodes may lead any topic.
    fewer = response(topic_of("t", 2), brokers=brokers_at(HOSTS[0]))
    assert snapshot.with_response(fewer, ["t"], partial=True).topics is None


def test_epochs_never_decrease_across_a_time_without_the_topic():
    unknown = response(topic_of("t", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    lagging = after(led(5, 1, FIRST), unknown, unknown, led(4, 2, FIRST), wanted=("t",))
    assert lagging.snapshot.leader(T0) == (1, 5)
    recreated = after(led(5, 1, FIRST), unknown, led(0, 2, SECOND), wanted=("t",))
    assert recreated.snapshot.leader(T0) == (2, 0)
    assert recreated.recreated_topics == ("t",)
    without_ids = after(led(5), unknown, led(0, 2), wanted=("t",))
    assert without_ids.snapshot.leader(T0) == (2, 0)


@pytest.mark.parametrize("wanted", [("t",), None])
def test_a_missing_topic_keeps_its_id(wanted: tuple[str, ...] | None):
    """Its positions must not be used in a recreated topic with the same name."""
    missing = [topic_of("t", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)] if wanted else []
    gone = after(led(5, 1, FIRST), response(*missing), response(*missing), wanted=wanted).snapshot
    assert "t" not in gone.topics
    assert gone.topic_id("t") == FIRST
    other = gone.with_response(response(topic_of("u", 1)), ["u"], partial=True).snapshot
    assert other.topic_id("t") == FIRST
    recreated = other.with_response(led(0, 2, SECOND), wanted)
    assert recreated.recreated_topics == ("t",)
    assert recreated.snapshot.topic_id("t") == SECOND
    assert not recreated.snapshot.missing_topics


def test_the_number_of_missing_topics_is_limited(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(metadata, "MAX_MISSING_TOPICS", 2)
    snapshot: MetadataSnapshot = EMPTY_SNAPSHOT
    for name in ("a", "b", "c"):
        there = MetadataResponseTopic(
            error_code=0, name=name, topic_id=FIRST, partitions=[partition_of(0, 1, 0)]
        )
        for each in (response(there), response()):
            snapshot = snapshot.with_response(each, None).snapshot
    assert list(snapshot.missing_topics) == ["b", "c"]


def test_partitions_are_sorted():
    shuffled = topic_of("t", 1, 1, 1)
    shuffled.partitions.reverse()
    assert after(response(shuffled)).snapshot.partitions("t") == (0, 1, 2)


def test_a_snapshot_is_immutable():
    snapshot = after(response(topic_of("t", 1))).snapshot
    with pytest.raises(TypeError):
        snapshot.topics["u"] = snapshot.topics["t"]  # type: ignore[index]
    snapshot.with_response(response(), None)
    assert "t" in snapshot.topics


# --- leaders and epochs ---------------------------------------------------------------------


@pytest.mark.parametrize("topic_id", [ZERO_UUID, FIRST])
def test_epochs_of_a_topic_never_decrease(topic_id: uuid.UUID):
    update = after(led(5, 1, topic_id), led(4, 2, topic_id))
    assert update.snapshot.leader(T0) == (1, 5)
    assert any("kept the leader of t-0" in text for text in update.warnings)
    assert after(led(5, 1, topic_id), led(6, 2, topic_id)).snapshot.leader(T0) == (2, 6)


def test_epochs_never_decrease_across_an_unknown_epoch():
    update = after(led(5, 1, FIRST), led(-1, 2, FIRST), led(3, 2, FIRST))
    assert update.snapshot.leader(T0) == (1, 5)


def test_without_topic_ids_unknown_epochs_are_accepted():
    assert after(led(-1, 1), led(-1, 2)).snapshot.leader(T0) == (2, -1)


def test_a_new_topic_id_resets_the_epochs():
    update = after(led(5, 1, FIRST), led(0, 2, SECOND))
    assert update.recreated_topics == ("t",)
    assert update.snapshot.leader(T0) == (2, 0)
    assert update.snapshot.topic_id("t") == SECOND
    assert sum("deleted and created again" in text for text in update.warnings) == 1


def test_without_topic_ids_a_missing_topic_resets_the_epochs():
    unknown = response(topic_of("t", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert after(led(5, 1), unknown, led(0, 2), wanted=("t",)).snapshot.leader(T0) == (2, 0)


def test_a_response_without_a_topic_id_does_not_recreate_the_topic():
    update = after(led(5, 1, FIRST), led(6, 2, ZERO_UUID))
    assert update.recreated_topics == ()
    assert update.snapshot.leader(T0) == (2, 6)


@pytest.mark.parametrize("leader", [-1, -7, 99])
def test_a_leader_that_is_not_a_known_broker_is_none(leader: int):
    snapshot = after(led(3, leader)).snapshot
    assert snapshot.leader(T0) is None
    assert snapshot.topics["t"].partitions[0].leader_epoch == 3


def test_an_inconclusive_error_keeps_the_topic():
    failed = response(topic_of("t", error_code=ErrorCode.UNKNOWN_SERVER_ERROR))
    assert after(led(5, 1), failed, wanted=("t",)).snapshot.leader(T0) == (1, 5)


# --- topics ---------------------------------------------------------------------------------


def test_errors_are_recorded_per_topic():
    update = after(
        response(
            topic_of("a", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            topic_of("b", error_code=ErrorCode.LEADER_NOT_AVAILABLE),
            topic_of("c", 1),
        ),
        wanted=("a", "b", "c", "left out"),
    )
    assert update.snapshot.errors == {"a": 29, "b": 5, "left out": 3}
    assert list(update.snapshot.topics) == ["c"]


def test_topics_that_were_not_requested_are_skipped():
    # Version 0 answers an empty list with all topics.
    assert after(response(topic_of("t", 1)), wanted=()).snapshot.topics == {}
    assert list(after(response(topic_of("t", 1)), wanted=None).snapshot.topics) == ["t"]


# --- hostile entries ------------------------------------------------------------------------


@pytest.mark.parametrize("port", [0, -1, 65_536, 70_000, 2**31 - 1])
def test_a_broker_with_an_invalid_port_is_skipped(port: int):
    bad = MetadataResponseBroker(node_id=9, host="h", port=port)
    update = after(response(brokers=[bad, *brokers_at(*HOSTS)]))
    assert sorted(update.snapshot.nodes) == [1, 2]
    assert any(f"port {port}" in text for text in update.warnings)


@pytest.mark.parametrize("host", ["", " ", "a b", "a\nb", "a\0b"])
def test_a_broker_with_an_invalid_host_is_skipped(host: str):
    assert valid_address(host, 9092) is None
    bad = MetadataResponseBroker(node_id=9, host=host, port=9092)
    assert 9 not in after(response(brokers=[bad, *brokers_at(*HOSTS)])).snapshot.nodes


def test_the_first_of_duplicate_entries_counts():
    twice = brokers_at(HOSTS[0]) + brokers_at(HOSTS[1])
    topic = topic_of("t", 1)
    topic.partitions += [partition_of(0, 2), partition_of(-3, 2)]
    update = after(response(topic, topic_of("t", 2), brokers=twice))
    assert update.snapshot.nodes[1].address == HOSTS[0]
    assert update.snapshot.partitions("t") == (0,)
    assert update.snapshot.leader(T0) == (1, 0)
    assert len(update.warnings) == 4


@pytest.mark.parametrize(
    "brokers",
    [[], [MetadataResponseBroker(node_id=-1, host="h", port=1)], brokers_at(Address("", 1))],
)
def test_metadata_without_a_valid_broker_is_rejected(brokers: list[MetadataResponseBroker]):
    known = after(led(5)).snapshot
    update = known.with_response(response(brokers=brokers), None)
    assert not update.usable
    assert not update.changed
    assert update.snapshot is known
    assert update.warnings


def test_a_controller_that_is_not_a_known_broker_is_none():
    assert after(response(controller_id=42)).snapshot.controller_id == -1


def test_a_hostile_response_cannot_fill_the_log():
    brokers = brokers_at(*HOSTS) + [
        MetadataResponseBroker(node_id=number, host="", port=0) for number in range(1_000)
    ]
    assert len(after(response(brokers=brokers)).warnings) == MAX_WARNINGS


small = st.integers(-2, 4)
topics = st.builds(
    MetadataResponseTopic,
    error_code=st.sampled_from([0, 0, 3, 5, -1, 999]),
    name=st.sampled_from(["t", "u", "", None]),
    topic_id=st.sampled_from([ZERO_UUID, FIRST, SECOND]),
    partitions=st.lists(st.builds(partition_of, small, small, st.integers(-1, 5)), max_size=4),
)
broker_entries = st.builds(
    MetadataResponseBroker,
    node_id=small,
    host=st.sampled_from(["one", "two", ""]),
    port=st.sampled_from([9092, 0, 70_000]),
)
responses = st.builds(
    MetadataResponse,
    brokers=st.lists(broker_entries, max_size=4),
    controller_id=small,
    topics=st.lists(topics, max_size=3),
)


@given(st.lists(responses, max_size=5))
def test_for_any_responses_leaders_are_nodes_and_epochs_grow(responses: list[MetadataResponse]):
    snapshot: MetadataSnapshot = EMPTY_SNAPSHOT
    for each in responses:
        update = snapshot.with_response(each, None)
        before, snapshot = snapshot, update.snapshot
        assert all(
            node.address.host and 0 < node.address.port < 65_536 for node in snapshot.nodes.values()
        )
        assert snapshot.controller_id == -1 or snapshot.controller_id in snapshot.nodes
        for name, topic in snapshot.topics.items():
            known = before.topics.get(name)
            for index, partition in topic.partitions.items():
                leader = snapshot.leader(TopicPartition(name, index))
                assert leader is None or leader[0] in snapshot.nodes
                if (
                    known is None
                    or index not in known.partitions
                    or name in update.recreated_topics
                ):
                    continue
                if topic.topic_id != ZERO_UUID or partition.leader_epoch >= 0:
                    assert partition.leader_epoch >= known.partitions[index].leader_epoch


# --- hints ----------------------------------------------------------------------------------


def test_with_leader_applies_a_newer_epoch():
    snapshot = after(led(5, 1)).snapshot
    update = snapshot.with_leader(T0, 2, 6)
    assert update.leaders_only
    assert update.changed
    assert update.snapshot.leader(T0) == (2, 6)
    assert update.snapshot.version == snapshot.version + 1
    assert snapshot.leader(T0) == (1, 5)


@pytest.mark.parametrize(("leader", "epoch"), [(2, 5), (2, 4), (-1, 6), (2, -1)])
def test_with_leader_ignores_older_epochs(leader: int, epoch: int):
    snapshot = after(led(5, 1)).snapshot
    assert snapshot.with_leader(T0, leader, epoch) == MetadataUpdate(snapshot)


def test_with_leader_ignores_an_unknown_partition():
    snapshot = after(led(5, 1)).snapshot
    for tp in (TopicPartition("t", 9), TopicPartition("u", 0)):
        assert not snapshot.with_leader(tp, 2, 9).changed


def test_with_node_adds_a_node():
    snapshot = after(led(5, 1)).snapshot
    update = snapshot.with_node(7, "seven", 9092)
    assert update.snapshot.nodes[7].address == Address("seven", 9092)
    assert not update.snapshot.with_node(7, "seven", 9092).changed
    for bad in ((7, "", 9092), (7, "h", 0), (-1, "h", 1)):
        refused = snapshot.with_node(*bad)
        assert not refused.changed
        assert refused.warnings


def test_a_response_is_read_in_linear_time():
    names = [CountedName(f"topic-{number}") for number in range(500)]
    responses = response(*(topic_of(CountedName(str(name)), 1) for name in names))
    CountedName.compared = 0
    update = after(responses, wanted=tuple(names))
    assert len(update.snapshot.topics) == len(names)
    assert CountedName.compared < 20 * len(names)
