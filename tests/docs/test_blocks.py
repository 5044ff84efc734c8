"""Every Python block in the README and the documentation runs."""

from __future__ import annotations

import ast
import inspect
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import anyio
import pytest
import sniffio

import aiokafkawire
from aiokafkawire import Broker

from .pages import PAGES, ROOT, Block, Kind, blocks_of, write_project

pytestmark = pytest.mark.slow

LIMIT_S = 60.0
"""Timeout for the blocks of a page."""

WRITTEN_ADDRESS = "localhost:9092"
"""Address in the pages; replaced by that of the test's broker."""

WRITTEN_RUN = "asyncio.run(main())"
"""Replaced by `await main()`, because the test already runs in an event loop."""

NODES = 3

BLOCKS = {page: blocks_of(page) for page in PAGES}


@pytest.fixture(autouse=True)
def log_levels() -> Iterator[None]:
    """Restore the log levels that pages change, because later tests check log lines."""
    before = {name: logger.level for name, logger in loggers().items()}
    handlers = list(logging.root.handlers)
    yield
    for name, logger in loggers().items():
        logger.setLevel(before.get(name, logging.NOTSET))
    logging.root.handlers[:] = handlers


def loggers() -> dict[str, logging.Logger]:
    names = [name for name in logging.root.manager.loggerDict if name.startswith("aiokafkawire")]
    return {"": logging.root} | {name: logging.getLogger(name) for name in names}


class Done(BaseException):
    """Ends a block with an endless loop. Not an `Exception`, so that no block handles it."""


async def bill(*_: object) -> None:
    """End the block: pages call this for each record."""
    raise Done


def compiled(block: Block, code: str) -> CodeType:
    """Compile a block, with the line numbers of its page and top-level `await`."""
    tree = ast.parse(code, filename=str(block))
    ast.increment_lineno(tree, block.line - 1)
    return compile(
        tree, str(block.page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
    )


async def run_block(block: Block, address: str, namespace: dict[str, Any]) -> None:
    """Run a block in the namespace of its page. Exceptions get a note with the place."""
    text = block.code.replace(WRITTEN_ADDRESS, address).replace(WRITTEN_RUN, "await main()")
    code = compiled(block, text)
    try:
        awaited = eval(code, namespace)
        if inspect.iscoroutine(awaited):
            await awaited
    except Done:
        return
    except Exception as error:
        error.add_note(f"in the block at {block}")
        raise


async def run_page(blocks: list[Block]) -> int:
    """Run the blocks of a page in order, on a new broker; return their number."""
    kinds = {Kind.RUN}
    if sniffio.current_async_library() == "asyncio":
        kinds.add(Kind.RUN_ON_ASYNCIO)
    wanted = [block for block in blocks if block.kind in kinds]
    async with Broker(NODES) as broker:
        namespace: dict[str, Any] = {
            name: getattr(aiokafkawire, name)
            for name in aiokafkawire.__all__
            if not name.startswith("_")
        }
        namespace |= {
            "__name__": "page",
            "Done": Done,
            "bill": bill,
            "bootstrap_servers": broker.bootstrap_servers,
            "broker": broker,
        }
        for block in wanted:
            await run_block(block, broker.bootstrap_servers, namespace)
    return len(wanted)


def pages_with(*kinds: Kind) -> list[Any]:
    return [
        pytest.param(blocks, id=str(page.relative_to(ROOT)))
        for page, blocks in BLOCKS.items()
        if any(block.kind in kinds for block in blocks)
    ]


@pytest.mark.parametrize("blocks", pages_with(Kind.RUN, Kind.RUN_ON_ASYNCIO))
async def test_blocks_of_a_page_run(blocks: list[Block]):
    with anyio.fail_after(LIMIT_S):
        assert await run_page(blocks)


@pytest.mark.parametrize("blocks", pages_with(*Kind))
def test_every_block_compiles(blocks: list[Block]):
    assert all(compiled(block, block.code) for block in blocks if block.is_python)


@pytest.mark.slow
@pytest.mark.parametrize(
    "block",
    [
        pytest.param(block, id=str(block))
        for blocks in BLOCKS.values()
        for block in blocks
        if block.kind is Kind.TEST_FILE
    ],
)
def test_test_files_of_a_page_pass(block: Block, tmp_path: Path):
    write_project(block.page, tmp_path)
    (tmp_path / "test_of_page.py").write_text(block.code + "\n")
    # Both plugins run coroutine tests; a user has one of them.
    other = "anyio" if "pytest_asyncio" in block.code else "asyncio"
    plugins = ["-p", "no:cacheprovider", "-p", f"no:{other}"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, "test_of_page.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, f"{block}\n{ran.stdout}{ran.stderr}"


# --- tests of the functions above ---


def block_of(code: str) -> Block:
    return Block(ROOT / "docs" / "page.md", 7, code, Kind.RUN)


async def test_failing_block_names_its_place():
    with pytest.raises(AssertionError) as failed:
        await run_block(block_of("x = 1\nassert x == 2"), "", {})
    assert failed.value.__notes__ == ["in the block at docs/page.md:7"]
    assert failed.traceback[-1].lineno == 7


async def test_block_can_await_and_be_ended():
    namespace: dict[str, Any] = {"anyio": anyio, "bill": bill}
    await run_block(block_of("await anyio.lowlevel.checkpoint()\nx = 1"), "", namespace)
    await run_block(block_of("while True:\n    await bill(x)"), "", namespace)
    assert namespace["x"] == 1


async def test_address_in_the_page_is_replaced():
    namespace: dict[str, Any] = {}
    await run_block(block_of(f"x = {WRITTEN_ADDRESS!r}"), "host:1", namespace)
    assert namespace["x"] == "host:1"


async def test_asyncio_run_uses_the_running_event_loop():
    namespace: dict[str, Any] = {}
    await run_block(
        block_of("x = []\nasync def main(): x.append(1)\nasyncio.run(main())"), "", namespace
    )
    assert namespace["x"] == [1]
