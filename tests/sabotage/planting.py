"""Plant a fault: a module of the package is read with one piece of its text exchanged."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

__all__ = ("CannotPlant", "Sabotage", "plant", "source_of")


class CannotPlant(Exception):
    """The text that a fault exchanges does not stand in its module, or more than once."""


@dataclass(frozen=True, slots=True)
class Sabotage:
    """A fault: in `module` the text `old`, which stands there once, becomes `new`.

    `programme` is the one that has seen it: its seeds are tried before the others.
    """

    name: str
    programme: str
    module: str
    old: str
    new: str

    def into(self, source: str) -> str:
        """The source with the fault in it."""
        found = source.count(self.old)
        if found != 1:
            raise CannotPlant(f"{self.name}: its text stands {found} times in {self.module}")
        return source.replace(self.old, self.new)


def source_of(spec: ModuleSpec) -> Path:
    """The text of a module, also of one that is compiled: it runs as it stands with a fault."""
    assert spec.origin is not None
    if not spec.origin.endswith(tuple(EXTENSION_SUFFIXES)):
        return Path(spec.origin)
    return Path(spec.origin).with_name(spec.name.rpartition(".")[2] + ".py")


class _Loader(SourceFileLoader):
    """Compiles the source with the fault; compiled files are neither read nor written."""

    sabotage: Sabotage

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        source = self.sabotage.into(self.get_data(path).decode())
        code: CodeType = self.source_to_code(source, path)
        return code


class _Finder(MetaPathFinder):
    def __init__(self, sabotage: Sabotage) -> None:
        self._sabotage = sabotage

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._sabotage.module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            return None
        source = source_of(spec)
        loader: Any = _Loader(fullname, str(source))
        loader.sabotage = self._sabotage
        return spec_from_file_location(
            fullname,
            source,
            loader=loader,
            submodule_search_locations=spec.submodule_search_locations,
        )


def plant(sabotage: Sabotage) -> None:
    """Plant it in this process, which has not imported the module yet."""
    if sabotage.module in sys.modules:
        raise CannotPlant(f"{sabotage.name}: {sabotage.module} is imported already")
    sys.meta_path.insert(0, _Finder(sabotage))
