"""The sticky assignors: balance first, and then what members have they keep."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from aiokafkawire.types import TopicPartition

from .base import Assignor, MemberSubscription, java_order

__all__ = ("CooperativeStickyAssignor",)

_GENERATION = struct.Struct(">i")


class CooperativeStickyAssignor(Assignor):
    """Sticky, for members that keep their partitions while they join again (KIP-429).

    A partition that changes hands is given to nobody in the generation in which its old owner
    learns to give it up; that one joins again, and the next generation gives it to the new owner.
    """

    name = "cooperative-sticky"
    cooperative = True

    def __init__(self) -> None:
        self._generation = -1

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        return _GENERATION.pack(self._generation)

    def assigned(self, partitions: Sequence[TopicPartition], generation_id: int) -> None:
        self._generation = generation_id

    def assign(
        self,
        partitions: Mapping[str, int],
        members: Sequence[MemberSubscription],
        racks: Mapping[TopicPartition, tuple[str, ...]],
    ) -> dict[str, list[TopicPartition]]:
        ordered = sorted(members, key=lambda member: java_order(member.member_id))
        newest = max((member.generation for member in ordered), default=-1)
        owners = {
            tp: member.member_id
            for member in ordered
            if member.generation == newest
            for tp in member.owned
        }
        assignment: dict[str, list[TopicPartition]] = {member.member_id: [] for member in ordered}
        for topic, count in sorted(partitions.items()):
            readers = [member.member_id for member in ordered if topic in member.topics]
            quota = -(-count // len(readers)) if readers else 0
            held = dict.fromkeys(readers, 0)
            free = []
            for partition in range(count):
                tp = TopicPartition(topic, partition)
                owner = owners.get(tp)
                if owner in held and held[owner] < quota:
                    held[owner] += 1
                    assignment[owner].append(tp)
                else:
                    free.append(tp)
            for tp in free if readers else ():
                reader = min(held, key=held.__getitem__)
                held[reader] += 1
                if owners.get(tp) is None:
                    assignment[reader].append(tp)
        return assignment
