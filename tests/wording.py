"""Find wording that an outside reader has to read twice: a part of `make lint`.

It looks at identifiers, docstrings, comments, log lines and documents alike. Any finding fails,
except those that `ALLOWED` lists with a reason.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]

ADVICE: Mapping[str, str] = {
    "told": "reported, returned, logged",
    "tell": "report, return, log, say",
    "tells": "reports, returns, says",
    "untold": "unreported",
    "heard": "received",
    "anew": "again, recreated",
    "whoever": "the caller, the task that",
    "mend": "fix, recover",
    "mends": "fixes, recovers",
    "mended": "fixed, reverted",
    "befall": "happen to",
    "goodbye": "leave, close",
    "errand": "request, task",
    "so many": "the number",
    "so long": "the time",
    "so often": "the number of times",
    "of which": "two sentences",
    "that which": "what, the one that",
    "is to be": "must be, will be",
    "let go": "release",
    "lets go": "releases",
    "let_go": "release",
}
"""The wording to avoid, and what to write instead."""

OPENINGS = frozenset({"What", "Whether", "How", "Where", "Who"})
"""A docstring opens with an imperative or a noun phrase instead."""

ALLOWED: Sequence[tuple[str, str, str]] = (
    ("tests/wording.py", "*", "the list itself"),
    ("tests/test_wording.py", "*", "examples of the list"),
    ("tests/brokers/process.py", "tell", "the method of files"),
)
"""(path, wording or "*", reason)."""

_WORDS = re.compile(
    r"(?<![a-zA-Z])("
    + "|".join(sorted((w.replace(" ", r"[\s#]+") for w in ADVICE), key=len, reverse=True))
    # "so many that" and "so long as" are plain English.
    + r")(?![a-zA-Z])(?!\s+(?:that|as)\b)"
    # Names of classes.
    r"|(?-i:(?<=[a-z])(Told|Untold|Heard|Anew|Errand)(?![a-z]))",
    re.IGNORECASE,
)


class Finding(NamedTuple):
    """One place. `line` counts from 1; `wording` is a key of `ADVICE` or "docstring opening"."""

    path: str
    line: int
    wording: str
    shown: str

    def __str__(self) -> str:
        advice = ADVICE.get(self.wording, "an imperative or a noun phrase")
        return f"{self.path}:{self.line}: {self.shown!r}: write {advice}"


def findings(path: str, text: str) -> Iterator[Finding]:
    """Yield the findings of one file that no entry of `ALLOWED` covers."""
    found = [*_words(path, text), *(_openings(path, text) if path.endswith(".py") else ())]
    allowed = [wording for place, wording, _ in ALLOWED if place == path]
    for one in sorted(found):
        if "*" not in allowed and one.wording not in allowed:
            yield one


def _words(path: str, text: str) -> Iterator[Finding]:
    for match in _WORDS.finditer(text):
        wording = re.sub(r"[\s#]+", " ", match.group().lower())
        yield Finding(path, text.count("\n", 0, match.start()) + 1, wording, match.group())


def _openings(path: str, text: str) -> Iterator[Finding]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, documented) and (doc := ast.get_docstring(node)):
            opening = re.split(r"\W", doc, maxsplit=1)[0]
            if opening in OPENINGS:
                yield Finding(path, getattr(node, "lineno", 1), "docstring opening", opening)


def _files() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "*.py", "*.pxd", "*.md"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return [path for path in listed.stdout.splitlines() if (ROOT / path).is_file()]


def main() -> int:
    found = [one for path in _files() for one in findings(path, (ROOT / path).read_text("utf-8"))]
    for one in found:
        print(one)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
