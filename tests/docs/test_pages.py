from __future__ import annotations

import ast
import re
import shlex
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from .pages import PAGES, ROOT, Block, Kind, blocks_of, commands_of, write_project

PAGE = """\
# A page

```python
first = 1
second = 2
```

<!-- hidden
third = 3
-->
```console
$ not python
```

<!-- compiled only: it needs a cluster of its own -->

```python
far_away()
```
<!-- pytest -->
```python
def test_it(): ...
```
<!-- asyncio only -->
```python
import asyncio
```
<!-- file: shop/app.py -->
```python
app = 1
```
<!-- file: shop/order.avsc -->
```json
{}
```
<!-- compiled only: but there is text in between -->
Text.
````python
```
````
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return tmp_path / "page.md"


def test_blocks_are_in_order_with_their_lines_and_kinds(page: Path):
    page.write_text(PAGE)
    blocks = blocks_of(page)
    assert [(block.line, block.kind) for block in blocks] == [
        (4, Kind.RUN),
        (9, Kind.RUN),
        (18, Kind.COMPILE),
        (22, Kind.TEST_FILE),
        (26, Kind.RUN_ON_ASYNCIO),
        (30, Kind.FILE),
        (34, Kind.FILE),
        (39, Kind.RUN),
    ]
    assert blocks[0].code == "first = 1\nsecond = 2"
    assert blocks[1].code == "third = 3"
    assert blocks[7].code == "```"
    assert [block.path for block in blocks if block.path] == ["shop/app.py", "shop/order.avsc"]
    assert [block.is_python for block in blocks].count(False) == 1


def test_project_files_are_written(page: Path, tmp_path: Path):
    page.write_text(PAGE)
    write_project(page, tmp_path / "project")
    shop = tmp_path / "project" / "shop"
    written = {path for path in (tmp_path / "project").rglob("*") if path.is_file()}
    assert written == {shop / "app.py", shop / "order.avsc"}
    assert (shop / "app.py").read_text() == "app = 1\n"
    assert (shop / "order.avsc").read_text() == "{}\n"


def test_commands_are_at_the_prompts_of_console_blocks(page: Path):
    page.write_text("```console\n$ one -a\noutput\n$ two\n```\n```text\n$ three\n```\n$ four\n")
    assert commands_of(page) == [(2, "one -a"), (4, "two")]


@pytest.mark.parametrize("beginning", ["```python", "<!-- hidden"])
def test_block_without_an_end_is_an_error(page: Path, beginning: str):
    page.write_text(f"{beginning}\ncode\n")
    with pytest.raises(ValueError, match=r"page\.md:1: .* has no end"):
        blocks_of(page)


def test_compiled_only_needs_a_reason(page: Path):
    page.write_text("<!-- compiled only: -->\n```python\nx\n```\n")
    assert blocks_of(page)[0].kind is Kind.RUN


def test_every_page_is_found():
    names = {page.name for page in PAGES}
    assert {"README.md", "producer.md", "consumer.md", "broker.md"} <= names
    assert any(blocks_of(page) for page in PAGES)


@pytest.mark.parametrize("page", ["lifecycle", "recipes/dead-letters", "recipes/kubernetes"])
def test_commit_of_a_worker_that_stops_on_sigterm_has_a_short_timeout(page: str):
    workers = [
        block.code
        for block in blocks_of(ROOT / "docs" / f"{page}.md")
        if "await consumer.commit(" in block.code
    ]
    assert workers
    for worker in workers:
        assert "default_api_timeout_ms=10_000,  # maximum wait of" in worker


# --- recipes name their files and the packages to install ---

RECIPES = sorted((ROOT / "docs" / "recipes").glob("*.md"))
CLIENT_PACKAGES = {"aiokafkawire", "anyio"}


def files_of(recipe: Path) -> list[Block]:
    return [block for block in blocks_of(recipe) if block.kind in {Kind.FILE, Kind.TEST_FILE}]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.stem)
def test_file_name_is_above_each_file(recipe: Path):
    lines = recipe.read_text(encoding="utf-8").splitlines()
    files = files_of(recipe)
    assert files
    for block in files:
        # The file name, an empty line, the comment, the fence, and the block.
        shown = lines[block.line - 5]
        expected = r"test_\w+\.py" if block.kind is Kind.TEST_FILE else re.escape(block.path)
        assert re.fullmatch(rf"`{expected}`.*:", shown), f"{block}: {shown}"


def imported_by(block: Block) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(block.code)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def distributions_of(recipe: Path) -> list[set[str]]:
    """Return the distributions that provide each import of a recipe: one of each set is enough."""
    blocks = [block for block in files_of(recipe) if block.is_python]
    own = {block.path.removesuffix(".py").partition("/")[0] for block in blocks}
    names = set().union(*(imported_by(block) for block in blocks))
    known = packages_distributions()
    return [
        {name.lower().replace("_", "-") for name in known[module]}
        for module in names - own - CLIENT_PACKAGES - sys.stdlib_module_names
    ]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.stem)
def test_recipe_lists_the_packages_to_install(recipe: Path):
    given = {
        word.partition("[")[0]
        for _, text in commands_of(recipe)
        if text.startswith("pip install ")
        for word in shlex.split(text)[2:]
    }
    code = "".join(block.code for block in files_of(recipe))
    if "pytest.mark.anyio" in code and "def anyio_backend" not in code:
        assert "trio" in given  # anyio's plugin runs these tests on trio too
    assert [any_of for any_of in distributions_of(recipe) if not any_of & given] == []
