"""The pages hang together: each is listed, links lead somewhere, every public name is told."""

from __future__ import annotations

import re

import pytest

import aiokafkawire

from .pages import PAGES, ROOT

DOCS = ROOT / "docs"
BLOB = "https://github.com/aiokafkawire/aiokafkawire/blob/main/"
"""Where a file of this repository is shown: the README has links of this kind alone."""
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
UNLISTED = {"README.md", "index.md", "changelog.md", "api.md"}
"""Pages that the list of pages does not name: itself, and what only the built pages have."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page):
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        target, _, heading = link.partition("#")
        if target.startswith(BLOB):
            path = ROOT / target.removeprefix(BLOB)
        elif "://" in target:
            continue
        else:
            path = (page.parent / target).resolve() if target else page
        assert path.exists(), link
        if heading:
            headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = [re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings]
            assert heading in slugs, link


def test_links_of_the_readme_are_absolute():
    """A package index shows it too, where relative links lead nowhere."""
    links = LINK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


def test_every_page_is_listed():
    listed = {*LINK.findall((DOCS / "README.md").read_text(encoding="utf-8"))}
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert pages - UNLISTED == listed


def test_every_public_name_stands_in_the_reference():
    reference = (DOCS / "api.md").read_text(encoding="utf-8")
    told = set(re.findall(r"^\.\. auto\w+:: aiokafkawire\.(\w+)$", reference, re.MULTILINE))
    # Errors have a page of their own.
    assert told == {*aiokafkawire.__all__} - {*aiokafkawire.errors.__all__, "__version__"}


def test_nothing_stands_in_the_reference_twice():
    reference = (DOCS / "api.md").read_text(encoding="utf-8")
    told = re.findall(r"^\.\. auto\w+:: (\S+)$", reference, re.MULTILINE)
    assert len(told) == len({*told})
