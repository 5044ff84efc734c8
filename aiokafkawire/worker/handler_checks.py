"""Checks of the arguments of `Worker.on`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal

from aiokafkawire.serialization import Deserializer, make_deserializer
from aiokafkawire.types import require_timeout, require_topic_name
from aiokafkawire.worker.batch_policy import BatchPolicy
from aiokafkawire.worker.handlers import OrderBy
from aiokafkawire.worker.retry_policy import RetryPolicy

__all__ = (
    "check_arguments",
    "check_function",
    "check_share",
    "deserializer_of",
    "positive_s",
)


def check_function(function: object, order_by: object) -> None:
    """Check the function of a handler."""
    if not callable(function):
        raise TypeError(f"on() decorates a function, not {function!r:.80}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"a handler returns and does not yield: {function!r:.80}")
    if inspect.iscoroutinefunction(order_by):
        raise TypeError("order_by must be a function that is not async")
    _check_parameters(function)


def _check_parameters(function: Callable[..., Any]) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # a function in C may have none
    try:
        signature.bind(None)
    except TypeError:
        name = getattr(function, "__name__", type(function).__name__)
        write = f"async def {name}(record)"
        if "self" in signature.parameters:  # the class has no instance yet
            write = f"worker.on('orders')(service.{name}) with an instance"
        raise TypeError(
            f"a handler takes one argument, the record or the batch, not {name}{signature!s:.80}:"
            f" write {write}"
        ) from None


def check_arguments(
    topics: tuple[Any, ...], order_by: object, retries: object, batch: object
) -> None:
    """Check what a handler is registered with."""
    _check_topics(topics)
    if order_by not in ("partition", "key", None) and not callable(order_by):
        raise ValueError(
            f"order_by must be 'partition', 'key', None or a function, not {order_by!r:.80}"
        )
    _check_policies(retries, batch)


def _check_topics(topics: tuple[Any, ...]) -> None:
    if not topics:
        raise TypeError("on() needs a topic: write @worker.on('orders')")
    for topic in topics:
        if inspect.isroutine(topic):
            raise TypeError(f"on() needs a topic, not {topic!r:.80}: write @worker.on('orders')")
        if not isinstance(topic, str):
            names = [*topic] if isinstance(topic, list | tuple | set | frozenset) else ["orders"]
            raise TypeError(
                f"topics must be strings, not {topic!r:.80}: write"
                f" @worker.on({', '.join(map(repr, names)):.80})"
            )
        require_topic_name(topic)


def _check_policies(retries: object, batch: object) -> None:
    if retries is not None and not isinstance(retries, RetryPolicy):
        example = f"attempts={retries}" if type(retries) is int and retries > 0 else "attempts=3"
        raise TypeError(
            f"retries must be a RetryPolicy, not {retries!r:.80}: write"
            f" retries=RetryPolicy({example})"
        )
    if batch is not None and not isinstance(batch, BatchPolicy):
        example = f"max_records={batch}" if type(batch) is int and batch > 0 else "max_records=500"
        raise TypeError(
            f"batch must be a BatchPolicy, not {batch!r:.80}: write batch=BatchPolicy({example})"
        )


def deserializer_of(name: Literal["key", "value"], wanted: Any) -> Deserializer | None:
    """Return the function that decodes keys or values."""
    try:
        return make_deserializer(wanted)
    except TypeError as error:
        raise TypeError(f"{name}: {error}, such as {name}=json.loads") from None


def check_share(order_by: OrderBy, retries: RetryPolicy | None, batch: BatchPolicy | None) -> None:
    """Check that a share group allows the arguments of a handler."""
    if order_by is not None:
        raise ValueError(
            f"order_by must be None, not {order_by!r:.80}, as a share group keeps no order: write"
            " @worker.on('jobs', order_by=None)"
        )
    if batch is not None:
        raise ValueError("batch: a worker of a share group processes single records")
    if retries is not None and retries.delays_ms:
        raise ValueError("delays_ms: a share group has no retry topics, use backoff_ms")


def positive_s(timeout_ms: float) -> float:
    """Return a positive timeout in seconds."""
    try:
        require_timeout("timeout_ms", timeout_ms)
    except TypeError as error:
        raise TypeError(f"{error}: write timeout_ms=5_000") from None
    if timeout_ms <= 0:
        raise ValueError(f"timeout_ms must be positive, not {timeout_ms}")
    return timeout_ms / 1_000
