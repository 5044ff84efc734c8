"""Tokens and assertions in files, such as the projected tokens of Kubernetes."""

from __future__ import annotations

import os
from collections.abc import Mapping

import anyio

from aiokafkawire.errors import TokenUnavailable
from aiokafkawire.oauth.arguments import check_extensions, check_text
from aiokafkawire.oauth.failure import Failure, shown
from aiokafkawire.oauth.jwt import read_jwt_times
from aiokafkawire.runtime import DaemonThreads
from aiokafkawire.security import OAuthBearerToken, Secret

__all__ = ("AssertionFile", "TokenFileProvider", "read_bounded")

MAX_FILE_BYTES = 524_288
"""The longest token that a broker accepts."""

READ_TIMEOUT_S = 10.0
"""How long a file system may take to read a file."""

MAX_THREADS = 4


class SecretFile:
    """A file with one secret text, which each call reads.

    Args:
        name: Name of the argument, for errors.
        path: Path of the file.
    """

    def __init__(self, name: str, path: str | os.PathLike[str]) -> None:
        self.path = check_text(name, os.fspath(path))
        self._threads = DaemonThreads("aiokafkawire-token-file", MAX_THREADS)

    async def read(self) -> Secret:
        """Return the text without surrounding white space.

        Raises:
            TokenUnavailable: The file cannot be read in time, or has no text.
        """
        outcome: Secret | Failure = Failure(f"was not read within {READ_TIMEOUT_S:g} s")
        with anyio.move_on_after(READ_TIMEOUT_S):
            try:
                outcome = await self._threads.run(self._read)
            except OSError as error:
                outcome = Failure(f"cannot be read: {error}")
        if isinstance(outcome, Failure):
            raise outcome.as_error(f"the file {self.path}")
        return outcome

    def _read(self) -> Secret | Failure:
        data = read_bounded(self.path, MAX_FILE_BYTES)
        if isinstance(data, Failure):
            return data
        text = data.decode("ascii", errors="replace").strip()
        if not text or not text.isascii() or not text.isprintable():
            return Failure("has no token: it is empty, or not text of ASCII characters")
        return Secret(text)


def read_bounded(path: str, limit: int) -> bytes | Failure:
    """Return the content of a file, in a worker thread."""
    try:
        with open(path, "rb") as file:
            data = file.read(limit + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        return Failure(f"cannot be read: {shown(reason or str(error))}")
    if len(data) > limit:
        return Failure(f"has more than {limit} bytes")
    return data


class AssertionFile:
    """An assertion that another program writes to a file, such as a service account's token.

    The file is read for each token request.

    Args:
        path: Path of the file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = SecretFile("path", path)

    async def __call__(self) -> Secret:
        """Return the assertion."""
        return await self._file.read()

    def __repr__(self) -> str:
        return f"AssertionFile({self._file.path!r})"


class TokenFileProvider:
    """Token provider: a token that another program writes to a file and renews.

    Kubernetes does so for projected service account tokens. The file is read for each
    authentication, so a new token is used at once. The expiry is read from the token, if it is a
    JWT; otherwise the token counts as valid.

    Args:
        path: Path of the file.
        extensions: SASL extensions that are sent beside the token (KIP-342).

    Example:
        `TokenFileProvider("/var/run/secrets/tokens/kafka")`
    """

    ask_each_time = True

    def __init__(
        self, path: str | os.PathLike[str], *, extensions: Mapping[str, str] | None = None
    ) -> None:
        self._file = SecretFile("path", path)
        self._extensions = check_extensions(extensions)

    async def __call__(self) -> OAuthBearerToken:
        """Return the token of the file.

        Raises:
            TokenUnavailable: The file cannot be read, or has no token.
        """
        value = await self._file.read()
        expires_at_s = read_jwt_times(value.reveal()).expires_at_s
        try:
            return OAuthBearerToken(
                value,
                None if expires_at_s is None else int(expires_at_s * 1_000),
                self._extensions,
            )
        except ValueError:
            pass
        raise TokenUnavailable(
            f"the file {self._file.path} has no token that OAUTHBEARER can send: it is not a"
            " b64token"
        )

    def __repr__(self) -> str:
        return f"TokenFileProvider({self._file.path!r})"
