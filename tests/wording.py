"""Find wording that an outside reader has to read twice: a part of `make lint`.

It looks at identifiers, docstrings, comments, log lines and documents alike. Each area of the
repository has an agreed number of findings, which only falls. `ALLOWED` lists what stays, with a
reason. `python -m tests.wording aiokafkawire/group` prints the findings of a folder.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
from collections import Counter
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

AGREED: Mapping[str, int] = {
    "aiokafkawire/consumer": 0,
    "docs": 11,
    "pyspark_aiokafkawire": 1,
}
"""The most findings an area may have. Lower a number with the findings; never raise one."""

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


def area(path: str) -> str:
    """Return the package folder or top folder that a file counts for."""
    first, *rest = path.split("/")
    if first == "aiokafkawire":
        return "/".join([first, rest[0]]) if len(rest) > 1 else first
    return first if rest else "."


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


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.wording", description=__doc__)
    parser.add_argument("paths", nargs="*", help="print the findings below these paths")
    given = parser.parse_args(arguments)
    found = [one for path in _files() for one in findings(path, (ROOT / path).read_text("utf-8"))]
    for one in found:
        if any(Path(one.path).is_relative_to(path) for path in given.paths):
            print(one)
    counts = Counter(area(one.path) for one in found)
    over = {name: n for name, n in sorted(counts.items()) if n > AGREED.get(name, 0)}
    for name, count in over.items():
        print(f"{name}: {count} findings, {AGREED.get(name, 0)} agreed")
        print(f"  python -m tests.wording {name if name != '.' else '*.md'}  # shows them")
    return 1 if over else 0


if __name__ == "__main__":
    raise SystemExit(main())
