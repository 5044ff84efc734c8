"""Members of a group, protocol election and the persisted state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from aiokafkawire.broker.groups.consumer_group.java_order import hash_order, text_hash
from aiokafkawire.broker.groups.events import ClassicGroupState, Join, JoinResponseMember

__all__ = (
    "MAX_PENDING_MEMBERS",
    "ClassicGroupMember",
    "DelayedJoin",
    "PersistedGroup",
    "accepts_joining_member",
    "common_protocols",
    "elect_protocol",
    "first_member",
)


MAX_PENDING_MEMBERS = 10_000
"""Limit of members that have an id but have not rejoined with it."""


@dataclass(slots=True)
class ClassicGroupMember:
    """One member. `join_reply` and `sync_reply` belong to requests that wait.

    `is_new` holds until the first generation: such a member may expire even while its JoinGroup
    waits.
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
        """Return the member's metadata for a protocol, empty if it does not support it."""
        return dict(self.protocols).get(protocol or "", b"")

    def to_joined_member(self, protocol: str | None) -> JoinResponseMember:
        return JoinResponseMember(self.member_id, self.instance_id, self.metadata(protocol))


@dataclass(frozen=True, slots=True)
class PersistedGroup:
    """State of a group that is persisted, which a new coordinator loads."""

    state: ClassicGroupState
    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str
    members: tuple[ClassicGroupMember, ...]


@dataclass(slots=True)
class DelayedJoin:
    """Wait for members to join; an empty group has an initial delay (Kafka's DelayedJoin)."""

    deadline: float
    initial: bool = False
    remaining_s: float = 0.0
    has_new_member: bool = False

    @classmethod
    def for_members(cls, members: Iterable[ClassicGroupMember], now: float) -> DelayedJoin:
        """Wait up to the longest rebalance timeout of the members."""
        return cls(now + max((member.rebalance_timeout_s for member in members), default=0.0))

    @classmethod
    def initial_for(
        cls, members: Iterable[ClassicGroupMember], now: float, delay_s: float
    ) -> DelayedJoin:
        """Wait for the initial rebalance delay, which later members extend."""
        longest = cls.for_members(members, 0.0).deadline
        delay = min(delay_s, longest)
        return cls(now + delay, initial=True, remaining_s=longest - delay)


def first_member(member_ids: Iterable[str]) -> str:
    """Return the member that becomes the leader: the first of Kafka's hash map, "" of none."""
    return next(iter(hash_order(member_ids, text_hash)), "")


def common_protocols(members: Iterable[ClassicGroupMember]) -> list[str]:
    """Return the protocols that all members support, in the order of the first member."""
    known = [dict(member.protocols) for member in members]
    return [name for name in (known[0] if known else {}) if all(name in each for each in known)]


def elect_protocol(members: Sequence[ClassicGroupMember]) -> str:
    """Return the protocol with most votes; members vote for their first common protocol."""
    candidates = common_protocols(members)
    votes = dict.fromkeys(candidates, 0)
    for member in members:
        votes[next(name for name, _ in member.protocols if name in votes)] += 1
    return max(candidates, key=lambda name: votes[name])


def accepts_joining_member(
    state: ClassicGroupState,
    members: Mapping[str, ClassicGroupMember],
    member_id: str,
    max_size: int,
) -> bool:
    """Return True if the group has room for a member.

    While members join, only those that have joined count.
    """
    member = members.get(member_id)
    if state is ClassicGroupState.EMPTY:
        return True
    if state is ClassicGroupState.PREPARING_REBALANCE:
        joined = sum(each.join_reply is not None for each in members.values())
        rejoins = member is not None and member.join_reply is not None
        return rejoins or joined < max_size
    return member is not None or len(members) < max_size
