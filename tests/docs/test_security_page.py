"""The texts of errors in docs/security.md are those of the code."""

from __future__ import annotations

import re

import pytest

from aiokafkawire import errors

from .pages import ROOT

PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("| Text of the error |")[2].partition("\n\n")[0]

SOURCES = [
    *(ROOT / "aiokafkawire" / "security").glob("*.py"),
    *(ROOT / "aiokafkawire" / "connection").glob("*.py"),
]
# Literals that follow each other are one text.
CODE = "".join(re.sub(r'"\s*\n\s*f?"', "", path.read_text(encoding="utf-8")) for path in SOURCES)

TEXTS = [
    text
    for line in TABLE.splitlines()
    for text in re.findall(r"`([^`]+)`", line.strip("|").partition(" | ")[0])
]


def test_the_table_has_texts() -> None:
    assert len(TEXTS) > 15


@pytest.mark.parametrize("text", TEXTS)
def test_the_text_of_an_error_is_in_the_code(text: str) -> None:
    if text in errors.__all__:
        return
    # A mechanism, an option or a value stands in front of, or instead of, what the code has.
    plain = re.sub(r"^(?:PLAIN|SCRAM-SHA-512|OAUTHBEARER|ssl_…)[: ]*", "", text)
    parts = [part.strip(" ;") for part in re.split("…|'", plain) if part.strip(" ;")]
    assert parts or text == "OAUTHBEARER: …"
    for part in parts:
        assert part in CODE
