"""Coverage of each subpackage, from coverage.py's JSON report; fails where one is too low.

python -m tests.coverage_by_package coverage.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HELD = ("wire", "records", "connection", "group", "producer", "consumer")
"""Subpackages that must have `LEAST_PERCENT`; the others are only shown."""
LEAST_PERCENT = 90.0
PACKAGE = "aiokafkawire"


@dataclass(slots=True)
class Share:
    covered: int = 0
    of: int = 0

    @property
    def percent(self) -> float:
        return 100.0 * self.covered / self.of if self.of else 100.0


@dataclass(slots=True)
class Room:
    lines: Share
    branches: Share

    @property
    def enough(self) -> bool:
        return min(self.lines.percent, self.branches.percent) >= LEAST_PERCENT


def by_room(report: Mapping[str, Any]) -> dict[str, Room]:
    """Sum a coverage.py report with branches by subpackage."""
    rooms: dict[str, Room] = {}
    for name, file in report["files"].items():
        parts = Path(name).parts
        inside = parts[parts.index(PACKAGE) + 1 :]
        room = rooms.setdefault(inside[0] if len(inside) > 1 else "(top)", Room(Share(), Share()))
        summary = file["summary"]
        room.lines.covered += summary["covered_lines"]
        room.lines.of += summary["num_statements"]
        room.branches.covered += summary["covered_branches"]
        room.branches.of += summary["num_branches"]
    return rooms


def table(rooms: Mapping[str, Room]) -> Iterable[str]:
    yield f"{'room':<12} {'lines':>16} {'branches':>16}"
    for name in (*HELD, *sorted(rooms.keys() - set(HELD))):
        room = rooms.get(name, Room(Share(), Share()))
        shares = (
            f"{share.percent:6.1f} % of {share.of:5d}" for share in (room.lines, room.branches)
        )
        note = "" if name not in HELD or room.enough else f"  under {LEAST_PERCENT:.0f} %"
        yield f"{name:<12} {' '.join(shares)}{note}"


def main(path: str) -> int:
    rooms = by_room(json.loads(Path(path).read_text(encoding="utf-8")))
    print("\n".join(table(rooms)))
    missing = [name for name in HELD if name not in rooms or not rooms[name].enough]
    if missing:
        print(f"coverage under {LEAST_PERCENT:.0f} %: {', '.join(missing)}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
