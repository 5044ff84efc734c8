"""The server-side range assignor (KIP-848)."""

from __future__ import annotations

from uuid import UUID

from aiokafkawire.broker.groups.consumer_group.assignors.spec import (
    Assignment,
    AssignmentSpec,
    check_topics,
    subscribers_by_topic,
)

__all__ = ("assign_range",)


def assign_range(spec: AssignmentSpec) -> dict[str, Assignment]:
    """Give each member a range of the partitions of each topic.

    Members are sorted: static members by instance id, then the others by member id. So members
    with the same topics get the same partitions of topics of the same size.

    Raises:
        AssignorError: A member subscribes to a topic without metadata.
    """
    check_topics(spec, "Member is subscribed to a non-existent topic")
    in_order = sorted(spec.members, key=lambda member_id: _sort_key(member_id, spec))
    order = {member_id: place for place, member_id in enumerate(in_order)}
    assigned: dict[str, dict[UUID, tuple[int, ...]]] = {}
    for topic, subscribers in subscribers_by_topic(spec).items():
        quota, extra = divmod(spec.partitions[topic], len(subscribers))
        start = 0
        for place, member_id in enumerate(sorted(subscribers, key=order.__getitem__)):
            end = start + quota + (place < extra)
            if end > start:
                assigned.setdefault(member_id, {})[topic] = tuple(range(start, end))
            start = end
    return {
        member_id: assigned.get(member_id, {})
        for member_id, member in spec.members.items()
        if member.topic_ids
    }


def _sort_key(member_id: str, spec: AssignmentSpec) -> tuple[bool, bytes]:
    instance_id = spec.members[member_id].instance_id
    text = member_id if instance_id is None else instance_id
    # Java compares UTF-16 code units.
    return instance_id is None, text.encode("utf-16-be", "surrogatepass")
