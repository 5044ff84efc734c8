"""Reasons why there is no token, as values.

Worker threads return them instead of raising: the frames of those threads hold secrets, and a
traceback would keep them.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiokafkawire.errors import AuthenticationFailed, KafkaError, TokenUnavailable

__all__ = ("MAX_SHOWN_CHARACTERS", "Failure", "shown")

MAX_SHOWN_CHARACTERS = 300
"""How much of a foreign text stands in an error."""


@dataclass(frozen=True, slots=True)
class Failure:
    """No token was obtained.

    Attributes:
        text: Reason, as the predicate of a sentence about its source.
        is_final: True if the same request will fail again until somebody changes something.
        retry_after_s: Delay that the server asked for.
    """

    text: str
    is_final: bool = False
    retry_after_s: float | None = None

    def as_error(self, source: str) -> KafkaError:
        """Return the error to raise; `source` is the subject of its sentence."""
        reason = f"{source} {self.text}"
        if self.is_final:
            return AuthenticationFailed(reason)
        return TokenUnavailable(reason, retry_after_s=self.retry_after_s)


def shown(text: str, limit: int = MAX_SHOWN_CHARACTERS) -> str:
    """Return a foreign text bounded and without characters that change how a terminal prints."""
    cut = text[:limit] + ("..." if len(text) > limit else "")
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in cut
    )
