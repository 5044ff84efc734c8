"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677) as Kafka speaks them (KIP-84, KIP-48).

Kafka prepares neither names nor passwords (no SASLprep), binds no channel, and never sends
`e=`: a refusal is the error code of SaslAuthenticate.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aiokafkawire.config import Secret, is_encodable
from aiokafkawire.errors import AuthenticationFailed
from aiokafkawire.security.mechanism import (
    ClientMechanism,
    CredentialsRefused,
    ServerMechanism,
    invalid_credentials,
)

__all__ = (
    "MAX_ITERATIONS",
    "MIN_ITERATIONS",
    "SCRAM_HASHES",
    "SaltedPasswords",
    "ScramClient",
    "ScramCredential",
    "ScramServer",
)

SCRAM_HASHES: Mapping[str, str] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The hash function of each mechanism."""

MIN_ITERATIONS = 4_096
"""The minimum of RFC 7677 and of Kafka's brokers."""

MAX_ITERATIONS = 1 << 20
"""Above Kafka's own limit of 16,384; a hostile broker must not occupy the client for minutes."""

INLINE_ITERATIONS = 8_192
"""SHA-512 takes about 0.6 microseconds an iteration: up to 5 ms on the event loop."""

MAX_SALT_BYTES = 1_024

MAX_SALTED_PASSWORDS = 64

_NONCE = re.compile(r"[\x21-\x2B\x2D-\x7E]+")

_CLIENT_FIRST = re.compile(
    r"(?P<header>n,(?:a=(?P<authorization_id>(?:[\x01-\x2B\x2D-\x3C\x3E-\x7F]|=2C|=3D)*))?,)"
    r"(?P<bare>n=(?P<name>(?:[\x01-\x2B\x2D-\x3C\x3E-\x7F]|=2C|=3D)+)"
    r",r=(?P<nonce>[\x21-\x2B\x2D-\x7E]+)(?P<extensions>(?:,[A-Za-z]+=[\x01-\x2B\x2D-\x7F]+)*))"
)
"""The client-first message as Kafka's brokers read it: names are ASCII, without channel binding."""

CHANNEL_BINDING = base64.b64encode(b"n,,").decode()


