"""Data of a member of the consumer protocol that outlives its states."""

from __future__ import annotations

import random
from dataclasses import dataclass

from aiokafkawire.connection.backoff import Backoff
from aiokafkawire.group.membership.context import PollTimer

__all__ = ("ConsumerProtocolContext", "ConsumerProtocolSettings")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerProtocolSettings:
    """Consumer options that affect the membership."""

    member_id: str
    group_instance_id: str | None
    max_poll_interval_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    request_timeout_ms: int


class ConsumerProtocolContext:
    """Settings, subscription, poll timer and request numbers, for the handlers of all states."""

    def __init__(self, settings: ConsumerProtocolSettings, rng: random.Random, now: float) -> None:
        self.settings = settings
        self.topics: tuple[str, ...] = ()
        self.poll_timer = PollTimer(settings.max_poll_interval_ms / 1000, now)
        self._rng = rng
        self._backoff = Backoff.from_ms(settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        self._last_request = 0

    @property
    def is_static(self) -> bool:
        """True if the member has a group instance id (KIP-345)."""
        return self.settings.group_instance_id is not None

    def new_request(self) -> int:
        self._last_request += 1
        return self._last_request

    def backoff_s(self, attempt: int) -> float:
        """Return the backoff in seconds before retry number `attempt`, which starts at 1."""
        return self._backoff.delay(attempt, self._rng)
