"""Data of a group member that outlives its states."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from aiokafkawire.connection.backoff import Backoff
from aiokafkawire.runtime.interfaces import NEVER

from . import states

__all__ = (
    "GroupMembershipOperation",
    "GroupSettings",
    "MemberContext",
    "MemberSettings",
    "MembershipContext",
    "PollTimer",
)


GroupMembershipOperation = Literal["default", "leave_group", "remain_in_group"]
"""Effect of a close on the membership (KIP-1092)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """Consumer options that affect the membership in both protocols."""

    group_instance_id: str | None
    max_poll_interval_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    request_timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings(MemberSettings):
    """Consumer options that affect the membership in the classic protocol."""

    cooperative: bool
    session_timeout_ms: int
    session_timeout_is_default: bool
    heartbeat_interval_ms: int


class PollTimer:
    """Timer for max_poll_interval_ms. It stops while a poll is running.

    `interval_s` is max_poll_interval_ms in seconds, `open_polls` the number of running polls.
    """

    __slots__ = ("_polling_s", "_polling_since", "interval_s", "last_poll", "open_polls")

    def __init__(self, interval_s: float, now: float) -> None:
        self.interval_s = interval_s
        self.last_poll = now
        self.open_polls = 0
        self._polling_s = 0.0
        self._polling_since = now

    def start_poll(self, now: float) -> None:
        if not self.open_polls:
            self._polling_since = now
        self.open_polls += 1
        self.last_poll = now

    def finish_poll(self, now: float) -> None:
        self.open_polls -= 1
        self.last_poll = now
        if not self.open_polls:
            self._polling_s += now - self._polling_since

    def polling_s(self, now: float) -> float:
        """Return how long polls have been running in total, in seconds."""
        return self._polling_s + (now - self._polling_since if self.open_polls else 0.0)

    @property
    def deadline(self) -> float:
        """When the poll interval ends; `NEVER` during a poll."""
        return NEVER if self.open_polls else self.last_poll + self.interval_s


class MemberContext:
    """Subscription, poll timer and request numbers of a member in either protocol.

    `leave_operation` is what `CloseRequested` asked for.
    """

    def __init__(self, settings: MemberSettings, rng: random.Random, now: float) -> None:
        self.topics: tuple[str, ...] = ()
        self.leave_operation: GroupMembershipOperation = "default"
        self.poll_timer = PollTimer(settings.max_poll_interval_ms / 1000, now)
        self._rng = rng
        self._backoff = Backoff.from_ms(settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        self._last_request = 0

    def new_request(self) -> int:
        self._last_request += 1
        return self._last_request

    def backoff_s(self, attempt: int) -> float:
        """Return the backoff in seconds before retry number `attempt`, which starts at 1."""
        return self._backoff.delay(attempt, self._rng)


class MembershipContext(MemberContext):
    """Settings, subscription, poll timer and counters, for the handlers of all states."""

    def __init__(self, settings: GroupSettings, rng: random.Random, now: float) -> None:
        super().__init__(settings, rng, now)
        self.settings = settings
        self.session_timeout_ms = settings.session_timeout_ms
        self.protocol_violations = 0
        self.unknown_server_errors = 0

    def sends_leave_group(self, *, owes_rejoin: bool = False) -> bool:
        """Return whether a member that closes or unsubscribes sends LeaveGroup.

        Args:
            owes_rejoin: It leaves in the middle of a cooperative rebalance. A static member returns
                to its old assignment: what it has revoked for others would have no owner until the
                next rebalance.
        """
        if self.leave_operation == "default":
            is_dynamic = self.settings.group_instance_id is None
            return is_dynamic or (owes_rejoin and self.settings.cooperative)
        return self.leave_operation == "leave_group"

    def new_heartbeat(self, node: int | None, now: float) -> states.HeartbeatState:
        return states.HeartbeatState(
            node=node,
            request=None,
            next_at=now + self.settings.heartbeat_interval_ms / 1000,
            session_ends=now + self.session_timeout_ms / 1000,
        )
