"""A fault of an embedded broker that runs in a thread."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from aiokafkawire.broker import Fault
from aiokafkawire.testing.broker_thread import BrokerThread

__all__ = ("BrokerFault",)


class BrokerFault:
    """A fault added with `KafkaBroker.on`, active until it is removed or used up."""

    def __init__(self, broker: BrokerThread, fault: Fault) -> None:
        self._broker = broker
        self._fault = fault

    @property
    def hits(self) -> int:
        """Number of requests that the fault applied to."""
        return self._fault.hits

    def remove(self) -> None:
        """Remove the fault. Further calls have no effect."""
        self._broker._call(self._fault.remove)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<BrokerFault {self._fault.api_key!r} {self._fault.action!r} hits={self.hits}>"
