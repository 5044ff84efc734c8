"""Extract the code blocks of Markdown pages.

Blocks tagged `python` run in the order of the page. A comment on the line before a block changes
that: `compiled only: REASON`, `file: PATH` (a file of the user's project, in any language),
`pytest` (a test file of that project), `asyncio only`. A comment that begins with `hidden` contains
code that readers do not see; it runs in its place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

__all__ = ("PAGES", "ROOT", "Block", "Kind", "blocks_of", "commands_of", "write_project")

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))

FENCE = re.compile(r"(`{3,})(.*)")
COMMENT = re.compile(r"<!-- (compiled only: \S.*|file: [\w/.-]+\.\w+|pytest|asyncio only) -->")
HIDDEN = "<!-- hidden"
END_OF_HIDDEN = "-->"


class Kind(Enum):
    """Use of a block."""

    RUN = "run"
    RUN_ON_ASYNCIO = "asyncio only"
    FILE = "file"
    TEST_FILE = "pytest"
    COMPILE = "compiled only"


@dataclass(frozen=True, slots=True)
class Block:
    """A code block that begins at line `line`. `path` is the path of a project file."""

    page: Path
    line: int
    code: str
    kind: Kind
    path: str = ""

    @property
    def is_python(self) -> bool:
        return not self.path or self.path.endswith(".py")

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


PROMPT = "$ "


def commands_of(page: Path) -> list[tuple[int, str]]:
    """Return the commands at the prompts of `console` blocks, each with its line number."""
    found: list[tuple[int, str]] = []
    inside = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if fence := FENCE.match(line):
            inside = not inside and fence[2] == "console"
        elif inside and line.startswith(PROMPT):
            found.append((number, line.removeprefix(PROMPT)))
    return found


def blocks_of(page: Path) -> list[Block]:
    """Return the code blocks of a page, in order. Raises `ValueError` for an unclosed block."""
    found: list[Block] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    number, kind, path = 0, Kind.RUN, ""
    while number < len(lines):
        line = lines[number]
        number += 1
        fence = FENCE.match(line)
        if fence or line == HIDDEN:
            end = END_OF_HIDDEN if fence is None else fence[1]
            try:
                last = lines.index(end, number)
            except ValueError:
                raise ValueError(f"{page.name}:{number}: {line} has no end") from None
            if fence is None or fence[2] == "python" or kind is Kind.FILE:
                code = "\n".join(lines[number:last])
                use = (Kind.RUN, "") if fence is None else (kind, path)
                found.append(Block(page, number + 1, code, *use))
            number, kind, path = last + 1, Kind.RUN, ""
        elif comment := COMMENT.fullmatch(line):
            name, _, rest = comment[1].partition(": ")
            kind = Kind(name)
            path = rest if kind is Kind.FILE else ""
        elif line:
            kind, path = Kind.RUN, ""
    return found


def write_project(page: Path, folder: Path) -> None:
    """Write the project files of a page to a folder."""
    for block in blocks_of(page):
        if block.kind is Kind.FILE:
            file = folder / block.path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.code + "\n", encoding="utf-8")
