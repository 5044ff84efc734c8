"""The requests that an embedded broker in a thread received."""

from __future__ import annotations

from collections.abc import Iterator

from aiokafkawire.broker import ApiKey, SeenRequest
from aiokafkawire.testing.broker_thread import BrokerThread

__all__ = ("SeenRequests",)


class SeenRequests:
    """Live view of the requests that a `KafkaBroker` received."""

    def __init__(self, broker: BrokerThread) -> None:
        self._broker = broker

    def _all(self) -> list[SeenRequest]:
        return self._broker._call(lambda: list(self._broker._running_broker.requests))

    def __len__(self) -> int:
        return len(self._all())

    def __iter__(self) -> Iterator[SeenRequest]:
        return iter(self._all())

    def __getitem__(self, index: int) -> SeenRequest:
        return self._all()[index]

    def of(self, api_key: ApiKey, *, node: int | None = None) -> list[SeenRequest]:
        """Return the requests of one API, optionally at one node."""
        return self._broker._call(self._broker._running_broker.requests.of, api_key, node=node)

    def clear(self) -> None:
        """Clear the log."""
        self._broker._call(self._broker._running_broker.requests.clear)

    def __repr__(self) -> str:
        return f"<SeenRequests {[seen.api_key.name for seen in self._all()]}>"
