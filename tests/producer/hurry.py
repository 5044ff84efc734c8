"""Calls that run out of time soon, while all around them has the time that a busy machine takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aiokafkawire.producer import Producer


@contextmanager
def max_block(producer: Producer, milliseconds: int) -> Iterator[None]:
    """For a while `max_block_ms` of a running producer is this."""
    config = producer.config
    before = config.max_block_ms
    # Options are frozen for applications.
    object.__setattr__(config, "max_block_ms", milliseconds)
    try:
        yield
    finally:
        object.__setattr__(config, "max_block_ms", before)
