"""Each fault can be planted in the source as it is now."""

import ast
import importlib.util

import pytest

from tests.sabotage.faults import SABOTAGES
from tests.sabotage.planting import Sabotage, source_of


@pytest.mark.parametrize("sabotage", SABOTAGES.values(), ids=lambda each: each.name)
def test_a_fault_is_another_program(sabotage: Sabotage) -> None:
    spec = importlib.util.find_spec(sabotage.module)
    assert spec is not None
    source = source_of(spec).read_text()
    assert ast.dump(ast.parse(sabotage.into(source))) != ast.dump(ast.parse(source))
