"""FindCoordinator requests and responses, and the cache of coordinators."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from aiokafkawire.cluster.routing import CoordinatorType, ToCoordinator
from aiokafkawire.connection import VersionedRequest
from aiokafkawire.errors import ProtocolError
from aiokafkawire.logs import NO_FIELDS, log_fields
from aiokafkawire.types import NodeId
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

__all__ = (
    "MAX_COORDINATORS",
    "CoordinatorCache",
    "FoundCoordinator",
    "find_coordinator_request",
    "find_coordinators_request",
    "read_find_coordinator",
)

logger = logging.getLogger("aiokafkawire.cluster")

FIRST_WITH_MANY_KEYS = 4
"""FindCoordinator version that can look up several coordinators at once (KIP-699)."""

MAX_COORDINATORS = 10_000
"""Size of the coordinator cache; beyond it, the oldest entry is dropped."""


class FoundCoordinator(NamedTuple):
    """Coordinator or error in a FindCoordinator response."""

    error_code: int
    error_message: str | None
    node_id: NodeId
    host: str
    port: int


def find_coordinator_request(
    route: ToCoordinator,
) -> tuple[VersionedRequest[FindCoordinatorResponse], int]:
    """Return a FindCoordinator request, and the lowest version that can carry it."""

    def build(version: int) -> FindCoordinatorRequest:
        if version >= FIRST_WITH_MANY_KEYS:
            return FindCoordinatorRequest(key_type=route.type, coordinator_keys=[route.key])
        return FindCoordinatorRequest(key=route.key, key_type=route.type)

    min_version = 0 if route.type is CoordinatorType.GROUP else 1
    return VersionedRequest(ApiKey.FIND_COORDINATOR, build), min_version


def find_coordinators_request(
    routes: Sequence[ToCoordinator],
) -> tuple[VersionedRequest[FindCoordinatorResponse], int]:
    """Return a request for coordinators of one type, and the lowest version that can carry it."""

    def build(_: int) -> FindCoordinatorRequest:
        return FindCoordinatorRequest(
            key_type=routes[0].type, coordinator_keys=[route.key for route in routes]
        )

    return VersionedRequest(ApiKey.FIND_COORDINATOR, build), FIRST_WITH_MANY_KEYS


def read_find_coordinator(response: FindCoordinatorResponse, key: str) -> FoundCoordinator:
    """Return the entry for `key` from a response of any version.

    Raises:
        ProtocolError: The response has no entry for `key`.
    """
    if not response.coordinators:
        return FoundCoordinator(
            response.error_code,
            response.error_message,
            response.node_id,
            response.host,
            response.port,
        )
    for entry in response.coordinators:
        if entry.key == key:
            return FoundCoordinator(
                entry.error_code, entry.error_message, entry.node_id, entry.host, entry.port
            )
    raise ProtocolError(f"the FindCoordinator response lacks an entry for {key!r}")


class CoordinatorCache:
    """Coordinators that were found and have not failed since: `known`."""

    def __init__(self, fields: Mapping[str, object] = NO_FIELDS) -> None:
        self.known: dict[ToCoordinator, NodeId] = {}
        self._fields = fields

    def put(self, route: ToCoordinator, node_id: NodeId) -> None:
        if self.known.pop(route, None) != node_id:
            self._log("Coordinator of %s %s: broker %d", route, node_id)
        self.known[route] = node_id
        if len(self.known) > MAX_COORDINATORS:
            del self.known[next(iter(self.known))]

    def forget(self, route: ToCoordinator) -> None:
        node_id = self.known.pop(route, None)
        if node_id is not None:
            self._log(
                "Coordinator of %s %s: no longer broker %d; looking it up when needed",
                route,
                node_id,
            )

    def _log(self, text: str, route: ToCoordinator, node_id: NodeId) -> None:
        if not logger.isEnabledFor(logging.DEBUG):  # There may be thousands at once.
            return
        key = route.key
        is_group = route.type is CoordinatorType.GROUP
        logger.debug(
            text,
            "group" if is_group else "transactional id",
            key,
            node_id,
            extra=log_fields(
                self._fields,
                broker=str(node_id),
                group=key if is_group else None,
                transactional_id=None if is_group else key,
            ),
        )
