"""Who of a group reads which partitions: the leader's part of the group protocol.

An assignor is a plain object with a name that all members share; see `Assignor`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from aiokafkawire.errors import InvalidOption
from aiokafkawire.types import TopicPartition

__all__ = ("Assignor", "MemberSubscription", "RangeAssignor", "assignors_of", "java_order")


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What one member told the leader."""

    member_id: str
    topics: tuple[str, ...]
    group_instance_id: str | None = None
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    rack: str | None = field(default=None)


@runtime_checkable
class Assignor(Protocol):
    """Divides partitions among members.

    `name` stands in JoinGroup: the group uses the first assignor that all of its members list.
    """

    @property
    def name(self) -> str: ...

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        """Bytes of the assignor's own for the leader to see; None for none."""
        ...

    def assign(
        self, partitions: Mapping[str, int], members: Sequence[MemberSubscription]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        """Partitions by member id. `partitions` has the number of them for each known topic.

        Runs on the leader only, and must not block. A member that is left out gets none.
        """
        ...


def java_order(text: str) -> bytes:
    """A sort key that orders strings as Java does: by UTF-16 code unit."""
    return text.encode("utf-16-be", "surrogatepass")


def member_order(member: MemberSubscription) -> tuple[bool, bytes]:
    """Static members first, by their instance id; the others by their member id."""
    if member.group_instance_id is not None:
        return False, java_order(member.group_instance_id)
    return True, java_order(member.member_id)


class RangeAssignor:
    """Each topic for itself: its members, in order, get consecutive partitions.

    The first ones get one more where it does not come out even. Topics with the same number of
    partitions and the same members are divided alike (what joins of streams count on).
    """

    name = "range"

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        return None

    def assign(
        self, partitions: Mapping[str, int], members: Sequence[MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        assignment: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
        ordered = sorted(members, key=member_order)
        for topic in sorted({topic for member in members for topic in member.topics}):
            readers = [member for member in ordered if topic in member.topics]
            each, more = divmod(partitions.get(topic, 0), len(readers))
            start = 0
            for index, member in enumerate(readers):
                end = start + each + (index < more)
                assignment[member.member_id] += (
                    TopicPartition(topic, partition) for partition in range(start, end)
                )
                start = end
        return assignment


BY_NAME: Mapping[str, type[Assignor]] = {RangeAssignor.name: RangeAssignor}


def assignors_of(strategy: Iterable[Any]) -> tuple[Assignor, ...]:
    """The assignors that an option names: names of ours, `Assignor` objects or their classes."""
    if isinstance(strategy, str):
        strategy = [strategy]
    found: list[Assignor] = []
    for item in strategy:
        if isinstance(item, str) and item in BY_NAME:
            assignor: Any = BY_NAME[item]()
        else:
            assignor = item() if isinstance(item, type) else item
        if not isinstance(assignor, Assignor):
            known = ", ".join(map(repr, BY_NAME))
            raise InvalidOption(
                f"partition_assignment_strategy has {item!r}: give {known} or an Assignor"
            )
        if any(other.name == assignor.name for other in found):
            raise InvalidOption(
                f"partition_assignment_strategy names the assignor {assignor.name!r} twice"
            )
        found.append(assignor)
    return tuple(found)
