"""Short timeouts for single calls, while everything else keeps the timeouts for a busy machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aiokafkawire.consumer import Consumer


@contextmanager
def api_timeout(consumer: Consumer, milliseconds: int) -> Iterator[None]:
    """Set `default_api_timeout_ms` of a running consumer for the block."""
    with other(consumer.config, "default_api_timeout_ms", milliseconds):
        yield


@contextmanager
def other(options: object, name: str, value: float) -> Iterator[None]:
    """Set an option, although frozen for applications, for the block."""
    before = getattr(options, name)
    object.__setattr__(options, name, value)
    try:
        yield
    finally:
        object.__setattr__(options, name, before)
