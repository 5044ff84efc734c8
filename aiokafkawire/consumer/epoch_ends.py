"""Where leader epochs end in the logs of their leaders (KIP-320)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.cluster.routing import Node
from aiokafkawire.errors import KafkaError
from aiokafkawire.types import NodeId, TopicPartition, by_topic
from aiokafkawire.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

from .answers import CONSUMER_REPLICA_ID, Answers

__all__ = ("EpochEnd", "EpochQuestion", "epoch_ends")

FIRST_WITH_CURRENT_EPOCH = 2
"""Earlier versions do not tell an old leader from the present one."""


class EpochQuestion(NamedTuple):
    """Where `epoch` ended, asked of the leader in `current_leader_epoch`."""

    epoch: int
    current_leader_epoch: int


class EpochEnd(NamedTuple):
    """The largest epoch up to the one asked for, and where it ended; both -1 if there is none."""

    epoch: int
    end_offset: int


async def epoch_ends(
    cluster: Cluster,
    node: NodeId,
    questions: Mapping[TopicPartition, EpochQuestion],
    deadline: float,
) -> Answers[EpochEnd]:
    """Ask one node, once. Does not raise for what it answers."""
    answers: Answers[EpochEnd] = Answers("OffsetForLeaderEpoch", node)
    try:
        response = await cluster.request(
            _request(questions),
            to=Node(node),
            deadline=deadline,
            retry=False,
            min_version=FIRST_WITH_CURRENT_EPOCH,
        )
    except KafkaError as error:
        cluster.request_update()
        answers.failed = dict.fromkeys(questions, error)
        return answers
    for topic in response.topics:
        for entry in topic.partitions:
            tp = TopicPartition(topic.topic, entry.partition)
            if tp in questions:
                answers.add(tp, entry.error_code, EpochEnd(entry.leader_epoch, entry.end_offset))
    if answers.close(questions):
        cluster.request_update()
    return answers


def _request(questions: Mapping[TopicPartition, EpochQuestion]) -> OffsetForLeaderEpochRequest:
    def partition(tp: TopicPartition) -> OffsetForLeaderPartition:
        question = questions[tp]
        return OffsetForLeaderPartition(
            partition=tp.partition,
            current_leader_epoch=question.current_leader_epoch,
            leader_epoch=question.epoch,
        )

    topics = [
        OffsetForLeaderTopic(topic=topic, partitions=[*map(partition, tps)])
        for topic, tps in by_topic(questions).items()
    ]
    return OffsetForLeaderEpochRequest(replica_id=CONSUMER_REPLICA_ID, topics=topics)
