from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import coverage_by_package


def file(lines: int, of_lines: int, branches: int, of_branches: int) -> dict[str, object]:
    return {
        "summary": {
            "covered_lines": lines,
            "num_statements": of_lines,
            "covered_branches": branches,
            "num_branches": of_branches,
        }
    }


def report(**changed: dict[str, object]) -> dict[str, object]:
    files = {
        f"aiokafkawire/{package}/a.py": file(95, 100, 19, 20)
        for package in coverage_by_package.CHECKED
    }
    files |= {f"aiokafkawire/{package}/a.py": entry for package, entry in changed.items()}
    return {"files": files}


def test_files_of_a_package_are_summed() -> None:
    found = report()
    found["files"]["aiokafkawire/group/sub/b.py"] = file(5, 100, 0, 0)  # type: ignore[index]
    found["files"]["aiokafkawire/config.py"] = file(1, 1, 0, 0)  # type: ignore[index]
    summed = coverage_by_package.by_package(found)
    assert summed["group"].lines.percent == 50
    assert summed["group"].branches.percent == 95
    assert summed["(top)"].branches.percent == 100


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({}, 0),
        ({"wire": file(89, 100, 20, 20)}, 1),
        ({"consumer": file(100, 100, 17, 20)}, 1),
        ({"cli": file(1, 100, 0, 20)}, 0),
    ],
)
def test_a_package_with_low_coverage_fails(
    changed: dict[str, dict[str, object]],
    code: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "coverage.json"
    path.write_text(json.dumps(report(**changed)))
    assert coverage_by_package.main(str(path)) == code
    printed = capsys.readouterr()
    assert all(package in printed.out for package in coverage_by_package.CHECKED)
    assert bool(printed.err) == bool(code)


def test_a_package_without_files_fails(tmp_path: Path) -> None:
    path = tmp_path / "coverage.json"
    path.write_text(json.dumps({"files": {}}))
    assert coverage_by_package.main(str(path)) == 1
