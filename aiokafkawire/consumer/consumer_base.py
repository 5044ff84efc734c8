"""Base of a consumer's calls: the running session, deadlines, assigned partitions."""

from __future__ import annotations

from aiokafkawire.config import ConsumerConfig
from aiokafkawire.errors import IllegalState
from aiokafkawire.runtime import BaseClient
from aiokafkawire.runtime.client_state import ClientState
from aiokafkawire.telemetry import ClientTelemetryReporter, PushesMetrics
from aiokafkawire.types import AnyPartition, parse_topic_partition

from .partition import AssignedPartition
from .session import ConsumerSession

__all__ = ("ConsumerBase",)


class ConsumerBase(BaseClient[ConsumerSession], PushesMetrics):
    """A client with a `ConsumerSession`.

    Attributes:
        config: The options.
    """

    config: ConsumerConfig

    @property
    def _running(self) -> ConsumerSession:
        session = self._lifecycle.session
        if (
            session is not None
            and self._lifecycle.state is ClientState.CLOSING
            and session.in_callback
        ):
            # The listener may still seek, and commit the partitions being revoked.
            return session
        return self._lifecycle.require_session_in_loop()

    def _telemetry(self) -> ClientTelemetryReporter:
        return self._running.telemetry

    def _deadline(self, session: ConsumerSession, timeout_ms: float | None = None) -> float:
        limit = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        return session.runtime.clock.now() + limit / 1000

    def _owned_partition(self, session: ConsumerSession, tp: AnyPartition) -> AssignedPartition:
        partition = session.assignment.get(parse_topic_partition(tp))
        if partition is None:
            raise IllegalState(
                "the partition is not assigned to this consumer", topic=tp[0], partition=tp[1]
            )
        return partition
