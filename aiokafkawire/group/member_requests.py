"""Requests of group members that all protocols have."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.cluster.routing import CoordinatorType
from aiokafkawire.config import ConsumerConfig, ShareConsumerConfig
from aiokafkawire.errors import ClientClosed, KafkaError, ProtocolError, UnknownServerError
from aiokafkawire.runtime import Clock

from .membership import events

__all__ = ("MemberRequests", "RequestTask", "leave_failure")

RequestTask = Callable[[], Awaitable[events.RequestCompleted]]
"""Sends a request and returns the event that completes it; a task of the member runs it."""


class MemberRequests:
    """Requests of one member.

    `on_result` is called with the failure of each request, or with None if it succeeded. `log` adds
    the fields of the member.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        config: ConsumerConfig | ShareConsumerConfig,
        *,
        on_result: Callable[[KafkaError | None], None],
        log: Callable[..., None],
    ) -> None:
        assert config.group_id is not None
        self._group_id = config.group_id
        self._cluster = cluster
        self._clock = clock
        self._request_timeout_s = config.request_timeout_ms / 1000
        self._on_result = on_result
        self._log = log

    def find_coordinator(self, request: int) -> RequestTask:
        deadline = self._clock.now() + self._request_timeout_s

        async def find() -> events.RequestCompleted:
            try:
                node = await self._cluster.find_coordinator(
                    self._group_id, CoordinatorType.GROUP, deadline=deadline
                )
            except KafkaError as error:
                self._on_result(error)
                if error.retriable or isinstance(error, ProtocolError):
                    return events.CoordinatorNotFound(request)
                if isinstance(error, UnknownServerError):
                    return events.UnknownServerErrorReceived(request, error)
                return events.FatalErrorOccurred(request, error)
            return events.CoordinatorFound(request, node)

        return find


def leave_failure(error: KafkaError) -> str:
    """Return for the log why a member could not leave its group."""
    if isinstance(error, ClientClosed):  # the request waited until the deadline of the close
        return f"no response to {error.api or 'a request'} until the client was closed"
    return str(error)
