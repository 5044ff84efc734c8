"""Short timeouts for single calls, while all others have enough for a busy machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aiokafkawire.producer import Producer
from tests.short_timeouts import other


@contextmanager
def max_block(producer: Producer, milliseconds: int) -> Iterator[None]:
    """Set `max_block_ms` of a running producer for a while."""
    with other(producer.config, "max_block_ms", milliseconds):
        yield


@contextmanager
def delivery_timeout(producer: Producer, milliseconds: int) -> Iterator[None]:
    """Set `delivery_timeout_ms` for the records that are sent meanwhile."""
    queue_config = producer._lifecycle.session.sender.accumulator.config.queue
    with other(queue_config, "delivery_timeout_s", milliseconds / 1_000):
        yield
