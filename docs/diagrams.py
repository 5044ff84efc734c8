"""Draw the Mermaid state diagrams of the pages as SVG, with Graphviz: `make diagrams`.

Code hosts render Mermaid themselves. Sphinx shows the drawings in docs/diagrams/, so that building
the pages needs no tool beyond Python. Each drawing contains the digest of its diagram, and a test
compares the two.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

__all__ = ("Diagram", "diagrams_in", "embed", "main", "to_dot")

DOCS = Path(__file__).parent
FOLDER = "diagrams"
BLOCK = re.compile(r"^```mermaid\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
TRANSITION = re.compile(r"(\S+) --> (\S+?)(?:: (.*))?$")
GROUP = re.compile(r"state (\w+) \{$")
MAX_EVENTS = 2
"""Maximum events in a label; the table below the diagram lists all."""
STYLE = """\
    fontname="Helvetica"; fontsize=12; compound=true; nodesep=0.35; ranksep=0.45
    node [shape=box, style="rounded,filled", fillcolor="#eef2fb", color="#4a5f8f"]
    node [fontname="Helvetica", fontsize=12]
    edge [fontname="Helvetica", fontsize=9, color="#5b6472", fontcolor="#2d3440", arrowsize=0.7]
"""


class Diagram(NamedTuple):
    """A Mermaid block of a page, and the file of its drawing."""

    page: str
    number: int
    source: str

    @property
    def path(self) -> Path:
        return DOCS / FOLDER / f"{self.page}-{self.number}.svg"

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.source.encode()).hexdigest()

    @property
    def is_drawn(self) -> bool:
        """Return true if the file is a drawing of the current diagram."""
        return self.path.exists() and self.digest in self.path.read_text(encoding="utf-8")


def diagrams_in(page: str, text: str) -> list[Diagram]:
    """Return the Mermaid diagrams of a page, in order."""
    return [Diagram(page, n, match[1]) for n, match in enumerate(BLOCK.finditer(text), 1)]


def embed(page: str, text: str) -> str:
    """Replace each Mermaid block of a page by its drawing, linked to the full size."""
    return BLOCK.sub(partial(_image, page, itertools.count(1)), text)


def _image(page: str, numbers: Iterator[int], _block: re.Match[str]) -> str:
    path = f"{FOLDER}/{page}-{next(numbers)}.svg"
    return f"[![State diagram]({path})]({path})\n"


def to_dot(source: str) -> str:
    """Translate a Mermaid state diagram (states, groups, labelled transitions) to Graphviz."""
    lines = source.splitlines()
    members = dict(_members(lines))
    first = {group: states[0] for group, states in members.items()}
    out = ["digraph states {", STYLE]
    for group, states in members.items():
        out.append(f'    subgraph "cluster_{group}" {{')
        out.append(f'        label="{group}"; style="rounded,dashed"; color="#9aa5b8"')
        out += [f'        "{state}"' for state in states]
        out.append("    }")
    for line in lines:
        match = TRANSITION.search(line)
        if match is not None:
            out.append(_edge(match, first))
    return "\n".join([*out, "}", ""])


def _members(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    group, states = None, []
    for line in map(str.strip, lines):
        match = GROUP.match(line)
        if match is not None:
            group, states = match[1], []
        elif line == "}" and group is not None:
            yield group, states
            group = None
        elif group is not None:
            states.append(line)


def _edge(match: re.Match[str], first: dict[str, str]) -> str:
    start, end, label = match.groups()
    marks = [f'label=" {_shortened(label)}"'] if label else []
    if start in first:
        marks.append(f'ltail="cluster_{start}"')
    if end in first:
        marks.append(f'lhead="cluster_{end}"')
    ends = [_node(first.get(name, name), is_start=name is start) for name in (start, end)]
    declared = "".join(f"{node} [{form}]; " for node, form in ends if form)
    return f"    {declared}{ends[0][0]} -> {ends[1][0]} [{', '.join(marks)}]"


def _node(name: str, *, is_start: bool) -> tuple[str, str]:
    if name != "[*]":
        return f'"{name}"', ""
    shape = "circle" if is_start else "doublecircle"
    form = f'shape={shape}, label="", width=0.15, style=filled, fillcolor="#2d3440"'
    return ('"(start)"' if is_start else '"(end)"'), form


def _shortened(label: str) -> str:
    events = label.split(", ")
    if len(events) > MAX_EVENTS:
        events[MAX_EVENTS - 1 :] = [f"and {len(events) - MAX_EVENTS + 1} more"]
    return "".join(f"{event}\\l" for event in events)


def _draw(dot: str) -> str:
    command = ["dot", "-Tsvg"]
    return subprocess.run(command, input=dot, stdout=subprocess.PIPE, text=True, check=True).stdout


def main() -> int:
    """Draw new and changed diagrams; return the exit code."""
    pages = {path.stem: path.read_text(encoding="utf-8") for path in sorted(DOCS.glob("*.md"))}
    found = [diagram for page, text in pages.items() for diagram in diagrams_in(page, text)]
    outdated = [diagram for diagram in found if not diagram.is_drawn]
    if outdated and shutil.which("dot") is None:
        print("Graphviz is missing: install it (Debian: apt-get install graphviz)", file=sys.stderr)
        return 2
    (DOCS / FOLDER).mkdir(exist_ok=True)
    for path in (DOCS / FOLDER).glob("*.svg"):
        if path not in {diagram.path for diagram in found}:
            path.unlink()
    for diagram in outdated:
        drawing = _draw(to_dot(diagram.source))
        mark = f"<!-- sha256 of the diagram: {diagram.digest} -->\n<svg "
        diagram.path.write_text(drawing.replace("<svg ", mark, 1), encoding="utf-8")
        print(f"drawn: docs/{FOLDER}/{diagram.path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
