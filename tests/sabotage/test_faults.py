"""Each fault can be planted in the source as it is now."""

import ast
import importlib.util
from pathlib import Path

import pytest

from tests.sabotage.faults import SABOTAGES
from tests.sabotage.planting import Sabotage


@pytest.mark.parametrize("sabotage", SABOTAGES.values(), ids=lambda each: each.name)
def test_a_fault_is_another_program(sabotage: Sabotage) -> None:
    spec = importlib.util.find_spec(sabotage.module)
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text()
    assert ast.dump(ast.parse(sabotage.into(source))) != ast.dump(ast.parse(source))
