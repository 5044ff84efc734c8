"""Which node coordinates what: the requests, the answers, and what is known."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from aiokafkawire.cluster.routing import Coordinator, CoordinatorType
from aiokafkawire.connection import ByVersion
from aiokafkawire.errors import ProtocolError
from aiokafkawire.logs import NO_FIELDS, fields_of
from aiokafkawire.types import NodeId
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

__all__ = ("MAX_KNOWN", "CoordinatorCache", "Found", "find_request", "read_found")

logger = logging.getLogger("aiokafkawire.cluster")

MAX_KNOWN = 10_000
"""Coordinators remembered; the oldest is forgotten beyond it."""


class Found(NamedTuple):
    """An answer to FindCoordinator."""

    error_code: int
    error_message: str | None
    node_id: NodeId
    host: str
    port: int


def find_request(route: Coordinator) -> tuple[ByVersion[FindCoordinatorResponse], int]:
    """The request for a coordinator, and the lowest version that can ask for it."""

    def build(version: int) -> FindCoordinatorRequest:
        if version >= 4:
            return FindCoordinatorRequest(key_type=route.type, coordinator_keys=[route.key])
        return FindCoordinatorRequest(key=route.key, key_type=route.type)

    min_version = 0 if route.type is CoordinatorType.GROUP else 1
    return ByVersion(ApiKey.FIND_COORDINATOR, build), min_version


def read_found(response: FindCoordinatorResponse, key: str) -> Found:
    """The answer for `key`, of any version. Raises `ProtocolError` if there is none."""
    if not response.coordinators:
        return Found(
            response.error_code,
            response.error_message,
            response.node_id,
            response.host,
            response.port,
        )
    for told in response.coordinators:
        if told.key == key:
            return Found(told.error_code, told.error_message, told.node_id, told.host, told.port)
    raise ProtocolError(f"the broker was asked for {key!r} and answered for others")


class CoordinatorCache:
    """The coordinators found and not failed since."""

    def __init__(self, fields: Mapping[str, object] = NO_FIELDS) -> None:
        self._known: dict[Coordinator, NodeId] = {}
        self._fields = fields

    def get(self, route: Coordinator) -> NodeId | None:
        return self._known.get(route)

    def put(self, route: Coordinator, node_id: NodeId) -> None:
        if self._known.pop(route, None) != node_id:
            self._log("Coordinator of %s %s: broker %d", route, node_id)
        self._known[route] = node_id
        if len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]

    def forget(self, route: Coordinator) -> None:
        node_id = self._known.pop(route, None)
        if node_id is not None:
            self._log(
                "Coordinator of %s %s: no longer broker %d; looking it up when needed",
                route,
                node_id,
            )

    def _log(self, text: str, route: Coordinator, node_id: NodeId) -> None:
        key = route.key
        is_group = route.type is CoordinatorType.GROUP
        logger.debug(
            text,
            "group" if is_group else "transactional id",
            key,
            node_id,
            extra=fields_of(
                self._fields,
                broker=str(node_id),
                group=key if is_group else None,
                transactional_id=None if is_group else key,
            ),
        )
