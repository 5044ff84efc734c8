"""Exceptions by which a handler says what happens to its record."""

from __future__ import annotations

import math

from aiokafkawire.types import require_timeout, require_whole_number

__all__ = ("DeadLetter", "Drop", "FailedAt", "Outcome", "Retry")


class Outcome(Exception):
    """Base class of the exceptions that a handler raises to decide about its record."""


class Retry(Outcome):
    """The record is tried again after a delay; it counts as an attempt.

    Args:
        after_s: Delay in seconds. Defaults to the backoff of the `RetryPolicy`.

    Raises:
        TypeError: The delay is not a number.
        ValueError: The delay is negative or not finite.
    """

    def __init__(self, after_s: float | None = None) -> None:
        if after_s is not None:
            require_timeout("after_s", after_s)
            if not 0 <= after_s < math.inf:
                raise ValueError(f"after_s must be at least 0 and finite, not {after_s}")
        super().__init__("retry" if after_s is None else f"retry after {after_s:g} s")
        self.after_s = after_s


class Drop(Outcome):
    """The record is done, though it was not processed.

    Args:
        reason: Text for the log.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)


class DeadLetter(Outcome):
    """The record is written to the dead letter topic without further attempts.

    Args:
        reason: Text for the headers of the dead letter and the log.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)


class FailedAt(Outcome):
    """A batch handler has processed the records before one, and that one failed.

    Its cause (`raise FailedAt(3) from error`), if any, is the exception of the attempt.

    Args:
        index: Place of the failed record in the batch, from 0.

    Raises:
        TypeError: The index is not a whole number.
        ValueError: The index is negative.
    """

    def __init__(self, index: int) -> None:
        require_whole_number("index", index, "FailedAt(0) for the first record")
        if index < 0:
            raise ValueError(f"index must be at least 0, not {index}")
        super().__init__(f"record {index} of the batch failed")
        self.index = index
