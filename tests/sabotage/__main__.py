"""Plant each fault in turn and say which programme caught it: `python -m tests.sabotage`."""

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

from tests.sabotage.faults import SABOTAGES
from tests.sabotage.outsiders import OUTSIDERS

PATIENCE_S = 1_800
"""For one fault; the seeds that it needs are bounded, too."""

HEADS = ("Fault", "Thought up by", "Programme", "Seed", "Runs", "Seen as")

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
FROM = "<!-- from: python -m tests.sabotage --write -->\n"


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
        by = "outsiders" if any(each.name == self.name for each in OUTSIDERS) else "insiders"
        if self.error:
            return (f"`{self.name}`", by, "COULD NOT BE TRIED", "", "", self.error)
        runs = str(self.result["runs"])
        if not self.caught:
            return (f"`{self.name}`", by, "not caught", "", runs, "")
        seen = ", ".join(kind.removeprefix("invariant ") for kind in self.result["kinds"])
        programme, seed = self.result["programme"], str(self.result["seed"])
        return (f"`{self.name}`", by, f"`{programme}`", seed, runs, seen)


def tried(name: str, seeds: int, first: int) -> Found:
    """Try one fault, in processes of its own. A seed that fails without it as well says nothing."""
    runs = 0
    while runs < seeds:
        command = [sys.executable, "-m", "tests.sabotage.one", name]
        command += ["--seeds", str(seeds), "--first", str(first), "--skip", str(runs)]
        ran = _run(command)
        lines = ran.stdout.splitlines()
        if ran.returncode != 0 or not lines:
            return Found(name, error=(ran.stderr.splitlines() or ["it said nothing"])[-1])
        result: dict[str, Any] = json.loads(lines[-1])
        if not result["caught"] or _is_green(result):
            return Found(name, result)
        runs = result["runs"]
    return Found(name, {"caught": False, "runs": seeds})


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
        for done in as_completed([pool.submit(tried, name, seeds, first) for name in names]):
            yield done.result()


def table(found: list[Found]) -> str:
    lines = [HEADS, ("---",) * len(HEADS), *(each.row for each in found)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write(text: str) -> None:
    """Put a table into the page, in the place of the one that stands there."""
    before, _, after = PAGE.read_text().partition(FROM)
    _, _, rest = after.partition("\n\n")
    PAGE.write_text(f"{before}{FROM}{text}\n\n{rest}")


def kept(path: Path | None) -> dict[str, Found]:
    """What came of faults that were tried before."""
    lines = path.read_text().splitlines() if path is not None and path.exists() else []
    return {each["name"]: Found(**each) for each in map(json.loads, lines)}


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.sabotage", description=__doc__)
    parser.add_argument("names", nargs="*", help="these alone")
    parser.add_argument("--seeds", type=int, default=500, help="that a fault is given at most")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--keep", type=Path, help="a file of results: what stands in it is not run")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    return parser


def main() -> int:
    parser = arguments()
    asked = parser.parse_args()
    unknown = sorted(set(asked.names) - SABOTAGES.keys())
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}")
    began = time.monotonic()
    names = asked.names or list(SABOTAGES)
    known = kept(asked.keep)
    left = [name for name in names if name not in known]
    for each in try_all(left, asked.seeds, asked.first, asked.jobs):
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
