"""Assertions (RFC 7523) signed with a private key of the client. Needs the extra `oauth`."""

from __future__ import annotations

import base64
import json
import os
import time
import uuid
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, get_args

import anyio

from aiokafkawire.errors import InvalidOption
from aiokafkawire.oauth.arguments import SecretSource, check_text, hide, keep_secret, resolve_secret
from aiokafkawire.oauth.failure import Failure, shown
from aiokafkawire.oauth.files import read_bounded
from aiokafkawire.runtime import DaemonThreads
from aiokafkawire.security import Secret

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

__all__ = ("SignedAssertion",)

Algorithm = Literal["RS256", "ES256"]

MAX_KEY_BYTES = 65_536

SIGN_TIMEOUT_S = 10.0
"""How long reading the key and signing may take."""

MAX_THREADS = 4

ES256_NUMBER_BYTES = 32

REGISTERED_CLAIMS = frozenset({"aud", "exp", "iat", "iss", "jti", "nbf", "sub"})
SET_HEADERS = frozenset({"alg", "kid"})


class SignedAssertion:
    """A JSON Web Token that is signed with a private key of this client, once per request.

    For `assertion` of `JwtBearerTokenProvider` and `client_assertion` of `OidcTokenProvider`. The
    claims are `iss`, `sub`, `aud`, `iat`, `nbf`, `exp` and `jti`. Needs
    `pip install 'aiokafkawire[oauth]'`.

    Args:
        private_key_file: PEM file of the key, read for each assertion.
        private_key: The key as PEM text instead, or an async function that returns it.
        private_key_password: Password of an encrypted key.
        algorithm: "RS256" for an RSA key, "ES256" for an EC key on P-256.
        issuer: Claim `iss`; for a client assertion the client id.
        subject: Claim `sub`. Defaults to `issuer`.
        audience: Claim `aud`; mostly the token endpoint or the issuer URL of the identity provider.
        key_id: Header `kid`.
        lifetime_s: Seconds until the assertion expires.
        clock_skew_s: Seconds by which `nbf` lies in the past.
        claims: More claims.
        headers: More headers, such as `x5t`.

    Raises:
        InvalidOption: Arguments contradict each other, or `cryptography` is not installed.
    """

    _label = "SignedAssertion(...)"
    """What `repr` shows, also if the constructor failed."""

    def __init__(
        self,
        *,
        issuer: str,
        audience: str,
        private_key_file: str | os.PathLike[str] | None = None,
        private_key: SecretSource | None = None,
        private_key_password: SecretSource | None = None,
        algorithm: Algorithm = "RS256",
        subject: str | None = None,
        key_id: str | None = None,
        lifetime_s: int = 300,
        clock_skew_s: int = 60,
        claims: Mapping[str, Any] | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> None:
        private_key, private_key_password = hide(private_key), hide(private_key_password)
        self._key = (
            None if private_key is None else keep_secret("private_key", private_key, is_pem=True)
        )
        self._password = (
            None
            if private_key_password is None
            else keep_secret("private_key_password", private_key_password)
        )
        if (self._key is None) == (private_key_file is None):
            raise InvalidOption("SignedAssertion needs either private_key_file or private_key")
        self._key_file = None if private_key_file is None else os.fspath(private_key_file)
        if algorithm not in get_args(Algorithm):
            raise InvalidOption(f"algorithm must be 'RS256' or 'ES256', not {algorithm!r:.100}")
        if not isinstance(lifetime_s, int) or not 1 <= lifetime_s <= 86_400:
            raise InvalidOption(f"lifetime_s must be from 1 to 86400, not {lifetime_s!r:.100}")
        if not isinstance(clock_skew_s, int) or not 0 <= clock_skew_s <= 86_400:
            raise InvalidOption(f"clock_skew_s must be from 0 to 86400, not {clock_skew_s!r:.100}")
        if find_spec("cryptography") is None:
            raise InvalidOption(
                "SignedAssertion needs cryptography: pip install 'aiokafkawire[oauth]'"
            )
        self._algorithm = algorithm
        self._issuer = check_text("issuer", issuer)
        self._subject = self._issuer if subject is None else check_text("subject", subject)
        self._audience = check_text("audience", audience)
        self._lifetime_s = lifetime_s
        self._clock_skew_s = clock_skew_s
        self._claims = _check_extra("claims", claims, REGISTERED_CLAIMS)
        self._headers: dict[str, Any] = {"alg": algorithm, "typ": "JWT"}
        self._headers |= _check_extra("headers", headers, SET_HEADERS)
        if key_id is not None:
            self._headers["kid"] = check_text("key_id", key_id)
        self._threads = DaemonThreads("aiokafkawire-sign", MAX_THREADS)
        self._label = f"SignedAssertion(issuer={issuer!r}, audience={audience!r})"

    async def __call__(self) -> Secret:
        """Sign an assertion.

        Raises:
            TokenUnavailable: The key file cannot be read.
            AuthenticationFailed: The key cannot be used.
        """
        key = None
        if self._key is not None:
            key = await resolve_secret("private_key", self._key, is_pem=True)
        password = (
            None
            if self._password is None
            else await resolve_secret("private_key_password", self._password)
        )
        outcome: Secret | Failure = Failure(f"was not read within {SIGN_TIMEOUT_S:g} s")
        with anyio.move_on_after(SIGN_TIMEOUT_S):
            try:
                outcome = await self._threads.run(lambda: self._sign(key, password))
            except OSError as error:
                outcome = Failure(f"cannot be used: {error}")
        if isinstance(outcome, Failure):
            raise outcome.as_error(f"the private key {self._key_file or 'in private_key'}")
        return outcome

    def _sign(self, key: Secret | None, password: Secret | None) -> Secret | Failure:
        pem: bytes | Failure
        if key is not None:
            pem = key.reveal().encode()
        else:
            assert self._key_file is not None
            pem = read_bounded(self._key_file, MAX_KEY_BYTES)
            if isinstance(pem, Failure):
                return pem
        signer = _load_signer(pem, password, self._algorithm)
        if isinstance(signer, Failure):
            return signer
        now = int(time.time())
        claims = {
            **self._claims,
            "iss": self._issuer,
            "sub": self._subject,
            "aud": self._audience,
            "iat": now,
            "nbf": now - self._clock_skew_s,
            "exp": now + self._lifetime_s,
            "jti": str(uuid.uuid4()),
        }
        text = b".".join(_encode(json.dumps(part).encode()) for part in (self._headers, claims))
        return Secret((text + b"." + _encode(signer(text))).decode())

    def __repr__(self) -> str:
        return self._label


def _check_extra(
    name: str, values: Mapping[str, Any] | None, reserved: frozenset[str]
) -> dict[str, Any]:
    checked = dict(values or {})
    if taken := sorted(reserved & checked.keys()):
        raise InvalidOption(f"{name} must not have {taken[0]!r}: it has its own argument")
    try:
        json.dumps(checked, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidOption(f"{name} cannot be written as JSON: {error}") from None
    return checked


def _encode(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _load_signer(
    pem: bytes, password: Secret | None, algorithm: str
) -> Callable[[bytes], bytes] | Failure:
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    word = None if password is None else password.reveal().encode()
    try:
        key = serialization.load_pem_private_key(pem, word)
    except TypeError:
        # The library refuses a password that is missing, or one that is not needed.
        needed = "needs private_key_password" if word is None else "is not encrypted: omit"
        rest = "" if word is None else " private_key_password"
        return Failure(f"{needed}{rest}", is_final=True)
    except (ValueError, UnsupportedAlgorithm) as error:
        return Failure(
            f"cannot be loaded; check that it is PEM, and its password: {shown(str(error))}",
            is_final=True,
        )
    return _signer_of(key, algorithm)


def _signer_of(key: PrivateKeyTypes, algorithm: str) -> Callable[[bytes], bytes] | Failure:
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.utils import (  # noqa: PLC0415
        decode_dss_signature,
    )

    if algorithm == "RS256" and isinstance(key, rsa.RSAPrivateKey):
        return lambda data: key.sign(data, padding.PKCS1v15(), hashes.SHA256())
    if (
        algorithm == "ES256"
        and isinstance(key, ec.EllipticCurvePrivateKey)
        and isinstance(key.curve, ec.SECP256R1)
    ):

        def sign(data: bytes) -> bytes:
            numbers = decode_dss_signature(key.sign(data, ec.ECDSA(hashes.SHA256())))
            return b"".join(number.to_bytes(ES256_NUMBER_BYTES, "big") for number in numbers)

        return sign
    needed = "an RSA key" if algorithm == "RS256" else "an EC key on the curve P-256"
    return Failure(f"is not {needed}, as {algorithm} needs", is_final=True)
