"""Calls that run out of time soon, while all around them has the time that a busy machine takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aiokafkawire.producer import Producer
from tests.short_timeouts import other


@contextmanager
def max_block(producer: Producer, milliseconds: int) -> Iterator[None]:
    """For a while `max_block_ms` of a running producer is this."""
    with other(producer.config, "max_block_ms", milliseconds):
        yield


@contextmanager
def delivery_timeout(producer: Producer, milliseconds: int) -> Iterator[None]:
    """Records that are sent meanwhile have `delivery_timeout_ms` of this."""
    queue_config = producer._lifecycle.session.sender.accumulator.config.queue
    with other(queue_config, "delivery_timeout_s", milliseconds / 1_000):
        yield
