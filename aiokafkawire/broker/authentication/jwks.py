"""Validation of signed tokens for OAUTHBEARER by the keys of an identity provider."""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from aiokafkawire.broker.authentication.tokens import PARTS, ValidatedToken, decode_part, time_ms
from aiokafkawire.errors import InvalidOption
from aiokafkawire.security import Secret, TokenRefused

__all__ = ("JwksValidator",)

ALGORITHMS = {"RS256": "SHA256", "RS384": "SHA384", "RS512": "SHA512", "ES256": "SHA256"}
"""Hash of each signature algorithm."""

P256_BYTES = 32

CLOCK_SKEW_S = 30.0
"""Kafka's `sasl.oauthbearer.clock.skew.seconds`."""


class JwksValidator:
    """A `token_validator` that checks signed tokens as a broker with a JWKS endpoint does.

    ::

        BrokerSasl(token_validator=JwksValidator(keys, audience="kafka"))

    Needs the `cryptography` library, which the extra `testing` installs.

    Args:
        jwks: Keys of the identity provider: the JSON Web Key Set as text or parsed, or a function
            that returns it and is called for each token. RSA and P-256 keys are used.
        audience: Required audience. Defaults to any.
        issuer: Required issuer. Defaults to any.
        subject_claim: Claim with the name of the user.
        clock_skew_s: Time after its expiry in which a token is still accepted.
        now_ms: Wall clock in milliseconds since 1970. Defaults to the system's.

    Raises:
        InvalidOption: `cryptography` is not installed, or `jwks` is not a key set.
    """

    def __init__(
        self,
        jwks: str | Mapping[str, Any] | Callable[[], str | Mapping[str, Any]],
        *,
        audience: str | None = None,
        issuer: str | None = None,
        subject_claim: str = "sub",
        clock_skew_s: float = CLOCK_SKEW_S,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        try:
            import cryptography.hazmat  # noqa: F401, PLC0415
        except ImportError:
            raise InvalidOption(
                "signed tokens need cryptography: pip install 'aiokafkawire[testing]'"
            ) from None
        self._get_jwks = jwks if callable(jwks) else lambda: jwks
        if not callable(jwks):
            _parse_key_set(jwks)
        self._audience = audience
        self._issuer = issuer
        self._subject_claim = subject_claim
        self._clock_skew_ms = int(clock_skew_s * 1000)
        self._now_ms = now_ms

    def __call__(self, token: Secret, extensions: Mapping[str, str]) -> ValidatedToken:
        """Return the user of a token. Raises `TokenRefused`."""
        del extensions
        parts = token.reveal().split(".")
        if len(parts) != PARTS:
            raise TokenRefused
        header, claims = decode_part(parts[0]), decode_part(parts[1])
        key = self._find_key(header)
        if not _is_signed(key, header["alg"], f"{parts[0]}.{parts[1]}".encode(), parts[2]):
            raise TokenRefused
        return self._check(claims)

    def _find_key(self, header: Mapping[str, Any]) -> Mapping[str, Any]:
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            raise TokenRefused
        key_type = "EC" if algorithm.startswith("ES") else "RSA"
        for key in _parse_key_set(self._get_jwks()):
            is_same_id = key_id is None or key.get("kid") == key_id
            if is_same_id and key.get("kty") == key_type and key.get("use", "sig") == "sig":
                return key
        raise TokenRefused

    def _check(self, claims: Mapping[str, Any]) -> ValidatedToken:
        expires_at_ms = time_ms(claims, "exp")
        issued_at_ms = time_ms(claims, "iat")
        now_ms = self._now_ms()
        if now_ms >= expires_at_ms + self._clock_skew_ms:
            raise TokenRefused
        if "nbf" in claims and now_ms + self._clock_skew_ms < time_ms(claims, "nbf"):
            raise TokenRefused
        if issued_at_ms > expires_at_ms:
            raise TokenRefused
        audience = claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        if self._audience is not None and self._audience not in audiences:
            raise TokenRefused
        if self._issuer is not None and claims.get("iss") != self._issuer:
            raise TokenRefused
        user = claims.get(self._subject_claim)
        # Kafka refuses an empty scope, but not a token without the claim.
        if not isinstance(user, str) or not user.strip() or claims.get("scope", "-") == "":
            raise TokenRefused
        return ValidatedToken(user, expires_at_ms)


def _parse_key_set(jwks: object) -> list[Mapping[str, Any]]:
    """Return the keys of a key set. Raises `InvalidOption`."""
    try:
        parsed = json.loads(jwks) if isinstance(jwks, str) else jwks
    except ValueError:
        parsed = None
    keys = parsed.get("keys") if isinstance(parsed, Mapping) else None
    if not isinstance(keys, list) or not all(isinstance(key, Mapping) for key in keys):
        raise InvalidOption('jwks must be a JSON Web Key Set, such as {"keys": […]}')
    return keys


def _is_signed(key: Mapping[str, Any], algorithm: str, signed: bytes, signature: str) -> bool:
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils  # noqa: PLC0415

    hashed = getattr(hashes, ALGORITHMS[algorithm])()
    try:
        raw = _decode_bytes(signature)
        if key["kty"] == "RSA":
            numbers = rsa.RSAPublicNumbers(_decode_int(key["e"]), _decode_int(key["n"]))
            numbers.public_key().verify(raw, signed, padding.PKCS1v15(), hashed)
            return True
        if len(raw) != 2 * P256_BYTES:
            return False
        point = ec.EllipticCurvePublicNumbers(
            _decode_int(key["x"]), _decode_int(key["y"]), ec.SECP256R1()
        )
        r, s = (int.from_bytes(half, "big") for half in (raw[:P256_BYTES], raw[P256_BYTES:]))
        point.public_key().verify(utils.encode_dss_signature(r, s), signed, ec.ECDSA(hashed))
        return True
    except (InvalidSignature, KeyError, TypeError, ValueError, binascii.Error):
        return False


def _decode_int(text: str) -> int:
    return int.from_bytes(_decode_bytes(text), "big")


def _decode_bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