class SaltedPasswords:
    """PBKDF2 results by password, salt and iterations, so that 50 connections hash once."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, Secret, bytes, int], bytes] = {}

    def get(self, algorithm: str, password: Secret, salt: bytes, iterations: int) -> bytes:
        """Return the salted password; compute it on first use."""
        key = (algorithm, password, salt, iterations)
        found = self._found.get(key)
        if found is None:
            found = hashlib.pbkdf2_hmac(algorithm, password.reveal().encode(), salt, iterations)
            if len(self._found) >= MAX_SALTED_PASSWORDS:
                self._found.clear()
            self._found[key] = found
        return found

    def has(self, algorithm: str, password: Secret, salt: bytes, iterations: int) -> bool:
        """Return whether `get` has the result already."""
        return (algorithm, password, salt, iterations) in self._found

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self._found)} entries)"


class ScramClient(ClientMechanism):
    """Prove the knowledge of a password without sending it, and have the broker prove it too.

    Args:
        mechanism: A key of `SCRAM_HASHES`.
        username: User name, or the token id of a delegation token.
        password: Password, or the base64 HMAC of a delegation token.
        nonce: Printable ASCII without commas, unique for each authentication.
        salted_passwords: Shared by the connections of a client.
        token_auth: The credentials are a delegation token (KIP-48).

    Raises:
        ValueError: The user name or the password is empty, the name cannot be encoded, or the
            nonce has other characters.
    """

    def __init__(
        self,
        mechanism: str,
        username: str,
        password: Secret,
        nonce: str,
        salted_passwords: SaltedPasswords,
        *,
        token_auth: bool = False,
    ) -> None:
        if not username or not password or not is_encodable(username) or "\0" in username:
            raise ValueError(f"{mechanism} needs a user name and a password, not {username!a}")
        if not _NONCE.fullmatch(nonce):
            raise ValueError(f"{mechanism} cannot send the nonce {nonce!a}")
        self.name = mechanism
        self._algorithm = SCRAM_HASHES[mechanism]
        self._password = password
        self._nonce = nonce
        self._salted_passwords = salted_passwords
        extension = ",tokenauth=true" if token_auth else ""
        self._first_bare = f"n={_escape(username)},r={nonce}{extension}"
        self._server_signature: bytes | None = None

    def _first(self) -> bytes:
        return f"n,,{self._first_bare}".encode()

    def _blocks(self, token: bytes) -> bool:
        if self._server_signature is not None:
            return False
        try:
            _, salt, iterations = self._server_first(token)
        except AuthenticationFailed:
            return False
        return iterations > INLINE_ITERATIONS and not self._salted_passwords.has(
            self._algorithm, self._password, salt, iterations
        )

    def _next(self, token: bytes) -> bytes | None:
        if self._server_signature is None:
            return self._final(token)
        attributes = self._attributes(token, "v")
        if not hmac.compare_digest(self._base64(attributes["v"], "v"), self._server_signature):
            raise self._failed("the broker does not know the password (its signature is wrong)")
        return None

    def _final(self, token: bytes) -> bytes:
        nonce, salt, iterations = self._server_first(token)
        salted = self._salted_passwords.get(self._algorithm, self._password, salt, iterations)
        without_proof = f"c={CHANNEL_BINDING},r={nonce}"
        signed = f"{self._first_bare},{token.decode()},{without_proof}".encode()
        client_key = _hmac(self._algorithm, salted, b"Client Key")
        stored_key = hashlib.new(self._algorithm, client_key).digest()
        proof = _xor(client_key, _hmac(self._algorithm, stored_key, signed))
        server_key = _hmac(self._algorithm, salted, b"Server Key")
        self._server_signature = _hmac(self._algorithm, server_key, signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _server_first(self, token: bytes) -> tuple[str, bytes, int]:
        """Return nonce, salt and iterations of the server-first message."""
        attributes = self._attributes(token, "r", "s", "i")
        nonce = attributes["r"]
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise self._failed("the broker's nonce does not extend the client's")
        salt = self._base64(attributes["s"], "s")
        if not 0 < len(salt) <= MAX_SALT_BYTES:
            raise self._failed(f"the broker's salt has {len(salt)} bytes")
        text = attributes["i"]
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(MAX_ITERATIONS))):
            raise self._failed(f"the broker's iteration count is {text[:20]!r}")
        if not MIN_ITERATIONS <= (iterations := int(text)) <= MAX_ITERATIONS:
            raise self._failed(
                f"the broker asks for {iterations} iterations; {MIN_ITERATIONS} to"
                f" {MAX_ITERATIONS} are accepted"
            )
        return nonce, salt, iterations

    def _attributes(self, token: bytes, *names: str) -> dict[str, str]:
        """Return the attributes of a message that begins with `names`, in this order."""
        try:
            parts = [part.partition("=") for part in token.decode().split(",", len(names))]
        except UnicodeDecodeError:
            raise self._failed("the broker's message is not UTF-8") from None
        if [name for name, _, _ in parts[: len(names)]] != [*names]:
            raise self._failed(f"the broker's message has no {', '.join(names)}")
        return {name: value for name, _, value in parts[: len(names)]}

    def _base64(self, text: str, name: str) -> bytes:
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise self._failed(f"the broker's {name}= is not base64") from None

    def _failed(self, reason: str) -> AuthenticationFailed:
        return AuthenticationFailed(f"{self.name}: {reason}")


@dataclass(frozen=True, slots=True, repr=False)
class ScramCredential:
    """A password as a broker stores it."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    @classmethod
    def from_password(
        cls, mechanism: str, password: Secret, salt: bytes, iterations: int = MIN_ITERATIONS
    ) -> ScramCredential:
        """Return the credential of a password."""
        salted = hashlib.pbkdf2_hmac(
            SCRAM_HASHES[mechanism], password.reveal().encode(), salt, iterations
        )
        return cls.from_salted_password(mechanism, salted, salt, iterations)

    @classmethod
    def from_salted_password(
        cls, mechanism: str, salted: bytes, salt: bytes, iterations: int
    ) -> ScramCredential:
        """Return the credential of a password that a client has salted (KIP-554)."""
        algorithm = SCRAM_HASHES[mechanism]
        client_key = _hmac(algorithm, salted, b"Client Key")
        return cls(
            salt=salt,
            stored_key=hashlib.new(algorithm, client_key).digest(),
            server_key=_hmac(algorithm, salted, b"Server Key"),
            iterations=iterations,
        )

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations}, ***)"


