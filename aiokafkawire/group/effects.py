"""What a member of a consumer group asks for; `coordinator` carries it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aiokafkawire.types import NodeId

from .states import Assignment, Generation, JoinResponseMember

__all__ = (
    "AssignPartitions",
    "ComputeAssignment",
    "EnterGeneration",
    "FindCoordinator",
    "ForgetCoordinator",
    "InterruptPoll",
    "LogMessage",
    "LosePartitions",
    "MembershipEffect",
    "RevokePartitions",
    "SendHeartbeat",
    "SendJoin",
    "SendLeave",
    "SendSync",
    "WatchPartitionCounts",
)


class MembershipEffect:
    __slots__ = ()


@dataclass(frozen=True, slots=True)
class FindCoordinator(MembershipEffect):
    request: int


@dataclass(frozen=True, slots=True)
class ForgetCoordinator(MembershipEffect):
    """`silent` is the node that answered nothing: what waits there would wait for long."""

    unresponsive_node: NodeId | None = None


@dataclass(frozen=True, slots=True)
class SendJoin(MembershipEffect):
    """`owned` are the partitions that the member keeps, as of `generation`."""

    request: int
    node: NodeId
    member_id: str
    topics: tuple[str, ...]
    session_timeout_ms: int
    generation: int
    owned: Assignment
    reason: str


@dataclass(frozen=True, slots=True)
class ComputeAssignment(MembershipEffect):
    request: int
    protocol: str
    members: tuple[JoinResponseMember, ...]


@dataclass(frozen=True, slots=True)
class WatchPartitionCounts(MembershipEffect):
    """The coordinator keeps the old assignment: only changes of the topics matter."""

    members: tuple[JoinResponseMember, ...]


@dataclass(frozen=True, slots=True)
class SendSync(MembershipEffect):
    request: int
    node: NodeId
    generation: Generation
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class SendHeartbeat(MembershipEffect):
    request: int
    node: NodeId
    generation: Generation
    deadline: float


@dataclass(frozen=True, slots=True)
class SendLeave(MembershipEffect):
    """`request` is answered by `GroupLeft` in any case."""

    request: int
    member_id: str
    deadline: float
    reason: str


@dataclass(frozen=True, slots=True)
class RevokePartitions(MembershipEffect):
    """Run the callback, commit, give the partitions back; answer with `PartitionsRevoked`."""

    request: int
    partitions: Assignment


@dataclass(frozen=True, slots=True)
class InterruptPoll(MembershipEffect):
    """A revocation is due: the application's next call must be heard of."""


@dataclass(frozen=True, slots=True)
class LosePartitions(MembershipEffect):
    """The partitions are not this member's any more; nothing may be committed for them."""

    partitions: Assignment
    reason: str


@dataclass(frozen=True, slots=True)
class EnterGeneration(MembershipEffect):
    """The rebalance is over. `owned` is what may be committed in the new generation.

    That is all that was assigned, and what is still to be given back.
    """

    generation: Generation
    owned: Assignment


@dataclass(frozen=True, slots=True)
class AssignPartitions(MembershipEffect):
    """These are the member's from now on, beside what it kept; the application is to be told."""

    partitions: Assignment


@dataclass(frozen=True, slots=True)
class LogMessage(MembershipEffect):
    """A line for the log."""

    text: str
    warning: bool = False
