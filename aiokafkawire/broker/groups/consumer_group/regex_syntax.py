"""Syntax of RE2, by which Kafka's coordinator reads `SubscribedTopicRegex`.

The parser returns a tree. Backreferences and lookaround are not part of the syntax, so that a match
takes time linear in the text.
"""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

__all__ = (
    "Alternation",
    "Assertion",
    "CharacterClass",
    "Concatenation",
    "InvalidRegex",
    "Node",
    "Repetition",
    "parse",
)

MAX_REPEAT = 1_000
"""Largest repetition count, also of nested ones together, as in RE2."""

MAX_DEPTH = 100
"""Limit of nested groups."""

MAX_LENGTH = 32_767
"""Limit of the length; Kafka's strings have the same."""

INVALID_CLASS_RANGE = "invalid character class range"
INVALID_ESCAPE = "invalid escape sequence"
INVALID_PERL = "invalid or unsupported Perl syntax"
INVALID_REPEAT = "invalid nested repetition operator"
INVALID_REPEAT_SIZE = "invalid repeat count"
MISSING_BRACKET = "missing closing ]"
MISSING_PAREN = "missing closing )"
MISSING_REPEAT_ARGUMENT = "missing argument to repetition operator"
TRAILING_BACKSLASH = "trailing backslash at end of expression"


class InvalidRegex(ValueError):
    """The text is not a regular expression of RE2."""


Test = Callable[[str], bool]


class CharacterClass(NamedTuple):
    """One character that passes a test."""

    test: Test


class Assertion(NamedTuple):
    """A place in the text: `^`, `$`, `A`, `z`, `b` or `B`."""

    kind: str
    multiline: bool = False


class Concatenation(NamedTuple):
    parts: tuple[Node, ...]


class Alternation(NamedTuple):
    choices: tuple[Node, ...]


class Repetition(NamedTuple):
    """`maximum` is None without a limit."""

    part: Node
    minimum: int
    maximum: int | None


Node = CharacterClass | Assertion | Concatenation | Alternation | Repetition


@dataclass(frozen=True, slots=True)
class _Flags:
    ignore_case: bool = False
    multiline: bool = False
    dot_matches_newline: bool = False


_WORD = frozenset(string.ascii_letters + string.digits + "_")
_PERL_CLASSES: dict[str, Test] = {
    "d": lambda char: "0" <= char <= "9",
    "s": lambda char: char in "\t\n\f\r ",
    "w": lambda char: char in _WORD,
}
_POSIX_CLASSES: dict[str, Test] = {
    "alnum": lambda char: char in string.ascii_letters + string.digits,
    "alpha": lambda char: char in string.ascii_letters,
    "ascii": lambda char: char <= "\x7f",
    "blank": lambda char: char in "\t ",
    "cntrl": lambda char: char < " " or char == "\x7f",
    "digit": lambda char: "0" <= char <= "9",
    "graph": lambda char: "!" <= char <= "~",
    "lower": lambda char: "a" <= char <= "z",
    "print": lambda char: " " <= char <= "~",
    "punct": lambda char: char in string.punctuation,
    "space": lambda char: char in "\t\n\v\f\r ",
    "upper": lambda char: "A" <= char <= "Z",
    "word": lambda char: char in _WORD,
    "xdigit": lambda char: char in string.hexdigits,
}
_CONTROL_ESCAPES = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ASSERTIONS = frozenset("AzbB")


