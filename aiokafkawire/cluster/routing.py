"""Routes of requests, and the error codes that show that a route is outdated."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from aiokafkawire.types import NodeId
from aiokafkawire.wire import ErrorCode, Response

__all__ = (
    "CoordinatorType",
    "NodeLoad",
    "Route",
    "ToAnyNode",
    "ToController",
    "ToCoordinator",
    "ToNode",
    "error_codes",
    "least_loaded_node",
    "not_ready_code",
    "routing_error_code",
)


class CoordinatorType(IntEnum):
    """Key type of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


@dataclass(frozen=True, slots=True)
class ToNode:
    """Route to one broker."""

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class ToAnyNode:
    """Route to the least loaded broker."""


@dataclass(frozen=True, slots=True)
class ToController:
    """Route to the controller."""


class ToCoordinator(NamedTuple):
    """Route to the coordinator of a group or a transactional id."""

    key: str
    type: CoordinatorType = CoordinatorType.GROUP

    @property
    def context(self) -> dict[str, str]:
        """The group or transactional id as attribute of `KafkaError`."""
        name = "group" if self.type is CoordinatorType.GROUP else "transactional_id"
        return {name: self.key}


Route = ToNode | ToAnyNode | ToController | ToCoordinator

_CONTROLLER_CODES = frozenset({ErrorCode.NOT_CONTROLLER})
_NOT_READY_CODES = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
_COORDINATOR_CODES = _NOT_READY_CODES | {ErrorCode.NOT_COORDINATOR}

# Fields of responses whose elements have an error code each.
_NESTED_FIELDS = ("topics", "responses", "groups", "partitions", "members", "coordinators")
# Per struct: whether it has an error code, and its nested fields. Bounded by their number.
_FIELDS_OF: dict[type[Any], tuple[bool, tuple[str, ...]]] = {}


class NodeLoad(NamedTuple):
    """Load of a broker.

    `ready_at` is the earliest time of the next connection attempt, after the reconnect backoff;
    `throttled_until` the end of the throttle time that the broker requested.
    """

    node_id: NodeId
    connected: bool
    requests: int
    ready_at: float
    throttled_until: float = 0.0


def least_loaded_node(loads: Sequence[NodeLoad], now: float, rng: random.Random) -> NodeId | None:
    """Return the node for a request that any node can handle; None if there is no node.

    Prefer the connected node with the fewest requests in flight, then a node without reconnect
    backoff, then the node whose backoff or throttle time ends first. Ties are broken at random.
    """
    if not loads:
        return None

    def rank(load: NodeLoad) -> tuple[int, float]:
        if load.throttled_until > now:
            return 2, load.throttled_until
        if load.connected:
            return 0, load.requests
        if load.ready_at <= now:
            return 1, 0.0
        return 2, load.ready_at

    best = min((rank(load) for load in loads), default=(0, math.inf))
    return rng.choice([load.node_id for load in loads if rank(load) == best])


def error_codes(message: Any) -> Iterator[int]:
    """Yield every error code in a response or a part of it, top-level and nested."""
    kind = type(message)
    fields = _FIELDS_OF.get(kind)
    if fields is None:
        nested = tuple(name for name in _NESTED_FIELDS if hasattr(kind, name))
        fields = _FIELDS_OF[kind] = hasattr(kind, "error_code"), nested
    has_code, names = fields
    if has_code and message.error_code:
        yield message.error_code
    for name in names:
        items = getattr(message, name, None)
        if isinstance(items, list):
            for item in items:
                yield from error_codes(item)


def routing_error_code(response: Response, route: Route) -> int | None:
    """Return the error code that shows that the request belongs to another node; None without one.

    Codes that say that a coordinator is not ready count too.
    """
    match route:
        case ToController():
            codes = _CONTROLLER_CODES
        case ToCoordinator():
            codes = _COORDINATOR_CODES
        case _:
            return None
    return next((code for code in error_codes(response) if code in codes), None)


def not_ready_code(response: Response) -> int | None:
    """Return the error code that says that a coordinator is not ready yet; None without one."""
    return next((code for code in error_codes(response) if code in _NOT_READY_CODES), None)
