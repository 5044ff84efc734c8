from __future__ import annotations

from pathlib import Path

import pytest

from .pages import PAGES, Kind, blocks_of, commands_of, write_project

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


def test_blocks_come_in_order_with_their_lines_and_kinds(page: Path):
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


def test_the_files_of_a_page_are_written(page: Path, tmp_path: Path):
    page.write_text(PAGE)
    write_project(page, tmp_path / "project")
    shop = tmp_path / "project" / "shop"
    written = {path for path in (tmp_path / "project").rglob("*") if path.is_file()}
    assert written == {shop / "app.py", shop / "order.avsc"}
    assert (shop / "app.py").read_text() == "app = 1\n"
    assert (shop / "order.avsc").read_text() == "{}\n"


def test_commands_stand_at_a_prompt_of_a_console(page: Path):
    page.write_text("```console\n$ one -a\noutput\n$ two\n```\n```text\n$ three\n```\n$ four\n")
    assert commands_of(page) == [(2, "one -a"), (4, "two")]


@pytest.mark.parametrize("beginning", ["```python", "<!-- hidden"])
def test_a_block_without_an_end_is_refused(page: Path, beginning: str):
    page.write_text(f"{beginning}\ncode\n")
    with pytest.raises(ValueError, match=r"page\.md:1: .* has no end"):
        blocks_of(page)


def test_a_reason_is_asked_for(page: Path):
    page.write_text("<!-- compiled only: -->\n```python\nx\n```\n")
    assert blocks_of(page)[0].kind is Kind.RUN


def test_every_page_is_found():
    names = {page.name for page in PAGES}
    assert {"README.md", "producer.md", "consumer.md", "broker.md"} <= names
    assert any(blocks_of(page) for page in PAGES)
