"""The server-side uniform assignor (KIP-848): as even as possible, then as sticky as possible."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from aiokafkawire.broker.groups.consumer_group.assignors.load_balancer import LoadBalancer
from aiokafkawire.broker.groups.consumer_group.assignors.spec import (
    Assignment,
    AssignmentSpec,
    check_topics,
    subscribers_by_topic,
)

__all__ = ("assign_uniform",)

MAX_PASSES = 16
"""Limit of passes over the topics; each about halves the imbalance."""

NO_OWNER = -1


def assign_uniform(spec: AssignmentSpec) -> dict[str, Assignment]:
    """Spread the partitions of all topics evenly over the members that subscribe to them.

    Members keep what they have where that does not disturb the balance. With equal subscriptions
    the numbers of partitions differ by at most one.

    Raises:
        AssignorError: A member subscribes to a topic without metadata.
    """
    check_topics(
        spec, "Members are subscribed to topic {} which doesn't exist in the topic metadata."
    )
    if not any(member.topic_ids for member in spec.members.values()):
        return {}
    return _assign_same(spec) if spec.is_homogeneous else _UniformBuilder(spec).build()


def _assign_same(spec: AssignmentSpec) -> dict[str, Assignment]:
    """Assign to members that all subscribe to the same topics."""
    topics = dict.fromkeys(spec.in_order(next(iter(spec.members.values())).topic_ids))
    minimum, extra = divmod(sum(spec.partitions[topic] for topic in topics), len(spec.members))
    unassigned = _without_owner(spec, topics)
    kept: dict[str, dict[UUID, tuple[int, ...]]] = {}
    missing: dict[str, int] = {}
    for member_id, member in spec.members.items():
        old = {topic: parts for topic, parts in member.assigned.items() if topic in topics}
        count = sum(map(len, old.values()))
        keeps_extra = count > minimum and extra > 0
        extra -= keeps_extra
        left = minimum + keeps_extra
        kept[member_id] = {}
        for topic, parts in old.items():
            if left > 0:
                kept[member_id][topic] = parts[:left]
            unassigned += [(topic, part) for part in parts[left:]]
            left = max(left - len(parts), 0)
        if count <= minimum:
            missing[member_id] = minimum - count
    start = 0
    for place, (member_id, count) in enumerate(missing.items()):
        # The extra partitions that nobody kept go to the last members.
        end = start + count + (place >= len(missing) - extra)
        for topic, parts in _by_topic(unassigned[start:end]).items():
            kept[member_id][topic] = (*kept[member_id].get(topic, ()), *parts)
        start = end
    return {
        member_id: {topic: tuple(sorted(parts)) for topic, parts in assigned.items()}
        for member_id, assigned in kept.items()
    }


def _without_owner(spec: AssignmentSpec, topics: Iterable[UUID]) -> list[tuple[UUID, int]]:
    """Return the partitions that no member has, in the order in which they are given out."""
    owned: dict[UUID, set[int]] = {}
    for member in spec.members.values():
        for topic, parts in member.assigned.items():
            owned.setdefault(topic, set()).update(parts)
    return [
        (topic, part)
        for topic in topics
        for part in sorted(set(range(spec.partitions[topic])) - owned.get(topic, set()))
    ]


class _UniformBuilder:
    """Builds an assignment for members with different subscriptions.

    Members are numbers, in the order of the group.
    """

    def __init__(self, spec: AssignmentSpec) -> None:
        self._spec = spec
        self._member_ids = list(spec.members)
        numbers = {member_id: number for number, member_id in enumerate(self._member_ids)}
        self._subscribers = {
            topic: [numbers[member_id] for member_id in members]
            for topic, members in subscribers_by_topic(spec).items()
        }
        self._sizes = [0] * len(self._member_ids)
        self._owners = {topic: [NO_OWNER] * spec.partitions[topic] for topic in self._subscribers}

    def build(self) -> dict[str, Assignment]:
        """Keep what is still subscribed to, assign the rest, and balance."""
        self._keep_subscribed()
        self._assign_rest()
        self._balance()
        assigned: list[list[tuple[UUID, int]]] = [[] for _ in self._member_ids]
        for topic, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                assigned[owner].append((topic, partition))
        return {
            member_id: _by_topic(assigned[number])
            for number, member_id in enumerate(self._member_ids)
        }

    def _keep_subscribed(self) -> None:
        for number, member in enumerate(self._spec.members.values()):
            for topic, partitions in member.assigned.items():
                if topic in member.topic_ids:
                    for partition in partitions:
                        self._assign(topic, partition, number)

    def _assign_rest(self) -> None:
        for topic in self._sorted(self._owners):
            balancer = LoadBalancer(self._subscribers[topic], self._sizes)
            for partition, owner in enumerate(self._owners[topic]):
                if owner == NO_OWNER:
                    self._assign(topic, partition, balancer.next_least_loaded())

    def _balance(self) -> None:
        """Move partitions until a pass over all topics changes nothing."""
        topics = self._sorted(
            topic for topic, members in self._subscribers.items() if len(members) > 1
        )
        last_changed = -1
        for _ in range(MAX_PASSES):
            for place, topic in enumerate(topics):
                if place == last_changed:
                    return
                if self._balance_topic(topic) or last_changed < 0:
                    last_changed = place

    def _balance_topic(self, topic: UUID) -> bool:
        """Move partitions of a topic between its subscribers; return True if any was moved."""
        balancer = LoadBalancer(self._subscribers[topic], self._sizes)
        if balancer.imbalance <= 1:
            return False
        movable: dict[int, list[int]] = {}
        for partition, owner in enumerate(self._owners[topic]):
            movable.setdefault(owner, []).append(partition)
        moved = False
        while not balancer.is_balanced():
            giver = balancer.next_most_loaded()
            while giver is not None and not movable.get(giver):
                balancer.exclude_most_loaded()
                giver = balancer.next_most_loaded()
            if giver is None:
                break
            partition = movable[giver].pop()
            receiver = balancer.next_least_loaded()
            if balancer.is_balanced():
                break
            self._assign(topic, partition, receiver)
            moved = True
        return moved

    def _assign(self, topic: UUID, partition: int, member: int) -> None:
        previous = self._owners[topic][partition]
        if previous != NO_OWNER:
            self._sizes[previous] -= 1
        self._owners[topic][partition] = member
        self._sizes[member] += 1

    def _sorted(self, topics: Iterable[UUID]) -> list[UUID]:
        """Sort topics: most partitions per subscriber, then fewest subscribers, then topic id."""

        def key(topic: UUID) -> tuple[float, int, int, int]:
            count = len(self._subscribers[topic])
            return (-self._spec.partitions[topic] / count, count, *_java_order(topic))

        return sorted(topics, key=key)


def _java_order(topic: UUID) -> tuple[int, int]:
    """Return the halves of an id as signed numbers, which Java compares."""
    data = topic.bytes
    return (
        int.from_bytes(data[:8], "big", signed=True),
        int.from_bytes(data[8:], "big", signed=True),
    )


def _by_topic(partitions: Iterable[tuple[UUID, int]]) -> dict[UUID, tuple[int, ...]]:
    grouped: dict[UUID, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return {topic: tuple(sorted(indexes)) for topic, indexes in grouped.items()}
