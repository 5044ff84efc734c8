"""Calls that run out of time soon, while all around them has the time that a busy machine takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aiokafkawire.consumer import Consumer


@contextmanager
def api_timeout(consumer: Consumer, milliseconds: int) -> Iterator[None]:
    """For a while `default_api_timeout_ms` of a running consumer's calls is this."""
    with other(consumer.config, "default_api_timeout_ms", milliseconds):
        yield


@contextmanager
def other(options: object, name: str, value: float) -> Iterator[None]:
    """For a while an option that is frozen for applications is another."""
    before = getattr(options, name)
    object.__setattr__(options, name, value)
    try:
        yield
    finally:
        object.__setattr__(options, name, before)
