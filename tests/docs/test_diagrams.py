"""The drawings of the state diagrams are up to date."""

from __future__ import annotations

import pytest

from docs.diagrams import Diagram, diagrams_in, embed, to_dot

from .pages import ROOT

PAGES = {
    path.stem: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md"))
}
DIAGRAMS = [diagram for page, text in PAGES.items() for diagram in diagrams_in(page, text)]


@pytest.mark.parametrize("diagram", DIAGRAMS, ids=lambda diagram: diagram.path.stem)
def test_drawings_are_up_to_date(diagram: Diagram):
    assert diagram.is_drawn, "run `make diagrams`"


def test_every_drawing_belongs_to_a_diagram():
    drawings = {path.name for path in (ROOT / "docs" / "diagrams").glob("*.svg")}
    assert drawings == {diagram.path.name for diagram in DIAGRAMS}


def test_diagram_is_replaced_by_its_drawing():
    page = "one\n```mermaid\nstateDiagram-v2\n```\ntwo\n```mermaid\nstateDiagram-v2\n```\n"
    assert embed("groups", page) == (
        "one\n[![State diagram](diagrams/groups-1.svg)](diagrams/groups-1.svg)\n"
        "two\n[![State diagram](diagrams/groups-2.svg)](diagrams/groups-2.svg)\n"
    )


def test_mermaid_is_translated_to_dot():
    dot = to_dot(
        "stateDiagram-v2\n"
        "    [*] --> Idle\n"
        "    state Open {\n        Reading\n        Writing\n    }\n"
        "    Idle --> Open: A, B, C\n"
        "    Reading --> [*]\n"
    )
    assert 'subgraph "cluster_Open"' in dot
    assert '"Idle" -> "Reading" [label=" A\\land 2 more\\l", lhead="cluster_Open"]' in dot
    assert dot.count("shape=circle") == 1
    assert dot.count("shape=doublecircle") == 1
