"""Operations that a mutation applies to the syntax tree of the statement under its marker.

They name no identifier of the client where that is possible, so they survive renames. The part of
a statement that an operation edits is its expression: the condition of `if` and `while`, the value
of an assignment, `return`, dict entry or keyword argument. A path such as `args[0].left` leads to a
part of it, by the fields of `ast`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = (
    "Operation",
    "Place",
    "Slot",
    "delete",
    "drop",
    "insert_after",
    "move_into_next_if",
    "replace",
    "replace_statement",
    "swap_with_next",
)


class Slot(NamedTuple):
    """A field of a node or an item of a list, which can be read and replaced."""

    owner: Any
    key: str | int

    def get(self) -> Any:
        return self.owner[self.key] if isinstance(self.key, int) else getattr(self.owner, self.key)

    def put(self, node: ast.AST) -> None:
        if isinstance(self.key, int):
            self.owner[self.key] = node
        else:
            setattr(self.owner, self.key, node)

    def at(self, path: str) -> Slot:
        """Return the slot at the end of a path such as `args[0].left`."""
        slot = self
        for part in re.findall(r"\w+", path):
            slot = Slot(slot.get(), int(part) if part.isdigit() else part)
        return slot


@dataclass(frozen=True, slots=True)
class Place:
    """The code under a marker: a statement, or an entry of a dict or call within one.

    `block` is the list that has it, at `index`; `function` is the innermost one around it.
    """

    node: ast.AST
    parent: ast.AST
    block: list[Any]
    index: int
    function: ast.AST | None

    @property
    def expression(self) -> Slot:
        if isinstance(self.parent, ast.Dict):
            return Slot(self.parent.values, self.index)
        for field in ("test", "value"):
            if isinstance(self.node, ast.stmt | ast.keyword) and hasattr(self.node, field):
                return Slot(self.node, field)
        return Slot(self.block, self.index)

    @property
    def next(self) -> Any:
        return self.block[self.index + 1]

    @property
    def lines(self) -> range:
        """The lines of what is marked."""
        last: Any = self.node
        if isinstance(self.parent, ast.Dict):
            last = self.parent.values[self.index]
        first: Any = self.node
        return range(first.lineno, last.end_lineno + 1)


Operation = Callable[[Place], None]


class _Quoted:
    """A node as a template sees it: fields and items are reached by format's own syntax."""

    def __init__(self, node: Any) -> None:
        self._node = node

    def __getattr__(self, name: str) -> _Quoted:
        return _Quoted(getattr(self._node, name))

    def __getitem__(self, index: int) -> _Quoted:
        return _Quoted(self._node[index])

    def __format__(self, _: str) -> str:
        return self._node if isinstance(self._node, str) else f"({ast.unparse(self._node)})"


def _parsed(template: str, place: Place, expression: Any) -> Any:
    """Return the statement that a template gives, with the line numbers of the marked one."""
    source = template.format(
        expression=_Quoted(expression),
        statement=_Quoted(place.node),
        function=_Quoted(place.function),
    )
    (statement,) = ast.parse(source).body
    for node in ast.walk(statement):
        ast.copy_location(node, expression)
    return statement


def replace(template: str, *, at: str = "") -> Operation:
    """Replace the expression, or its part at a path.

    Args:
        template: The new source. `{expression}`, `{statement}` and `{function}` stand for what is
            replaced and what is around it; fields follow as in `{expression.args[0]}`.
        at: Path from the expression to the part that is replaced.
    """

    def operation(place: Place) -> None:
        slot = place.expression.at(at)
        slot.put(_parsed(template, place, slot.get()).value)

    return operation


def drop(index: int, *, at: str = "") -> Operation:
    """Drop an operand of `and` and `or`, a comparison of a chain, an argument or an element."""

    def operation(place: Place) -> None:
        slot = place.expression.at(at)
        node = slot.get()
        if isinstance(node, ast.BoolOp):
            del node.values[index]
            if len(node.values) == 1:
                slot.put(node.values[0])
        elif isinstance(node, ast.Compare):
            del node.ops[index], node.comparators[index]
        elif isinstance(node, ast.Tuple):
            del node.elts[index]
        else:
            arguments = [*node.args, *node.keywords]
            gone = arguments[index]
            (node.args if gone in node.args else node.keywords).remove(gone)

    return operation


def delete(place: Place) -> None:
    """Delete the statement or the entry."""
    if isinstance(place.parent, ast.Dict):
        del place.parent.keys[place.index], place.parent.values[place.index]
    else:
        place.block[place.index] = ast.copy_location(ast.Pass(), place.node)


def swap_with_next(place: Place) -> None:
    """Execute the next statement first."""
    place.block[place.index], place.block[place.index + 1] = place.next, place.node


def replace_statement(template: str) -> Operation:
    """Execute another statement instead. The template is that of `replace`."""

    def operation(place: Place) -> None:
        place.block[place.index] = _parsed(template, place, place.node)

    return operation


def move_into_next_if(place: Place) -> None:
    """Execute the statement only where the next `if` of the block holds."""
    condition = next(each for each in place.block[place.index :] if isinstance(each, ast.If))
    condition.body.insert(0, place.block.pop(place.index))


def insert_after(template: str) -> Operation:
    """Execute another statement after this one. The template is that of `replace`."""

    def operation(place: Place) -> None:
        statement = _parsed(template, place, place.expression.get())
        place.block.insert(place.index + 1, statement)

    return operation
