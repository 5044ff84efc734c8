"""Log lines about failed starts, failed attempts and dead letters."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping

from aiokafkawire.errors import DeserializationFailed
from aiokafkawire.logs import RateLimit, log_fields
from aiokafkawire.runtime import Supervisor
from aiokafkawire.worker.letters import FailedRecord
from aiokafkawire.worker.outcomes import DeadLetter
from aiokafkawire.worker.partition_work import WorkItem
from aiokafkawire.worker.retry_policy import (
    Decision,
    DropRecord,
    RetryInPlace,
    RetryLater,
    SplitBatch,
    WriteDeadLetter,
)

__all__ = (
    "log_dead_letter",
    "log_exit",
    "log_failed_attempt",
    "log_failed_start",
    "log_failed_write",
)

logger = logging.getLogger("aiokafkawire.worker")


def log_failed_start(error: Exception, supervisor: Supervisor) -> int | str:
    """Log why the program of a worker ends, with the traceback if the level is DEBUG.

    Returns:
        The argument of `SystemExit` for the exit code 1: the reason, which goes to stderr, if the
        logger is disabled, as by `logging.config.dictConfig`.
    """
    logger.error(
        "%s: cannot start, the process exits with code 1: %s",
        supervisor.name,
        error,
        exc_info=error if logger.isEnabledFor(logging.DEBUG) else None,
        extra=log_fields(supervisor.fields, error=error),
    )
    return 1 if logger.isEnabledFor(logging.ERROR) else f"{supervisor.name}: cannot start: {error}"


def log_failed_attempt(
    item: WorkItem,
    decision: Decision,
    number: int,
    fields: Mapping[str, object],
    limit: RateLimit,
) -> None:
    """Log that an attempt has failed, or that its handler drops the record.

    Args:
        item: Its first unfinished records failed.
        decision: What happens next.
        number: Number of records that failed together.
        fields: Fields of the client.
        limit: Limit of the lines about records that cannot be deserialized.
    """
    is_dropped = isinstance(decision, DropRecord)
    error = None if is_dropped else item.failures.error
    level = logging.INFO if is_dropped else logging.WARNING
    if isinstance(error, DeserializationFailed):
        level = limit.level(level, ("attempt", item.partition.tp.topic), item.started)
    with contextlib.suppress(Exception):  # the text of an exception may raise
        logger.log(
            level,
            "%s offset %d%s: %s",
            item.partition.tp,
            item.record.offset,
            "" if number == 1 else f" and {number - 1} more",
            _text(item, decision),
            extra=log_fields(fields, error=error, tp=item.partition.tp, offset=item.record.offset),
        )


def _text(item: WorkItem, decision: Decision) -> str:
    failed = f"attempt {item.failures.total_attempts} of {item.handler.name} failed"
    match decision:
        case DropRecord(reason):
            return f"dropped by {item.handler.name}{reason and f': {reason}'}"
        case RetryInPlace() | SplitBatch() if not item.partition.is_active:
            then = "the worker gives up the partition, and the record is delivered again"
        case RetryInPlace(delay_s):
            then = f"next attempt in {delay_s:.3f} s"
        case RetryLater(tier):
            then = f"next attempt in {item.handler.retries.delays_ms[tier] / 1_000:g} s"
        case SplitBatch():
            then = "its records are tried one by one"
        case WriteDeadLetter() if isinstance(item.failures.error, DeadLetter):
            return f"{failed}: {item.failures.error!r}"
        case WriteDeadLetter(reason):
            then = reason
    return f"{failed}; {then}: {item.failures.error!r}"


def log_failed_write(
    item: WorkItem, error: Exception, backoff_s: float, fields: Mapping[str, object]
) -> None:
    """Log that the copy of a failed record could not be written.

    Args:
        item: Its first unfinished record has failed.
        error: Why the copy was not written.
        backoff_s: Delay before the next write.
        fields: Fields of the client.
    """
    tp, offset, is_active = item.partition.tp, item.record.offset, item.partition.is_active
    then = (
        f"the record waits and is not committed; next try in {backoff_s:g} s"
        if is_active
        else "the record is delivered again"
    )
    logger.log(
        logging.ERROR if is_active else logging.WARNING,
        "%s offset %d: writing the failed record failed; %s: %s",
        tp,
        offset,
        then,
        error,
        extra=log_fields(fields, error=error, tp=tp, offset=offset),
    )


def log_exit(item: WorkItem, error: SystemExit, fields: Mapping[str, object]) -> None:
    """Log that a handler called `sys.exit`."""
    tp, offset = item.partition.tp, item.record.offset
    logger.error(
        "%s offset %d: %s called sys.exit(%r); the worker stops, and the record is delivered again",
        tp,
        offset,
        item.handler.name,
        error.code,
        extra=log_fields(fields, error=error, tp=tp, offset=offset),
    )


def log_dead_letter(
    failed: FailedRecord,
    topic: str,
    fields: Mapping[str, object],
    limit: RateLimit,
    now: float,
) -> None:
    """Log that a dead letter is written to a topic.

    Args:
        failed: The record and its last failure.
        topic: Topic of the dead letter.
        fields: Fields of the client.
        limit: Limit of the lines about records that cannot be deserialized.
        now: Time of the line.
    """
    record, error = failed.record, failed.error
    level = logging.ERROR
    if isinstance(error, DeserializationFailed):
        level = limit.level(level, ("dead letter", record.topic), now)
    with contextlib.suppress(Exception):  # the text of an exception may raise
        logger.log(
            level,
            "Group %s: %s offset %d: written to %s at attempt %d%s: %r",
            failed.group_id,
            record.topic_partition,
            record.offset,
            topic,
            failed.attempts,
            "" if isinstance(error, DeadLetter) else f" ({failed.reason})",
            error,
            extra=log_fields(fields, error=error, tp=record.topic_partition, offset=record.offset),
        )
