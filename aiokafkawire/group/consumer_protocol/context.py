"""Data of a member of the consumer protocol that outlives its states."""

from __future__ import annotations

import random
from dataclasses import dataclass

from aiokafkawire.group.membership.context import MemberContext, MemberSettings

__all__ = ("ConsumerProtocolContext", "ConsumerProtocolSettings")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerProtocolSettings(MemberSettings):
    """Member id, and consumer options that affect the membership.

    `may_fall_back` allows the classic protocol, until a first join has succeeded.
    """

    member_id: str
    default_api_timeout_ms: int
    may_fall_back: bool = False


class ConsumerProtocolContext(MemberContext):
    """Settings, subscription, poll timer and request numbers, for the handlers of all states."""

    def __init__(self, settings: ConsumerProtocolSettings, rng: random.Random, now: float) -> None:
        super().__init__(settings, rng, now)
        self.settings = settings
        self.may_fall_back = settings.may_fall_back
