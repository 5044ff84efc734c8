"""The quota of partitions that clients create and delete (`controller_mutation_rate`, KIP-599)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.quotas.rates import SAMPLES, WINDOW_S
from aiokafkawire.wire import ApiKey, ErrorCode

__all__ = ("STRICT_SINCE", "MutationQuota", "TokenBucket")

STRICT_SINCE: Mapping[ApiKey, int] = {
    ApiKey.CREATE_TOPICS: 6,
    ApiKey.CREATE_PARTITIONS: 3,
    ApiKey.DELETE_TOPICS: 5,
}
"""Version from which on an API refuses what exceeds the quota; before, it delays the client."""

ROUNDING = 1e-6
"""Tokens that may be missing when the throttle time is over."""


class TokenBucket:
    """Tokens that come at a rate, up to those of Kafka's quota window; debts are possible."""

    def __init__(self) -> None:
        self._tokens: float | None = None
        self._filled_at = 0.0

    def fill(self, rate: float, now: float) -> float:
        """Add the tokens since the last call and return their number."""
        most = rate * SAMPLES * WINDOW_S
        tokens = most if self._tokens is None else self._tokens + (now - self._filled_at) * rate
        self._tokens, self._filled_at = min(tokens, most), now
        return self._tokens

    def take(self, count: float) -> None:
        """Remove tokens after `fill`."""
        assert self._tokens is not None
        self._tokens -= count


class MutationQuota:
    """Quota of one request; `throttle_s` is the throttle time of its client."""

    def __init__(
        self, rate: float, bucket: TokenBucket, now: Callable[[], float], *, is_strict: bool
    ) -> None:
        self.throttle_s = 0.0
        self._rate = rate
        self._bucket = bucket
        self._now = now
        self._is_strict = is_strict

    def record(self, partitions: int) -> None:
        """Record partitions that the request will create or delete.

        Raises:
            ApiError: The quota was exceeded before.
        """
        tokens = self._bucket.fill(self._rate, self._now())
        if self._is_strict and tokens < -ROUNDING:
            self.throttle_s = -tokens / self._rate
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        self._bucket.take(partitions)
        if not self._is_strict and partitions > tokens:
            self.throttle_s = (partitions - tokens) / self._rate
