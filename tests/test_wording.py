"""The check of wording finds what it should, and nothing in plain English."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import wording


def found(text: str, path: str = "aiokafkawire/group/x.py") -> list[tuple[int, str]]:
    return [(one.line, one.wording) for one in wording.findings(path, text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = told_by", [(1, "told")]),
        ("class ErrorTold: pass", [(1, "told")]),
        ("def is_untold(): pass", [(1, "untold")]),
        ("\n# Whoever waits,\n", [(2, "whoever")]),
        ("log('the broker tells of it')", [(1, "tells")]),
        ("# so many\n# of them", [(1, "so many")]),
        ("# the log of\n# which nothing is left", [(1, "of which")]),
        ("self._let_go()", [(1, "let_go")]),
    ],
)
def test_words_are_found_in_names_comments_and_texts(text: str, expected: list) -> None:
    assert found(text) == expected


@pytest.mark.parametrize(
    "text", ["# so many that it fails", "# so long as it is open", "unfold = toldt = 1", "# retold"]
)
def test_plain_english_is_left_alone(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize("opening", ["What", "Whether", "How", "Where", "Who"])
def test_openings_of_docstrings_are_found(opening: str) -> None:
    text = f'"""Module."""\n\ndef f():\n    """{opening} it is."""\n'
    assert found(text) == [(3, "docstring opening")]
    assert found(text.replace(opening, "Return what")) == []


def test_a_document_has_no_docstrings() -> None:
    assert found("How to begin\n", "docs/x.md") == []


def test_areas_are_packages_and_top_folders() -> None:
    assert wording.area("aiokafkawire/group/assignors/sticky.py") == "aiokafkawire/group"
    assert wording.area("aiokafkawire/types.py") == "aiokafkawire"
    assert wording.area("tests/group/test_commits.py") == "tests"
    assert wording.area("README.md") == "."


def test_more_than_agreed_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "README.md").write_text("The broker has told so.\n")
    monkeypatch.setattr(wording, "ROOT", tmp_path)
    monkeypatch.setattr(wording, "_files", lambda: ["README.md"])
    monkeypatch.setattr(wording, "AGREED", {".": 1})
    assert wording.main([]) == 0
    monkeypatch.setattr(wording, "AGREED", {})
    assert wording.main(["README.md"]) == 1
    shown = capsys.readouterr().out
    assert "README.md:1: 'told': write reported" in shown
    assert ".: 1 findings, 0 agreed" in shown
