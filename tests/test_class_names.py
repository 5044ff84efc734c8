"""Each class of the package has a name of its own, with few exceptions."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "aiokafkawire"

MAX_SHARED_NAMES = 11
"""Limit of names that two or more classes have."""


def layers() -> Mapping[str, int]:
    """Return the import layer of each folder and top-level module, as import-linter checks it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    [lines] = [each["layers"] for each in contracts if each["type"] == "layers"]
    return {name: index for index, line in enumerate(lines) for name in re.findall(r"\w+", line)}


def shared_names() -> Mapping[str, Sequence[str]]:
    """Return each name that two or more classes have, with the modules that define them."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(PACKAGE)))
    return {name: modules for name, modules in sorted(found.items()) if len(modules) > 1}


def shared_in_one_layer(names: Mapping[str, Sequence[str]]) -> list[str]:
    layer = layers()
    rooms = {name: [re.split(r"[/.]", path)[0] for path in paths] for name, paths in names.items()}
    return [
        name
        for name, used in rooms.items()
        if len({layer.get(room, room) for room in used}) < len(used)
    ]


def test_classes_have_names_of_their_own() -> None:
    names = shared_names()
    for name, modules in names.items():
        print(f"{name}: {', '.join(modules)}")
    assert len(names) <= MAX_SHARED_NAMES, "\n".join(f"{n}: {m}" for n, m in names.items())


def test_classes_of_one_import_layer_do_not_share_a_name() -> None:
    names = shared_names()
    shared = shared_in_one_layer(names)
    listed = "\n".join(f"{name}: {', '.join(names[name])}" for name in shared)
    assert not shared, listed


def test_the_layers_are_read_from_the_import_contract() -> None:
    layer = layers()
    assert layer["cli"] < layer["group"] == layer["producer"] < layer["runtime"] < layer["errors"]
    rooms = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert {room for room in rooms if not room.startswith("__")} - {"_about", "_version"} <= {
        *layer
    }


def test_a_name_shared_in_one_layer_is_found() -> None:
    assert shared_in_one_layer({"A": ["group/a.py", "producer/b.py"]}) == ["A"]
    assert shared_in_one_layer({"A": ["group/a.py", "group/b.py"]}) == ["A"]
    assert shared_in_one_layer({"A": ["group/a.py", "wire/b.py"]}) == []
