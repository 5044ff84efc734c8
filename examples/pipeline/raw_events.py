"""Generate events from real text: readers go through files, and each line read is an event.

The same input gives the same events. Some arrive late, and some are damaged.
"""

from __future__ import annotations

import heapq
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from zlib import crc32

from aiokafkawire.cli.demo.inputs import WORD, lines

__all__ = ("PARTITIONS", "RawEvent", "raw_events")

PARTITIONS = 4

BEGINNING_MS = int(datetime(2026, 3, 1, 8, tzinfo=UTC).timestamp() * 1000)
EVENTS_PER_READER = 5_000
MIN_READERS = 4

PAUSES_MS = (60_000, 40 * 60_000)
"""Pause between two files of a reader; most of them end a session."""

MAX_DELAY_MS = 2 * 60_000
"""Longest delay of a timely event; others may overtake it."""

LATE_SHARE = 0.02
"""Share of late events; they are late by up to half of the total time."""

DAMAGED_SHARE = 0.005

CLOSING_MS = 24 * 3_600_000
"""Distance of the last event to all others, so that the watermark passes them."""


@dataclass(frozen=True, slots=True)
class RawEvent:
    """A record of the topic."""

    key: bytes
    value: bytes

    @property
    def partition(self) -> int:
        return crc32(self.key) % PARTITIONS


@dataclass(frozen=True, slots=True)
class _LineRead:
    """One line that a reader read."""

    time_ms: int
    user: str
    page: str
    words: int

    def to_json(self) -> dict[str, object]:
        time = datetime.fromtimestamp(self.time_ms / 1000, UTC)
        text = time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return {"user": self.user, "page": self.page, "words": self.words, "time": text}


def raw_events(files: Sequence[Path], limit: int, seed: int = 1) -> list[RawEvent]:
    """Return at most `limit` events, in the order of their arrival, and a closing one."""
    rng = random.Random(seed)
    reads = list(islice(_line_reads(files, limit, rng), limit))
    first, last = reads[0].time_ms, reads[-1].time_ms
    arrivals = []
    for number, read in enumerate(reads):
        delay_ms = rng.randrange(MAX_DELAY_MS)
        if rng.random() < LATE_SHARE:
            delay_ms += rng.randrange((last - first) // 2 + 1)
        arrivals.append((read.time_ms + delay_ms, number, _record(read, rng)))
    arrivals.sort(key=lambda arrival: arrival[:2])
    closing = _LineRead(last + CLOSING_MS, "nobody", "closing", 0)
    return [record for _, _, record in arrivals] + [_record(closing)]


def _line_reads(files: Sequence[Path], limit: int, rng: random.Random) -> Iterator[_LineRead]:
    """Yield lines in the order of time, by readers who read one file after another."""
    waiting = rng.sample(files, len(files))
    readers: list[tuple[int, int, str, Iterator[bytes]]] = []
    for number in range(max(MIN_READERS, limit // EVENTS_PER_READER)):
        readers.append((BEGINNING_MS + rng.randrange(PAUSES_MS[1]), number, "", iter(())))
    heapq.heapify(readers)
    while readers:
        now, number, page, text = heapq.heappop(readers)
        line = next(text, None)
        if line is not None:
            words = len(WORD.findall(line))
            yield _LineRead(now, f"reader-{number:03}", page, words)
            later = now + rng.randrange(500, 2_000) + words * rng.randrange(200, 600)
            heapq.heappush(readers, (later, number, page, text))
        elif waiting:
            path = waiting.pop()
            later = now + rng.randrange(*PAUSES_MS)
            page = f"{path.parent.name}/{path.name}"
            heapq.heappush(readers, (later, number, page, lines([path])))


def _record(read: _LineRead, rng: random.Random | None = None) -> RawEvent:
    event = read.to_json()
    value = json.dumps(event, ensure_ascii=False).encode()
    if rng is not None and rng.random() < DAMAGED_SHARE:
        value = _damage(event, value, rng.randrange(5))
    return RawEvent(read.user.encode(), value)


def _damage(event: dict[str, object], value: bytes, kind: int) -> bytes:
    if kind == 0:
        return value[: len(value) // 2]
    if kind == 1:
        return b"\xff\xfe not JSON at all"
    if kind == 2:
        return json.dumps({name: event[name] for name in ("user", "page", "words")}).encode()
    if kind == 3:
        return json.dumps(event | {"time": "yesterday"}).encode()
    return json.dumps(event | {"words": "many"}).encode()
