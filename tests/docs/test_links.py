"""Every page is listed, links are valid, and the API reference has every public name."""

from __future__ import annotations

import re

import pytest

import aiokafkawire

from .pages import PAGES, ROOT

DOCS = ROOT / "docs"
BLOB = "https://github.com/aiokafkawire/aiokafkawire/blob/main/"
"""Prefix of links to files of this repository, which the README must use."""
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
UNLISTED = {"README.md", "index.md", "changelog.md", "api.md"}
"""Pages missing in the list of pages: itself, and pages that only the built documentation has."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_point_to_existing_files_and_headings(page):
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


def test_readme_links_are_absolute():
    """The package index shows the README too, where relative links do not work."""
    links = LINK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


def test_every_page_is_listed():
    listed = {*LINK.findall((DOCS / "README.md").read_text(encoding="utf-8"))}
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert pages - UNLISTED == listed


def test_reference_has_every_public_name():
    reference = (DOCS / "api.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\.\. auto\w+:: aiokafkawire\.(\w+)$", reference, re.MULTILINE))
    # errors.md has the errors.
    assert documented == {*aiokafkawire.__all__} - {*aiokafkawire.errors.__all__, "__version__"}


def test_reference_has_no_duplicates():
    reference = (DOCS / "api.md").read_text(encoding="utf-8")
    documented = re.findall(r"^\.\. auto\w+:: (\S+)$", reference, re.MULTILINE)
    assert len(documented) == len({*documented})
