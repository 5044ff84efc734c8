"""Events of a consumer group, and what its coordinator does with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiokafkawire.broker.api_error import ApiError, StorageError
from aiokafkawire.broker.groups.consumer_group.assignors import ASSIGNORS
from aiokafkawire.broker.groups.consumer_group.member import OwnedPartitions
from aiokafkawire.broker.groups.consumer_group.records import GroupRecord
from aiokafkawire.broker.groups.events import (
    GroupReply,
    HeartbeatResult,
    Join,
    JoinResult,
    Sync,
    SyncResult,
)

__all__ = (
    "AppendRecords",
    "ConsumerGroupHeartbeat",
    "ConsumerGroupSettings",
    "Downgrade",
    "Effect",
    "RegexesResolved",
    "ResolveRegexes",
    "failed_reply",
)


@dataclass(frozen=True, slots=True)
class ConsumerGroupSettings:
    """Configs of the group and its broker. Times are in seconds.

    `max_size` is the limit of a consumer group, `classic_max_size` that of a group that becomes a
    classic one. `first_epoch` is the epoch of a new group. With `checks_assignment_epochs`, a
    commit may have an older epoch for partitions that the member has owned since (KIP-1251). With
    `rejoins_once_assigned`, a classic member rejoins when there is an assignment of a newer epoch,
    otherwise as soon as there is a newer epoch.
    """

    session_timeout_s: float = 45.0
    heartbeat_interval_ms: int = 5_000
    assignment_interval_s: float = 0.0
    regex_refresh_interval_s: float = 600.0
    max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = tuple(ASSIGNORS)
    first_epoch: int = 1
    checks_assignment_epochs: bool = True
    allows_downgrade: bool = True
    classic_max_size: int = 2**31 - 1
    rejoins_once_assigned: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupHeartbeat:
    """ConsumerGroupHeartbeat. None stands for a field that has not changed."""

    reply: object
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_names: tuple[str, ...] | None = None
    subscribed_regex: str | None = None
    server_assignor: str | None = None
    owned: OwnedPartitions | None = None
    client_id: str = ""
    client_host: str = ""
    timestamp_ms: int = 0

    @property
    def is_full(self) -> bool:
        """Return True if the request has all fields of a joining member."""
        subscribes = self.subscribed_names is not None or self.subscribed_regex is not None
        return self.rebalance_timeout_ms != -1 and subscribes and self.owned is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegexesResolved:
    """Topics that match each regular expression, at a version of the topics."""

    topics: Mapping[str, frozenset[str]]
    version: int
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class AppendRecords:
    """Append records together, before any reply."""

    records: tuple[GroupRecord, ...]


@dataclass(frozen=True, slots=True)
class ResolveRegexes:
    """Look up the topics that match, and give `RegexesResolved` to the group."""

    regexes: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Downgrade:
    """Make a classic group of the group: only classic members are left.

    `joined` is the id of a member that replaces the last one of the consumer protocol.
    """

    joined: str | None = None
    rebalances: bool = True


Effect = AppendRecords | GroupReply | ResolveRegexes | Downgrade


def failed_reply(event: Any, error: ApiError | StorageError) -> GroupReply:
    """Return the reply to an event that failed."""
    if isinstance(event, ConsumerGroupHeartbeat):
        return GroupReply(event.reply, HeartbeatResult(code=error.code, message=error.message))
    if isinstance(event, Join):
        return GroupReply(event.reply, JoinResult(code=error.code))
    if isinstance(event, Sync):
        return GroupReply(event.reply, SyncResult(code=error.code))
    return GroupReply(event.reply, error.code)
