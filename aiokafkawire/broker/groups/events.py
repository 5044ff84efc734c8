"""What a group can be told, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from aiokafkawire.wire import ErrorCode

__all__ = (
    "Commit",
    "CoordinatorChanged",
    "Delete",
    "Event",
    "GroupDeadlineReached",
    "GroupReply",
    "GroupState",
    "Heartbeat",
    "Join",
    "JoinResult",
    "JoinedMember",
    "Leave",
    "Result",
    "Sync",
    "SyncResult",
)

NO_GENERATION = -1


class GroupState(Enum):
    """The states of Kafka's classic group; the values are the names that DescribeGroups gives."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinResult:
    """The answer to a `Join`; `members` is filled for the leader."""

    code: ErrorCode = ErrorCode.NONE
    member_id: str = ""
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    """The answer to a `Sync`."""

    code: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


Result = JoinResult | SyncResult | ErrorCode


class GroupReply(NamedTuple):
    """An effect: answer the request that came with `to`."""

    to: object
    result: Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """JoinGroup. `new_member_id` is the member id for a member without one.

    `requires_known_member_id` rejects a new member but returns its id (KIP-394).
    `supports_skipping_assignment`: the leader accepts that there is nothing to assign (KIP-814).
    """

    reply: object
    member_id: str
    new_member_id: str
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    session_timeout_s: float
    rebalance_timeout_s: float
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    requires_known_member_id: bool = False
    supports_skipping_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """SyncGroup. A protocol type or name of None is not checked."""

    reply: object
    member_id: str
    generation: int
    assignments: Mapping[str, bytes]
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    reply: object
    member_id: str
    generation: int
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """One member leaves. A static one may be named by its instance id alone."""

    reply: object
    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """May this member commit offsets now? Generation -1 without a member: from outside.

    `transactional`: they count later, so that less is asked of who commits.
    """

    reply: object
    member_id: str = ""
    generation: int = NO_GENERATION
    instance_id: str | None = None
    transactional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDeadlineReached:
    """Time has passed: see what is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorChanged:
    """Another node has the group now, and knows of it what was kept last.

    Sessions begin anew when it has loaded that.
    """

    loaded_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Nobody needs the group any more; refused while it has members."""

    reply: object


Event = (
    Join | Sync | Heartbeat | Leave | Commit | GroupDeadlineReached | CoordinatorChanged | Delete
)
