"""Names that `import aiokafkawire` offers."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys

import pytest

import aiokafkawire


@pytest.mark.parametrize("name", aiokafkawire.__all__)
def test_every_public_name_exists(name: str):
    value = getattr(aiokafkawire, name)
    assert name == "__version__" or value.__doc__
    assert name in dir(aiokafkawire)


def test_type_checkers_and_the_interpreter_see_the_same_names():
    tree = ast.parse(inspect.getsource(aiokafkawire))
    for_checkers = {
        alias.name: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in ast.walk(block)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert for_checkers == {
        name: f"aiokafkawire.{room}" for name, room in aiokafkawire._DEFINED_IN.items()
    }


def test_an_unknown_name_raises_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Producr'"):
        _ = aiokafkawire.Producr


def test_importing_the_package_loads_no_subpackage():
    code = "import sys, aiokafkawire; print([m for m in sys.modules if 'aiokafkawire.' in m])"
    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    assert finished.stdout.strip() == "['aiokafkawire._version']"
