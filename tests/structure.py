"""Measure how the package is built: functions called on the walks of docs/internals.md, and sizes.

    python -m tests.structure            # show the figures; fail above a limit
    python -m tests.structure --sizes    # only what is read from the source, not the walks
    python -m tests.structure --store    # lower the limits to the figures
    python -m tests.structure --table    # show the limits as in docs/internals.md

`make lint` runs the second: timers and other tasks run beside a walk, so its figures vary with the
load of the machine. Lines are shown alone: a feature may add some.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import json
import math
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import anyio.to_thread

from aiokafkawire import Consumer, Producer, about
from aiokafkawire.testing import KafkaBroker
from tests.docs.test_internals import PACKAGE, ROOT, WALKS, Function, Trace

STORED = Path(__file__).with_suffix(".json")

PAGE = ROOT / "docs" / "internals.md"

NOT_THE_CLIENT = ("testing/", "broker/", "blocking.py")
"""Parts that run in the traced thread, but are not the client's."""

MAX_FUNCTION_LINES, MAX_MODULE_LINES = 60, 500

EXEMPT = ("records/_kernel.py", "records/_uncompiled.py", "wire/messages/", "errors.py")
"""Modules that may be longer: the kernel, tables, and lists of declarations."""

LINES = "lines of"
"""Figures that begin so have no limit."""

TOLERANCE = 1.03
"""On the walks: timers and other tasks run beside them."""

Figures = dict[str, int]


# --- calls ---


async def produce(servers: str) -> None:
    async with Producer(bootstrap_servers=servers) as producer:
        await producer.send_and_wait("orders", b"book")


async def read_one(broker: KafkaBroker, trace: Trace) -> None:
    """Trace a consumer from a Fetch response to the records and the next request."""
    servers = broker.bootstrap_servers
    async with Consumer(
        "orders", bootstrap_servers=servers, auto_offset_reset="earliest"
    ) as consumer:
        for _ in range(2):
            await anyio.to_thread.run_sync(asyncio.run, produce(servers))
            assert await consumer.getmany(timeout_ms=5_000)
        with trace:
            await anyio.to_thread.run_sync(asyncio.run, produce(servers))
            assert await consumer.getmany(timeout_ms=5_000)
            await asyncio.sleep(NEXT_FETCH_S)


async def commit(broker: KafkaBroker, trace: Trace) -> None:
    """Trace a commit while the next Fetch waits at the broker."""
    servers = broker.bootstrap_servers
    await anyio.to_thread.run_sync(asyncio.run, produce(servers))
    async with Consumer(
        "orders",
        group_id="billing",
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        assert await consumer.getmany(timeout_ms=5_000)
        await asyncio.sleep(NEXT_FETCH_S)
        with trace:
            await consumer.commit()


MEASURED = WALKS | {"Bytes of a Fetch response, to records": read_one, "A commit": commit}
"""The walks of docs/internals.md, without a producer and without a Fetch during the commit."""

NEXT_FETCH_S = 0.05
"""Time for the fetcher's task to send its next request."""

RUNS = 6
"""The first run generates codecs; in others a timer may fire. The shortest counts."""


def walk(run: Callable[[KafkaBroker, Trace], Awaitable[None]]) -> set[Function]:
    """Return the functions of the client that are called on a walk."""
    return min((_walk_once(run) for _ in range(RUNS)), key=len)


def _walk_once(run: Callable[[KafkaBroker, Trace], Awaitable[None]]) -> set[Function]:
    trace = Trace()
    with KafkaBroker() as broker:
        asyncio.run(asyncio.wait_for(run(broker, trace), timeout=30))
    return {
        function
        for function in trace.calls
        if not function.path.startswith(NOT_THE_CLIENT)
        and not function.name.endswith(("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>"))
    }


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
    for heading, run in MEASURED.items():
        functions = walk(run)
        figures[f"{heading}: functions"] = len(functions)
        figures[f"{heading}: modules"] = len({function.path for function in functions})
    return figures | sizes()


def is_kernel_compiled() -> bool:
    return about().kernel == "compiled"


# --- limits ---


def exceeded(figures: Figures, limits: Figures) -> list[str]:
    """Return a line for each figure above its limit."""
    return [
        f"{name}: {value:,}, at most {limits[name]:,}"
        for name, value in figures.items()
        if not name.startswith(LINES) and value > _limit(name, limits)
    ]


def _limit(name: str, limits: Figures) -> float:
    return limits.get(name, math.inf) * (TOLERANCE if name.endswith(": functions") else 1)


def lowered(figures: Figures, limits: Figures) -> Figures:
    """Return the limits, no higher than the figures; lines are taken as they are."""
    return {
        name: value if name.startswith(LINES) else min(value, limits.get(name, value))
        for name, value in figures.items()
    }


def table(stored: dict[str, Figures]) -> str:
    """Return the stored figures in Markdown."""
    rows = [
        " | ".join((f"| {name}", *(f"{figures.get(name, '')}" for figures in stored.values())))
        + " |"
        for name in stored["now"]
    ]
    return "\n".join((f"| | {' | '.join(stored)} |", f"|---|{'---:|' * len(stored)}", *rows))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.structure", description=__doc__)
    parser.add_argument(
        "--store", action="store_true", help="lower the limits to the figures, here and on the page"
    )
    parser.add_argument("--sizes", action="store_true", help="leave out the walks")
    parser.add_argument("--table", action="store_true", help="show the stored figures alone")
    chosen = parser.parse_args(arguments)
    stored: dict[str, Figures] = json.loads(STORED.read_text(encoding="utf-8"))
    if chosen.table:
        print(table(stored))
        return 0
    if not chosen.sizes and not is_kernel_compiled():
        print("needs the compiled kernel: functions of the other one would count", file=sys.stderr)
        return 2
    figures = sizes() if chosen.sizes else measure()
    for name, value in figures.items():
        print(f"{name:<60} {value:>7,} {stored['now'].get(name, 0):>7,}")
    for circle in import_circles(modules()):
        print(f"circle: {' '.join(circle)}")
    if chosen.store:
        page = PAGE.read_text(encoding="utf-8")
        before = table(stored)
        stored["now"] |= lowered(figures, stored["now"])
        PAGE.write_text(page.replace(before, table(stored)), encoding="utf-8")
        STORED.write_text(json.dumps(stored, indent=2) + "\n", encoding="utf-8")
    problems = exceeded(figures, stored["now"])
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
