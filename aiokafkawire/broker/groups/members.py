"""What a group remembers: its members, how they vote, what is kept and what is waited for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from aiokafkawire.broker.groups.events import GroupState, Join, JoinedMember

__all__ = (
    "MAX_PENDING_MEMBERS",
    "ClassicGroupMember",
    "DelayedJoin",
    "PersistedGroup",
    "accepts_joining_member",
    "common_protocols",
    "elect_protocol",
)


MAX_PENDING_MEMBERS = 10_000
"""Newcomers of a group that were given an id and have not come back with it."""


@dataclass(slots=True)
class ClassicGroupMember:
    """One member. `join_reply` and `sync_reply` are of requests that wait for an answer.

    `is_new` until its first generation: it may be given up even while its JoinGroup waits.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_s: float
    rebalance_timeout_s: float
    protocols: tuple[tuple[str, bytes], ...]
    session_deadline: float
    assignment: bytes = b""
    is_new: bool = True
    join_reply: object = None
    sync_reply: object = None

    @classmethod
    def from_join(cls, member_id: str, event: Join, deadline: float) -> ClassicGroupMember:
        return cls(
            member_id=member_id,
            instance_id=event.instance_id,
            client_id=event.client_id,
            client_host=event.client_host,
            session_timeout_s=event.session_timeout_s,
            rebalance_timeout_s=event.rebalance_timeout_s,
            protocols=event.protocols,
            session_deadline=deadline,
            join_reply=event.reply,
        )

    @property
    def is_waiting(self) -> bool:
        return self.join_reply is not None or self.sync_reply is not None

    def metadata(self, protocol: str | None) -> bytes:
        """What it said with a protocol; empty for one that it does not know."""
        return dict(self.protocols).get(protocol or "", b"")

    def to_joined_member(self, protocol: str | None) -> JoinedMember:
        return JoinedMember(self.member_id, self.instance_id, self.metadata(protocol))


@dataclass(frozen=True, slots=True)
class PersistedGroup:
    """What the coordinator keeps in the log, and so what the next one knows."""

    state: GroupState
    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str
    members: tuple[ClassicGroupMember, ...]


@dataclass(slots=True)
class DelayedJoin:
    """The wait for members to join. The first one of an empty group waits for its own time."""

    deadline: float
    initial: bool = False
    remaining_s: float = 0.0
    has_new_member: bool = False

    @classmethod
    def for_members(cls, members: Iterable[ClassicGroupMember], now: float) -> DelayedJoin:
        """All may take as long as the slowest of them asks for."""
        return cls(now + max((member.rebalance_timeout_s for member in members), default=0.0))

    @classmethod
    def initial_for(
        cls, members: Iterable[ClassicGroupMember], now: float, delay_s: float
    ) -> DelayedJoin:
        """The one of a group that was empty: it waits for newcomers, a while at a time."""
        longest = cls.for_members(members, 0.0).deadline
        delay = min(delay_s, longest)
        return cls(now + delay, initial=True, remaining_s=longest - delay)


def common_protocols(members: Iterable[ClassicGroupMember]) -> list[str]:
    """The protocols that all of the members know, in the first one's order."""
    known = [dict(member.protocols) for member in members]
    return [name for name in (known[0] if known else {}) if all(name in each for each in known)]


def elect_protocol(members: Sequence[ClassicGroupMember]) -> str:
    """Each member votes for the first of its protocols that all know; most votes win."""
    candidates = common_protocols(members)
    votes = dict.fromkeys(candidates, 0)
    for member in members:
        votes[next(name for name, _ in member.protocols if name in votes)] += 1
    return max(candidates, key=lambda name: votes[name])


def accepts_joining_member(
    state: GroupState, members: Mapping[str, ClassicGroupMember], member_id: str, max_size: int
) -> bool:
    """Whether a group takes a member. While members join, those who did so count; else all do."""
    member = members.get(member_id)
    if state is GroupState.EMPTY:
        return True
    if state is GroupState.PREPARING_REBALANCE:
        joined = sum(each.join_reply is not None for each in members.values())
        rejoins = member is not None and member.join_reply is not None
        return rejoins or joined < max_size
    return member is not None or len(members) < max_size
