"""The shape of a SASL mechanism: tokens in, tokens out.

The same machine serves raw frames (SaslHandshake v0), SaslAuthenticate requests, and
re-authentication (KIP-368): each authentication takes a new instance. One failure is final.
"""

from __future__ import annotations

import abc
import enum

from aiokafkawire.errors import AuthenticationFailed

__all__ = (
    "MAX_TOKEN_BYTES",
    "ClientMechanism",
    "CredentialsRefused",
    "ServerMechanism",
    "invalid_credentials",
)

MAX_TOKEN_BYTES = 524_288
"""The longest token either side accepts (`sasl.server.max.receive.size` of Kafka)."""


class CredentialsRefused(Exception):
    """A server mechanism refuses the client. The text is sent with SASL_AUTHENTICATION_FAILED."""


class _Progress(enum.Enum):
    """Progress of one side of an exchange."""

    NEW = enum.auto()
    UNDER_WAY = enum.auto()
    COMPLETE = enum.auto()
    FAILED = enum.auto()


class ClientMechanism(abc.ABC):
    """The client's side of one authentication.

    Send what `first` returns, then pass each token of the broker to `next` and send what that
    returns, until it returns None: the exchange is complete.
    """

    name: str
    """The mechanism's name in SaslHandshake."""

    _progress = _Progress.NEW

    def first(self) -> bytes:
        """Return the first token."""
        assert self._progress is _Progress.NEW
        self._progress = _Progress.UNDER_WAY
        return self._first()

    def next(self, token: bytes) -> bytes | None:
        """Return the next token, or None when the exchange is complete.

        Args:
            token: The broker's token.

        Raises:
            AuthenticationFailed: The broker refused, or did not prove that it knows the password.
        """
        if self._progress is not _Progress.UNDER_WAY:
            raise AuthenticationFailed(f"{self.name}: a token arrived after the exchange had ended")
        self._progress = _Progress.FAILED
        if len(token) > MAX_TOKEN_BYTES:
            raise AuthenticationFailed(
                f"{self.name}: the broker's token has {len(token)} bytes, more than"
                f" {MAX_TOKEN_BYTES}"
            )
        answer = self._next(token)
        self._progress = _Progress.COMPLETE if answer is None else _Progress.UNDER_WAY
        return answer

    may_hang = False
    """True if a step may wait for another server, such as a KDC: run it in a thread."""

    @property
    def is_answered(self) -> bool:
        """True if a broker answers the last token when it gets it without a request."""
        return True

    def blocks(self, token: bytes) -> bool:
        """Return True if `next(token)` takes long enough to run in a thread."""
        return len(token) <= MAX_TOKEN_BYTES and self._blocks(token)

    @abc.abstractmethod
    def _first(self) -> bytes:
        """As `first`."""

    @abc.abstractmethod
    def _next(self, token: bytes) -> bytes | None:
        """As `next`, for a token of bounded length."""

    def _blocks(self, token: bytes) -> bool:
        del token
        return False


class ServerMechanism(abc.ABC):
    """The broker's side of one authentication."""

    name: str

    principal: str | None = None
    """The authenticated user, once the exchange is complete."""

    _progress = _Progress.UNDER_WAY

    @property
    def is_complete(self) -> bool:
        """True once the client has proved who it is."""
        return self._progress is _Progress.COMPLETE

    def next(self, token: bytes) -> bytes:
        """Return the answer to a token of the client.

        Raises:
            CredentialsRefused: The client is refused.
        """
        if self._progress is not _Progress.UNDER_WAY or len(token) > MAX_TOKEN_BYTES:
            self._progress, self.principal = _Progress.FAILED, None
            raise invalid_credentials(self.name)
        self._progress = _Progress.FAILED
        answer = self._next(token)
        has_ended = self.principal is not None
        self._progress = _Progress.COMPLETE if has_ended else _Progress.UNDER_WAY
        return answer

    @abc.abstractmethod
    def _next(self, token: bytes) -> bytes:
        """As `next`, for a token of bounded length. Set `principal` with the last answer."""


def invalid_credentials(mechanism: str) -> CredentialsRefused:
    """Return the error of Kafka's brokers that does not say what was wrong."""
    return CredentialsRefused(
        "Authentication failed during authentication due to invalid credentials with SASL"
        f" mechanism {mechanism}"
    )
