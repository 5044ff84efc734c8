"""Compute the same results without Spark, from the rules in Spark's documentation, in plain Python.

Which events are late depends on where Spark's batches ended, so that is an argument.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

__all__ = ("BatchEnds", "Log", "Results", "Row", "counts", "dead_letters", "sessions")

WATERMARK_DELAY_MS = 10 * 60_000
WINDOW_MS = 10 * 60_000
SESSION_GAP_MS = 10 * 60_000

BatchEnds = Sequence[Mapping[int, int]]
"""End offsets of each batch, by partition."""

Row = tuple[int, int, str, int, int]
"""Start, end, page or user, events, words; times are ms since 1970."""

Log = Mapping[int, Sequence[bytes]]
"""Values by partition; the index of a value is its offset."""


@dataclass(slots=True)
class Results:
    """The rows of a query with the number of times each occurs, and its event counts."""

    parsed: int = 0
    late: int = 0
    open: int = 0
    """Events in windows or sessions that the watermark has not passed."""

    rows: Counter[Row] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class _Event:
    time_ms: int
    user: str
    page: str
    words: int


def dead_letters(log: Log) -> Counter[tuple[int, int, bytes]]:
    """Return the invalid records: partition, offset and value."""
    return Counter(
        (partition, offset, value)
        for partition, values in log.items()
        for offset, value in enumerate(values)
        if _parse(value) is None
    )


def counts(log: Log, cut: BatchEnds) -> Results:
    """Return events and words per page and window."""
    results = Results()
    open_windows: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0, 0])
    for batch, watermark_before, watermark in _batches(log, cut):
        for event in batch:
            results.parsed += 1
            start = event.time_ms - event.time_ms % WINDOW_MS
            if start + WINDOW_MS <= watermark_before:
                results.late += 1
                continue
            state = open_windows[start, event.page]
            state[0] += 1
            state[1] += event.words
        for start, page in [key for key in open_windows if key[0] + WINDOW_MS <= watermark]:
            number, words = open_windows.pop((start, page))
            results.rows[start, start + WINDOW_MS, page, number, words] += 1
    results.open = sum(number for number, _ in open_windows.values())
    return results


@dataclass(slots=True)
class _Session:
    start: int
    end: int
    events: int
    words: int


def sessions(log: Log, cut: BatchEnds) -> Results:
    """Return events and words per user and session."""
    results = Results()
    open_sessions: dict[str, list[_Session]] = defaultdict(list)
    for batch, watermark_before, watermark in _batches(log, cut):
        for event in batch:
            results.parsed += 1
            if event.time_ms + SESSION_GAP_MS <= watermark_before:
                results.late += 1
                continue
            own = _Session(event.time_ms, event.time_ms + SESSION_GAP_MS, 1, event.words)
            _add(open_sessions[event.user], own)
        for user, sessions_of_user in open_sessions.items():
            for done in [session for session in sessions_of_user if session.end <= watermark]:
                sessions_of_user.remove(done)
                results.rows[done.start, done.end, user, done.events, done.words] += 1
    results.open = sum(
        one.events for sessions_of_user in open_sessions.values() for one in sessions_of_user
    )
    return results


def _add(sessions_of_user: list[_Session], new: _Session) -> None:
    """Merge the new session with all that it overlaps."""
    for other in [one for one in sessions_of_user if one.start <= new.end and new.start <= one.end]:
        sessions_of_user.remove(other)
        new.start, new.end = min(new.start, other.start), max(new.end, other.end)
        new.events += other.events
        new.words += other.words
    sessions_of_user.append(new)


def _batches(log: Log, cut: BatchEnds) -> Iterator[tuple[list[_Event], int, int]]:
    """Yield the events of each batch, with the watermark of the previous batch and of this one.

    The watermark of a batch comes from earlier batches. Windows that it passes are emitted with
    that batch. An event is late by the previous watermark, because its window existed until then.
    """
    latest = before = 0
    start = dict.fromkeys(log, 0)
    # A last batch without events emits the windows that the last watermark passed.
    for end in (*cut, cut[-1]):
        watermark = max(0, latest - WATERMARK_DELAY_MS)
        read = (log[number][start[number] : end.get(number, 0)] for number in sorted(log))
        batch = [event for values in read for value in values if (event := _parse(value))]
        yield batch, before, watermark
        latest = max([latest, *(event.time_ms for event in batch)])
        start.update(end)
        before = watermark


def _parse(value: bytes) -> _Event | None:
    try:
        given = json.loads(value)
        user, page, words = given["user"], given["page"], given["words"]
        time = datetime.fromisoformat(given["time"])
    except (ValueError, KeyError, TypeError):
        return None
    if not (isinstance(user, str) and isinstance(page, str) and isinstance(words, int)):
        return None
    return _Event(round(time.timestamp() * 1000), user, page, words)
