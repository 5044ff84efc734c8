"""Data of a member of the consumer protocol that outlives its states."""

from __future__ import annotations

import random
from dataclasses import dataclass

from aiokafkawire.group.membership.context import MemberContext, MemberSettings

__all__ = ("ConsumerProtocolContext", "ConsumerProtocolSettings")

LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
"""Member epoch of a static member that leaves for a moment: its partitions are kept for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerProtocolSettings(MemberSettings):
    """Member id, and consumer options that affect the membership.

    `may_fall_back` allows the classic protocol, until a first join has succeeded.
    """

    member_id: str
    default_api_timeout_ms: int
    may_fall_back: bool = False


class ConsumerProtocolContext(MemberContext):
    """Settings, subscription, poll timer and request numbers, for the handlers of all states.

    `may_be_known` is true while the coordinator may have a member with this id: a join succeeded,
    or was sent without a response. `had_pattern` is true if there was one: the coordinator keeps
    pattern and topics apart, until an empty pattern is reported.
    """

    def __init__(self, settings: ConsumerProtocolSettings, rng: random.Random, now: float) -> None:
        super().__init__(settings, rng, now)
        self.settings = settings
        self.may_fall_back = settings.may_fall_back
        self.may_be_known = False
        self.pattern: str | None = None
        self.had_pattern = False

    @property
    def is_subscribed(self) -> bool:
        """True with topics or a pattern."""
        return bool(self.topics) or self.pattern is not None

    def set_subscription(self, topics: tuple[str, ...] = (), pattern: str | None = None) -> None:
        """Replace the topics and the pattern."""
        self.topics, self.pattern = topics, pattern
        self.had_pattern |= pattern is not None

    @property
    def leave_epoch(self) -> int | None:
        """Epoch of the heartbeat that leaves, None to send none."""
        static = self.settings.group_instance_id is not None
        if static and self.leave_operation != "leave_group":
            return LEAVE_STATIC_EPOCH
        return None if self.leave_operation == "remain_in_group" else LEAVE_EPOCH
