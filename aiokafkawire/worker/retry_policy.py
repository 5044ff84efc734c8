"""Decisions about records whose handler failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from aiokafkawire.errors import DeserializationFailed
from aiokafkawire.types import require_whole_number
from aiokafkawire.worker.outcomes import DeadLetter, Drop, Outcome, Retry

__all__ = (
    "Decision",
    "DropRecord",
    "FailedAttempt",
    "RetryInPlace",
    "RetryLater",
    "RetryPolicy",
    "SplitBatch",
    "WriteDeadLetter",
    "decide",
)

MAX_DOUBLINGS = 30


class FailedAttempt(NamedTuple):
    """A failed attempt.

    Attributes:
        error: Exception of the handler or decoder.
        attempts: Attempts since the record was fetched, including this one.
        tier: Retry topics that the record has passed.
        age_ms: Time since the first failure, in milliseconds.
        jitter: Random number from 0 to 1.
        records: Records of the attempt; more than 1 for a batch.
    """

    error: BaseException
    attempts: int
    tier: int
    age_ms: float
    jitter: float
    records: int = 1


class RetryInPlace(NamedTuple):
    """Try again after a delay. Later records of the same ordering key wait."""

    delay_s: float


class RetryLater(NamedTuple):
    """Write the record to the retry topic of a tier."""

    tier: int


class WriteDeadLetter(NamedTuple):
    """Write the record to the dead letter topic."""

    reason: str


class DropRecord(NamedTuple):
    """Count the record as done."""

    reason: str


class SplitBatch(NamedTuple):
    """Try the records of a batch one by one, to find those that fail."""


Decision = RetryInPlace | RetryLater | WriteDeadLetter | DropRecord | SplitBatch

ErrorTypes = type[BaseException] | tuple[type[BaseException], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Number and delays of the attempts for a failed record.

    A record is first tried `attempts` times in place. Then it passes the retry topics, one for each
    of `delays_ms`, with one attempt each. Then it becomes a dead letter.

    Attributes:
        attempts: Attempts in place, including the first.
        backoff_ms: Maximum delay before the second attempt; it doubles with each attempt. The delay
            is a random part of it (full jitter).
        backoff_max_ms: Maximum of the doubled delay.
        delays_ms: Delays of the retry topics, ascending. The order of records is not kept there.
        max_age_ms: A failure this long after the first one, in milliseconds, makes the record a
            dead letter; None for no limit. An attempt that was scheduled before may still run.
        dead_on: Exceptions after which no retry helps.
        retry_on: Exceptions after which a retry may help; others count as `dead_on`. None for all.
    """

    attempts: int = 3
    backoff_ms: int = 100
    backoff_max_ms: int = 10_000
    delays_ms: tuple[int, ...] = ()
    max_age_ms: int | None = None
    dead_on: ErrorTypes = ()
    retry_on: ErrorTypes | None = None

    def __post_init__(self) -> None:
        self._check_types()
        if self.attempts < 1:
            raise ValueError(f"attempts must be at least 1, not {self.attempts}")
        if self.backoff_ms < 0 or self.backoff_max_ms < self.backoff_ms:
            raise ValueError("backoff_ms must be between 0 and backoff_max_ms")
        if list(self.delays_ms) != sorted(set(self.delays_ms)) or any(
            delay < 1 for delay in self.delays_ms
        ):
            raise ValueError(f"delays_ms must be positive and ascend, not {self.delays_ms}")

    def _check_types(self) -> None:
        for name, example in (("attempts", 3), ("backoff_ms", 100), ("backoff_max_ms", 10_000)):
            require_whole_number(name, getattr(self, name), f"RetryPolicy({name}={example})")
        if self.max_age_ms is not None:
            require_whole_number(
                "max_age_ms", self.max_age_ms, "RetryPolicy(max_age_ms=86_400_000), or None"
            )
        delays: object = self.delays_ms
        if not isinstance(delays, tuple | list) or any(type(delay) is not int for delay in delays):
            raise TypeError(
                f"delays_ms must be a tuple of whole numbers, not {delays!r:.80}: write"
                f" RetryPolicy(delays_ms=({delays if type(delays) is int else 60_000},))"
            )
        for name in ("dead_on", "retry_on"):
            types = getattr(self, name)
            kinds = types if isinstance(types, tuple) else (types,)
            if types is not None and not all(_is_exception_type(kind) for kind in kinds):
                raise TypeError(
                    f"{name} must be an exception type or a tuple of them, not {types!r:.80}:"
                    f" write RetryPolicy({name}=(ValueError, KeyError))"
                )


def _is_exception_type(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseException)


def decide(policy: RetryPolicy, failure: FailedAttempt) -> Decision:
    """Return what happens after a failed attempt."""
    decision = _decide_alone(policy, failure)
    # mutation: failed-batch-not-split
    if failure.records > 1 and not isinstance(decision, RetryInPlace):
        return SplitBatch()
    return decision


def _decide_alone(policy: RetryPolicy, failure: FailedAttempt) -> Decision:
    """Return what happens to a record that failed alone."""
    error = failure.error
    if isinstance(error, Drop):
        return DropRecord(str(error))
    if isinstance(error, DeadLetter):
        return WriteDeadLetter(str(error) or "the handler raised DeadLetter")
    if not _may_help(policy, error):
        return WriteDeadLetter("no retry helps")
    if policy.max_age_ms is not None and failure.age_ms >= policy.max_age_ms:
        return WriteDeadLetter(f"{policy.max_age_ms} ms after the first failure")
    if failure.tier == 0 and failure.attempts < policy.attempts:
        return RetryInPlace(_delay_s(policy, failure))
    if failure.tier < len(policy.delays_ms):
        return RetryLater(failure.tier)
    return WriteDeadLetter("all attempts failed")


def _may_help(policy: RetryPolicy, error: BaseException) -> bool:
    """Return whether a retry may help."""
    if isinstance(error, Outcome):
        return True
    if isinstance(error, (DeserializationFailed, policy.dead_on)):
        return False
    return policy.retry_on is None or isinstance(error, policy.retry_on)


def _delay_s(policy: RetryPolicy, failure: FailedAttempt) -> float:
    """Return the delay before the next attempt in place."""
    if isinstance(failure.error, Retry) and failure.error.after_s is not None:
        return failure.error.after_s
    doublings = min(failure.attempts - 1, MAX_DOUBLINGS)
    return failure.jitter * min(policy.backoff_ms << doublings, policy.backoff_max_ms) / 1_000
