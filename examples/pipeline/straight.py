"""The same results without Spark, out of the rule in Spark's documentation: plain Python, one event
after another.

What counts as late depends on where Spark cut the topic into batches, so that is given.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

__all__ = ("Cut", "Log", "Results", "Row", "counts", "dead_letters", "sessions")

DELAY_MS = 10 * 60_000
WINDOW_MS = 10 * 60_000
GAP_MS = 10 * 60_000

Cut = Sequence[Mapping[int, int]]
"""Where each batch ends, by partition."""

Row = tuple[int, int, str, int, int]
"""Start, end, page or user, events, words; times are ms since 1970."""

Log = Mapping[int, Sequence[bytes]]
"""Values by partition; a value's place is its offset."""


@dataclass(slots=True)
class Results:
    """What a query gives out, with how often each row comes, and what it does not."""

    parsed: int = 0
    late: int = 0
    open: int = 0
    """Events whose window or session the watermark has not passed."""

    rows: Counter[Row] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class _Event:
    time_ms: int
    user: str
    page: str
    words: int


def dead_letters(log: Log) -> Counter[tuple[int, int, bytes]]:
    """What is no event: partition, offset and value."""
    return Counter(
        (partition, offset, value)
        for partition, values in log.items()
        for offset, value in enumerate(values)
        if _parse(value) is None
    )


def counts(log: Log, cut: Cut) -> Results:
    """Events and words of each page, by windows."""
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


def sessions(log: Log, cut: Cut) -> Results:
    """Events and words of each user, by sessions."""
    results = Results()
    open_sessions: dict[str, list[_Session]] = defaultdict(list)
    for batch, watermark_before, watermark in _batches(log, cut):
        for event in batch:
            results.parsed += 1
            if event.time_ms + GAP_MS <= watermark_before:
                results.late += 1
                continue
            own = _Session(event.time_ms, event.time_ms + GAP_MS, 1, event.words)
            _add(open_sessions[event.user], own)
        for user, those in open_sessions.items():
            for done in [session for session in those if session.end <= watermark]:
                those.remove(done)
                results.rows[done.start, done.end, user, done.events, done.words] += 1
    results.open = sum(one.events for those in open_sessions.values() for one in those)
    return results


def _add(those: list[_Session], new: _Session) -> None:
    """One session of all that it touches."""
    for other in [one for one in those if one.start <= new.end and new.start <= one.end]:
        those.remove(other)
        new.start, new.end = min(new.start, other.start), max(new.end, other.end)
        new.events += other.events
        new.words += other.words
    those.append(new)


def _batches(log: Log, cut: Cut) -> Iterator[tuple[list[_Event], int, int]]:
    """The events of each batch, with the watermarks of the batch before and of this one.

    A batch's watermark comes from the batches before it. What it ends is given out with that batch;
    what is late goes by the one before, since until then its window was there.
    """
    youngest = before = 0
    start = dict.fromkeys(log, 0)
    # A last batch without events gives out what the last watermark ends.
    for end in (*cut, cut[-1]):
        watermark = max(0, youngest - DELAY_MS)
        read = (log[number][start[number] : end.get(number, 0)] for number in sorted(log))
        batch = [event for values in read for value in values if (event := _parse(value))]
        yield batch, before, watermark
        youngest = max([youngest, *(event.time_ms for event in batch)])
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
