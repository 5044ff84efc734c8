"""Parser of `sasl.jaas.config`: a login module with options, as Kafka's JaasConfig reads it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from aiokafkawire.errors import InvalidOption

__all__ = ("JAAS", "LoginModule", "parse_jaas")

JAAS = "sasl.jaas.config"
FORM = 'LoginModule required name="value" … ;'
CONTROL_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})

_TOKEN = re.compile(
    r"""
    \s+ | //[^\n]* | /\*.*?\*/
    | (?P<quoted>"(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*')
    | (?P<word>[^\s"'=;/]+)
    | (?P<sign>[=;])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A login module.

    Attributes:
        name: Name of the class.
        options: Options, which include secrets.
    """

    name: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def short_name(self) -> str:
        """Name of the class without its package, which vendors change when they repackage Kafka."""
        return self.name.rpartition(".")[2]


def parse_jaas(text: str) -> LoginModule:
    """Parse the value of `sasl.jaas.config`.

    Raises:
        InvalidOption: The text is not of the form. The error has no part of the text after the
            name of the class, because it can be a secret.
    """
    tokens = _tokens(text)
    words = [word for word, is_sign in tokens]
    if len(words) < 2 or words[1].lower() not in CONTROL_FLAGS:
        raise _invalid(f" is not of the form {FORM}")
    if tokens[-1] != (";", True):
        raise _invalid(" must end with a semicolon")
    options: dict[str, str] = {}
    rest = tokens[2:-1]
    if (";", True) in rest:
        raise _invalid(
            " must have one login module: a semicolon ends it, and a value with a semicolon stands"
            " in quotes"
        )
    for number, at in enumerate(range(0, len(rest), 3), 1):
        triple = rest[at : at + 3]
        if [is_sign for _, is_sign in triple] != [False, True, False]:
            raise _invalid(f': option {number} of {words[0]} is not of the form name="value"')
        (name, _), _, (value, _) = triple
        options[name] = value
    return LoginModule(words[0], options)


def _invalid(problem: str) -> InvalidOption:
    return InvalidOption(f"{JAAS}{problem}", option=JAAS)


def _tokens(text: str) -> list[tuple[str, bool]]:
    """Return words without their quotes and signs; the flag is True for signs."""
    found: list[tuple[str, bool]] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            problem = "a quote has no end" if text[at] in "\"'" else "a value needs quotes"
            raise _invalid(f": {problem}, at character {at + 1}")
        at = match.end()
        if match["quoted"]:
            found.append((_ESCAPE.sub(_unescaped, match["quoted"][1:-1]), False))
        elif match["word"]:
            found.append((match["word"], False))
        elif match["sign"]:
            found.append((match["sign"], True))
    return found


def _unescaped(match: re.Match[str]) -> str:
    escaped = match[1]
    if escaped.isdigit() and escaped.isascii() and set(escaped) <= set("01234567"):
        return chr(int(escaped, 8))
    return _ESCAPES.get(escaped, escaped)
