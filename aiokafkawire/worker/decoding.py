"""Decoders of keys and values."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Awaitable, Callable
from typing import Any, get_origin

__all__ = ("Decoder", "DecoderArgument", "make_decoder")

Decoder = Callable[[bytes], Any]
"""Returns the decoded value, or an awaitable of it."""

DecoderArgument = type[Any] | Callable[[bytes], Any] | Callable[[bytes], Awaitable[Any]] | None


def make_decoder(wanted: DecoderArgument) -> Decoder | None:
    """Return the decoder for what `Worker.on` was given.

    Args:
        wanted: None or `bytes` for the bytes themselves, `str` for UTF-8, `dict` or `list` for
            JSON, a model of pydantic or a dataclass for JSON of that type, or a function of the
            bytes, async or not.

    Returns:
        A function, or None for the bytes themselves.

    Raises:
        TypeError: It is a type that cannot be decoded.
    """
    if wanted is None or wanted is bytes:
        return None
    if not isinstance(wanted, type):
        # `list[int]` can be called, and would make a list of the bytes.
        if not callable(wanted) or get_origin(wanted) is not None:
            raise TypeError(f"cannot decode bytes as {wanted!r:.80}: pass a function of the bytes")
        return wanted
    if wanted is str:
        return bytes.decode
    if wanted in {dict, list}:
        return _json_of_type(wanted)
    validate_json = getattr(wanted, "model_validate_json", None)
    if validate_json is not None:
        return validate_json  # type: ignore[no-any-return]
    if dataclasses.is_dataclass(wanted):
        return _dataclass_decoder(wanted)
    raise TypeError(
        f"cannot decode bytes as {wanted.__name__}: pass a pydantic model, a dataclass, dict,"
        " list, str, bytes, or a function of the bytes"
    )


def _json_of_type(wanted: type[Any]) -> Decoder:
    def decode(data: bytes) -> Any:
        value = json.loads(data)
        if not isinstance(value, wanted):
            raise TypeError(f"expected a JSON {wanted.__name__}, not {type(value).__name__}")
        return value

    return decode


def _dataclass_decoder(wanted: type[Any]) -> Decoder:
    to_dict = _json_of_type(dict)

    def decode(data: bytes) -> Any:
        return wanted(**to_dict(data))

    return decode
