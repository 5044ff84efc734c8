"""Each operation changes a marked statement, or an entry of one, as its name says."""

import ast

import pytest

from verify.mutation.operations import (
    Operation,
    delete,
    drop,
    insert_after,
    move_into_next_if,
    replace,
    swap_with_next,
)
from verify.mutation.planting import CannotPlant, Mutation, mutate


@pytest.mark.parametrize(
    ("operation", "before", "after"),
    [
        (delete, "a.b()", "pass"),
        (replace("False"), "if a:\n    b()", "if False:\n    b()"),
        (replace("True"), "return a", "return True"),
        (replace("{expression} + 1"), "a = b", "a = b + 1"),
        (replace("{expression} + 1", at="args[1].left"), "f(a, b - c)", "f(a, b + 1 - c)"),
        (replace("{expression.args[1]}"), "a = min(b, c)", "a = c"),
        (replace("{statement.targets[0]} | {expression}"), "a.b = c", "a.b = a.b | c"),
        (replace("{function.args.args[0].arg}"), "return b", "return x"),
        (drop(0), "if a or b:\n    c()", "if b:\n    c()"),
        (drop(-1), "return a and b and c", "return a and b"),
        (drop(-1), "if a <= b < c:\n    d()", "if a <= b:\n    d()"),
        (drop(-1), "f(a, b=c)", "f(a)"),
        (drop(0), "f(a, b=c)", "f(b=c)"),
        (drop(1), "a = (b, c)", "a = (b,)"),
        (swap_with_next, "a()\nb()", "b()\na()"),
        (move_into_next_if, "a()\nb()\nif c:\n    d()", "b()\nif c:\n    a()\n    d()"),
        (insert_after("{statement.targets[0]}.c = {expression}"), "a = b", "a = b\na.c = b"),
    ],
)
def test_a_statement_becomes_another(operation: Operation, before: str, after: str) -> None:
    assert _mutated(operation, before) == ast.unparse(ast.parse(_in_function(after)))


def test_an_entry_of_a_dict_is_deleted_or_gets_another_value() -> None:
    before = "a = {\n    # mutation: entry\n    b: c,\n    d: e,\n}"
    entry = Mutation("entry", "plain", delete)
    assert ast.unparse(mutate(entry, before)) == "a = {d: e}"
    entry = Mutation("entry", "plain", replace("{expression}.f"))
    assert ast.unparse(mutate(entry, before)) == "a = {b: c.f, d: e}"


def test_an_operation_that_does_not_fit_is_refused() -> None:
    with pytest.raises(AttributeError, match="args"):
        _mutated(replace("{expression.args[0]}"), "return a")
    with pytest.raises(CannotPlant, match="marker of other"):
        mutate(Mutation("other", "plain", delete), "# mutation: one\na()\n")


def _mutated(operation: Operation, statements: str) -> str:
    source = _in_function(f"# mutation: one\n{statements}")
    return ast.unparse(mutate(Mutation("one", "plain", operation), source))


def _in_function(statements: str) -> str:
    lines = "\n".join(f"    {line}" for line in statements.splitlines())
    return f"def f(x):\n{lines}\n"
