"""Input and output of the server-side assignors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

__all__ = (
    "Assignment",
    "AssignmentSpec",
    "AssignorError",
    "MemberSpec",
    "check_topics",
    "subscribers_by_topic",
)

Assignment = Mapping[UUID, tuple[int, ...]]
"""Partitions by topic. A topic without partitions is left out."""


class AssignorError(Exception):
    """The assignor has no assignment for the group (Kafka's PartitionAssignorException)."""


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """One member: the topics that it subscribes to, and its previous target assignment."""

    topic_ids: tuple[UUID, ...]
    assigned: Assignment = field(default_factory=dict)
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class AssignmentSpec:
    """The group: members in order, and the number of partitions of each topic.

    `topic_order` is the order in which unassigned partitions are taken; the order of `partitions`
    if it is empty. Kafka takes that of its hash maps.
    """

    members: Mapping[str, MemberSpec]
    partitions: Mapping[UUID, int]
    topic_order: tuple[UUID, ...] = ()

    @property
    def is_homogeneous(self) -> bool:
        """Return True if all members subscribe to the same topics."""
        subscriptions = {frozenset(member.topic_ids) for member in self.members.values()}
        return len(subscriptions) <= 1

    def in_order(self, topics: Iterable[UUID]) -> list[UUID]:
        """Return topics in the order of the group."""
        rank = {topic: index for index, topic in enumerate(self.topic_order or self.partitions)}
        return sorted(dict.fromkeys(topics), key=lambda topic: rank.get(topic, len(rank)))


def check_topics(spec: AssignmentSpec, message: str) -> None:
    """Raise `AssignorError` if a member subscribes to a topic without metadata.

    Args:
        spec: The group.
        message: Text of the error; `{}` stands for the id of the topic.
    """
    for member in spec.members.values():
        for topic in member.topic_ids:
            if topic not in spec.partitions:
                raise AssignorError(message.format(topic))


def subscribers_by_topic(spec: AssignmentSpec) -> dict[UUID, list[str]]:
    """Return the members that subscribe to each topic, in the order of the group."""
    subscribers: dict[UUID, list[str]] = {}
    for member_id, member in spec.members.items():
        for topic in member.topic_ids:
            subscribers.setdefault(topic, []).append(member_id)
    return {topic: subscribers[topic] for topic in spec.in_order(subscribers)}
