"""Each marker has one mutation, which changes the marked statement under any names."""

import ast
import builtins
import functools
import io
import keyword
import re
import subprocess
import sys
import tokenize
from collections import Counter
from typing import Any

import pytest

from verify.mutation.mutations import MUTATIONS
from verify.mutation.operations import move_into_next_if, swap_with_next
from verify.mutation.planting import PACKAGE, Mutation, file_of, markers, mutate, place_of

NAMED = {
    "reset-to-latest-after-lookup-error": {"Resetting"},
    "cancelled-request-frees-its-slot": {"_awaiting_response", "remove"},
    "revocation-acknowledged-before-callback": {"target", "partitions"},
    "partitions-removed-before-revocation-callback": {"_release"},
    "unwritten-dead-letter-counts-as-done": {"_finish_copied"},
    "compacted-record-counts-as-unfinished": {"offset"},
    "epoch-ignored-while-leaving": {"epoch", "next_action"},
    "delivery-timeout-restarts-with-each-attempt": {"expires_at", "config", "delivery_timeout_s"},
}
"""The few mutations that name something of the client. A rename must reach them, too."""

each_mutation = pytest.mark.parametrize(
    "mutation", MUTATIONS.values(), ids=lambda mutation: mutation.name
)


def test_each_marker_has_one_mutation_and_each_mutation_one_marker() -> None:
    found = Counter(
        name
        for path in PACKAGE.rglob("*.py")
        for name in re.findall(r"mutation:\s*(\S+)", path.read_text())
    )
    assert found == Counter(dict.fromkeys(MUTATIONS, 1))


@each_mutation
def test_only_the_marked_statement_changes_and_it_compiles(mutation: Mutation) -> None:
    source = file_of(mutation.name).read_text()
    tree = ast.parse(source)
    place = place_of(mutation.name, source, tree)
    mutated = mutate(mutation, source)
    compile(mutated, "mutated.py", "exec")
    assert ast.dump(mutated) != ast.dump(tree)
    if mutation.operation in {swap_with_next, move_into_next_if}:
        assert _simple_statements(mutated) == _simple_statements(tree)
    else:
        assert _outside(place.lines, mutated) == _outside(place.lines, tree)


def _outside(lines: range, tree: ast.AST) -> list[str]:
    """Return all nodes that have no line in common with these."""
    located: list[Any] = [node for node in ast.walk(tree) if hasattr(node, "lineno")]
    return [
        ast.dump(node)
        for node in located
        if node.lineno >= lines.stop or node.end_lineno < lines.start
    ]


def _simple_statements(tree: ast.AST) -> list[str]:
    """Return all statements that have no others in them, in no order of the source."""
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    return sorted(ast.dump(node) for node in statements if not hasattr(node, "body"))


@each_mutation
def test_a_renamed_and_reformatted_source_is_changed_the_same(mutation: Mutation) -> None:
    source = file_of(mutation.name).read_text()
    keep = frozenset(NAMED.get(mutation.name, ()))
    renamed = _reformatted(_renamed(source, keep))
    assert renamed != source
    before = _renamed(ast.unparse(mutate(mutation, source)), keep)
    after = ast.unparse(mutate(mutation, renamed))
    assert ast.dump(ast.parse(after)) == ast.dump(ast.parse(before))


def _renamed(source: str, keep: frozenset[str]) -> str:
    """Return a source in which each name but `keep` is another."""
    lines = source.splitlines(keepends=True)
    for token in reversed(list(tokenize.generate_tokens(io.StringIO(source).readline))):
        name = token.string
        if token.type != tokenize.NAME or name in keep | KEPT:
            continue
        (number, start), (_, end) = token.start, token.end
        line = lines[number - 1]
        lines[number - 1] = f"{line[:start]}renamed_{name}{line[end:]}"
    return "".join(lines)


KEPT = frozenset([*keyword.kwlist, *keyword.softkwlist, *dir(builtins)]) | {
    "__future__", "annotations", "self", "a", "r", "s", "state", "__",
}  # fmt: skip
"""Names of Python (`!r` of an f-string is one since 3.12), and parameters that a mutation adds."""


@functools.cache
def _reformatted(source: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", "60", "-"]
    ran = subprocess.run(
        command, input=source, capture_output=True, text=True, check=True, timeout=60
    )
    return ran.stdout


def test_markers_stand_above_statements_arguments_and_entries() -> None:
    source = """
def f(a, b):
    # mutation: one
    # mutation: two
    # Why it is so.
    if a:
        return g(
            # mutation: three
            x=a,
        )
    # mutation: four
    elif b:
        return {
            # mutation: five
            **a,
            # mutation: six
            "b": b,
        }
"""
    tree = ast.parse(source)
    found = {name: place_of(name, source, tree) for name, _ in markers(source)}
    kinds = {name: type(place.node).__name__ for name, place in found.items()}
    assert kinds == {
        "one": "If",
        "two": "If",
        "three": "keyword",
        "four": "If",
        "five": "Name",
        "six": "Constant",
    }
    expressions = {name: ast.unparse(place.expression.get()) for name, place in found.items()}
    assert expressions == {
        "one": "a",
        "two": "a",
        "three": "a",
        "four": "b",
        "five": "a",
        "six": "b",
    }
