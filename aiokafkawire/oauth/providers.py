"""Token providers that ask the token endpoint of an identity provider."""

from __future__ import annotations

import os
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, get_args

from aiokafkawire.errors import InvalidOption
from aiokafkawire.oauth.arguments import (
    SecretSource,
    check_parameters,
    check_text,
    hide,
    keep_secret,
    resolve_secret,
    shown_url,
)
from aiokafkawire.oauth.http_post import TokenForm, basic_authorization
from aiokafkawire.oauth.token_endpoint import TokenEndpoint
from aiokafkawire.security import OAuthBearerToken, Secret

__all__ = ("DEFAULT_TIMEOUT_MS", "ClientAuth", "JwtBearerTokenProvider", "OidcTokenProvider")

DEFAULT_TIMEOUT_MS = 10_000

ClientAuth = Literal["basic", "basic_unencoded", "form"]

CLIENT_CREDENTIALS = "client_credentials"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
CLIENT_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

RESERVED = frozenset(
    {
        "assertion",
        "audience",
        "client_assertion",
        "client_assertion_type",
        "client_id",
        "client_secret",
        "grant_type",
        "scope",
    }
)
"""Parameters that the providers set."""


class _ClientAuthentication:
    """Authentication of a client at the token endpoint (RFC 6749 section 2.3, RFC 7521)."""

    def __init__(
        self,
        client_id: str | None,
        client_secret: Any,
        client_assertion: Any,
        client_auth: ClientAuth,
    ) -> None:
        self._secret = (
            None if client_secret is None else keep_secret("client_secret", client_secret)
        )
        self._assertion = (
            None if client_assertion is None else keep_secret("client_assertion", client_assertion)
        )
        self.client_id = None if client_id is None else check_text("client_id", client_id)
        if client_auth not in get_args(ClientAuth):
            raise InvalidOption(
                f"client_auth must be one of {', '.join(map(repr, get_args(ClientAuth)))},"
                f" not {client_auth!r:.100}"
            )
        if self._secret is not None and self._assertion is not None:
            raise InvalidOption("client_secret contradicts client_assertion: pass one of them")
        if self._secret is not None and self.client_id is None:
            raise InvalidOption("client_secret needs client_id")
        self._client_auth = client_auth

    @property
    def has_credentials(self) -> bool:
        """True if there is a secret or an assertion."""
        return self._secret is not None or self._assertion is not None

    async def make_form(self, fields: dict[str, str | Secret]) -> TokenForm:
        """Return a request with the given fields and with the client's credentials."""
        if self._assertion is not None:
            if self.client_id is not None:
                fields["client_id"] = self.client_id
            fields["client_assertion_type"] = CLIENT_ASSERTION_TYPE
            fields["client_assertion"] = await resolve_secret("client_assertion", self._assertion)
            return TokenForm(fields)
        if self.client_id is None:
            return TokenForm(fields)
        if self._secret is None:
            fields["client_id"] = self.client_id
            return TokenForm(fields)
        secret = await resolve_secret("client_secret", self._secret)
        if self._client_auth == "form":
            fields["client_id"] = self.client_id
            fields["client_secret"] = secret
            return TokenForm(fields)
        is_encoded = self._client_auth == "basic"
        authorization = basic_authorization(self.client_id, secret, is_encoded=is_encoded)
        return TokenForm(fields, authorization, (secret,))