class ScramServer(ServerMechanism):
    """Check a client's proof of its password.

    Args:
        mechanism: A key of `SCRAM_HASHES`.
        credential_of: Returns the principal and the credential of a user name, or None. The
            second argument says that the name is the id of a delegation token; its principal is
            the token's owner.
        nonce: Printable ASCII without commas, unique for each authentication.
    """

    def __init__(
        self,
        mechanism: str,
        credential_of: Callable[[str, bool], tuple[str, ScramCredential] | None],
        nonce: str,
    ) -> None:
        self.name = mechanism
        self._algorithm = SCRAM_HASHES[mechanism]
        self._credential_of = credential_of
        self._nonce = nonce
        self._credential: ScramCredential | None = None
        self._user = ""
        self._signed = ""
        self._header = ""

    def _next(self, token: bytes) -> bytes:
        # Names beyond ASCII can be stored, but never log in.
        message = token.decode("ascii", errors="replace")
        return self._answer_first(message) if self._credential is None else self._check(message)

    def _answer_first(self, message: str) -> bytes:
        found = _CLIENT_FIRST.fullmatch(message)
        if found is None:
            raise invalid_credentials(self.name)
        username = _unescape(found["name"])
        extensions = found["extensions"].lower().split(",")
        stored = self._credential_of(username, "tokenauth=true" in extensions)
        if stored is None:
            raise invalid_credentials(self.name)
        if _unescape(found["authorization_id"] or "") not in {"", username}:
            raise CredentialsRefused(
                "Authentication failed: Client requested an authorization id that is different"
                " from username"
            )
        self._user, self._credential = stored
        self._header = found["header"]
        self._nonce = found["nonce"] + self._nonce
        salt = base64.b64encode(self._credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._signed = f"{found['bare']},{answer}"
        return answer.encode()

    def _check(self, message: str) -> bytes:
        assert self._credential is not None
        without_proof, found, text = message.rpartition(",p=")
        header = base64.b64encode(self._header.encode()).decode()
        if not found or without_proof != f"c={header},r={self._nonce}":
            raise invalid_credentials(self.name)
        try:
            proof = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise invalid_credentials(self.name) from None
        signed = f"{self._signed},{without_proof}".encode()
        signature = _hmac(self._algorithm, self._credential.stored_key, signed)
        if len(proof) != len(signature):
            raise invalid_credentials(self.name)
        client_key = _xor(proof, signature)
        stored_key = hashlib.new(self._algorithm, client_key).digest()
        if not hmac.compare_digest(stored_key, self._credential.stored_key):
            raise invalid_credentials(self.name)
        self.principal = self._user
        verifier = _hmac(self._algorithm, self._credential.server_key, signed)
        return b"v=" + base64.b64encode(verifier)


def _hmac(algorithm: str, key: bytes, message: bytes) -> bytes:
    return hmac.new(key, message, algorithm).digest()


def _xor(one: bytes, two: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, two, strict=True))


def _escape(username: str) -> str:
    return username.replace("=", "=3D").replace(",", "=2C")


def _unescape(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
