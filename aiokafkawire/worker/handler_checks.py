"""Checks of the arguments of `Worker.on`."""

from __future__ import annotations

import inspect

from aiokafkawire.types import require_timeout, require_topic_name
from aiokafkawire.worker.batch_policy import BatchPolicy
from aiokafkawire.worker.handlers import OrderBy
from aiokafkawire.worker.retry_policy import RetryPolicy

__all__ = ("check_function", "check_share", "check_topics", "positive_s")


def check_function(function: object, order_by: object) -> None:
    """Check the function of a handler."""
    if not callable(function):
        raise TypeError(f"on() decorates a function, not {function!r:.80}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"a handler returns and does not yield: {function!r:.80}")
    if inspect.iscoroutinefunction(order_by):
        raise TypeError("order_by must be a function that is not async")


def check_topics(topics: tuple[str, ...], order_by: object) -> None:
    """Check the topics and the order of a handler."""
    if not topics:
        raise TypeError("on() needs a topic: @worker.on('orders')")
    for topic in topics:
        require_topic_name(topic)
    if order_by not in ("partition", "key", None) and not callable(order_by):
        raise ValueError(
            f"order_by must be 'partition', 'key', None or a function, not {order_by!r:.80}"
        )


def check_share(order_by: OrderBy, retries: RetryPolicy | None, batch: BatchPolicy | None) -> None:
    """Check that a share group allows the arguments of a handler."""
    if order_by is not None:
        raise ValueError("order_by must be None: a share group keeps no order")
    if batch is not None:
        raise ValueError("batch: a worker of a share group processes single records")
    if retries is not None and retries.delays_ms:
        raise ValueError("delays_ms: a share group has no retry topics, use backoff_ms")


def positive_s(timeout_ms: float) -> float:
    """Return a positive timeout in seconds."""
    require_timeout("timeout_ms", timeout_ms)
    if timeout_ms <= 0:
        raise ValueError(f"timeout_ms must be positive, not {timeout_ms}")
    return timeout_ms / 1_000
