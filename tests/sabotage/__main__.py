"""Plant each fault in turn and say which programme caught it: `python -m tests.sabotage`."""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from tests.sabotage.faults import SABOTAGES

PATIENCE_S = 1_800
"""For one fault; the seeds that it needs are bounded, too."""

HEADS = ("fault", "caught by", "after seeds", "as")


@dataclass(frozen=True, slots=True)
class Found:
    """What came of one fault. `error`: it could not be tried."""

    name: str
    result: dict[str, Any] = field(default_factory=dict)
    error: str = ""

    @property
    def caught(self) -> bool:
        return bool(self.result.get("caught"))

    @property
    def row(self) -> tuple[str, ...]:
        if self.error:
            return (self.name, "could not be tried", "", self.error)
        if not self.caught:
            return (self.name, "SURVIVED", str(self.result["seeds"]), "")
        by = f"{self.result['programme']}, seed {self.result['seed']}"
        kinds = ", ".join(self.result["kinds"])
        return (self.name, by, str(self.result["seeds"]), kinds)


def tried(name: str, seeds: int, first: int) -> Found:
    """Try one fault, in processes of its own. A seed that fails without it as well says nothing."""
    tries = 0
    while tries < seeds:
        command = [sys.executable, "-m", "tests.sabotage.one", name]
        command += ["--seeds", str(seeds - tries), "--first", str(first + tries)]
        ran = _run(command)
        lines = ran.stdout.splitlines()
        if ran.returncode != 0 or not lines:
            return Found(name, error=(ran.stderr.splitlines() or ["it said nothing"])[-1])
        result: dict[str, Any] = json.loads(lines[-1])
        tries += result["seeds"]
        if result["caught"] and _is_green(result):
            return Found(name, result | {"seeds": tries})
    return Found(name, {"caught": False, "seeds": tries})


def _is_green(result: dict[str, Any]) -> bool:
    """Whether the seed that failed is right without the fault."""
    command = [sys.executable, "-m", "tests.simulation", "--seed", str(result["seed"])]
    command += ["--programme", result["programme"], "--backend", result["backend"]]
    green = _run(command).returncode == 0
    if not green:
        print(f"fails without any fault: {shlex.join(command[1:])}", file=sys.stderr)
    return green


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"not over after {PATIENCE_S} s")


def try_all(names: list[str], seeds: int, first: int, jobs: int) -> Iterator[Found]:
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(lambda name: tried(name, seeds, first), names)


def table(found: list[Found]) -> str:
    rows = [HEADS, *(each.row for each in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.sabotage", description=__doc__)
    parser.add_argument("names", nargs="*", help="these alone")
    parser.add_argument("--seeds", type=int, default=500, help="that a fault is given at most")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    asked = parser.parse_args()
    unknown = sorted(set(asked.names) - SABOTAGES.keys())
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}")
    began = time.monotonic()
    found = []
    for each in try_all(asked.names or list(SABOTAGES), asked.seeds, asked.first, asked.jobs):
        found.append(each)
        print("  ".join(each.row), file=sys.stderr, flush=True)
    caught = sum(each.caught for each in found)
    print(table(found))
    print(f"{caught} of {len(found)} caught, in {time.monotonic() - began:.0f} s")
    return 0 if caught == len(found) else 1


if __name__ == "__main__":
    sys.exit(main())
