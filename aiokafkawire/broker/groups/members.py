"""The members of a group, and how they vote."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aiokafkawire.broker.groups.events import Join, JoinedMember

__all__ = ("Member", "common_protocols", "elect_protocol")


@dataclass(slots=True)
class Member:
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
    def joining(cls, member_id: str, event: Join, deadline: float) -> Member:
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
    def waits(self) -> bool:
        return self.join_reply is not None or self.sync_reply is not None

    def metadata(self, protocol: str | None) -> bytes:
        """What it said with a protocol; empty for one that it does not know."""
        return dict(self.protocols).get(protocol or "", b"")

    def listed(self, protocol: str | None) -> JoinedMember:
        return JoinedMember(self.member_id, self.instance_id, self.metadata(protocol))


def common_protocols(members: Iterable[Member]) -> list[str]:
    """The protocols that all of the members know, in the first one's order."""
    known = [dict(member.protocols) for member in members]
    return [name for name in (known[0] if known else {}) if all(name in each for each in known)]


def elect_protocol(members: Sequence[Member]) -> str:
    """Each member votes for the first of its protocols that all know; most votes win."""
    candidates = common_protocols(members)
    votes = dict.fromkeys(candidates, 0)
    for member in members:
        votes[next(name for name, _ in member.protocols if name in votes)] += 1
    return max(candidates, key=lambda name: votes[name])
