"""Deadlines by key, with a cheap way to find the next one."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ("Deadlines",)

K = TypeVar("K", bound=Hashable)


class Deadlines(Generic[K]):
    """Deadlines by key.

    A deadline that moves to a later time, as that of a session does at each heartbeat, costs no
    search: `next` may return the earlier time, at which `take_expired` returns nothing.
    """

    def __init__(self) -> None:
        self._deadlines: dict[K, float] = {}
        self._queued: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = itertools.count()

    def __contains__(self, key: K) -> bool:
        return key in self._deadlines

    def set(self, key: K, deadline: float) -> None:
        """Set the deadline of a key."""
        self._deadlines[key] = deadline
        if deadline < self._queued.get(key, math.inf):
            self._push(key, deadline)

    def cancel(self, key: K) -> None:
        """Remove the deadline of a key, if it has one."""
        self._deadlines.pop(key, None)

    def next(self) -> float:
        """Return a time at which `take_expired` should be called, infinity without deadlines."""
        return self._heap[0][0] if self._heap else math.inf

    def take_expired(self, now: float) -> list[K]:
        """Remove and return the keys whose deadline has passed."""
        expired = []
        while self._heap and self._heap[0][0] <= now:
            queued, _, key = heapq.heappop(self._heap)
            if self._queued.get(key) != queued:
                continue
            del self._queued[key]
            deadline = self._deadlines.get(key)
            if deadline is None:
                continue
            if deadline <= now:
                del self._deadlines[key]
                expired.append(key)
            else:
                self._push(key, deadline)
        return expired

    def _push(self, key: K, deadline: float) -> None:
        self._queued[key] = deadline
        heapq.heappush(self._heap, (deadline, next(self._order), key))
