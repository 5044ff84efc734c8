"""Idle topics of a producer keep their sequence numbers."""

from __future__ import annotations

import pytest

from aiokafkawire.producer import producer_topics
from tests.producer.model import ready_cluster


def test_an_idle_topic_is_removed_and_keeps_its_sequence_numbers():
    cluster = ready_cluster(partitions=1, nodes=1, batch_size_bytes=1)
    cluster.append(0, b"1")
    assert cluster.accumulator.deactivate_idle_topics(1.0) == []
    cluster.settle_all()
    assert cluster.accumulator.deactivate_idle_topics(-1.0) == []
    assert cluster.accumulator.deactivate_idle_topics(1.0) == ["t"]
    assert not cluster.accumulator.topics
    again = cluster.accumulator.set_topic("t", range(1), cluster.topic_id)
    assert again is cluster.topic
    cluster.accumulator.set_leaders(cluster.leaders.get)
    cluster.append(0, b"2")
    [request] = cluster.send_all()
    assert request.sent[0].sequence.base_sequence == 1


def test_an_idle_topic_that_was_recreated_restarts_its_sequence_numbers():
    cluster = ready_cluster(partitions=1, nodes=1, batch_size_bytes=1)
    cluster.append(0, b"1")
    cluster.settle_all()
    cluster.accumulator.deactivate_idle_topics(1.0)
    cluster.recreate_topic()
    cluster.learn_topic()
    cluster.accumulator.set_leaders(cluster.leaders.get)
    cluster.append(0, b"2")
    [request] = cluster.send_all()
    sequence = request.sent[0].sequence
    assert (sequence.identity.epoch, sequence.base_sequence) == (1, 0)


def test_forgotten_sequence_numbers_are_never_reused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(producer_topics, "MAX_IDLE_TOPICS", 0)
    cluster = ready_cluster(partitions=1, nodes=1, batch_size_bytes=1)
    cluster.append(0, b"1")
    cluster.settle_all()
    cluster.accumulator.deactivate_idle_topics(1.0)
    cluster.topic = cluster.accumulator.set_topic("t", range(1), cluster.topic_id)
    cluster.accumulator.set_leaders(cluster.leaders.get)
    cluster.append(0, b"2")
    [request] = cluster.send_all()
    assert request.sent[0].sequence.identity.epoch == 1


def test_a_late_response_for_a_removed_topic_is_ignored():
    cluster = ready_cluster(partitions=1, nodes=1, batch_size_bytes=1)
    cluster.append(0, b"1")
    [request] = cluster.send_all()
    cluster.pass_time(11)
    assert cluster.accumulator.all_topics.has_expired_in_flight
    assert cluster.accumulator.deactivate_idle_topics(cluster.now) == ["t"]
    cluster.reply(request)
    assert cluster.accumulator.pool.used_bytes == 0
    cluster.accumulator.all_topics.reactivate("t")
    assert not cluster.accumulator.all_topics.has_expired_in_flight
