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


def test_a_finding_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "README.md"
    monkeypatch.setattr(wording, "ROOT", tmp_path)
    monkeypatch.setattr(wording, "_files", lambda: ["README.md"])
    page.write_text("The broker has reported it.\n")
    assert wording.main() == 0
    page.write_text("The broker has told so.\n")
    assert wording.main() == 1
    assert "README.md:1: 'told': write reported" in capsys.readouterr().out
