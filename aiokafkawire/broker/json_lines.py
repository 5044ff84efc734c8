"""Files of JSON lines, in which later lines replace earlier ones."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from aiokafkawire.broker.files import AppendOnlyFile, Files
from aiokafkawire.broker.write_failures import WriteFailures

__all__ = ("JsonLinesFile", "LineLog", "MemoryLines")

logger = logging.getLogger("aiokafkawire.broker")

COMPACT_AFTER_LINES = 10_000
"""Stale lines allowed in a file, beyond the number of live ones, before it is compacted."""

COORDINATION_REFUSED = "changes fail with NOT_COORDINATOR until a write succeeds"


class LineLog(Protocol):
    """Lines that outlive a broker, as far as its storage does."""

    def load(self) -> Iterator[dict[str, Any]]:
        """Yield the lines."""
        ...

    def append(self, lines: list[dict[str, Any]], live: int) -> bool:
        """Store lines; return True if the caller should `rewrite` with the live ones.

        Raises:
            StorageError: Nothing was stored.
        """
        ...

    def rewrite(self, lines: list[dict[str, Any]]) -> None:
        """Replace all lines by the live ones."""
        ...


class MemoryLines:
    """Stores nothing: the state lives as long as the broker."""

    def load(self) -> Iterator[dict[str, Any]]:
        return iter(())

    def append(self, lines: list[dict[str, Any]], live: int) -> bool:
        del lines, live
        return False

    def rewrite(self, lines: list[dict[str, Any]]) -> None:
        del lines


class JsonLinesFile:
    """A file of JSON lines, in which later lines replace earlier ones."""

    def __init__(self, subject: str, path: Path, files: Files, failures: WriteFailures) -> None:
        self._subject = subject
        self._file = AppendOnlyFile(path, files)
        self._failures = failures
        self._count = 0
        self._not_before = 0

    def load(self) -> Iterator[dict[str, Any]]:
        """Yield the lines; remove an incomplete last one, which was never acknowledged."""
        path, size = self._file.path, 0
        if not path.exists():
            return
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    logger.warning("%s: removed an incomplete last line", path)
                    break
                size += len(line)
                self._count = number
                try:
                    entry = json.loads(line)
                except ValueError:
                    logger.warning("%s: skipped line %d, which is not JSON", path, number)
                    continue
                yield entry
        if size != self._file.size_bytes:
            self._file.recover_to(size)

    def append(self, lines: list[dict[str, Any]], live: int) -> bool:
        """Store lines; return True if most of the file is stale."""
        try:
            self._file.append(_encoded(lines))
        except OSError as error:
            raise self._failures.failed(
                self._subject, self._file.path, error, COORDINATION_REFUSED
            ) from error
        self._failures.succeeded(self._subject)
        self._count += len(lines)
        return self._count > max(2 * live + COMPACT_AFTER_LINES, self._not_before)

    def rewrite(self, lines: list[dict[str, Any]]) -> None:
        """Replace the file by the live lines; on failure the longer file remains valid."""
        try:
            self._file.replace(_encoded(lines))
        except OSError as error:
            # The rewrite needs disk space too, so it is not retried at every append.
            self._not_before = self._count + COMPACT_AFTER_LINES
            logger.warning(
                "%s: cannot compact %s: %s; trying again after %d more lines",
                self._subject,
                self._file.path,
                error.strerror or error,
                COMPACT_AFTER_LINES,
            )
            return
        self._count = len(lines)
        self._not_before = 0


def _encoded(lines: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(line) + "\n" for line in lines).encode()
