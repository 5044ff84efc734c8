"""Topics that match a regular expression of RE2."""

from __future__ import annotations

import functools
import string
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from aiokafkawire.broker.groups.consumer_group.regex_syntax import (
    Alternation,
    Assertion,
    CharacterClass,
    Concatenation,
    InvalidRegex,
    Node,
    Repetition,
    parse,
)

__all__ = ("InvalidRegex", "TopicPattern", "compile_pattern")

MAX_STEPS = 20_000
"""Limit of the steps of a compiled pattern; RE2 limits the memory of a pattern."""

_WORD = frozenset(string.ascii_letters + string.digits + "_")


class _Step(NamedTuple):
    """One step: a test of the next character, an assertion, or a choice of next steps."""

    following: tuple[int, ...]
    test: Callable[[str], bool] | None = None
    assertion: Assertion | None = None


class TopicPattern:
    """A compiled pattern. A match follows all alternatives at once, in time linear in the text."""

    def __init__(self, text: str) -> None:
        self._steps: list[_Step] = []
        end = self._add(_Step(()))
        self._start = self._compile(parse(text), end)
        self._end = end

    def matches(self, text: str) -> bool:
        """Return True if the whole text matches."""
        states = self._closure([self._start], text, 0)
        for position, char in enumerate(text, 1):
            following = [
                step.following[0]
                for step in map(self._steps.__getitem__, states)
                if step.test is not None and step.test(char)
            ]
            states = self._closure(following, text, position)
            if not states:
                return False
        return self._end in states

    def filter(self, topics: Iterable[str]) -> frozenset[str]:
        """Return the topics that match."""
        return frozenset(filter(self.matches, topics))

    def _closure(self, starts: Sequence[int], text: str, position: int) -> set[int]:
        """Return the steps that are reached without another character."""
        reached: set[int] = set()
        pending = list(starts)
        while pending:
            number = pending.pop()
            if number in reached:
                continue
            reached.add(number)
            step = self._steps[number]
            if step.test is None and (
                step.assertion is None or _holds(step.assertion, text, position)
            ):
                pending += step.following
        return reached

    def _add(self, step: _Step) -> int:
        if len(self._steps) >= MAX_STEPS:
            raise InvalidRegex("expression too large")
        self._steps.append(step)
        return len(self._steps) - 1

    def _compile(self, node: Node, after: int) -> int:
        """Add the steps of a node that continues with `after`; return its first step."""
        if isinstance(node, CharacterClass):
            return self._add(_Step((after,), test=node.test))
        if isinstance(node, Assertion):
            return self._add(_Step((after,), assertion=node))
        if isinstance(node, Concatenation):
            for part in reversed(node.parts):
                after = self._compile(part, after)
            return after
        if isinstance(node, Alternation):
            return self._add(_Step(tuple(self._compile(each, after) for each in node.choices)))
        return self._repeat(node, after)

    def _repeat(self, node: Repetition, after: int) -> int:
        if node.maximum is None:
            loop = self._add(_Step(()))
            self._steps[loop] = _Step((self._compile(node.part, loop), after))
            start = loop
        else:
            start = after
            for _ in range(node.maximum - node.minimum):
                start = self._add(_Step((self._compile(node.part, start), after)))
        for _ in range(node.minimum):
            start = self._compile(node.part, start)
        return start


@functools.lru_cache(maxsize=256)
def compile_pattern(text: str) -> TopicPattern:
    """Return the compiled pattern. Raises `InvalidRegex`."""
    return TopicPattern(text)


def _holds(assertion: Assertion, text: str, position: int) -> bool:
    kind = assertion.kind
    if kind in {"^", "A"}:
        starts_line = assertion.multiline and text[position - 1 : position] == "\n"
        return position == 0 or (kind == "^" and starts_line)
    if kind in {"$", "z"}:
        ends_line = assertion.multiline and text[position : position + 1] == "\n"
        return position == len(text) or (kind == "$" and ends_line)
    before, following = text[max(position - 1, 0) : position], text[position : position + 1]
    is_boundary = (before in _WORD) != (following in _WORD)
    return is_boundary == (kind == "b")
