"""Log lines about failing writes, without repetition."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from aiokafkawire.broker.api_error import StorageError

__all__ = ("WriteFailures",)

logger = logging.getLogger("aiokafkawire.broker")

REPEAT_AFTER_S = 60.0
"""Write failures of a subject are logged at most once in this time."""

MAX_WARNINGS = 10
"""Subjects logged within `REPEAT_AFTER_S`; a full disk affects every partition."""


class WriteFailures:
    """Logs one WARNING when writes begin to fail and one INFO when they succeed again.

    Args:
        clock: Returns seconds on the runtime's clock.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failing: dict[str, bool] = {}
        self._warned_at: dict[str, float] = {}

    def failed(
        self, subject: str, path: Path, error: OSError, consequence: str, action: str = "write"
    ) -> StorageError:
        """Log a failed write unless its subject fails already.

        Args:
            subject: Name of what was written, such as "Partition orders-0".
            path: The file.
            error: The reason.
            consequence: End of the log line: what happens next.
            action: What was tried.

        Returns:
            The error to raise.
        """
        reason = f"cannot {action} {path}: {error.strerror or error}"
        if subject not in self._failing:
            logged = self._may_warn(subject)
            self._failing[subject] = logged
            logger.log(
                logging.WARNING if logged else logging.DEBUG,
                "%s: %s; %s",
                subject,
                reason,
                consequence,
            )
        return StorageError(message=f"{subject}: {reason}")

    def succeeded(self, subject: str) -> None:
        """Log that writes succeed again, if they failed before."""
        if not self._failing:
            return
        logged = self._failing.pop(subject, None)
        if logged is not None:
            logger.log(
                logging.INFO if logged else logging.DEBUG, "%s: writes succeed again", subject
            )

    def forget(self, subject: str) -> None:
        """Drop a subject that was deleted."""
        self._failing.pop(subject, None)

    def _may_warn(self, subject: str) -> bool:
        now = self._clock()
        recent = {
            known_subject: at
            for known_subject, at in self._warned_at.items()
            if at > now - REPEAT_AFTER_S
        }
        self._warned_at = recent
        if subject in recent or len(recent) >= MAX_WARNINGS:
            return False
        recent[subject] = now
        if len(recent) == MAX_WARNINGS:
            logger.warning(
                "Writes of %d subjects fail; more within %.0f s are logged at DEBUG",
                MAX_WARNINGS,
                REPEAT_AFTER_S,
            )
        return True
