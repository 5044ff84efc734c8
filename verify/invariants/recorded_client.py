"""The start and the end of a client that records its calls."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from aiokafkawire import Consumer, Producer, ShareConsumer
from verify.invariants.events import Closed
from verify.invariants.recorder import Journal, error_name

__all__ = ("RecordedClient",)

_ClientT = TypeVar("_ClientT", Producer, Consumer, ShareConsumer)


class RecordedClient(Generic[_ClientT]):
    """Base class of the clients that record their calls."""

    def __init__(self, client: _ClientT, journal: Journal) -> None:
        self.inner: _ClientT = client
        self.config: Any = client.config
        self._journal = journal

    @property
    def name(self) -> str:
        return self._journal.client

    @property
    def _start_s(self) -> float:
        return float(self.config.default_api_timeout_ms) / 1_000

    @property
    def _close_s(self) -> float:
        return float(self.config.close_timeout_ms) / 1_000

    async def start(self) -> None:
        with self._journal.call("start", self._start_s):
            await self.inner.start()

    async def stop(self) -> None:
        error: str | None = None
        try:
            with self._journal.call("stop", self._close_s, self._body_completed()):
                await self.inner.stop()
        except BaseException as raised:
            error = error_name(raised)
            raise
        finally:
            self._left(error)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        error: str | None = None
        task = self._body_completed() if raised is None else ""
        try:
            with self._journal.call("stop", self._close_s, task):
                return await self.inner.__aexit__(kind, raised, traceback)
        except BaseException as left:
            error = error_name(left)
            raise
        finally:
            self._left(error, raised is not None and not isinstance(raised, Exception))

    def _body_completed(self) -> str:
        """Return the running task if its records count as processed now, otherwise ""."""
        return ""

    def _left(self, error: str | None, cancelled: bool = False) -> None:
        """Record the end of the client."""
        self._journal.note(Closed, error, cancelled)
