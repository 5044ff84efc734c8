"""Real text as events: readers go through files, line by line, and each line read is an event.

The same input gives the same events each time. Some come late, and some are damaged on their way.
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
EVENTS_OF_A_READER = 5_000
LEAST_READERS = 4

PAUSES_MS = (60_000, 40 * 60_000)
"""Between two files of a reader, most of which begin a session."""

ON_THE_WAY_MS = 2 * 60_000
"""How long a timely event may take, in which others overtake it."""

LATE = 0.02
"""So many events are late, by up to half of the time in which all happen."""

DAMAGED = 0.005

CLOSING_MS = 24 * 3_600_000
"""The last event is so much younger than all others that the watermark passes them."""


@dataclass(frozen=True, slots=True)
class RawEvent:
    """A record of the topic."""

    key: bytes
    value: bytes

    @property
    def partition(self) -> int:
        return crc32(self.key) % PARTITIONS


@dataclass(frozen=True, slots=True)
class _Read:
    """One line that somebody read."""

    time_ms: int
    user: str
    page: str
    words: int

    def to_json(self) -> dict[str, object]:
        time = datetime.fromtimestamp(self.time_ms / 1000, UTC)
        text = time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return {"user": self.user, "page": self.page, "words": self.words, "time": text}


def raw_events(files: Sequence[Path], limit: int, seed: int = 1) -> list[RawEvent]:
    """At most `limit` events of these files, in the order of their arrival, and a closing one."""
    rng = random.Random(seed)
    reads = list(islice(_reads(files, limit, rng), limit))
    first, last = reads[0].time_ms, reads[-1].time_ms
    arrivals = []
    for number, read in enumerate(reads):
        on_the_way = rng.randrange(ON_THE_WAY_MS)
        if rng.random() < LATE:
            on_the_way += rng.randrange((last - first) // 2 + 1)
        arrivals.append((read.time_ms + on_the_way, number, _record(read, rng)))
    arrivals.sort(key=lambda arrival: arrival[:2])
    closing = _Read(last + CLOSING_MS, "nobody", "closing", 0)
    return [record for _, _, record in arrivals] + [_record(closing)]


def _reads(files: Sequence[Path], limit: int, rng: random.Random) -> Iterator[_Read]:
    """Lines as they are read, in the order of time, by readers who take one file after another."""
    waiting = rng.sample(files, len(files))
    readers: list[tuple[int, int, str, Iterator[bytes]]] = []
    for number in range(max(LEAST_READERS, limit // EVENTS_OF_A_READER)):
        readers.append((BEGINNING_MS + rng.randrange(PAUSES_MS[1]), number, "", iter(())))
    heapq.heapify(readers)
    while readers:
        now, number, page, text = heapq.heappop(readers)
        line = next(text, None)
        if line is not None:
            words = len(WORD.findall(line))
            yield _Read(now, f"reader-{number:03}", page, words)
            later = now + rng.randrange(500, 2_000) + words * rng.randrange(200, 600)
            heapq.heappush(readers, (later, number, page, text))
        elif waiting:
            path = waiting.pop()
            later = now + rng.randrange(*PAUSES_MS)
            page = f"{path.parent.name}/{path.name}"
            heapq.heappush(readers, (later, number, page, lines([path])))


def _record(read: _Read, rng: random.Random | None = None) -> RawEvent:
    event = read.to_json()
    value = json.dumps(event, ensure_ascii=False).encode()
    if rng is not None and rng.random() < DAMAGED:
        value = _damaged(event, value, rng.randrange(5))
    return RawEvent(read.user.encode(), value)


def _damaged(event: dict[str, object], value: bytes, way: int) -> bytes:
    if way == 0:
        return value[: len(value) // 2]
    if way == 1:
        return b"\xff\xfe not JSON at all"
    if way == 2:
        return json.dumps({name: event[name] for name in ("user", "page", "words")}).encode()
    if way == 3:
        return json.dumps(event | {"time": "yesterday"}).encode()
    return json.dumps(event | {"words": "many"}).encode()
