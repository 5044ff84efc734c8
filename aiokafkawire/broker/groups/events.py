"""Events of a group, and their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from aiokafkawire.wire import ErrorCode

__all__ = (
    "ClassicGroupState",
    "CoordinatorChanged",
    "Delete",
    "Event",
    "GroupDeadlineReached",
    "GroupReply",
    "Heartbeat",
    "HeartbeatResult",
    "Join",
    "JoinResponseMember",
    "JoinResult",
    "Leave",
    "Result",
    "Sync",
    "SyncResult",
    "ValidateOffsetCommit",
)

NO_GENERATION = -1


class ClassicGroupState(Enum):
    """States of Kafka's classic group; values are the names in DescribeGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class JoinResponseMember(NamedTuple):
    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinResult:
    """Result of `Join`; only the leader gets `members`."""

    code: ErrorCode = ErrorCode.NONE
    member_id: str = ""
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[JoinResponseMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    """Result of `Sync`."""

    code: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResult:
    """Result of `ConsumerGroupHeartbeat`."""

    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Mapping[UUID, tuple[int, ...]] | None = None


Result = JoinResult | SyncResult | HeartbeatResult | ErrorCode


class GroupReply(NamedTuple):
    """Reply to the request that came with the handle `to`."""

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
    timestamp_ms: int = 0
    supports_skipping_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """SyncGroup. Protocol type and name are not checked if None."""

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
    """LeaveGroup of one member. A static member may be identified by instance id alone.

    With `always_rebalances`, the group rebalances even if the member had only an id (Kafka 4.0).
    """

    reply: object
    member_id: str
    instance_id: str | None = None
    always_rebalances: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateOffsetCommit:
    """Check that a member may commit offsets; generation -1 without a member id is a simple
    consumer.

    `transactional` offsets apply later and are checked less strictly.
    """

    reply: object
    member_id: str = ""
    generation: int = NO_GENERATION
    instance_id: str | None = None
    transactional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDeadlineReached:
    """A deadline may have passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorChanged:
    """Another node coordinates the group, with the state that was persisted last.

    Sessions restart once it has loaded that state.
    """

    loaded_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Delete the group; fails while it has members."""

    reply: object


Event = (
    Join
    | Sync
    | Heartbeat
    | Leave
    | ValidateOffsetCommit
    | GroupDeadlineReached
    | CoordinatorChanged
    | Delete
)
