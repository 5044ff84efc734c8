"""Log lines about clients: connections, rejected requests, error responses."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Hashable, Iterator

from aiokafkawire.wire import ErrorCode

__all__ = ("ClientLog", "LogRateLimiter", "error_codes", "log_error_codes")

logger = logging.getLogger("aiokafkawire.broker")

WINDOW_S = 60.0
MAX_LINES_PER_KEY = 5
MAX_CONNECTION_LINES_PER_CLIENT = 20
MAX_LINES = 1_000
"""Log lines within `WINDOW_S`: per event, per client for connections, and in total."""


class LogRateLimiter:
    """Limits how often similar events are logged within a minute."""

    def __init__(self, now: Callable[[], float], lines_per_key: int = MAX_LINES_PER_KEY) -> None:
        self._now = now
        self._of_a_key = lines_per_key
        self._since = now()
        self._counts: dict[Hashable, int] = {}
        self._total = 0

    def level(self, key: Hashable, level: int) -> int:
        """Return `level`, or DEBUG for an event that was logged often in this minute."""
        now = self._now()
        if now >= self._since + WINDOW_S:
            self._since, self._total = now, 0
            self._counts.clear()
        count = self._counts.get(key, 0)
        if count >= self._of_a_key or self._total >= MAX_LINES:
            return logging.DEBUG
        self._counts[key] = count + 1
        self._total += 1
        return level

    def log(self, key: Hashable, level: int, text: str, *arguments: object) -> None:
        """Log an event, and announce once that further ones are logged at DEBUG."""
        if not logger.isEnabledFor(level):
            return
        actual = self.level(key, level)
        logger.log(actual, text, *arguments)
        if actual == level and self._counts.get(key) == self._of_a_key:
            logger.log(level, "Further lines like the last one are logged at DEBUG for a while")


class ClientLog:
    """Logs connections and rejected requests of clients, rate-limited per client."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._connections = LogRateLimiter(now, lines_per_key=MAX_CONNECTION_LINES_PER_CLIENT)
        self._rejections = LogRateLimiter(now)

    def connected(self, connection: str, client: str, *, internal: bool) -> None:
        """Log the first request of a connection; `internal` ones come from other nodes."""
        self._log(
            logging.DEBUG if internal else logging.INFO, "%s: %s connected", connection, client
        )

    def disconnected(self, connection: str, client: str, *, internal: bool) -> None:
        level = logging.DEBUG if internal else logging.INFO
        self._log(level, "%s: %s disconnected", connection, client)

    def rejected(self, connection: str, client: str, reason: str, consequence: str) -> None:
        """Log a request for an API or version that is not supported."""
        self._rejections.log(
            (client, reason),
            logging.WARNING,
            "%s: %s: %s, requested by %s",
            connection,
            consequence,
            reason,
            client,
        )

    def closed(self, connection: str, host: str, reason: str) -> None:
        """Log that the broker closes a connection because of the bytes that a host sent."""
        self._rejections.log((host, reason), logging.WARNING, "%s: closed: %s", connection, reason)

    def _log(self, level: int, text: str, connection: str, client: str) -> None:
        self._connections.log((client, text), level, text, connection, client)


def log_error_codes(
    connection: str, api: str, version: int, client: str | None, response: object
) -> None:
    """Log the error codes of a response at DEBUG."""
    if not logger.isEnabledFor(logging.DEBUG):
        return
    codes = list(dict.fromkeys(code.name for code in error_codes(response)))
    if codes:
        logger.debug(
            "%s: %s v%d of %s fails with %s", connection, api, version, client, ", ".join(codes)
        )


def error_codes(message: object) -> Iterator[ErrorCode]:
    """Yield every error code of a response, at any depth."""
    if isinstance(message, list):
        for each in message:
            yield from error_codes(each)
    elif dataclasses.is_dataclass(message):
        for field in dataclasses.fields(message):
            value = getattr(message, field.name)
            if field.name.endswith("error_code"):
                if value:
                    yield ErrorCode(value)
            elif not isinstance(value, (str, int, bytes)):
                yield from error_codes(value)
