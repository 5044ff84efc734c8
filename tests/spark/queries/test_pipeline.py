"""The pipeline of the examples in all of its forms: each beside a count without Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).resolve().parents[3] / "examples" / "pipeline" / "run.py"
DEADLINE_S = 440
"""Of one test, on a machine that has other work as well; alone it takes half a minute."""

SMALL = ("--events", "2000", "--batches", "2", "--deadline", "200")


def pipeline(*arguments: str) -> str:
    ran = subprocess.run(
        [sys.executable, RUN, *SMALL, *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "all results are equal" in ran.stdout
    return ran.stdout


def numbers(output: str, what: str) -> list[list[int]]:
    """The lines of a table, one of each form, without what has no number."""
    lines = [line.removeprefix(what).split() for line in output.splitlines() if what in line]
    return [[int(word.replace(",", "")) for word in line if word != "-"] for line in lines]


@pytest.mark.timeout(DEADLINE_S + 10)
@pytest.mark.parametrize("forms", [[], ["--cluster"]], ids=["on-this-machine", "on-a-cluster"])
def test_the_pipeline_gives_what_is_counted_without_spark(forms):
    output = pipeline(*forms)
    assert ("killed worker-1" in output) == bool(forms)
    for what in ("dead letters", "page-counts: rows", "sessions: rows"):
        tables = numbers(output, what)
        assert len(tables) == (1 if forms else 2)
        for expected, *outputs, differing in tables:
            assert expected > 0
            assert set(outputs) == {expected}
            assert differing == 0
