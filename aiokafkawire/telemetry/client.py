"""The public method of all clients that push metrics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from uuid import UUID

from .reporter import ClientTelemetryReporter

__all__ = ("PushesMetrics",)


class PushesMetrics(ABC):
    """A client that pushes metrics to the brokers (KIP-714)."""

    @abstractmethod
    def _telemetry(self) -> ClientTelemetryReporter: ...

    async def client_instance_id(self, *, timeout_ms: int | None = None) -> UUID:
        """Return the id that the brokers have assigned to this client for its metrics (KIP-714).

        Args:
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.

        Returns:
            The id, which stays the same until the client is stopped.

        Raises:
            UnsupportedVersion: The brokers are older than 3.7, or collect no client metrics.
            IllegalState: The option `enable_metrics_push` is False.
            KafkaError: No broker could answer, or it assigned no id.
        """
        return await self._telemetry().client_instance_id(timeout_ms)
