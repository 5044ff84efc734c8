"""Run the admin client's tests of behaviour on each release of Kafka, and print a table.

python -m tests.behaviour.admin_releases [--write] [RELEASE ...]

One release runs after the other, on one node. `--write` replaces the table of
docs/compatibility.md.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.behaviour.features import MATRIX

__all__ = ("FROM", "PAGE", "Outcome", "read_report", "run_release", "table")

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs" / "compatibility.md"
FROM = "<!-- from: make test-admin-releases -->\n"

TIMEOUT_S = 900.0
"""Limit of the tests on one release."""

REASON = re.compile(r"not on [\d.]+: (?P<has>it has )?(?P<feature>[^(,]+?)(?: \(|, since)")
"""Reason of a skipped test; see `features.not_applicable`."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Results of the tests on one release.

    Attributes:
        release: The release.
        passed: Number of tests.
        failed: Names of tests.
        lacking: Skipped tests by the feature, or by another thing, that they miss.
        having: Skipped tests by feature; they are about releases without it.
    """

    release: str
    passed: int
    failed: tuple[str, ...]
    lacking: Counter[str]
    having: Counter[str]

    @property
    def skipped(self) -> int:
        return self.lacking.total() + self.having.total()


def read_report(release: str, path: Path) -> Outcome:
    """Read the XML report of pytest."""
    passed, failed = 0, []
    lacking: Counter[str] = Counter()
    having: Counter[str] = Counter()
    for case in ET.parse(path).iter("testcase"):
        reason = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(case.get("name", ""))
        elif reason is None:
            passed += 1
        else:
            message = reason.get("message", "")
            found = REASON.match(message)
            counter = having if found and found["has"] else lacking
            counter[found["feature"] if found else message] += 1
    return Outcome(release, passed, tuple(failed), lacking, having)


def run_release(release: str) -> Outcome:
    """Run the tests on a release; its cluster ends with them."""
    files = sorted(map(str, HERE.glob("test_admin*.py")))
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", *files, "--on", release, "-n", "0", "-q"]
        done = subprocess.run(
            [*command, f"--junitxml={report}"],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if not report.exists():
            raise RuntimeError(f"pytest ended with {done.returncode}:\n{done.stdout}")
        outcome = read_report(release, report)
    if outcome.failed or done.returncode:
        print(done.stdout, flush=True)
    return outcome


def table(outcomes: Iterable[Outcome]) -> str:
    """Return the table in docs/compatibility.md."""
    rows = [
        ["Kafka", "passed", "failed", "skipped", "as it lacks", "as it has"],
        ["---", "--:", "--:", "--:", "---", "---"],
    ]
    for each in outcomes:
        numbers = (each.passed, len(each.failed), each.skipped)
        reasons = (_listed(each.lacking), _listed(each.having))
        rows.append([each.release, *map(str, numbers), *reasons])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _listed(counts: Counter[str]) -> str:
    features = [
        name if count == 1 else f"{name} ({count})" for name, count in sorted(counts.items())
    ]
    return ", ".join(features) or "–"


def write(text: str) -> None:
    """Replace the table of the page."""
    before, _, after = PAGE.read_text(encoding="utf-8").partition(FROM)
    _, _, rest = after.lstrip("\n").partition("\n\n")
    PAGE.write_text(f"{before}{FROM}\n{text}\n\n{rest}", encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("python -m tests.behaviour.admin_releases")
    parser.add_argument("releases", nargs="*", metavar="RELEASE", help="by default all")
    parser.add_argument("--write", action="store_true", help=f"replace the table in {PAGE.name}")
    given = parser.parse_args(arguments)
    if given.write and given.releases:
        parser.error("--write needs all releases")
    outcomes = []
    for release in given.releases or MATRIX:
        outcomes.append(run_release(release))
        print(table(outcomes[-1:]).splitlines()[-1], flush=True)
    if given.write:
        write(table(outcomes))
    return int(any(each.failed or not each.passed for each in outcomes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
