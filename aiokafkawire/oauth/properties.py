"""Token providers from the properties of Java and librdkafka."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit
from urllib.request import url2pathname

from aiokafkawire.config.java_properties import OAuthSettings
from aiokafkawire.oauth.files import TokenFileProvider
from aiokafkawire.oauth.providers import OidcTokenProvider
from aiokafkawire.security import OAuthBearerToken

__all__ = ("make_token_provider",)


def make_token_provider(settings: OAuthSettings) -> Callable[[], Awaitable[OAuthBearerToken]]:
    """Return the provider that the settings mean.

    Raises:
        InvalidOption: The URL is not safe, or a value cannot be used.
    """
    extensions = dict(settings.extensions)
    if settings.url.startswith("file:"):
        return TokenFileProvider(url2pathname(urlsplit(settings.url).path), extensions=extensions)
    return OidcTokenProvider(
        settings.url,
        client_id=settings.client_id,
        client_secret=settings.client_secret,
        client_auth="basic" if settings.is_encoded else "basic_unencoded",
        scope=settings.scope,
        extensions=extensions,
    )
