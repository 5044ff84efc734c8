"""SASL mechanisms as step machines of the client and of the broker, and the cache of tokens.

This package does no I/O, but for the files of `ClientTls`.
"""

from aiokafkawire.config import Secret
from aiokafkawire.security.client_mechanisms import ClientMechanisms
from aiokafkawire.security.gssapi import GssapiClient
from aiokafkawire.security.mechanism import ClientMechanism, CredentialsRefused, ServerMechanism
from aiokafkawire.security.oauthbearer import (
    OAuthBearerClient,
    OAuthBearerServer,
    OAuthBearerToken,
    TokenRefused,
)
from aiokafkawire.security.plain import PlainClient, PlainServer
from aiokafkawire.security.scram import (
    SCRAM_HASHES,
    SaltedPasswords,
    ScramClient,
    ScramCredential,
    ScramServer,
)
from aiokafkawire.security.tls import ClientTls, tls_error
from aiokafkawire.security.token_cache import TokenCache, TokenProvider

__all__ = (
    "SCRAM_HASHES",
    "ClientMechanism",
    "ClientMechanisms",
    "ClientTls",
    "CredentialsRefused",
    "GssapiClient",
    "OAuthBearerClient",
    "OAuthBearerServer",
    "OAuthBearerToken",
    "PlainClient",
    "PlainServer",
    "SaltedPasswords",
    "ScramClient",
    "ScramCredential",
    "ScramServer",
    "Secret",
    "ServerMechanism",
    "TokenCache",
    "TokenProvider",
    "TokenRefused",
    "tls_error",
)
