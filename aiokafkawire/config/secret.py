"""A password, key or token that no repr, log line or error shows."""

from __future__ import annotations

import hmac

__all__ = ("Secret", "is_encodable")


class Secret:
    """A secret text. `repr`, `str` and formatting show `***`; `reveal` returns the text.

    It can be neither pickled nor copied into another process by accident.

    Raises:
        TypeError: Not a text.
        ValueError: The text cannot be encoded as UTF-8 (it has a lone surrogate).
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise TypeError(f"a secret must be str, not {type(text).__name__}")
        if not is_encodable(text):
            raise ValueError("the secret cannot be encoded as UTF-8: it has a lone surrogate")
        self._text = text

    def reveal(self) -> str:
        """Return the secret. Keep the result out of attributes, logs and errors."""
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return "Secret('***')"

    def __str__(self) -> str:
        return "***"

    def __format__(self, spec: str) -> str:
        return format("***", spec)

    def __reduce__(self) -> str:
        raise TypeError("a Secret cannot be pickled: pass the option that it comes from")

    __getstate__ = __reduce__


def is_encodable(text: str) -> bool:
    """Return whether a text has a UTF-8 form.

    An error of `encode` would carry the text.
    """
    return not any("\ud800" <= character <= "\udfff" for character in text)
