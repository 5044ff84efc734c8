"""Write the golden files."""

from __future__ import annotations

from tests.golden import TABLES, as_text, observed, path

for name in TABLES:
    path(name).write_text(as_text(observed(name)), "utf-8")
    print(path(name))
