"""The table of Admin's tests in docs/compatibility.md, and the command that makes it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.behaviour.admin_releases import FROM, PAGE, Outcome, read_report, table
from tests.behaviour.features import FEATURES, MATRIX

REPORT = """<testsuites><testsuite>
<testcase name="a"/>
<testcase name="b"><failure message="no"/></testcase>
<testcase name="c"><skipped message="not on 0.9.0.1: local offsets (from 3.9 on); all"/></testcase>
<testcase name="d"><skipped message="not on 2.8.2: it has quotas, since 2.6"/></testcase>
<testcase name="e"><skipped message="not on 0.9.0.1: local offsets (from 3.9 on); all"/></testcase>
<testcase name="f"><skipped message="no Java"/></testcase>
</testsuite></testsuites>"""


def test_a_report_is_read(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    path.write_text(REPORT, encoding="utf-8")
    lacking, having = Counter({"local offsets": 2, "no Java": 1}), Counter({"quotas": 1})
    outcome = read_report("0.9.0.1", path)
    assert outcome == Outcome("0.9.0.1", 1, ("b",), lacking, having)
    row = "| 0.9.0.1 | 1 | 1 | 4 | local offsets (2), no Java | quotas |"
    assert table([outcome]).splitlines()[-1] == row


def test_the_page_has_a_result_of_each_release_without_failures() -> None:
    _, _, after = PAGE.read_text(encoding="utf-8").partition(FROM)
    rows = [line.strip("| ").split(" | ") for line in after.strip().split("\n\n")[0].splitlines()]
    assert [row[0] for row in rows[2:]] == list(MATRIX)
    assert {row[2] for row in rows[2:]} == {"0"}
    # Only features explain a skipped test: a missing Java does not.
    cells = [cell for row in rows[2:] for cell in row[-2:] if cell != "–"]
    assert {each.partition(" (")[0] for cell in cells for each in cell.split(", ")} <= {*FEATURES}
