"""Assertions that the client signs itself."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from aiokafkawire.errors import AuthenticationFailed, InvalidOption, TokenUnavailable
from aiokafkawire.oauth import OidcTokenProvider, Secret, SignedAssertion
from aiokafkawire.oauth import assertion as module

from .identity_provider import issue, running

PASSWORD = "p4ssword-of-key"
RSA = rsa.generate_private_key(65_537, 2_048)
P256 = ec.generate_private_key(ec.SECP256R1())


def pem(key: Any, password: str | None = None, form: Any = None) -> str:
    encryption = (
        serialization.NoEncryption()
        if password is None
        else serialization.BestAvailableEncryption(password.encode())
    )
    form = form or serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, encryption).decode()  # type: ignore[no-any-return]


def signed(**options: Any) -> SignedAssertion:
    options = {"issuer": "billing", "audience": "https://idp.example"} | options
    return SignedAssertion(**options)


def parts(token: Secret) -> tuple[dict[str, Any], dict[str, Any], bytes, bytes]:
    """Return header, claims, signature, and what is signed."""
    head, claims, signature = token.reveal().split(".")
    decoded = [base64.urlsafe_b64decode(part + "==") for part in (head, claims, signature)]
    assert "=" not in token.reveal()
    return json.loads(decoded[0]), json.loads(decoded[1]), decoded[2], f"{head}.{claims}".encode()


async def test_rs256(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    path.write_text(pem(RSA))
    sign = signed(
        private_key_file=path,
        key_id="k1",
        subject="account",
        lifetime_s=120,
        clock_skew_s=5,
        claims={"tenant": [1]},
        headers={"x5t": "abc"},
    )
    header, claims, signature, text = parts(await sign())
    RSA.public_key().verify(signature, text, padding.PKCS1v15(), hashes.SHA256())
    assert header == {"alg": "RS256", "typ": "JWT", "kid": "k1", "x5t": "abc"}
    now = claims["iat"]
    assert abs(now - time.time()) < 30
    other = parts(await sign())[1]
    assert other["jti"] != claims.pop("jti")
    assert claims == {
        "iss": "billing",
        "sub": "account",
        "aud": "https://idp.example",
        "iat": now,
        "nbf": now - 5,
        "exp": now + 120,
        "tenant": [1],
    }


@pytest.mark.parametrize(
    "form", [serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.TraditionalOpenSSL]
)
async def test_es256(form: Any) -> None:
    header, claims, signature, text = parts(
        await signed(private_key=pem(P256, form=form), algorithm="ES256")()
    )
    assert header == {"alg": "ES256", "typ": "JWT"}
    assert (claims["iss"], claims["sub"]) == ("billing", "billing")
    assert len(signature) == 64
    numbers = [int.from_bytes(half, "big") for half in (signature[:32], signature[32:])]
    P256.public_key().verify(encode_dss_signature(*numbers), text, ec.ECDSA(hashes.SHA256()))


async def test_encrypted_keys_and_functions() -> None:
    async def key() -> str:
        return pem(RSA, PASSWORD)

    async def password() -> Secret:
        return Secret(PASSWORD)

    token = await signed(private_key=key, private_key_password=password)()
    _, _, signature, text = parts(token)
    RSA.public_key().verify(signature, text, padding.PKCS1v15(), hashes.SHA256())
    await signed(private_key=pem(RSA, PASSWORD), private_key_password=PASSWORD)()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"private_key": pem(P256)}, "is not an RSA key, as RS256 needs"),
        ({"private_key": pem(RSA), "algorithm": "ES256"}, "is not an EC key on the curve P-256"),
        (
            {"private_key": pem(ec.generate_private_key(ec.SECP384R1())), "algorithm": "ES256"},
            "is not an EC key on the curve P-256",
        ),
        ({"private_key": pem(ed25519.Ed25519PrivateKey.generate())}, "is not an RSA key"),
        ({"private_key": "no PEM"}, "cannot be loaded"),
        ({"private_key": pem(RSA, PASSWORD)}, "needs private_key_password"),
        (
            {"private_key": pem(RSA), "private_key_password": PASSWORD},
            "is not encrypted: omit private_key_password",
        ),
        (
            {"private_key": pem(RSA, PASSWORD), "private_key_password": "wrong"},
            "cannot be loaded; check that it is PEM, and its password",
        ),
    ],
)
async def test_keys_that_cannot_be_used(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(AuthenticationFailed, match=f"the private key in private_key {reason}"):
        await signed(**options)()


async def test_a_key_file_that_is_missing_may_come(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    sign = signed(private_key_file=path)
    with pytest.raises(TokenUnavailable, match=r"key\.pem cannot be read: No such file"):
        await sign()
    path.write_text("x" * 100_000)
    with pytest.raises(TokenUnavailable, match="has more than 65536 bytes"):
        await sign()
    path.write_text(pem(RSA))
    await sign()


async def test_a_client_authenticates_with_a_signed_assertion() -> None:
    sign = signed(private_key=pem(RSA))
    with running(issue("token")) as server:
        provider = OidcTokenProvider(server.url, client_id="billing", client_assertion=sign)
        await provider()
        await provider()
    first, second = (parts(Secret(one.form["client_assertion"])) for one in server.requests)
    for _, claims, signature, text in (first, second):
        RSA.public_key().verify(signature, text, padding.PKCS1v15(), hashes.SHA256())
        assert claims["sub"] == "billing"
    assert first[1]["jti"] != second[1]["jti"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "needs either private_key_file or private_key"),
        ({"private_key": "a", "private_key_file": "b"}, "needs either"),
        ({"private_key": b"a"}, "private_key must be"),
        ({"private_key": ""}, "private_key is empty"),
        ({"private_key": "a", "algorithm": "none"}, "must be 'RS256' or 'ES256'"),
        ({"private_key": "a", "issuer": ""}, "issuer must be"),
        ({"private_key": "a", "audience": None}, "audience must be"),
        ({"private_key": "a", "subject": 7}, "subject must be"),
        ({"private_key": "a", "key_id": ""}, "key_id must be"),
        ({"private_key": "a", "lifetime_s": 0}, "lifetime_s must be from 1"),
        ({"private_key": "a", "clock_skew_s": -1}, "clock_skew_s must be from 0"),
        ({"private_key": "a", "claims": {"exp": 1}}, "claims must not have 'exp'"),
        ({"private_key": "a", "headers": {"alg": "none"}}, "headers must not have 'alg'"),
        ({"private_key": "a", "claims": {"a": object()}}, "cannot be written as JSON"),
        ({"private_key": "a", "claims": {"a": float("nan")}}, "cannot be written as JSON"),
    ],
)
def test_arguments_that_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidOption, match=reason):
        signed(**options)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    with pytest.raises(InvalidOption, match=r"pip install 'aiokafkawire\[oauth\]'"):
        signed(private_key="a")


def test_repr_names_issuer_and_audience() -> None:
    shown = repr(signed(private_key=pem(RSA)))
    assert shown == "SignedAssertion(issuer='billing', audience='https://idp.example')"
