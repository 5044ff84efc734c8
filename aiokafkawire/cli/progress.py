"""Progress counter on stderr, for terminals."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import anyio

from aiokafkawire.cli.standard_streams import print_stderr
from aiokafkawire.runtime import Supervisor

__all__ = ("ERASE_LINE", "Progress")

UPDATE_INTERVAL_S = 0.5
ERASE_LINE = "\r\x1b[2K"


class Progress:
    """Async context manager that prints `count` and its rate every half second."""

    def __init__(self, what: str, *, shown: bool) -> None:
        self.count = 0
        self._what = what
        self._shown = shown
        self._supervisor = Supervisor("progress")

    async def __aenter__(self) -> Self:
        if self._shown:
            await self._supervisor.start()
            self._supervisor.spawn(self._update, anyio.current_time(), name="show")
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._shown:
            await self._supervisor.stop()
            self._write(ERASE_LINE)

    async def _update(self, started: float) -> None:
        while True:
            await anyio.sleep(UPDATE_INTERVAL_S)
            rate = self.count / (anyio.current_time() - started)
            self._write(f"{ERASE_LINE}% {self.count:,} {self._what}, {rate:,.0f}/s")

    def _write(self, text: str) -> None:
        print_stderr(text, end="")
