"""Registered callbacks for a change."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ("Callbacks",)


class Callbacks:
    """Callbacks to call at every change, in the order of registration."""

    __slots__ = ("_callbacks",)

    def __init__(self) -> None:
        self._callbacks: dict[Callable[[], None], None] = {}

    def __len__(self) -> int:
        return len(self._callbacks)

    def add(self, callback: Callable[[], None]) -> None:
        self._callbacks[callback] = None

    def remove(self, callback: Callable[[], None]) -> None:
        self._callbacks.pop(callback, None)

    def notify(self) -> None:
        for callback in list(self._callbacks):
            callback()
