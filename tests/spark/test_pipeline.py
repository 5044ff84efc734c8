"""The pipeline's input, its count without Spark, and the comparison: without a Spark."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from aiokafkawire import Broker, Producer

PIPELINE = Path(__file__).resolve().parents[2] / "examples" / "pipeline"
MINUTE_MS = 60_000
BEGINNING_MS = 1_772_352_000_000
"""At a whole hour."""


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(PIPELINE)
    return importlib.import_module("without_spark")


@pytest.fixture
def raw_events(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(PIPELINE)
    return importlib.import_module("raw_events")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(PIPELINE)
    return importlib.import_module("run")


def event(minute: float, user: str = "ann", page: str = "a.py", words: int = 1) -> bytes:
    time = f"2026-03-01T{8 + int(minute) // 60:02}:{int(minute) % 60:02}:{minute % 1 * 60:06.3f}Z"
    return json.dumps({"user": user, "page": page, "words": words, "time": time}).encode()


def row(start: float, end: float, name: str, events: int, words: int) -> Any:
    at = (round(BEGINNING_MS + minute * MINUTE_MS) for minute in (start, end))
    return (*at, name, events, words)


def text(folder: Path, files: int = 6, lines: int = 200) -> list[Path]:
    paths = [folder / f"{number}.py" for number in range(files)]
    for path in paths:
        path.write_text("one two three\n" * lines)
    return paths


def test_the_same_text_gives_the_same_events_some_late_and_some_damaged(
    raw_events, without_spark, tmp_path
):
    files = text(tmp_path)
    events = raw_events.raw_events(files, 1_000)
    assert events == raw_events.raw_events(files, 1_000)
    assert len(events) == 1_001
    parsed = [without_spark._parse(one.value) for one in events]
    assert 0 < parsed.count(None) < 50
    times = [one.time_ms for one in parsed[:-1] if one is not None]
    youngest = [max(times[: place + 1]) for place in range(len(times))]
    behind = [high - time for high, time in zip(youngest, times, strict=True)]
    late = sum(one > without_spark.WATERMARK_DELAY_MS for one in behind)
    assert 0 < late < 50
    assert (
        parsed[-1].time_ms
        > max(times) + without_spark.WATERMARK_DELAY_MS + without_spark.SESSION_GAP_MS
    )


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[1]",
        b'{"user": "ann", "page": "a.py", "words": 1}',
        event(1).replace(b"2026", b"last"),
        event(1).replace(b'"words": 1', b'"words": "many"'),
        event(1).replace(b'"ann"', b"null"),
    ],
)
def test_what_is_no_event_is_a_dead_letter(without_spark, value):
    log = {0: [event(0)], 1: [event(0), value]}
    assert without_spark.dead_letters(log) == Counter([(1, 1, value)])
    assert without_spark.counts(log, [{0: 1, 1: 2}]).parsed == 2


def test_windows_are_given_out_when_the_watermark_has_passed_their_end(without_spark):
    log = {0: [event(1), event(9, words=3), event(10), event(35)]}
    found = without_spark.counts(log, [{0: 4}])
    assert found.rows == Counter([row(0, 10, "a.py", 2, 4), row(10, 20, "a.py", 1, 1)])
    assert (found.parsed, found.late, found.open) == (4, 0, 1)


def test_late_rows_are_dropped_by_the_watermark_of_the_previous_batch(without_spark):
    late, rest = event(2), [event(60), event(61), event(120)]
    # The watermark is at 50 minutes with the second batch, and what is late with the third.
    second = without_spark.counts(
        {0: [event(1), rest[0], late, *rest[1:]]}, ({0: 2}, {0: 3}, {0: 5})
    )
    third = without_spark.counts(
        {0: [event(1), *rest[:2], late, rest[2]]}, ({0: 2}, {0: 3}, {0: 5})
    )
    assert row(0, 10, "a.py", 2, 2) in second.rows
    assert second.late == 0
    assert row(0, 10, "a.py", 1, 1) in third.rows
    assert third.late == 1


def test_an_event_joins_the_sessions_that_it_touches(without_spark):
    events = [event(0), event(12), event(6), event(0, "bob"), event(23), event(60)]
    found = without_spark.sessions({0: events}, [{0: 6}])
    assert found.rows == Counter(
        [row(0, 22, "ann", 3, 3), row(0, 10, "bob", 1, 1), row(23, 33, "ann", 1, 1)]
    )
    assert found.open == 1


def test_an_emitted_session_does_not_grow(without_spark):
    log = {0: [event(0), event(21), event(22), event(9.5), event(60)]}
    found = without_spark.sessions(log, ({0: 2}, {0: 3}, {0: 5}))
    # At 11 minutes the first is out; what ends before that is late, and what ends after is not.
    assert row(0, 10, "ann", 1, 1) in found.rows
    assert row(9.5, 19.5, "ann", 1, 1) in found.rows
    assert found.late == 0


def _text(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()


@pytest.mark.anyio
async def test_the_comparison_finds_what_is_missing_or_wrong(run, without_spark, tmp_path):
    log = {0: [event(1), b"{", event(2, "bob"), event(90)], 1: [], 2: [], 3: []}
    cut = [dict.fromkeys(log, 0) | {0: 4}]
    expected = {
        "page-counts": without_spark.counts(log, cut),
        "sessions": without_spark.sessions(log, cut),
    }
    for name in expected:
        (tmp_path / name / "offsets").mkdir(parents=True)
        (tmp_path / name / "offsets" / "0").write_text(
            f"v1\n{{}}\n{json.dumps({'events': cut[0]})}"
        )
    written = run.Outputs(
        {name: tmp_path / name for name in expected},
        {name: results.rows for name, results in expected.items()},
    )
    columns = ("start", "end", "key", "events", "words")
    async with Broker() as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for name, results in expected.items():
            await broker.create_topic(name, 4)
            for start, end, key, events, words in results.rows:
                cells = (_text(start), _text(end), key, events, words)
                value = dict(zip(columns, cells, strict=True))
                await producer.send(name, key=key.encode(), value=json.dumps(value).encode())
        await broker.create_topic("dead-letters", 4)
        found = {"source.partition": b"0", "source.offset": b"1"}
        headers = list(found.items())
        await producer.send("dead-letters", value=b"{", headers=headers)
        await producer.flush()
        servers = broker.bootstrap_servers
        lines = await run.compare(servers, log, written)
        assert [line.differing for line in lines if line.differing is not None] == [0, 0, 0]
        written.parquet["sessions"] = Counter([row(1, 11, "ann", 1, 2)])
        await producer.send_and_wait("dead-letters", value=b"{", headers=headers)
        lines = await run.compare(servers, log, written)
        assert [line.differing for line in lines if line.differing is not None] == [1, 0, 3]
        with pytest.raises(run.ProcessFailed, match="the last batch ends at"):
            await run.compare(servers, {**log, 1: [event(3)]}, written)
