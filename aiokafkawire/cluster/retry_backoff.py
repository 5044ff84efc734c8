"""Wait between two attempts of a call."""

from __future__ import annotations

from aiokafkawire.connection import Backoff
from aiokafkawire.errors import KafkaError
from aiokafkawire.runtime import Runtime

__all__ = ("RetryBackoff",)


class RetryBackoff:
    """The wait between attempts that `retry_backoff_ms` and `retry_backoff_max_ms` configure."""

    def __init__(self, backoff: Backoff, runtime: Runtime) -> None:
        self._backoff = backoff
        self._clock = runtime.clock
        self._rng = runtime.rng

    async def wait_or_raise(self, attempt: int, deadline: float, error: KafkaError) -> None:
        """Wait after a failed attempt; raise `error` if it is final or the deadline comes first."""
        if not error.retriable or not await self.wait(attempt, deadline):
            raise error

    async def wait(self, attempt: int, deadline: float) -> bool:
        """Wait after a failed attempt; return False at once if the deadline comes first."""
        retry_at = self._clock.now() + self._backoff.delay(attempt, self._rng)
        if retry_at >= deadline:
            return False
        await self._clock.sleep_until(retry_at)
        return True
