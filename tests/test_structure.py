"""The check of the structure finds what it should, and the internals page shows its figures."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from tests import structure

FIGURES = {"functions": 3, "lines of the tests": 10}


def trees(**sources: str) -> dict[str, ast.Module]:
    return {f"{name}.py": ast.parse(source) for name, source in sources.items()}


def test_a_figure_above_its_limit_is_reported() -> None:
    assert structure.exceeded(FIGURES, FIGURES) == []
    assert structure.exceeded(FIGURES, FIGURES | {"functions": 2}) == ["functions: 3, at most 2"]


def test_a_walk_may_meet_a_few_functions_of_other_tasks() -> None:
    limits = {"A commit: functions": 100}
    assert structure.exceeded({"A commit: functions": 103}, limits) == []
    assert structure.exceeded({"A commit: functions": 104}, limits) != []


def test_lines_have_no_limit() -> None:
    assert structure.exceeded(FIGURES, FIGURES | {"lines of the tests": 9}) == []


def test_limits_fall_only() -> None:
    assert structure.lowered(FIGURES, {"functions": 4}) == FIGURES
    assert structure.lowered(FIGURES, {"functions": 2})["functions"] == 2


def test_modules_that_import_each_other_are_a_circle() -> None:
    found = structure.import_circles(
        trees(a="from . import b", b="from .c import x", c="from aiokafkawire import a", d="")
    )
    assert found == [["a.py", "b.py", "c.py"]]


def test_imports_of_functions_and_for_types_are_no_circle() -> None:
    assert structure.import_circles(trees(a="from . import b", b="def f(): from . import a")) == []


def test_attributes_are_those_assigned_to_self() -> None:
    cls = ast.parse("class A:\n def f(self, b):\n  self.x = self.y = b.z = self.w").body[0]
    assert isinstance(cls, ast.ClassDef)
    assert structure.attributes(cls) == {"x", "y"}


def test_the_check_fails_above_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stored, page = tmp_path / "structure.json", tmp_path / "page.md"
    monkeypatch.setattr(structure, "PAGE", page)
    monkeypatch.setattr(structure, "STORED", stored)
    monkeypatch.setattr(structure, "modules", dict)
    monkeypatch.setattr(structure, "measure", lambda: FIGURES)
    monkeypatch.setattr(structure, "is_kernel_compiled", lambda: True)
    stored.write_text(json.dumps({"before": FIGURES, "now": FIGURES | {"functions": 2}}))
    assert structure.main([]) == 1
    assert "functions: 3, at most 2" in capsys.readouterr().err
    page.write_text("")
    assert structure.main(["--store"]) == 1
    stored.write_text(json.dumps({"before": FIGURES, "now": FIGURES | {"functions": 4}}))
    page.write_text(structure.table(json.loads(stored.read_text())))
    assert structure.main([]) == 0
    assert structure.main(["--store"]) == 0
    assert json.loads(stored.read_text())["now"] == FIGURES
    assert "| functions | 3 | 3 |" in page.read_text()


def test_the_other_kernel_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "is_kernel_compiled", lambda: False)
    assert structure.main([]) == 2


def test_sizes_need_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "is_kernel_compiled", lambda: False)
    monkeypatch.setattr(structure, "modules", dict)
    monkeypatch.setattr(structure, "sizes", lambda: {"import circles": 1})
    assert structure.main(["--sizes"]) == 1


def test_the_page_shows_the_stored_figures() -> None:
    stored = json.loads(structure.STORED.read_text(encoding="utf-8"))
    assert structure.table(stored) in structure.PAGE.read_text(encoding="utf-8")
