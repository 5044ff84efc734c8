"""Elapsed time, less the time in which a busy machine did not run this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

TICK_S = 0.005
MOST_S = 2 * TICK_S
"""Highest count of one tick: a later tick was delayed, like everything else."""


class Elapsed:
    """Counts ticks of its own thread, so that time without CPU does not count."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._count, name="elapsed", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _count(self) -> None:
        before = time.monotonic()
        while not self._ended.wait(TICK_S):
            now = time.monotonic()
            self.seconds += min(now - before, MOST_S)
            before = now


@contextmanager
def ends_within(seconds: float) -> Iterator[None]:
    """Fail unless the block ends by itself within the time."""
    elapsed = Elapsed()
    elapsed.start()
    try:
        yield
    finally:
        elapsed.stop()
    assert elapsed.seconds < seconds, f"it took {elapsed.seconds:.2f} s"
