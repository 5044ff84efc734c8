"""Sends fetch requests to brokers, and backs off a broker that fails. Share groups use it too."""

from __future__ import annotations

import logging
from collections.abc import Container
from typing import TypeVar

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.cluster.routing import ToNode
from aiokafkawire.config import ConsumerConfig, ShareConsumerConfig
from aiokafkawire.connection import Backoff, VersionedRequest
from aiokafkawire.errors import KafkaError, UnknownServerError
from aiokafkawire.logs import RateLimit, log_fields
from aiokafkawire.runtime import Runtime, Supervisor
from aiokafkawire.types import NodeId
from aiokafkawire.wire import Request, Response

from .counters import ConsumerCounters
from .notifier import Notifier

__all__ = ("FetchSender",)

logger = logging.getLogger("aiokafkawire.consumer")

R = TypeVar("R", bound=Response)


class FetchSender:
    """Sends fetch requests, one after the other to each broker."""

    def __init__(
        self,
        cluster: Cluster,
        runtime: Runtime,
        supervisor: Supervisor,
        config: ConsumerConfig | ShareConsumerConfig,
        *,
        notifier: Notifier,
        counters: ConsumerCounters,
    ) -> None:
        self._cluster = cluster
        self._runtime = runtime
        self._supervisor = supervisor
        self._timeout_s = (config.request_timeout_ms + config.fetch_max_wait_ms) / 1000
        self._notifier = notifier
        self._counters = counters
        self._backoff = Backoff.from_ms(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._failures: dict[NodeId, int] = {}
        self._rate_limit = RateLimit()

    async def send(
        self,
        node: NodeId,
        request: Request[R] | VersionedRequest[R],
        *,
        min_version: int = 0,
        max_version: int | None = None,
    ) -> R:
        """Send a request once, and return the response.

        Raises:
            KafkaError: There is no response. Pass the error to `back_off`.
        """
        began = self._runtime.clock.now()
        response = await self._cluster.request(
            request,
            to=ToNode(node),
            min_version=min_version,
            max_version=max_version,
            deadline=began + self._timeout_s,
            retry=False,
        )
        self._failures.pop(node, None)
        self._notifier.request_finished(None)
        self._counters.record_fetch(self._runtime.clock.now() - began)
        return response

    def back_off(self, node: NodeId, error: KafkaError) -> float:
        """Return when the broker may be asked again after an error.

        An error that does not pass by itself is raised in the application's next call.
        """
        self._notifier.request_finished(error)
        failures = self._failures[node] = self._failures.get(node, 0) + 1
        self._counters.fetch_failures += 1
        self._cluster.request_update()
        if isinstance(error, UnknownServerError):
            self.log_server_error(node, error)
        elif not error.retriable:
            self._notifier.raise_in_next_call(error)
        return self._runtime.clock.now() + self.backoff_delay(failures)

    def backoff_delay(self, failures: int) -> float:
        """Return the seconds to wait after this many failures in a row."""
        return self._backoff.delay(failures, self._runtime.rng)

    def log_server_error(self, kind: object, error: KafkaError) -> None:
        """Log UNKNOWN_SERVER_ERROR, which may pass; repeated ones of a kind at a lower level."""
        logger.log(
            self._rate_limit.level(logging.WARNING, kind, self._runtime.clock.now()),
            "%s: fetch failed: %s; retrying",
            self._supervisor.name,
            error,
            extra=log_fields(self._supervisor.fields, error=error),
        )

    def forget_all_but(self, nodes: Container[NodeId]) -> None:
        """Forget the failures of brokers that left the cluster."""
        self._failures = {node: count for node, count in self._failures.items() if node in nodes}
