"""Token providers for OAUTHBEARER, for the option `sasl_oauth_token_provider`.

A provider is an async callable without arguments that returns an `OAuthBearerToken`. Clients call
it ahead of expiry, and share the token among their connections.
"""

from aiokafkawire.oauth.assertion import SignedAssertion
from aiokafkawire.oauth.files import AssertionFile, TokenFileProvider
from aiokafkawire.oauth.msk import MskIamTokenProvider
from aiokafkawire.oauth.providers import JwtBearerTokenProvider, OidcTokenProvider
from aiokafkawire.security import OAuthBearerToken, Secret

__all__ = (
    "AssertionFile",
    "JwtBearerTokenProvider",
    "MskIamTokenProvider",
    "OAuthBearerToken",
    "OidcTokenProvider",
    "Secret",
    "SignedAssertion",
    "TokenFileProvider",
)