def parse(text: str) -> Node:
    """Return the tree of a regular expression. Raises `InvalidRegex`."""
    if len(text) > MAX_LENGTH:
        raise InvalidRegex("the expression is too long")
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._depth = 0
        self._flags = _Flags()

    def parse(self) -> Node:
        node = self._alternation()
        if self._position < len(self._text):
            raise InvalidRegex(MISSING_PAREN)
        return node

    def _peek(self) -> str:
        return self._text[self._position : self._position + 1]

    def _take(self, prefix: str) -> bool:
        if not self._text.startswith(prefix, self._position):
            return False
        self._position += len(prefix)
        return True

    def _next(self, error: str) -> str:
        if self._position >= len(self._text):
            raise InvalidRegex(error)
        self._position += 1
        return self._text[self._position - 1]

    def _until(self, end: str, error: str) -> str:
        stop = self._text.find(end, self._position)
        if stop < 0:
            raise InvalidRegex(error)
        found = self._text[self._position : stop]
        self._position = stop + len(end)
        return found

    # --- structure ---------------------------------------------------------------------------

    def _alternation(self) -> Node:
        choices = [self._concatenation()]
        while self._take("|"):
            choices.append(self._concatenation())
        return choices[0] if len(choices) == 1 else Alternation(tuple(choices))

    def _concatenation(self) -> Node:
        parts: list[Node] = []
        while self._peek() not in {"", "|", ")"}:
            if self._take(r"\Q"):
                quoted, _, _ = self._text[self._position :].partition(r"\E")
                self._position += len(quoted)
                self._take(r"\E")
                parts += [self._literal(char) for char in quoted]
            elif self._peek() in {"*", "+", "?"} and not parts:
                raise InvalidRegex(MISSING_REPEAT_ARGUMENT)
            else:
                node = self._atom()
                if node is not None:
                    parts.append(self._repeated(node))
        return parts[0] if len(parts) == 1 else Concatenation(tuple(parts))

    def _repeated(self, node: Node) -> Node:
        bounds = self._repeat_bounds()
        if bounds is None:
            return node
        self._take("?")
        if self._repeat_bounds() is not None:
            raise InvalidRegex(INVALID_REPEAT)
        minimum, maximum = bounds
        repetition = Repetition(node, minimum, maximum)
        if _repeat_size(repetition) > MAX_REPEAT:
            raise InvalidRegex(INVALID_REPEAT_SIZE)
        return repetition

    def _repeat_bounds(self) -> tuple[int, int | None] | None:
        """Take a repetition operator, if there is one."""
        for operator, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(operator):
                return bounds
        stop = self._text.find("}", self._position)
        if self._peek() != "{" or stop < 0:
            return None
        low, comma, high = self._text[self._position + 1 : stop].partition(",")
        numbers = [low, *([high] if high else [])]
        if not all(each.isascii() and each.isdigit() for each in numbers):
            return None
        if any(len(each) > len(str(MAX_REPEAT)) for each in numbers):
            raise InvalidRegex(INVALID_REPEAT_SIZE)
        self._position = stop + 1
        minimum, maximum = int(low), int(high) if high else None if comma else int(low)
        if max(minimum, maximum or 0) > MAX_REPEAT or (maximum is not None and maximum < minimum):
            raise InvalidRegex(INVALID_REPEAT_SIZE)
        return minimum, maximum

    def _atom(self) -> Node | None:
        """Take one element; None for flags, which match nothing."""
        char = self._next(MISSING_PAREN)
        if char == "(":
            return self._group()
        if char == "[":
            return CharacterClass(self._character_class())
        if char in {"^", "$"}:
            return Assertion(char, self._flags.multiline)
        if char == ".":
            newline = self._flags.dot_matches_newline
            return CharacterClass(lambda each: newline or each != "\n")
        if char in {"*", "+", "?"}:
            raise InvalidRegex(MISSING_REPEAT_ARGUMENT)
        if char == "\\":
            if self._peek() in _ASSERTIONS:
                return Assertion(self._next(TRAILING_BACKSLASH))
            return self._escape()
        return self._literal(char)

    def _group(self) -> Node | None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise InvalidRegex("expression nests too deeply")
        outer = self._flags
        if self._take("?") and not self._group_prefix():
            self._depth -= 1
            return None
        node = self._alternation()
        if not self._take(")"):
            raise InvalidRegex(MISSING_PAREN)
        self._flags = outer
        self._depth -= 1
        return node

    def _group_prefix(self) -> bool:
        """Take what follows `(?`; return False if it only sets flags."""
        if self._take("P<") or (
            self._text.startswith("<", self._position)
            and self._text[self._position + 1 : self._position + 2] not in {"=", "!"}
            and self._take("<")
        ):
            name = self._until(">", "invalid named capture")
            if not name or not set(name) <= _WORD:
                raise InvalidRegex("invalid named capture")
            return True
        value, changed = True, dict.fromkeys("ims", False)
        given = _Flags(
            self._flags.ignore_case, self._flags.multiline, self._flags.dot_matches_newline
        )
        current = {"i": given.ignore_case, "m": given.multiline, "s": given.dot_matches_newline}
        while True:
            char = self._next(MISSING_PAREN if not any(changed.values()) else INVALID_PERL)
            if char in current:
                current[char], changed[char] = value, True
            elif char == "-" and value:
                value = False
            elif char in {":", ")"}:
                self._flags = _Flags(current["i"], current["m"], current["s"])
                return char == ":"
            elif char != "U":
                raise InvalidRegex(INVALID_PERL)

    # --- characters --------------------------------------------------------------------------

    def _literal(self, char: str) -> CharacterClass:
        return CharacterClass(self._folded(lambda each: each == char))

    def _folded(self, test: Test) -> Test:
        if not self._flags.ignore_case:
            return test
        return lambda each: test(each) or test(each.lower()) or test(each.upper())

    def _escape(self) -> CharacterClass:
        shared = self._shared_class()
        return CharacterClass(shared) if shared is not None else self._literal(self._escaped())

    def _shared_class(self) -> Test | None:
        """Take what follows a backslash if it is a class: `\\d`, `\\pL`."""
        char = self._next(TRAILING_BACKSLASH)
        if char.lower() in _PERL_CLASSES:
            test = _PERL_CLASSES[char.lower()]
            return test if char.islower() else lambda each: not test(each)
        if char in {"p", "P"}:
            return self._unicode_class(negated=char == "P")
        self._position -= 1
        return None

    def _unicode_class(self, *, negated: bool) -> Test:
        name = self._next(INVALID_CLASS_RANGE)
        if name == "{":
            name = self._until("}", INVALID_CLASS_RANGE)
        if name.startswith("^"):
            name, negated = name[1:], not negated
        if name != "Any" and name not in _UNICODE_CATEGORIES:
            raise InvalidRegex(INVALID_CLASS_RANGE)
        prefix = "" if name == "Any" else name
        return lambda each: unicodedata.category(each).startswith(prefix) != negated

    def _escaped(self) -> str:
        """Take what follows a backslash and return the character that it stands for."""
        char = self._next(TRAILING_BACKSLASH)
        if char in _CONTROL_ESCAPES:
            return _CONTROL_ESCAPES[char]
        if char == "x":
            digits = (
                self._until("}", INVALID_ESCAPE)
                if self._take("{")
                else self._next(INVALID_ESCAPE) + self._next(INVALID_ESCAPE)
            )
            if not digits or not set(digits) <= set(string.hexdigits) or len(digits) > 8:
                raise InvalidRegex(INVALID_ESCAPE)
            return self._character(int(digits, 16))
        if "0" <= char <= "7":
            digits = char
            while len(digits) < 3 and self._peek() and self._peek() in string.octdigits:
                digits += self._next(INVALID_ESCAPE)
            if char != "0" and len(digits) == 1:
                # A backreference.
                raise InvalidRegex(INVALID_ESCAPE)
            return self._character(int(digits, 8))
        if char.isascii() and not char.isalnum():
            return char
        raise InvalidRegex(INVALID_ESCAPE)

    @staticmethod
    def _character(code: int) -> str:
        if code > 0x10FFFF:
            raise InvalidRegex(INVALID_ESCAPE)
        return chr(code)

    def _character_class(self) -> Test:
        negated = self._take("^")
        tests: list[Test] = []
        ranges: list[tuple[str, str]] = []
        first = True
        while first or self._peek() != "]":
            first = False
            if self._take("[:"):
                tests.append(self._posix_class())
                continue
            if self._take("\\"):
                shared = self._shared_class()
                if shared is not None:
                    tests.append(shared)
                    continue
                low = self._escaped()
            else:
                low = self._next(MISSING_BRACKET)
            high = self._range_end(low)
            if high < low:
                raise InvalidRegex(INVALID_CLASS_RANGE)
            ranges.append((low, high))
        self._next(MISSING_BRACKET)

        def test(char: str) -> bool:
            return any(low <= char <= high for low, high in ranges) or any(
                each(char) for each in tests
            )

        folded = self._folded(test)
        return lambda char: folded(char) != negated

    def _range_end(self, low: str) -> str:
        following = self._text[self._position + 1 : self._position + 2]
        if self._peek() != "-" or following in {"", "]"}:
            return low
        self._take("-")
        return self._escaped() if self._take("\\") else self._next(MISSING_BRACKET)

    def _posix_class(self) -> Test:
        name = self._until(":]", INVALID_CLASS_RANGE)
        negated = name.startswith("^")
        test = _POSIX_CLASSES.get(name.removeprefix("^"))
        if test is None:
            raise InvalidRegex(INVALID_CLASS_RANGE)
        return lambda char: test(char) != negated


_UNICODE_CATEGORIES = frozenset(
    first + second
    for first, others in {
        "C": "cfnos",
        "L": "lmotu",
        "M": "cen",
        "N": "dlo",
        "P": "cdefios",
        "S": "ckmo",
        "Z": "lps",
    }.items()
    for second in ("", *others)
)


def _repeat_size(node: Node) -> int:
    """Return the largest product of nested repetition counts."""
    if isinstance(node, Repetition):
        return max(node.maximum or node.minimum, 1) * _repeat_size(node.part)
    if isinstance(node, Concatenation):
        return max(map(_repeat_size, node.parts), default=1)
    if isinstance(node, Alternation):
        return max(map(_repeat_size, node.choices))
    return 1
