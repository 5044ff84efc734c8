"""Base class of assignors, and helpers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from aiokafkawire.types import TopicPartition

__all__ = (
    "Assignor",
    "MemberSubscription",
    "java_order",
    "java_table_order",
    "member_order",
    "members_by_topic",
)


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """Subscription of one member, as the leader receives it in JoinGroup.

    Attributes:
        member_id: Member id that the coordinator assigned.
        topics: Subscribed topics.
        group_instance_id: Instance id of a static member (KIP-345), else None.
        user_data: Bytes that the member's assignor returned from `user_data`.
        owned: Partitions that the member still owns (KIP-429). Empty in the eager protocol.
        generation: Generation of `owned` (KIP-792), -1 if unknown.
        rack: The member's `client_rack` (KIP-881).
    """

    member_id: str
    topics: tuple[str, ...]
    group_instance_id: str | None = None
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    rack: str | None = field(default=None)


class Assignor(ABC):
    """Assigns partitions to the members of a group. Subclass it to write your own.

    The group uses an assignor whose `name` all members list in JoinGroup. Each consumer needs its
    own object; a class in `partition_assignment_strategy` is instantiated without arguments.
    """

    cooperative: bool = False
    """True if members keep their partitions while they rejoin (KIP-429).

    A cooperative assignor must not assign a partition that another member still owns. A consumer
    uses the cooperative protocol if all its assignors are cooperative.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Name in JoinGroup, for example `range`. The same for all members."""

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        """Return bytes for the leader's assignor. Called before each JoinGroup.

        Args:
            topics: Subscribed topics.

        Returns:
            The bytes, which the leader finds in `MemberSubscription.user_data`, or None.
        """
        return None

    @abstractmethod
    def assign(
        self,
        partitions: Mapping[str, int],
        members: Sequence[MemberSubscription],
        racks: Mapping[TopicPartition, tuple[str, ...]],
    ) -> Mapping[str, Sequence[TopicPartition]]:
        """Return the partitions per member id. Runs on the leader only and must not block.

        An exception, or a partition assigned twice, ends the leader's consumer with `GroupFailed`.

        Args:
            partitions: Number of partitions per existing topic.
            members: Subscriptions of all members. Other programs may have written `user_data` and
                `owned`, so do not trust them.
            racks: Racks of the replicas per partition. Empty if no rack is known.

        Returns:
            The assignment. Members that are missing in it get no partitions.
        """

    def on_assignment(self, partitions: Sequence[TopicPartition], generation_id: int) -> None:  # noqa: B027
        """Receive this member's assignment. Called after each SyncGroup.

        Args:
            partitions: Partitions assigned to this member.
            generation_id: Generation of the assignment.
        """


def java_order(text: str) -> bytes:
    """Return a sort key that orders strings as Java does: by UTF-16 code unit."""
    return text.encode("utf-16-be", "surrogatepass")


def java_table_order(texts: Sequence[str]) -> list[str]:
    """Return the strings in the iteration order of a Java HashMap.

    Some results of Java's assignors depend on it. The order of `texts` does not matter.
    """
    buckets = 16
    while len(texts) > buckets * 3 // 4:
        buckets *= 2

    def bucket(text: str) -> int:
        code = 0
        for unit in memoryview(text.encode("utf-16", "surrogatepass")).cast("H")[1:]:
            code = (code * 31 + unit) & 0xFFFFFFFF
        return (code ^ (code >> 16)) & (buckets - 1)

    return sorted(texts, key=lambda text: (bucket(text), java_order(text)))


def member_order(member: MemberSubscription) -> tuple[bool, bytes]:
    """Return a sort key: static members first, by instance id, then the others, by member id."""
    if member.group_instance_id is not None:
        return False, java_order(member.group_instance_id)
    return True, java_order(member.member_id)


def members_by_topic(
    members: Iterable[MemberSubscription],
) -> list[tuple[str, list[MemberSubscription]]]:
    """Return the subscribed topics in Java's order, each with its members in the given order."""
    subscribers: dict[str, list[MemberSubscription]] = {}
    for member in members:
        for topic in dict.fromkeys(member.topics):
            subscribers.setdefault(topic, []).append(member)
    return [(topic, subscribers[topic]) for topic in sorted(subscribers, key=java_order)]
