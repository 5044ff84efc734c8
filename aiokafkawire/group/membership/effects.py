"""Effects of the membership machine. `member` performs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aiokafkawire.types import NodeId

from .states import Assignment, Generation, JoinedMember

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
    """`unresponsive_node` did not respond: requests that wait for it need another connection."""

    unresponsive_node: NodeId | None = None


@dataclass(frozen=True, slots=True)
class SendJoin(MembershipEffect):
    """`owned` are the partitions that the member keeps from `generation`."""

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
    members: tuple[JoinedMember, ...]


@dataclass(frozen=True, slots=True)
class WatchPartitionCounts(MembershipEffect):
    """Watch the topics without an assignment: the coordinator keeps the previous one (KIP-814)."""

    members: tuple[JoinedMember, ...]


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
    """`GroupLeft` follows whether or not the request succeeds."""

    request: int
    member_id: str
    deadline: float
    reason: str


@dataclass(frozen=True, slots=True)
class RevokePartitions(MembershipEffect):
    """Run the callback, commit and release the partitions. `PartitionsRevoked` follows."""

    request: int
    partitions: Assignment


@dataclass(frozen=True, slots=True)
class InterruptPoll(MembershipEffect):
    """A revocation is due: the next poll must call `GroupMember.poll_started`."""


@dataclass(frozen=True, slots=True)
class LosePartitions(MembershipEffect):
    """The member lost the partitions and must not commit them."""

    partitions: Assignment
    reason: str


@dataclass(frozen=True, slots=True)
class EnterGeneration(MembershipEffect):
    """The rebalance is over. Offsets of `owned` may be committed in the new generation.

    `owned` are the assigned partitions and those that are still to be revoked.
    """

    generation: Generation
    owned: Assignment


@dataclass(frozen=True, slots=True)
class AssignPartitions(MembershipEffect):
    """The member owns these partitions in addition. The rebalance listener is called."""

    partitions: Assignment


@dataclass(frozen=True, slots=True)
class LogMessage(MembershipEffect):
    """Write a log line."""

    text: str
    warning: bool = False
