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

CHECKED = ("wire", "records", "connection", "group", "producer", "consumer", "oauth")
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
class PackageCoverage:
    lines: Share
    branches: Share

    @property
    def enough(self) -> bool:
        return min(self.lines.percent, self.branches.percent) >= LEAST_PERCENT


def by_package(report: Mapping[str, Any]) -> dict[str, PackageCoverage]:
    """Sum a coverage.py report with branches by subpackage."""
    packages: dict[str, PackageCoverage] = {}
    for name, file in report["files"].items():
        parts = Path(name).parts
        inside = parts[parts.index(PACKAGE) + 1 :]
        package = packages.setdefault(
            inside[0] if len(inside) > 1 else "(top)", PackageCoverage(Share(), Share())
        )
        summary = file["summary"]
        package.lines.covered += summary["covered_lines"]
        package.lines.of += summary["num_statements"]
        package.branches.covered += summary["covered_branches"]
        package.branches.of += summary["num_branches"]
    return packages


def table(packages: Mapping[str, PackageCoverage]) -> Iterable[str]:
    yield f"{'room':<12} {'lines':>16} {'branches':>16}"
    for name in (*CHECKED, *sorted(packages.keys() - set(CHECKED))):
        package = packages.get(name, PackageCoverage(Share(), Share()))
        shares = (
            f"{share.percent:6.1f} % of {share.of:5d}"
            for share in (package.lines, package.branches)
        )
        note = "" if name not in CHECKED or package.enough else f"  under {LEAST_PERCENT:.0f} %"
        yield f"{name:<12} {' '.join(shares)}{note}"


def main(path: str) -> int:
    packages = by_package(json.loads(Path(path).read_text(encoding="utf-8")))
    print("\n".join(table(packages)))
    missing = [name for name in CHECKED if name not in packages or not packages[name].enough]
    if missing:
        print(f"coverage under {LEAST_PERCENT:.0f} %: {', '.join(missing)}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
