"""What a member of a consumer group asks for; `coordinator` carries it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aiokafkawire.types import NodeId

from .states import Assignment, Generation, JoinedMember

__all__ = (
    "AssignPartitions",
    "Effect",
    "EnterGeneration",
    "FindCoordinator",
    "ForgetCoordinator",
    "Interrupt",
    "LosePartitions",
    "MakeAssignment",
    "Note",
    "RevokePartitions",
    "SendHeartbeat",
    "SendJoin",
    "SendLeave",
    "SendSync",
    "WatchPartitions",
)


class Effect:
    __slots__ = ()


@dataclass(frozen=True, slots=True)
class FindCoordinator(Effect):
    request: int


@dataclass(frozen=True, slots=True)
class ForgetCoordinator(Effect):
    """`silent` is the node that answered nothing: what waits there would wait for long."""

    silent: NodeId | None = None


@dataclass(frozen=True, slots=True)
class SendJoin(Effect):
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
class MakeAssignment(Effect):
    request: int
    protocol: str
    members: tuple[JoinedMember, ...]


@dataclass(frozen=True, slots=True)
class WatchPartitions(Effect):
    """The coordinator keeps the old assignment: only changes of the topics matter."""

    members: tuple[JoinedMember, ...]


@dataclass(frozen=True, slots=True)
class SendSync(Effect):
    request: int
    node: NodeId
    generation: Generation
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class SendHeartbeat(Effect):
    request: int
    node: NodeId
    generation: Generation
    deadline: float


@dataclass(frozen=True, slots=True)
class SendLeave(Effect):
    """`request` is answered by `LeftGroup` in any case."""

    request: int
    member_id: str
    deadline: float
    reason: str


@dataclass(frozen=True, slots=True)
class RevokePartitions(Effect):
    """Run the callback, commit, give the partitions back; answer with `Revoked`."""

    request: int
    partitions: Assignment


@dataclass(frozen=True, slots=True)
class Interrupt(Effect):
    """A revocation is due: the application's next call must be heard of."""


@dataclass(frozen=True, slots=True)
class LosePartitions(Effect):
    """The partitions are not this member's any more; nothing may be committed for them."""

    partitions: Assignment
    reason: str


@dataclass(frozen=True, slots=True)
class EnterGeneration(Effect):
    """The rebalance is over. `owned` is what may be committed in the new generation.

    That is all that was assigned, and what is still to be given back.
    """

    generation: Generation
    owned: Assignment


@dataclass(frozen=True, slots=True)
class AssignPartitions(Effect):
    """These are the member's from now on, beside what it kept; the application is to be told."""

    partitions: Assignment


@dataclass(frozen=True, slots=True)
class Note(Effect):
    """A line for the log."""

    text: str
    warning: bool = False
