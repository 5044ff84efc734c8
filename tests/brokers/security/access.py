"""Access of a client to a listener, as options of each client library."""

from __future__ import annotations

import ssl
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiokafka.abc

from aiokafkawire.security import OAuthBearerToken, Secret
from tests.brokers.security.pki import Certificate

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.net.sasl.oauth import AbstractTokenProvider

Issue = Callable[[], tuple[str, int]]
"""Returns a token and its expiry in milliseconds since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Protocol, credentials and certificates. `authority` is the one that the client trusts."""

    protocol: str = "PLAINTEXT"
    mechanism: str | None = None
    username: str | None = None
    password: str | None = None
    token: Issue | None = None
    authority: Path | None = None
    certificate: Certificate | None = None

    @property
    def encrypted(self) -> bool:
        return self.protocol in {"SSL", "SASL_SSL"}

    def ssl_context(self) -> ssl.SSLContext | None:
        if not self.encrypted:
            return None
        context = ssl.create_default_context(cafile=self.authority)
        if self.certificate is not None:
            context.load_cert_chain(self.certificate.chain, self.certificate.key)
        return context

    def options(self) -> dict[str, Any]:
        """Return the options of this package's clients."""
        options: dict[str, Any] = {"security_protocol": self.protocol}
        if self.authority is not None:
            options["ssl_cafile"] = str(self.authority)
        if self.certificate is not None:
            options["ssl_certfile"] = str(self.certificate.chain)
            options["ssl_keyfile"] = str(self.certificate.key)
        if self.mechanism is not None:
            options["sasl_mechanism"] = self.mechanism
        if self.username is not None:
            options |= {"sasl_username": self.username, "sasl_password": self.password}
        if self.token is not None:
            issue = self.token

            async def provide() -> OAuthBearerToken:
                token, expires_at_ms = issue()
                return OAuthBearerToken(Secret(token), expires_at_ms)

            options["sasl_oauth_token_provider"] = provide
        return options

    def for_confluent(self) -> dict[str, Any]:
        config: dict[str, Any] = {"security.protocol": self.protocol}
        if self.encrypted:
            config["ssl.ca.location"] = str(self.authority)
        if self.certificate is not None:
            config["ssl.certificate.location"] = str(self.certificate.chain)
            config["ssl.key.location"] = str(self.certificate.key)
        if self.mechanism is not None:
            config["sasl.mechanism"] = self.mechanism
        if self.username is not None:
            config |= {"sasl.username": self.username, "sasl.password": self.password}
        if self.token is not None:
            issue = self.token

            def callback(_: str) -> tuple[str, float]:
                token, expires_at_ms = issue()
                return token, expires_at_ms / 1_000

            config["oauth_cb"] = callback
        return config

    def for_aiokafka(self) -> dict[str, Any]:
        options: dict[str, Any] = {
            "security_protocol": self.protocol,
            "ssl_context": self.ssl_context(),
        }
        if self.mechanism is not None:
            options["sasl_mechanism"] = self.mechanism
            options["sasl_plain_username"] = self.username
            options["sasl_plain_password"] = self.password
        if self.token is not None:
            options["sasl_oauth_token_provider"] = _AiokafkaTokens(self.token)
        return options

    def for_kafka_python(self) -> dict[str, Any]:
        options = self.for_aiokafka()
        if self.token is not None:
            options["sasl_oauth_token_provider"] = _KafkaPythonTokens(self.token)
        return options


class _AiokafkaTokens(aiokafka.abc.AbstractTokenProvider):
    def __init__(self, issue: Issue) -> None:
        self._issue = issue

    async def token(self) -> str:
        return self._issue()[0]


class _KafkaPythonTokens(AbstractTokenProvider):
    def __init__(self, issue: Issue) -> None:
        super().__init__()
        self._issue = issue

    def token(self) -> str:
        return self._issue()[0]
