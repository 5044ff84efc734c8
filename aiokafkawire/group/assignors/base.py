"""What an assignor is: the leader's part of the group protocol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from aiokafkawire.types import TopicPartition

__all__ = (
    "Assignor",
    "MemberSubscription",
    "by_topic",
    "java_order",
    "java_table_order",
    "member_order",
)


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What one member told the leader.

    `owned` and `generation` are what the member had before (-1: nothing known); members that
    follow the eager protocol own nothing when they join. `rack` is the member's `client_rack`.
    """

    member_id: str
    topics: tuple[str, ...]
    group_instance_id: str | None = None
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    rack: str | None = field(default=None)


class Assignor(ABC):
    """Divides partitions among the members of a group. Subclass it to write your own.

    `name` stands in JoinGroup: the group uses an assignor that all of its members list. One object
    serves one consumer; a class in `partition_assignment_strategy` is called without arguments.
    """

    cooperative: bool = False
    """Whether members may keep their partitions while they join again (KIP-429).

    Such an assignor gives no partition away in the generation in which another member still owns
    it. A consumer follows the cooperative protocol when all the assignors it lists are so.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The name that all members share, e.g. `range`."""

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        """Bytes of the assignor's own for the leader to see; None for none.

        Called before each JoinGroup with the topics subscribed to.
        """
        return None

    @abstractmethod
    def assign(
        self,
        partitions: Mapping[str, int],
        members: Sequence[MemberSubscription],
        racks: Mapping[TopicPartition, tuple[str, ...]],
    ) -> Mapping[str, Sequence[TopicPartition]]:
        """Partitions by member id.

        `partitions` has the number of partitions of each topic that exists, `racks` the racks of
        each partition's replicas (empty when none is known). Runs on the leader only, must not
        block, and must not trust `user_data` and `owned`, which other members wrote. A member
        that is left out gets no partitions. An exception ends the leader's consumer with
        `GroupFailed`, and so does a partition that is given twice.
        """

    def on_assignment(self, partitions: Sequence[TopicPartition], generation_id: int) -> None:  # noqa: B027
        """This member got these partitions in this generation. Called after each SyncGroup."""


def java_order(text: str) -> bytes:
    """A sort key that orders strings as Java does: by UTF-16 code unit."""
    return text.encode("utf-16-be", "surrogatepass")


def java_table_order(texts: Sequence[str]) -> list[str]:
    """The order in which a hash table of Java's holds these strings.

    Some results of Java's assignors follow it; it does not depend on the order of `texts`.
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
    """Static members first, by their instance id; the others by their member id."""
    if member.group_instance_id is not None:
        return False, java_order(member.group_instance_id)
    return True, java_order(member.member_id)


def by_topic(
    members: Iterable[MemberSubscription],
) -> list[tuple[str, list[MemberSubscription]]]:
    """The topics that are subscribed to, in Java's order, each with its members as they come."""
    subscribers: dict[str, list[MemberSubscription]] = {}
    for member in members:
        for topic in dict.fromkeys(member.topics):
            subscribers.setdefault(topic, []).append(member)
    return [(topic, subscribers[topic]) for topic in sorted(subscribers, key=java_order)]
