"""Declarations of options: what a field of an option class allows, and its description."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

__all__ = (
    "MAX_INT32",
    "Option",
    "append_options",
    "choice_option",
    "list_options",
    "number_option",
    "option",
    "path_option",
    "secret_option",
    "serializer_option",
    "switch_option",
    "text_option",
)

MAX_INT32 = 2**31 - 1


def number_option(
    default: int | None, minimum: int = 0, maximum: int = MAX_INT32, *, meaning: str
) -> Any:
    """Declare an int option between two limits."""
    return option(default, meaning, range=(minimum, maximum))


def choice_option(*allowed: Any, meaning: str) -> Any:
    """Declare an option of fixed values; the first is the default."""
    return option(allowed[0], meaning, choices=allowed)


def text_option(default: str | None, *, meaning: str) -> Any:
    """Declare a str option."""
    return option(default, meaning, text=True)


def path_option(meaning: str) -> Any:
    """Declare an optional path of a file."""
    return option(None, meaning, path=True)


def switch_option(default: bool | None, meaning: str) -> Any:
    """Declare a bool option."""
    return option(default, meaning, switch=True)


def secret_option(*, meaning: str, may_be_callable: bool = False, pem: bool = False) -> Any:
    """Declare an optional secret, which is kept as a `Secret`."""
    return option(None, meaning, secret=True, may_be_callable=may_be_callable, pem=pem)


def serializer_option(*, meaning: str) -> Any:
    """Declare an optional serializer or deserializer: a type or a function."""
    return option(None, meaning, serializer=True)


def option(default: Any, meaning: str, **checks: Any) -> Any:
    """Declare an option with any checks of `check_field`."""
    return dataclasses.field(default=default, metadata={"meaning": meaning, **checks})


class Option(NamedTuple):
    """Declaration of an option.

    `default` is `dataclasses.MISSING` for a required option; `range` and `unit` apply to numbers.
    """

    name: str
    kind: str
    default: Any
    range: tuple[int, int] | None
    unit: str
    meaning: str

    def __str__(self) -> str:
        default = "" if self.default is dataclasses.MISSING else f", default {self.default!r}"
        unit = f" {self.unit}" if self.unit and self.default is not None else ""
        return f"{self.name} ({self.kind}{default}{unit}): {self.meaning}"


def list_options(config_class: type[Any]) -> list[Option]:
    """Return the options of a class in declaration order, those of its base class first."""
    return [
        Option(
            field.name,
            _kind(field),
            field.default,
            field.metadata.get("range"),
            {"ms": "ms", "bytes": "bytes"}.get(field.name.rpartition("_")[2], ""),
            field.metadata["meaning"],
        )
        for field in dataclasses.fields(config_class)
    ]


def _kind(field: dataclasses.Field[Any]) -> str:
    if "choices" in field.metadata:
        return " | ".join(map(repr, field.metadata["choices"]))
    kind = str(field.type)
    return {
        "Acks": "'all' | -1 | 0 | 1",
        "FilePath | None": "str | os.PathLike | None",
        "SecretOrCallable | None": "str | Secret | async function | None",
        "SerializerArgument[Any] | None": "type | function | None",
        "DeserializerArgument[Any] | None": "type | function | None",
    }.get(kind, kind)


def append_options(options: type, config_class: type[Any]) -> None:
    """Add the options to the docstring of a TypedDict, for `help()`."""
    lines = "\n".join(f"    {option}" for option in list_options(config_class))
    options.__doc__ = f"{options.__doc__}\n\n{lines}"
