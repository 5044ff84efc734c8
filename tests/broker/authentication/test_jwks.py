"""Signed tokens and the keys of an identity provider."""

from __future__ import annotations

import base64
import json
import sys
import time
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire import Producer
from aiokafkawire.broker import (
    Broker,
    BrokerSasl,
    JwksValidator,
    TokenRefused,
    ValidatedToken,
    make_unsecured_token,
)
from aiokafkawire.errors import AuthenticationFailed, InvalidOption
from aiokafkawire.security import OAuthBearerToken, Secret

NOW_MS = 1_700_000_000_000
NOW_S = NOW_MS // 1000

RSA_KEY = rsa.generate_private_key(65_537, 2048)
OTHER_RSA_KEY = rsa.generate_private_key(65_537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())


def encoded(value: bytes | int | dict[str, Any]) -> str:
    if isinstance(value, int):
        value = value.to_bytes((value.bit_length() + 7) // 8, "big")
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def rsa_jwk(key: rsa.RSAPrivateKey, key_id: str) -> dict[str, Any]:
    numbers = key.public_key().public_numbers()
    return {"kty": "RSA", "kid": key_id, "n": encoded(numbers.n), "e": encoded(numbers.e)}


EC_NUMBERS = EC_KEY.public_key().public_numbers()
KEYS: dict[str, Any] = {
    "keys": [
        {"kty": "oct", "kid": "secret"},
        rsa_jwk(RSA_KEY, "rsa"),
        {**rsa_jwk(OTHER_RSA_KEY, "encryption"), "use": "enc"},
        {
            "kty": "EC",
            "crv": "P-256",
            "kid": "ec",
            "x": encoded(EC_NUMBERS.x.to_bytes(32, "big")),
            "y": encoded(EC_NUMBERS.y.to_bytes(32, "big")),
        },
    ]
}
CLAIMS: dict[str, Any] = {
    "sub": "dora",
    "iss": "https://idp",
    "aud": ["kafka", "account"],
    "iat": NOW_S - 10,
    "exp": NOW_S + 50,
}


def signed(
    claims: dict[str, Any], *, key: Any = RSA_KEY, key_id: str | None = "rsa", alg: str = "RS256"
) -> Secret:
    header = {"alg": alg} if key_id is None else {"alg": alg, "kid": key_id}
    body = f"{encoded(header)}.{encoded(claims)}"
    if isinstance(key, ec.EllipticCurvePrivateKey):
        r, s = utils.decode_dss_signature(key.sign(body.encode(), ec.ECDSA(hashes.SHA256())))
        signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
    else:
        hashed = {"RS384": hashes.SHA384(), "RS512": hashes.SHA512()}.get(alg, hashes.SHA256())
        signature = key.sign(body.encode(), padding.PKCS1v15(), hashed)
    return Secret(f"{body}.{encoded(signature)}")


def validator(**settings: Any) -> JwksValidator:
    return JwksValidator(KEYS, now_ms=lambda: NOW_MS, **settings)


@pytest.mark.parametrize(
    ("token", "settings"),
    [
        (signed(CLAIMS), {}),
        (signed(CLAIMS), {"audience": "kafka", "issuer": "https://idp"}),
        (signed(CLAIMS | {"aud": "kafka"}), {"audience": "kafka"}),
        (signed(CLAIMS, key_id=None), {}),
        (signed(CLAIMS, alg="RS384"), {}),
        (signed(CLAIMS, alg="RS512"), {}),
        (signed(CLAIMS, key=EC_KEY, key_id="ec", alg="ES256"), {}),
        (signed(CLAIMS | {"scope": "read"}), {}),
        (signed(CLAIMS | {"sub": "a-uuid", "name": "dora"}), {"subject_claim": "name"}),
    ],
)
def test_tokens_that_are_accepted(token: Secret, settings: dict[str, Any]) -> None:
    assert validator(**settings)(token, {}) == ValidatedToken("dora", (NOW_S + 50) * 1000)


def test_a_token_is_accepted_for_a_while_after_its_expiry() -> None:
    expired = signed(CLAIMS | {"iat": NOW_S - 90, "exp": NOW_S - 29})
    assert validator()(expired, {}).expires_at_ms == (NOW_S - 29) * 1000
    with pytest.raises(TokenRefused):
        validator(clock_skew_s=5)(expired, {})


@pytest.mark.parametrize(
    "token",
    [
        signed(CLAIMS, key=OTHER_RSA_KEY),
        signed(CLAIMS, key=OTHER_RSA_KEY, key_id="encryption"),
        signed(CLAIMS, key_id="unknown"),
        signed(CLAIMS, key_id="ec"),
        signed(CLAIMS, alg="HS256"),
        signed(CLAIMS, alg="none"),
        signed(CLAIMS, key=EC_KEY, key_id="rsa", alg="RS256"),
        signed(CLAIMS | {"aud": "other"}),
        signed({name: value for name, value in CLAIMS.items() if name != "aud"}),
        signed(CLAIMS | {"iss": "https://other"}),
        signed(CLAIMS | {"iat": NOW_S - 90, "exp": NOW_S - 31}),
        signed(CLAIMS | {"exp": "soon"}),
        signed(CLAIMS | {"iat": NOW_S + 60}),
        signed(CLAIMS | {"nbf": NOW_S + 31}),
        signed(CLAIMS | {"scope": ""}),
        signed(CLAIMS | {"sub": " "}),
        signed(CLAIMS | {"sub": None}),
        Secret(make_unsecured_token("dora")),
        Secret(signed(CLAIMS).reveal()[:-3] + "AAA"),
        Secret(".".join(signed(CLAIMS).reveal().split(".")[:2])),
        Secret("a.b.c"),
    ],
)
def test_tokens_that_are_refused(token: Secret) -> None:
    with pytest.raises(TokenRefused, match="invalid_token"):
        validator(audience="kafka", issuer="https://idp")(token, {})


@given(st.text(alphabet="eyJ.=-_Aa0 \x00é", max_size=60))
def test_any_text_is_refused(text: str) -> None:
    with pytest.raises(TokenRefused):
        validator()(Secret(text), {})


def test_keys_may_rotate() -> None:
    keys: list[Any] = [rsa_jwk(OTHER_RSA_KEY, "old")]
    current = JwksValidator(lambda: json.dumps({"keys": keys}), now_ms=lambda: NOW_MS)
    with pytest.raises(TokenRefused):
        current(signed(CLAIMS), {})
    keys.append(rsa_jwk(RSA_KEY, "rsa"))
    assert current(signed(CLAIMS), {}).principal == "dora"


@pytest.mark.parametrize("jwks", ["", "[]", "{}", {"keys": 3}, {"keys": [3]}, None])
def test_what_is_no_key_set(jwks: Any) -> None:
    with pytest.raises(InvalidOption, match="jwks must be a JSON Web Key Set"):
        JwksValidator(jwks)


def test_it_names_the_extra_without_cryptography(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat", None)
    with pytest.raises(InvalidOption, match=r"pip install 'aiokafkawire\[testing\]'"):
        JwksValidator(KEYS)


async def test_a_broker_asks_it() -> None:
    now_s = int(time.time())
    claims = CLAIMS | {"iat": now_s, "exp": now_s + 60}
    sasl = BrokerSasl(token_validator=JwksValidator(KEYS, audience="kafka"))
    async with Broker(sasl=sasl) as broker:

        async def connects(token: Secret) -> bool:
            async def provide() -> OAuthBearerToken:
                return OAuthBearerToken(token)

            try:
                async with Producer(
                    **broker.client_options(), sasl_oauth_token_provider=provide
                ) as producer:
                    await producer.partitions_for("orders")
                    return True
            except AuthenticationFailed:
                return False

        assert await connects(signed(claims))
        assert not await connects(signed(claims | {"aud": "other"}))
