"""Operations on many items, such as topics or groups: their requests, results and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar, cast, overload

from aiokafkawire.admin.routing import RETRIED_CODES, TARGETS, Target
from aiokafkawire.cluster.metadata_waits import MAX_UNKNOWN_TOPIC_RESPONSES
from aiokafkawire.errors import BrokerError, KafkaError, PartialFailure, UnsupportedVersion
from aiokafkawire.types import NodeId, TopicPartition
from aiokafkawire.wire import ApiKey, ErrorCode, Request, Response, error_for

__all__ = (
    "MAX_ERRORS_IN_TEXT",
    "PARTITION_LOOKUPS",
    "UNKNOWN_ITEM_CODES",
    "ItemRequest",
    "ItemResult",
    "finish_items",
    "partial_failure",
    "partition_context",
    "raise_broker_failures",
    "response_error",
    "topic_context",
)

K = TypeVar("K")
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
R = TypeVar("R", bound=Response)

MAX_ERRORS_IN_TEXT = 3
"""Errors that the text of a `PartialFailure` shows; `failed` has all."""

UNKNOWN_ITEM_CODES = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""A broker may not know yet what was just created."""

PARTITION_LOOKUPS = MAX_UNKNOWN_TOPIC_RESPONSES
"""`max_unknown` of operations on topics that may have been created a moment ago."""


class ItemResult(NamedTuple):
    """Result of one item in a response.

    `code` and `message` are the error, `value` the result without one. `key` must be an item of the
    request.
    """

    key: Any
    value: Any = None
    code: int = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemRequest(Generic[K, V_co]):
    """A request about some of the items of an operation, and the reading of its response.

    Attributes:
        api_key: The API.
        build: Returns the request for some items, for a version, with a timeout in milliseconds.
        read: Returns the results in a response, as `ItemResult` or plain tuples, which cost less;
            so does a plain tuple for a `TopicPartition`. It may raise an error for all items.
        target: Brokers that get the request. Defaults to that of `TARGETS`.
        locate: For groups, transactional ids and partitions: the group, id or partition of an item,
            if the item itself is not one. For `Target.NAMED_BROKER`: the node id, None for any
            broker.
        context: Attributes of `KafkaError` for an item, beside its group, id or partition.
        min_version: Lowest version that can carry the request.
        max_version: Highest version that `build` can build.
        retried: Error codes after which an item is sent again.
        max_unknown: Responses with a code of `UNKNOWN_ITEM_CODES` until that is the result.
        max_items: Items of one request; None for no limit.
    """

    api_key: ApiKey
    build: Callable[[Sequence[K], int, int], Request[Any]]
    read: Callable[[Any], Iterable[tuple[Any, Any, int, str | None]]]
    target: Target | None = None
    locate: Callable[[K], Any] | None = None
    context: Callable[[K], Mapping[str, Any]] | None = None
    min_version: int = 0
    max_version: int | None = None
    retried: frozenset[ErrorCode] = RETRIED_CODES
    max_unknown: int = 1
    max_items: int | None = None

    @property
    def effective_target(self) -> Target:
        """Brokers that get the request."""
        return TARGETS[self.api_key] if self.target is None else self.target

    def place(self, key: K) -> Any:
        """Return the group, transactional id, partition or node id that decides on the broker."""
        return key if self.locate is None else self.locate(key)

    def error_context(self, key: K) -> Mapping[str, Any]:
        """Return the attributes of `KafkaError` for an item."""
        own = {} if self.context is None else self.context(key)
        place = self.place(key)
        match self.effective_target:
            case Target.GROUP_COORDINATOR:
                return {"group": place, **own}
            case Target.TRANSACTION_COORDINATOR:
                return {"transactional_id": place, **own}
            case Target.PARTITION_LEADER:
                return {**partition_context(place), **own}
        return own

    def is_final(self, error: KafkaError, unknown_responses: int) -> bool:
        """Return whether an error is the result of its item; otherwise the item is sent again."""
        if not isinstance(error, BrokerError):
            return not error.retriable
        if error.code in UNKNOWN_ITEM_CODES:
            return unknown_responses >= self.max_unknown
        return error.code not in self.retried


def partition_context(tp: TopicPartition) -> Mapping[str, Any]:
    """Return a partition as attributes of `KafkaError`."""
    return {"topic": tp.topic, "partition": tp.partition}


def topic_context(topic: str) -> Mapping[str, Any]:
    """Return a topic as attribute of `KafkaError`."""
    return {"topic": topic}


def response_error(code: int, message: str | None = None, **context: Any) -> BrokerError | None:
    """Return the error for an error code, None for code 0; `message` is the broker's own text."""
    if code == ErrorCode.NONE:
        return None
    error = error_for(code, **context)
    if message and message not in error.reason:
        error.reason += f": {message}"
    return error


@overload
def finish_items(
    results: Mapping[K, V | KafkaError], kind: str, *, return_errors: Literal[False] = False
) -> dict[K, V]: ...


@overload
def finish_items(
    results: Mapping[K, V | KafkaError], kind: str, *, return_errors: bool
) -> dict[K, V | KafkaError]: ...


def finish_items(
    results: Mapping[K, V | KafkaError], kind: str, *, return_errors: bool = False
) -> dict[K, V | KafkaError] | dict[K, V]:
    """Return the results of an operation, or raise its errors.

    Args:
        results: Result or error of each item.
        kind: Items in the plural, for the text: "topics".
        return_errors: Return errors as results.

    Raises:
        PartialFailure: Some items failed.
        KafkaError: All items failed for one reason that is not about an item, such as no broker.
    """
    failed = {key: value for key, value in results.items() if isinstance(value, KafkaError)}
    if return_errors or not failed:
        return dict(results)
    first = next(iter(failed.values()))
    if (
        len(failed) == len(results)
        and not isinstance(first, BrokerError | PartialFailure)
        and all(error is first for error in failed.values())
    ):
        raise first
    succeeded = {key: value for key, value in results.items() if key not in failed}
    raise partial_failure(cast("dict[K, V]", succeeded), failed, kind, len(results))


def partial_failure(
    succeeded: Any, failed: Mapping[Any, KafkaError], kind: str, total: int | None = None
) -> PartialFailure:
    """Return the error of an operation on many items; see `finish_items`."""
    shown = [f"{key}: {error}" for key, error in [*failed.items()][:MAX_ERRORS_IN_TEXT]]
    if len(failed) > MAX_ERRORS_IN_TEXT:
        shown.append(f"and {len(failed) - MAX_ERRORS_IN_TEXT} more")
    count = f"{len(failed)}" if total is None else f"{len(failed)} of {total}"
    return PartialFailure(
        f"{count} {kind} failed: {'; '.join(shown)}",
        succeeded=succeeded,
        failed=failed,
        retriable=all(error.retriable for error in failed.values()),
    )


def raise_broker_failures(
    found: Mapping[Any, object], failed: Mapping[NodeId, KafkaError], total: int
) -> None:
    """Raise the errors of a request to all brokers, if some failed.

    Args:
        found: Items in the responses of the other brokers.
        failed: Error by node id.
        total: Number of brokers.

    Raises:
        UnsupportedVersion: All brokers are too old.
        PartialFailure: Some brokers failed.
    """
    if not failed:
        return
    too_old = [error for error in failed.values() if isinstance(error, UnsupportedVersion)]
    if len(too_old) == total:
        raise too_old[0]
    raise partial_failure(found, failed, "brokers", total)
