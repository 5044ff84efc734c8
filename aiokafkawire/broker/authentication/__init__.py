"""Authentication of clients by TLS certificates and SASL."""

from aiokafkawire.broker.authentication.authenticator import (
    MAX_TOKEN_BYTES,
    UNEXPECTED_AUTHENTICATE,
    Admission,
    SaslAuthenticator,
    SaslSettings,
)
from aiokafkawire.broker.authentication.certificates import Certificate, CertificateAuthority
from aiokafkawire.broker.authentication.credentials import CredentialStore
from aiokafkawire.broker.authentication.jwks import JwksValidator
from aiokafkawire.broker.authentication.listeners import (
    BrokerListener,
    BrokerSasl,
    BrokerTls,
    ListenerSettings,
    check_user,
    resolve_listeners,
)
from aiokafkawire.broker.authentication.principals import certificate_principal, user_principal
from aiokafkawire.broker.authentication.tokens import (
    TokenValidator,
    ValidatedToken,
    make_unsecured_token,
)

__all__ = (
    "MAX_TOKEN_BYTES",
    "UNEXPECTED_AUTHENTICATE",
    "Admission",
    "BrokerListener",
    "BrokerSasl",
    "BrokerTls",
    "Certificate",
    "CertificateAuthority",
    "CredentialStore",
    "JwksValidator",
    "ListenerSettings",
    "SaslAuthenticator",
    "SaslSettings",
    "TokenValidator",
    "ValidatedToken",
    "certificate_principal",
    "check_user",
    "make_unsecured_token",
    "resolve_listeners",
    "user_principal",
)