class OidcTokenProvider:
    """Token provider: the client credentials grant of OAuth 2 and OpenID Connect.

    Works with Keycloak, Okta, Auth0, Microsoft Entra ID, Azure Event Hubs, Confluent Cloud and
    other identity providers. Authenticates with a client secret, or with a signed assertion instead
    (KIP-1258). A provider may be shared by several clients; each caches its own token.

    Args:
        token_endpoint_url: URL of the token endpoint. Proxies are taken from the environment
            (`https_proxy`, `no_proxy`). Redirects are not followed.
        client_id: Id of the client. May be omitted with `client_assertion`.
        client_secret: Secret of the client, or an async function that returns it. The function is
            called for each request, so that secrets can change.
        client_assertion: Signed JSON Web Token instead of a secret: `SignedAssertion`,
            `AssertionFile`, or another async function.
        client_auth: How id and secret are sent: "basic" in the `Authorization` header,
            form-encoded as RFC 6749 wants; "basic_unencoded" the same as they are, for servers that
            do not decode (Java's default); "form" in the body.
        scope: Scopes, separated by spaces.
        audience: The parameter `audience`, which Auth0 and others need.
        extra_parameters: More parameters of the request.
        extensions: SASL extensions that are sent to the broker beside the token (KIP-342), such as
            `logicalCluster` and `identityPoolId` of Confluent Cloud.
        ssl_context: TLS settings for the token endpoint. They are separate from the brokers'.
        ssl_cafile: PEM file of the authorities that sign the endpoint's certificate. Default: those
            that the system trusts.
        timeout_ms: Limit of one request. The client asks again after temporary failures, as
            `Retry-After` says.
        allow_http: Accept an unencrypted URL of another host than this machine.

    Raises:
        InvalidOption: Arguments contradict each other, or the URL is not safe.
    """

    _label = "OidcTokenProvider(...)"
    """What `repr` shows, also of a provider whose constructor failed."""

    def __init__(
        self,
        token_endpoint_url: str,
        *,
        client_id: str | None = None,
        client_secret: SecretSource | None = None,
        client_assertion: SecretSource | None = None,
        client_auth: ClientAuth = "basic",
        scope: str | None = None,
        audience: str | None = None,
        extra_parameters: Mapping[str, str] | None = None,
        extensions: Mapping[str, str] | None = None,
        ssl_context: ssl.SSLContext | None = None,
        ssl_cafile: str | os.PathLike[str] | None = None,
        timeout_ms: float = DEFAULT_TIMEOUT_MS,
        allow_http: bool = False,
    ) -> None:
        client_secret, client_assertion = hide(client_secret), hide(client_assertion)
        self._client = _ClientAuthentication(
            client_id, client_secret, client_assertion, client_auth
        )
        if not self._client.has_credentials:
            raise InvalidOption("OidcTokenProvider needs client_secret or client_assertion")
        self._fields = _common_fields(CLIENT_CREDENTIALS, scope, audience, extra_parameters)
        self._endpoint = TokenEndpoint(
            token_endpoint_url,
            extensions=extensions,
            ssl_context=ssl_context,
            ssl_cafile=None if ssl_cafile is None else os.fspath(ssl_cafile),
            timeout_ms=timeout_ms,
            allow_http=allow_http,
        )
        url = shown_url(self._endpoint.url)
        self._label = f"OidcTokenProvider({url!r}, client_id={client_id!r})"

    async def __call__(self) -> OAuthBearerToken:
        """Request a token.

        Raises:
            TokenUnavailable: The identity provider cannot be reached, is overloaded, or does not
                respond as one.
            AuthenticationFailed: The identity provider refused, or its certificate is not valid.
        """
        return await self._endpoint.fetch_token(self._make_form)

    async def _make_form(self) -> TokenForm:
        return await self._client.make_form(dict(self._fields))

    def __repr__(self) -> str:
        return self._label


class JwtBearerTokenProvider:
    """Token provider: the JWT bearer grant (RFC 7523, KIP-1139).

    Exchanges a signed assertion for a token.

    Args:
        token_endpoint_url: As for `OidcTokenProvider`, like all arguments that are not listed here.
        assertion: Signed JSON Web Token: `SignedAssertion`, `AssertionFile`, or another async
            function. It is called for each request.
        client_id: Id of the client, if the identity provider wants one.
        client_secret: Secret of the client, if the identity provider wants one.

    Raises:
        InvalidOption: Arguments contradict each other, or the URL is not safe.
    """

    _label = "JwtBearerTokenProvider(...)"
    """What `repr` shows, also of a provider whose constructor failed."""

    def __init__(
        self,
        token_endpoint_url: str,
        *,
        assertion: Callable[[], Awaitable[str | Secret]],
        client_id: str | None = None,
        client_secret: SecretSource | None = None,
        client_auth: ClientAuth = "basic",
        scope: str | None = None,
        audience: str | None = None,
        extra_parameters: Mapping[str, str] | None = None,
        extensions: Mapping[str, str] | None = None,
        ssl_context: ssl.SSLContext | None = None,
        ssl_cafile: str | os.PathLike[str] | None = None,
        timeout_ms: float = DEFAULT_TIMEOUT_MS,
        allow_http: bool = False,
    ) -> None:
        assertion, client_secret = hide(assertion), hide(client_secret)
        self._assertion = keep_secret("assertion", assertion)
        self._client = _ClientAuthentication(client_id, client_secret, None, client_auth)
        self._fields = _common_fields(JWT_BEARER, scope, audience, extra_parameters)
        self._endpoint = TokenEndpoint(
            token_endpoint_url,
            extensions=extensions,
            ssl_context=ssl_context,
            ssl_cafile=None if ssl_cafile is None else os.fspath(ssl_cafile),
            timeout_ms=timeout_ms,
            allow_http=allow_http,
        )
        self._label = f"JwtBearerTokenProvider({shown_url(self._endpoint.url)!r})"

    async def __call__(self) -> OAuthBearerToken:
        """Request a token.

        Raises:
            TokenUnavailable: The identity provider cannot be reached, is overloaded, or does not
                respond as one; or the assertion's file cannot be read.
            AuthenticationFailed: The identity provider refused, or its certificate is not valid.
        """
        return await self._endpoint.fetch_token(self._make_form)

    async def _make_form(self) -> TokenForm:
        fields: dict[str, str | Secret] = dict(self._fields)
        fields["assertion"] = await resolve_secret("assertion", self._assertion)
        return await self._client.make_form(fields)

    def __repr__(self) -> str:
        return self._label


def _common_fields(
    grant_type: str,
    scope: str | None,
    audience: str | None,
    extra_parameters: Mapping[str, str] | None,
) -> dict[str, str]:
    fields = {"grant_type": grant_type, **check_parameters(extra_parameters, RESERVED)}
    for name, value in (("scope", scope), ("audience", audience)):
        if value is not None:
            fields[name] = check_text(name, value)
    return fields
