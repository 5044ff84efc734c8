"""Events of a share group, and what its coordinator does with them."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from aiokafkawire.broker.groups.consumer_group.events import AppendRecords
from aiokafkawire.broker.groups.events import GroupReply

__all__ = (
    "InitializePartitions",
    "PartitionsInitialized",
    "ShareEffect",
    "ShareGroupHeartbeat",
    "ShareGroupSettings",
    "StatesChanged",
)


@dataclass(frozen=True, slots=True)
class ShareGroupSettings:
    """Configs of the group and its broker. Times are in seconds.

    `first_epoch` is the epoch of a new group.
    """

    session_timeout_s: float = 45.0
    heartbeat_interval_ms: int = 5_000
    assignment_interval_s: float = 0.0
    max_size: int = 200
    first_epoch: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupHeartbeat:
    """ShareGroupHeartbeat. None stands for a field that has not changed."""

    reply: object
    member_id: str
    member_epoch: int
    rack_id: str | None = None
    subscribed_names: tuple[str, ...] | None = None
    client_id: str = ""
    client_host: str = ""
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class InitializePartitions:
    """Give share partitions a state, then `PartitionsInitialized` to the group."""

    partitions: tuple[tuple[UUID, int], ...]
    state_epoch: int


@dataclass(frozen=True, slots=True)
class PartitionsInitialized:
    """The share partitions that were being initialized have a state."""


@dataclass(frozen=True, slots=True)
class StatesChanged:
    """An admin client altered or deleted states of share partitions.

    `initialized` have one now, `deleted` are topics that have none.
    """

    reply: object
    initialized: tuple[tuple[UUID, str, int], ...] = ()
    deleted: tuple[UUID, ...] = ()


ShareEffect = AppendRecords | GroupReply | InitializePartitions
