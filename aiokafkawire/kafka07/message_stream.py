"""Async iterator over the messages of one partition."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Self

from aiokafkawire.connection import Backoff
from aiokafkawire.errors import ConnectionFailed, ConnectionLost, RequestTimedOut
from aiokafkawire.kafka07.options import Kafka07Config
from aiokafkawire.kafka07.partition_reader import (
    FetchResult,
    MessageAndOffset,
    PartitionReader,
    ReadStatus,
)
from aiokafkawire.logs import log_fields
from aiokafkawire.runtime import Runtime, checkpoint
from aiokafkawire.wire.kafka07 import Kafka07FetchRequest

__all__ = ("CHECKPOINT_EVERY", "MessageStream")

logger = logging.getLogger("aiokafkawire.kafka07")

CHECKPOINT_EVERY = 256
"""Messages returned without suspending before `__anext__` yields to other tasks."""

FetchOnce = Callable[[Kafka07FetchRequest], Awaitable[FetchResult]]


class MessageStream:
    """Async iterator of `MessageAndOffset`, returned by `Client.messages`.

    An error or a cancellation does not move the position: the next `anext()` continues from there.
    """

    def __init__(
        self,
        reader: PartitionReader,
        read: FetchOnce,
        runtime: Callable[[], Runtime],
        config: Kafka07Config,
        *,
        until_end: bool,
    ) -> None:
        self._reader = reader
        self._fetch_once = read
        self._runtime = runtime
        self._config = config
        self._until_end = until_end
        self._since_checkpoint = 0
        self._backoff = Backoff.from_ms(config.retry_backoff_ms, config.retry_backoff_max_ms)

    @property
    def next_offset(self) -> int:
        """Offset to resume from, after the last message or at the start of its compressed set."""
        return self._reader.offset

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MessageAndOffset:
        if self._since_checkpoint >= CHECKPOINT_EVERY:
            await checkpoint()
            self._since_checkpoint = 0
        while (message := self._reader.next_message()) is None:
            if await self._fetch() is ReadStatus.END_OF_LOG:
                if self._until_end:
                    raise StopAsyncIteration
                clock = self._runtime().clock
                await clock.sleep_until(clock.now() + self._config.fetch_backoff_ms / 1_000)
        self._since_checkpoint += 1
        return message

    async def _fetch(self) -> ReadStatus:
        """Fetch once, retrying retriable errors for `default_api_timeout_ms`."""
        self._since_checkpoint = 0
        runtime = self._runtime()
        deadline = runtime.clock.now() + self._config.default_api_timeout_ms / 1_000
        failures = 0
        while True:
            try:
                return self._reader.handle_response(
                    await self._fetch_once(self._reader.next_request)
                )
            except (ConnectionFailed, ConnectionLost, RequestTimedOut) as error:
                failures += 1
                retry_at = runtime.clock.now() + self._backoff.delay(failures, runtime.rng)
                error.attempt = failures
                if retry_at >= deadline:
                    raise
                logger.info(
                    "FETCH failed: %s; retrying in %.3f s",
                    error,
                    retry_at - runtime.clock.now(),
                    extra=log_fields(error=error),
                )
                await runtime.clock.sleep_until(retry_at)
