"""Reports once that no broker has responded for some time."""

from __future__ import annotations

from aiokafkawire.errors import (
    BrokerError,
    ClientClosed,
    ConnectionFailed,
    KafkaError,
    RequestTimedOut,
)

__all__ = ("LOG_OUTAGE_AFTER_S", "OutageLog")

LOG_OUTAGE_AFTER_S = 60.0
"""Time without a response from any broker before it is logged."""


class OutageLog:
    """Reports each outage once: no broker has responded for `LOG_OUTAGE_AFTER_S`.

    Attributes:
        ended_after_s: Length of the outage that the last call of `record` has ended, else None.
        failure: The last error during an outage.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._is_logged = False
        self.ended_after_s: float | None = None
        self.failure: KafkaError | None = None

    def record(self, failure: KafkaError | None, now: float) -> str | None:
        """Note the result of a request; return the text to log when an outage is detected.

        Args:
            failure: None or a `BrokerError` if a broker responded, else the error.
            now: Time of the clock.
        """
        self.ended_after_s = None
        if isinstance(failure, ClientClosed):
            return None  # no broker was asked
        if failure is None or isinstance(failure, BrokerError):
            if self._is_logged and self._since is not None:
                self.ended_after_s = now - self._since
            self._since = self.failure = None
            self._is_logged = False
            return None
        self.failure = failure
        if self._since is None:
            self._since = now
        if self._is_logged or now - self._since < LOG_OUTAGE_AFTER_S or _is_unconnected(failure):
            return None
        self._is_logged = True
        return f"no broker was reachable for {LOG_OUTAGE_AFTER_S:.0f} s: {failure}"


def _is_unconnected(failure: KafkaError) -> bool:
    """Return whether there was no connection: the cluster client has logged that already."""
    if isinstance(failure, RequestTimedOut):
        return not failure.sent
    return isinstance(failure, ConnectionFailed)
