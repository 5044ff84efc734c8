"""A small OpenID Connect provider in the test process: it signs tokens and publishes its keys.

`GET /jwks` is what brokers ask, `POST /token` (client credentials) what clients ask. Tests that
need a token at once call `IdentityProvider.issue()`.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote_plus

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.brokers.process import HOST

AUDIENCE = "kafka"
KEY_ID = "key-1"
TOKEN_LIFE_S = 300.0
CLIENTS = {"billing": "billing-secret"}
"""Client id and secret of each client that may ask for tokens."""


class IdentityProvider:
    """Serve on a free port between `__enter__` and `__exit__`."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(65537, 2048)
        self.token_life_s = TOKEN_LIFE_S
        """Life of the tokens of `POST /token`."""
        self.token_requests = 0
        self._server = ThreadingHTTPServer((HOST, 0), _Handler)
        self._server.daemon_threads = True
        self._server.provider = self
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )

    @property
    def issuer(self) -> str:
        return f"http://{HOST}:{self._server.server_port}"

    @property
    def jwks_url(self) -> str:
        return f"{self.issuer}/jwks"

    @property
    def token_url(self) -> str:
        return f"{self.issuer}/token"

    def issue(
        self,
        subject: str,
        *,
        life_s: float = TOKEN_LIFE_S,
        audience: str = AUDIENCE,
        algorithm: str = "RS256",
    ) -> tuple[str, int]:
        """Return a token and the time of its expiry in milliseconds since 1970.

        Args:
            subject: Name of the principal.
            life_s: Seconds until expiry; negative for an expired token.
            audience: Receiver that the token is meant for.
            algorithm: "RS256", or "none" for a token without a signature.
        """
        now = time.time()
        claims = {
            "iss": self.issuer,
            "sub": subject,
            "aud": audience,
            "iat": int(now),
            "exp": int(now + life_s),
        }
        signed = _unsigned({"alg": algorithm, "kid": KEY_ID, "typ": "JWT"}, claims)
        signature = b""
        if algorithm != "none":
            signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_encoded(signature)}", claims["exp"] * 1_000

    def keys(self) -> Mapping[str, Any]:
        numbers = self._key.public_key().public_numbers()
        key = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": KEY_ID}
        return {"keys": [key | {"n": _number(numbers.n), "e": _number(numbers.e)}]}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def unsecured_token(subject: str, *, life_s: float = TOKEN_LIFE_S) -> tuple[str, int]:
    """Return a token without a signature, and its expiry in milliseconds since 1970.

    Kafka's default validator takes these: its documentation advises them for development alone.
    """
    now = time.time()
    claims = {"sub": subject, "iat": int(now), "exp": int(now + life_s)}
    return f"{_unsigned({'alg': 'none'}, claims)}.", claims["exp"] * 1_000


class _Handler(BaseHTTPRequestHandler):
    server: Any

    def do_GET(self) -> None:
        if self.path == "/jwks":
            self._respond(HTTPStatus.OK, self.server.provider.keys())
        else:
            self._respond(HTTPStatus.NOT_FOUND, {})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = {name: values[0] for name, values in parse_qs(body).items()}
        client, secret = form.get("client_id", ""), form.get("client_secret", "")
        kind, _, credentials = self.headers.get("Authorization", "").partition(" ")
        if kind == "Basic":
            pair = base64.b64decode(credentials).decode().partition(":")
            client, secret = unquote_plus(pair[0]), unquote_plus(pair[2])
        provider = self.server.provider
        provider.token_requests += 1
        if self.path != "/token" or form.get("grant_type") != "client_credentials":
            self._respond(HTTPStatus.BAD_REQUEST, {"error": "unsupported_grant_type"})
        elif CLIENTS.get(client) != secret:
            self._respond(HTTPStatus.UNAUTHORIZED, {"error": "invalid_client"})
        else:
            life_s = provider.token_life_s
            token, _ = provider.issue(client, life_s=life_s)
            answer = {"access_token": token, "token_type": "Bearer", "expires_in": int(life_s)}
            self._respond(HTTPStatus.OK, answer)

    def log_message(self, *_: object) -> None:
        """Write nothing: tests read standard error."""

    def _respond(self, status: HTTPStatus, body: Mapping[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _unsigned(header: Mapping[str, Any], claims: Mapping[str, Any]) -> str:
    return f"{_encoded(json.dumps(header).encode())}.{_encoded(json.dumps(claims).encode())}"


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _number(number: int) -> str:
    return _encoded(number.to_bytes((number.bit_length() + 7) // 8, "big"))
