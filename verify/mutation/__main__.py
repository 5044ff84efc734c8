"""Plant each mutation in turn and print which scenario caught it: `python -m verify.mutation`."""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verify.mutation.mutations import BLIND, MUTATIONS

TIMEOUT_S = 1_800
"""Timeout for one mutation; the number of its seeds is limited too."""

HEADS = ("Mutation", "Author", "Scenario", "Seed", "Runs", "Caught by")

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
FROM = "<!-- from: python -m verify.mutation --write -->\n"


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome for one mutation. With an `error` it could not be planted or run."""

    name: str
    result: dict[str, Any] = field(default_factory=dict)
    error: str = ""

    @property
    def caught(self) -> bool:
        return bool(self.result.get("caught"))

    @property
    def row(self) -> tuple[str, ...]:
        by = "blind" if self.name in BLIND else "informed"
        if self.error:
            return (f"`{self.name}`", by, "ERROR", "", "", self.error)
        runs = str(self.result["runs"])
        if not self.caught:
            return (f"`{self.name}`", by, "not caught", "", runs, "")
        seen = ", ".join(kind.removeprefix("invariant ") for kind in self.result["kinds"])
        scenario, seed = self.result["scenario"], str(self.result["seed"])
        return (f"`{self.name}`", by, f"`{scenario}`", seed, runs, seen)


def run_one(name: str, seeds: int, first: int) -> Result:
    """Run one mutation in its own processes. A seed that fails without it does not count."""
    runs = 0
    while runs < seeds:
        command = [sys.executable, "-m", "verify.mutation.one", name]
        command += ["--seeds", str(seeds), "--first", str(first), "--skip", str(runs)]
        ran = _run(command)
        lines = ran.stdout.splitlines()
        if ran.returncode != 0 or not lines:
            return Result(name, error=(ran.stderr.splitlines() or ["no output"])[-1])
        result: dict[str, Any] = json.loads(lines[-1])
        if not result["caught"] or _is_green(result):
            return Result(name, result)
        runs = result["runs"]
    return Result(name, {"caught": False, "runs": seeds})


def _is_green(result: dict[str, Any]) -> bool:
    """Return whether the seed that failed passes without the mutation."""
    command = [sys.executable, "-m", "verify.simulation", "--seed", str(result["seed"])]
    command += ["--scenario", result["scenario"], "--backend", result["backend"]]
    green = _run(command).returncode == 0
    if not green:
        print(f"fails without a mutation: {shlex.join(command[1:])}", file=sys.stderr)
    return green


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"not finished after {TIMEOUT_S} s")


def run_all(names: list[str], seeds: int, first: int, jobs: int) -> Iterator[Result]:
    with ThreadPoolExecutor(jobs) as pool:
        for done in as_completed([pool.submit(run_one, name, seeds, first) for name in names]):
            yield done.result()


def table(found: list[Result]) -> str:
    lines = [HEADS, ("---",) * len(HEADS), *(each.row for each in found)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write(text: str) -> None:
    """Replace the table of the page."""
    before, _, after = PAGE.read_text().partition(FROM)
    _, _, rest = after.partition("\n\n")
    PAGE.write_text(f"{before}{FROM}{text}\n\n{rest}")


def read_results(path: Path | None) -> dict[str, Result]:
    """Return the results of earlier runs."""
    lines = path.read_text().splitlines() if path is not None and path.exists() else []
    return {each["name"]: Result(**each) for each in map(json.loads, lines)}


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m verify.mutation", description=__doc__)
    parser.add_argument("names", nargs="*", help="run only these")
    parser.add_argument("--seeds", type=int, default=500, help="how many to run at most for each")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--keep", type=Path, help="file of results; skip mutations that are in it")
    parser.add_argument("--write", action="store_true", help=f"replace the table in {PAGE.name}")
    return parser


def main() -> int:
    parser = arguments()
    asked = parser.parse_args()
    unknown = sorted(set(asked.names) - MUTATIONS.keys())
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}")
    began = time.monotonic()
    names = asked.names or list(MUTATIONS)
    known = read_results(asked.keep)
    left = [name for name in names if name not in known]
    for each in run_all(left, asked.seeds, asked.first, asked.jobs):
        known[each.name] = each
        print("  ".join(each.row), file=sys.stderr, flush=True)
        if asked.keep is not None and not each.error:
            line = {"name": each.name, "result": each.result}
            with asked.keep.open("a") as results:
                results.write(f"{json.dumps(line)}\n")
    found = [known[name] for name in names]
    caught = sum(each.caught for each in found)
    print(table(found))
    print(f"{caught} of {len(found)} caught, in {time.monotonic() - began:.0f} s")
    if asked.write:
        write(table(found))
    return 0 if caught == len(found) else 1


if __name__ == "__main__":
    sys.exit(main())
