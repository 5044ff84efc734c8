"""The page about the house names the rooms and machines that there are, and no others."""

from __future__ import annotations

import importlib
import re

from .pages import ROOT

PACKAGE = ROOT / "aiokafkawire"
PAGE = (ROOT / "docs" / "house.md").read_text(encoding="utf-8")
PATH = re.compile(r"`([\w/]+(?:\.py|/))`")


def test_each_room_has_its_row():
    rooms = {f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")}
    assert rooms <= {*re.findall(r"^\| `(\w+/)` \|", PAGE, re.MULTILINE)}


def test_each_machine_with_a_table_has_its_row():
    machines = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if re.search(r"^TRANSITIONS\b", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    rows = re.findall(r"^\| `.*$", PAGE, re.MULTILINE)
    assert machines <= {path for row in rows for path in PATH.findall(row)}


def test_what_is_named_exists():
    named = {name.rstrip("/") for name in PATH.findall(PAGE)}
    present = [str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*")]
    missing = {
        name
        for name in named
        if not any(path == name or path.endswith(f"/{name}") for path in present)
    }
    assert missing == set()


def test_each_word_names_what_there_is():
    rows = re.findall(r"^\| ([a-z]+) \| [^|]+ \| (`.+) \|$", PAGE, re.MULTILINE)
    words = [word for word, _ in rows]
    assert words == sorted(set(words))
    assert len(words) > 30
    for word, places in rows:
        found = re.findall(r"`([\w.]+)` in `([\w/]+)\.py`", places)
        assert len(found) == places.count(" in "), word
        for name, path in found:
            there = importlib.import_module(f"aiokafkawire.{path.replace('/', '.')}")
            for part in name.split("."):
                assert hasattr(there, part), f"{word}: {name} in {path}.py"
                there = getattr(there, part)
