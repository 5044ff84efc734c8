"""Where a request goes, and which answers show that it went to the wrong place."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterable, Iterator, Sequence
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
    """What is coordinated, as FindCoordinator's key type has it."""

    GROUP = 0
    TRANSACTION = 1


@dataclass(frozen=True, slots=True)
class ToNode:
    """A given broker."""

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class ToAnyNode:
    """The broker with the least to do."""


@dataclass(frozen=True, slots=True)
class ToController:
    """The broker that changes topics."""


@dataclass(frozen=True, slots=True)
class ToCoordinator:
    """The broker that keeps a group or a transaction."""

    key: str
    type: CoordinatorType = CoordinatorType.GROUP


Route = ToNode | ToAnyNode | ToController | ToCoordinator

_CONTROLLER_CODES = frozenset({ErrorCode.NOT_CONTROLLER})
_NOT_READY_CODES = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
_COORDINATOR_CODES = _NOT_READY_CODES | {ErrorCode.NOT_COORDINATOR}

# The fields under which responses keep an error code for each of what was asked.
_NESTED_FIELDS = ("topics", "responses", "groups", "partitions", "members", "coordinators")
_NESTED_FIELDS_OF: dict[type[Any], tuple[str, ...]] = {}  # as many as there are structs


class NodeLoad(NamedTuple):
    """How busy a broker is. `ready_at`: no connection is tried before, as earlier ones failed."""

    node_id: NodeId
    connected: bool
    requests: int
    ready_at: float


def least_loaded_node(loads: Sequence[NodeLoad], now: float, rng: random.Random) -> NodeId | None:
    """The node for a request that any can answer.

    A connected one with the fewest requests; else one that may be connected to now; else the one
    that may be first. Equals are drawn by lot.
    """
    if not loads:
        return None

    def rank(load: NodeLoad) -> tuple[int, float]:
        if load.connected:
            return 0, load.requests
        if load.ready_at <= now:
            return 1, 0.0
        return 2, load.ready_at

    best = min((rank(load) for load in loads), default=(0, math.inf))
    return rng.choice([load.node_id for load in loads if rank(load) == best])


def error_codes(response: Response) -> Iterator[int]:
    """Every error code in a response, its own and those of what it lists."""
    yield from _codes([response])


def routing_error_code(response: Response, route: Route) -> int | None:
    """The code by which a node says that another one should have been asked, or asked later."""
    match route:
        case ToController():
            with_previous_reason = _CONTROLLER_CODES
        case ToCoordinator():
            with_previous_reason = _COORDINATOR_CODES
        case _:
            return None
    return _first(response, with_previous_reason)


def not_ready_code(response: Response) -> int | None:
    """The code by which a node says that it does not coordinate anything yet."""
    return _first(response, _NOT_READY_CODES)


def _first(response: Response, codes: Collection[int]) -> int | None:
    return next((code for code in error_codes(response) if code in codes), None)


def _codes(items: Iterable[Any]) -> Iterator[int]:
    for item in items:
        code = getattr(item, "error_code", 0)
        if code:
            yield code
        for name in _nested_in(type(item)):
            nested = getattr(item, name, None)
            if isinstance(nested, list):
                yield from _codes(nested)


def _nested_in(kind: type[Any]) -> tuple[str, ...]:
    """Those of the fields that a struct has: most have none, and to look in vain costs most."""
    names = _NESTED_FIELDS_OF.get(kind)
    if names is None:
        names = _NESTED_FIELDS_OF[kind] = tuple(
            name for name in _NESTED_FIELDS if hasattr(kind, name)
        )
    return names
