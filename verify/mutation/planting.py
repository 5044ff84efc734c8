"""Plant a mutation: one module of the package is imported with its marked statement changed."""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from verify.mutation.operations import Operation, Place

__all__ = ("PACKAGE", "CannotPlant", "Mutation", "markers", "mutate", "place_of", "plant")

PACKAGE = Path(__file__).parents[2] / "aiokafkawire"

MARKER = re.compile(r"^ *# mutation: (?P<name>[a-z0-9]+(?:-[a-z0-9]+)*)$")
CODE = re.compile(r"^(?P<before> *(?:\*\*)?)[^ #]")
"""A line with code. An unpacked dict counts from behind its asterisks, as in the syntax tree."""


class CannotPlant(Exception):
    """The marker is missing, or its module is imported already."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """An operation on the statement that is marked `# mutation: <name>` in the package.

    `scenario` is the one that has caught it: its seeds are run before the others.
    """

    name: str
    scenario: str
    operation: Operation


def markers(source: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """Return the markers of a source, each with line and column of the code that follows it."""
    names: list[str] = []
    for number, line in enumerate(source.splitlines(), 1):
        if marker := MARKER.match(line):
            names.append(marker["name"])
        elif names and (code := CODE.match(line)):
            yield from ((name, (number, len(code["before"]))) for name in names)
            names.clear()


@functools.cache
def files() -> dict[str, Path]:
    """Return the file of each marker."""
    found: dict[str, Path] = {}
    for path in PACKAGE.rglob("*.py"):
        found |= dict.fromkeys((name for name, _ in markers(path.read_text())), path)
    return found


def file_of(name: str) -> Path:
    """Return the file that has a marker."""
    if name not in files():
        raise CannotPlant(f"no statement is marked `# mutation: {name}`")
    return files()[name]


def place_of(name: str, source: str, tree: ast.AST) -> Place:
    """Return the outermost node that begins where the marked code begins."""
    start = dict(markers(source)).get(name)
    for place in _places(tree, None):
        if (getattr(place.node, "lineno", 0), getattr(place.node, "col_offset", 0)) == start:
            return place
    raise CannotPlant(f"no statement follows the marker of {name}")


def _places(parent: ast.AST, function: ast.AST | None) -> Iterator[Place]:
    if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
        function = parent
    for _, block in ast.iter_fields(parent):
        nodes = block if isinstance(block, list) else [block]
        for index, node in enumerate(nodes):
            if isinstance(node, ast.AST):
                yield Place(node, parent, nodes, index, function)
                yield from _places(node, function)


def mutate(mutation: Mutation, source: str) -> ast.Module:
    """Return the syntax tree of a source with the mutation in it."""
    tree = ast.parse(source)
    mutation.operation(place_of(mutation.name, source, tree))
    return tree


class _Loader(SourceFileLoader):
    """Compiles the source with the mutation; compiled files are neither read nor written."""

    mutation: Mutation

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        tree: Any = mutate(self.mutation, self.get_data(path).decode())
        code: CodeType = self.source_to_code(tree, path)
        return code


class _Finder(MetaPathFinder):
    def __init__(self, mutation: Mutation, module: str, path: Path) -> None:
        self._mutation = mutation
        self._module = module
        self._path = path

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._module:
            return None
        loader: Any = _Loader(fullname, str(self._path))
        loader.mutation = self._mutation
        is_package = self._path.stem == "__init__"
        return spec_from_file_location(
            fullname,
            self._path,
            loader=loader,
            submodule_search_locations=[str(self._path.parent)] if is_package else None,
        )


def plant(mutation: Mutation) -> None:
    """Plant it in this process, which has not imported the module yet.

    A compiled module runs from its source then.
    """
    path = file_of(mutation.name)
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    module = ".".join(parts).removesuffix(".__init__")
    if module in sys.modules:
        raise CannotPlant(f"{mutation.name}: {module} is imported already")
    sys.meta_path.insert(0, _Finder(mutation, module, path))
