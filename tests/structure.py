"""Measure how the package is built: calls on the most frequent ways, and the sizes of its parts.

    python -m tests.structure                  # a table
    python -m tests.structure --store          # and keep the figures in structure.json

`test_structure.py` fails if a figure grows above the stored one.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio.to_thread

from aiokafkawire import Consumer, Producer
from aiokafkawire.testing import KafkaBroker
from tests.docs.test_internals import PACKAGE, ROOT, WALKS, Function, Trace

STORED = Path(__file__).with_suffix(".json")

NOT_THE_CLIENT = ("testing/", "broker/", "blocking.py")
"""Parts that run in the traced thread, but are not the client's."""

MAX_FUNCTION_LINES, MAX_MODULE_LINES = 60, 500

EXEMPT = ("records/_kernel.py", "records/_uncompiled.py", "wire/messages/", "errors.py")
"""Modules that may be longer: the kernel, tables, and lists of declarations."""

Figures = dict[str, int]


# --- calls ---


async def read_one(broker: KafkaBroker, trace: Trace) -> None:
    """Trace a consumer from the bytes of a Fetch response to the records, without a producer."""
    servers = broker.bootstrap_servers

    async def produce() -> None:
        async with Producer(bootstrap_servers=servers) as producer:
            await producer.send_and_wait("orders", b"book")

    async with Consumer(
        "orders", bootstrap_servers=servers, auto_offset_reset="earliest"
    ) as consumer:
        for _ in range(2):
            await anyio.to_thread.run_sync(asyncio.run, produce())
            assert await consumer.getmany(timeout_ms=5_000)
        with trace:
            await anyio.to_thread.run_sync(asyncio.run, produce())
            assert await consumer.getmany(timeout_ms=5_000)


def walks() -> dict[str, set[Function]]:
    """Return the functions of the client that each walk calls."""
    called = {}
    for heading, walk in WALKS.items():
        trace = Trace()
        run = read_one if "Fetch" in heading else walk
        with KafkaBroker() as broker:
            asyncio.run(asyncio.wait_for(run(broker, trace), timeout=30))
        called[heading] = {
            function
            for function in trace.calls
            if not function.path.startswith(NOT_THE_CLIENT)
            and not function.name.endswith(("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>"))
        }
    return called


# --- sizes ---


def modules() -> dict[str, ast.Module]:
    """Return the syntax trees of the package, by path relative to its folder."""
    return {
        str(path.relative_to(PACKAGE)): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def imported(tree: ast.Module, path: str) -> Iterator[str]:
    """Yield the modules of the package that are imported when this one is."""
    for node in tree.body:
        if not isinstance(node, ast.ImportFrom):
            continue
        if node.level:
            parents = Path(path).parts[: len(Path(path).parts) - node.level]
            base = ".".join((*parents, *filter(None, [node.module])))
        elif node.module and f"{node.module}.".startswith("aiokafkawire."):
            base = node.module.removeprefix("aiokafkawire").removeprefix(".")
        else:
            continue
        yield base
        yield from (f"{base}.{alias.name}".lstrip(".") for alias in node.names)


def import_circles(trees: dict[str, ast.Module]) -> list[list[str]]:
    """Return the groups of modules that import each other."""
    names = {path.removesuffix(".py").replace("/", "."): path for path in trees}
    edges = {
        path: {names[name] for name in imported(tree, path) if name in names} - {path}
        for path, tree in trees.items()
    }
    reached = {path: closure(path, edges) for path in edges}
    groups = {
        tuple(sorted(other for other in reached[path] if path in reached[other]))
        for path in edges
        if path in reached[path]
    }
    return [list(group) for group in sorted(groups)]


def closure(start: str, edges: dict[str, set[str]]) -> set[str]:
    """Return what can be reached from a node."""
    found: set[str] = set()
    left = [*edges[start]]
    while left:
        node = left.pop()
        if node not in found:
            found.add(node)
            left += edges[node]
    return found


def attributes(cls: ast.ClassDef) -> set[str]:
    """Return the names that the methods of a class assign to `self`."""
    return {
        node.attr
        for node in ast.walk(cls)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


def nodes_of(trees: dict[str, ast.Module], kinds: type | tuple[type, ...]) -> Iterator[ast.AST]:
    """Yield the nodes of some kinds outside of exempt modules."""
    for path, tree in trees.items():
        if not path.startswith(EXEMPT):
            yield from (node for node in ast.walk(tree) if isinstance(node, kinds))


def lines_of(folder: Path, without: str = "") -> int:
    """Return the lines of all Python files in a folder."""
    return sum(
        len(path.read_text(encoding="utf-8").splitlines())
        for path in folder.rglob("*.py")
        if not without or without not in str(path)
    )


def sizes() -> Figures:
    """Return the figures that need no run."""
    trees = modules()
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    classes = [node for node in nodes_of(trees, ast.ClassDef) if isinstance(node, ast.ClassDef)]
    return {
        "import circles": len(import_circles(trees)),
        "attributes of the largest class": max(len(attributes(cls)) for cls in classes),
        "classes of more than 15 attributes": sum(len(attributes(cls)) > 15 for cls in classes),
        f"functions over {MAX_FUNCTION_LINES} lines": sum(
            node.end_lineno - node.lineno >= MAX_FUNCTION_LINES  # type: ignore[attr-defined]
            for node in nodes_of(trees, functions)
        ),
        f"modules over {MAX_MODULE_LINES} lines": sum(
            lines_of_module(path) > MAX_MODULE_LINES
            for path in trees
            if not path.startswith(EXEMPT)
        ),
        "lines of the package without messages": lines_of(PACKAGE, "wire/messages"),
        "lines of the tests": lines_of(ROOT / "tests") + lines_of(ROOT / "verify"),
    }


def lines_of_module(path: str) -> int:
    """Return the lines of a module."""
    return len((PACKAGE / path).read_text(encoding="utf-8").splitlines())


def measure() -> Figures:
    """Return all figures."""
    figures: Figures = {}
    for heading, functions in walks().items():
        figures[f"{heading}: functions"] = len(functions)
        figures[f"{heading}: modules"] = len({function.path for function in functions})
    return figures | sizes()


def main(show: Callable[[str], None] = print) -> None:
    """Print the figures beside the stored ones."""
    parser = argparse.ArgumentParser(prog="python -m tests.structure", description=__doc__)
    parser.add_argument("--store", action="store_true", help="keep the figures")
    stored = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    figures = measure()
    for name, value in figures.items():
        show(f"{name:<60} {value:>7,} {stored.get(name, '-'):>7}")
    for circle in import_circles(modules()):
        show(f"circle: {' '.join(circle)}")
    if parser.parse_args().store:
        STORED.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
