"""Serializers and deserializers of keys and values.

Both are given as a type or as a function. None never reaches them: a record without a key stays
without one, and a tombstone stays a tombstone.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, get_origin

__all__ = (
    "Deserializer",
    "DeserializerArgument",
    "Serializer",
    "SerializerArgument",
    "make_deserializer",
    "make_serializer",
)

_T = TypeVar("_T")

Serializer = Callable[[Any], Any]
"""Returns bytes, or an awaitable of them."""

Deserializer = Callable[[bytes], Any]
"""Returns the value, or an awaitable of it."""

SerializerArgument = type[_T] | Callable[[_T], bytes] | Callable[[_T], Awaitable[bytes]]

DeserializerArgument = type[_T] | Callable[[bytes], _T]


def make_serializer(wanted: SerializerArgument[Any] | None) -> Serializer | None:
    """Return the serializer for a type or function.

    Args:
        wanted: None or `bytes` for bytes-like values, `str` for UTF-8, `dict` or `list` for JSON, a
            model of pydantic, a `Struct` of msgspec or a dataclass for JSON, or a function that
            returns bytes, async or not.

    Returns:
        A function, or None for bytes.

    Raises:
        TypeError: Values of this type cannot be serialized.
    """
    serializer, _ = _functions(wanted)
    return serializer


def make_deserializer(wanted: DeserializerArgument[Any] | None) -> Deserializer | None:
    """Return the deserializer for a type or function.

    Args:
        wanted: None or `bytes` for the bytes themselves, `str` for UTF-8, `dict` or `list` for
            JSON, a model of pydantic, a `Struct` of msgspec or a dataclass for JSON of that type,
            or a function of the bytes.

    Returns:
        A function, or None for the bytes themselves.

    Raises:
        TypeError: Values of this type cannot be deserialized.
    """
    _, deserializer = _functions(wanted)
    return deserializer


def _functions(wanted: Any) -> tuple[Serializer | None, Deserializer | None]:
    """Return the serializer and the deserializer for a type; a function stands for both."""
    if wanted is None or wanted is bytes:
        return None, None
    if not isinstance(wanted, type):
        function = _require_function(wanted)
        return function, function
    if wanted is str:
        return str.encode, bytes.decode
    if wanted in {dict, list}:
        return _to_json, _from_json(wanted)
    validate_json = getattr(wanted, "model_validate_json", None)
    if validate_json is not None:
        return lambda value: value.model_dump_json().encode(), validate_json
    if hasattr(wanted, "__struct_fields__"):
        import msgspec  # noqa: PLC0415 - it is there if the type is

        return msgspec.json.encode, msgspec.json.Decoder(wanted).decode
    if dataclasses.is_dataclass(wanted):
        to_dict = _from_json(dict)
        return lambda value: _to_json(dataclasses.asdict(value)), lambda data: wanted(
            **to_dict(data)
        )
    raise _unknown_type(wanted)


def _require_function(wanted: Any) -> Callable[[Any], Any]:
    # `list[int]` can be called, and would make a list of the bytes.
    if not callable(wanted) or get_origin(wanted) is not None:
        raise TypeError(f"pass a type or a function, not {wanted!r:.80}")
    return wanted  # type: ignore[no-any-return]


def _unknown_type(wanted: type[Any]) -> TypeError:
    return TypeError(
        f"{wanted.__name__} is not supported: pass a pydantic model, a msgspec Struct, a dataclass,"
        " dict, list, str, bytes, or a function"
    )


def _to_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _from_json(wanted: type[Any]) -> Deserializer:
    def deserialize(data: bytes) -> Any:
        value = json.loads(data)
        if not isinstance(value, wanted):
            raise TypeError(f"expected a JSON {wanted.__name__}, not {type(value).__name__}")
        return value

    return deserialize
