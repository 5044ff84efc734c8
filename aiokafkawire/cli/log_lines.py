"""Log lines of a command, on stderr."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Collection
from typing import ClassVar

from aiokafkawire.cli.error_text import printable
from aiokafkawire.cli.progress import ERASE_LINE
from aiokafkawire.cli.standard_streams import print_stderr
from aiokafkawire.wire import ErrorCode

__all__ = (
    "LogFormatter",
    "StderrHandler",
    "elapsed_s",
    "hide_missing_topics",
    "log_to_stderr",
    "show_log_times",
    "stop_logging_to_stderr",
)

LOG_PREFIX = "aiokafkawire: "


class LogFormatter(logging.Formatter):
    """Formatter of log lines on stderr; erases the progress line first."""

    last_line: ClassVar[str] = ""
    started_at: ClassVar[float] = 0.0
    hidden_topics: ClassVar[Collection[str]] = ()

    def format(self, record: logging.LogRecord) -> str:
        before = ERASE_LINE if sys.stderr.isatty() else ""
        # Log lines start with the client_id, which defaults to the program's name.
        LogFormatter.last_line = f"{LOG_PREFIX}{super().format(record).removeprefix(LOG_PREFIX)}"
        return before + LogFormatter.last_line

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        # Clients choose the names of groups and members that a broker logs.
        return printable(super().formatMessage(record))


class StderrHandler(logging.Handler):
    """Log handler that writes to stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        if (
            getattr(record, "kafka_topic", None) in LogFormatter.hidden_topics
            and getattr(record, "kafka_error_code", 0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ):
            return
        print_stderr(self.format(record))


def log_to_stderr() -> None:
    """Print warnings on stderr, and note the start of the command."""
    LogFormatter.last_line = ""
    LogFormatter.hidden_topics = ()
    LogFormatter.started_at = time.monotonic()
    handler = StderrHandler()
    handler.setFormatter(LogFormatter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING)


def stop_logging_to_stderr() -> None:
    """Leave logging to a command that configures it itself."""
    root = logging.getLogger()
    for handler in [each for each in root.handlers if isinstance(each, StderrHandler)]:
        root.removeHandler(handler)


def elapsed_s() -> float:
    """Return the seconds since the start of the command."""
    return time.monotonic() - LogFormatter.started_at


def show_log_times() -> None:
    """Print the time of each log line, for a command that runs long."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, StderrHandler):
            handler.setFormatter(
                LogFormatter("%(asctime)s.%(msecs)03d %(message)s", "%Y-%m-%d %H:%M:%S")
            )


def hide_missing_topics(topics: Collection[str]) -> None:
    """Hide warnings that these topics do not exist, because the command has said so."""
    LogFormatter.hidden_topics = topics
