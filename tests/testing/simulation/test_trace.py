"""The trace: lines to read, and a digest of all that ever were."""

from __future__ import annotations

import pytest

from aiokafkawire.testing.simulation import Trace
from aiokafkawire.testing.simulation import trace as module


def trace_of(*events: str) -> Trace:
    trace = Trace(lambda: 1.5)
    for event in events:
        trace.note(event)
    return trace


def test_lines_have_their_time() -> None:
    assert str(trace_of("one", "two")) == "1.500000000 one\n1.500000000 two"


def test_different_traces_have_different_digests() -> None:
    assert trace_of("a", "b").digest == trace_of("a", "b").digest
    assert trace_of("a", "b").digest != trace_of("b", "a").digest
    assert trace_of("ab").digest != trace_of("a", "b").digest


def test_old_lines_go_and_still_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KEPT_LINES", 2)
    trace = trace_of("a", "b", "c")
    assert len(trace.lines) == 2
    assert trace.count == 3
    assert trace.digest == trace_of("a", "b", "c").digest


def test_the_last_lines_are_kept() -> None:
    assert trace_of("a", "b", "c").last(2) == ["1.500000000 b", "1.500000000 c"]
