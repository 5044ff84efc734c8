"""Hints for unknown options of TLS and SASL; see `option_hints`.

Names are in lower case with underscores, as `option_hint` compares them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ("ABSENT", "FAMILIES", "NOTES", "RENAMED")

CONTEXT = "ssl_context"
PROVIDER = "sasl_oauth_token_provider"

KERBEROS = "the client uses the tickets of kinit, or the keytab in KRB5_CLIENT_KTNAME"
LOGIN = (
    "set sasl_username and sasl_password, which can be an async function, or"
    " sasl_oauth_token_provider"
)
REFRESH = "a connection authenticates again before its session ends, without options"
PEM_FILE = "It takes a PEM file."
IN_CONTEXT = "Set it in an ssl.SSLContext."
IN_PROVIDER = "It gets the token: see docs/security.md."

RENAMED: Mapping[str, str] = {
    # aiokafka and kafka-python
    "sasl_plain_password": "sasl_password",
    "sasl_plain_username": "sasl_username",
    "ssl_ciphers": CONTEXT,
    "ssl_crlfile": CONTEXT,
    # librdkafka
    "oauth_cb": PROVIDER,
    "oauthbearer_token_refresh_cb": PROVIDER,
    "sasl_mechanisms": "sasl_mechanism",
    "sasl_oauthbearer_client_id": PROVIDER,
    "sasl_oauthbearer_client_secret": PROVIDER,
    "sasl_oauthbearer_config": PROVIDER,
    "sasl_oauthbearer_extensions": PROVIDER,
    "sasl_oauthbearer_grant_type": PROVIDER,
    "sasl_oauthbearer_metadata_authentication_type": PROVIDER,
    "sasl_oauthbearer_method": PROVIDER,
    "ssl_ca_location": "ssl_cafile",
    "ssl_ca_pem": "ssl_cadata",
    "ssl_certificate_location": "ssl_certfile",
    "ssl_certificate_pem": "ssl_certdata",
    "ssl_certificate_verify_cb": CONTEXT,
    "ssl_cipher_suites": CONTEXT,
    "ssl_crl_location": CONTEXT,
    "ssl_curves_list": CONTEXT,
    "ssl_key_location": "ssl_keyfile",
    "ssl_key_password": "ssl_password",
    "ssl_key_pem": "ssl_keydata",
    "ssl_sigalgs_list": CONTEXT,
    # Java
    "sasl_login_callback_handler_class": PROVIDER,
    "sasl_oauthbearer_scope": PROVIDER,
    "sasl_oauthbearer_token_endpoint_url": PROVIDER,
    "ssl_enabled_protocols": CONTEXT,
    "ssl_endpoint_identification_algorithm": "ssl_check_hostname",
    "ssl_engine_factory_class": CONTEXT,
    "ssl_keystore_certificate_chain": "ssl_certdata",
    "ssl_keystore_key": "ssl_keydata",
    "ssl_protocol": CONTEXT,
    "ssl_truststore_certificates": "ssl_cadata",
    "ssl_truststore_location": "ssl_cafile",
    # Other spellings
    "sasl_user": "sasl_username",
    "security": "security_protocol",
    "ssl": "security_protocol",
    "ssl_ca": "ssl_cafile",
    "ssl_cert": "ssl_certfile",
    "ssl_key": "ssl_keyfile",
    "tls": "security_protocol",
}
"""Options of other clients, with the corresponding option of this package."""

NOTES: Mapping[str, str] = {
    "oauth_cb": IN_PROVIDER,
    "oauthbearer_token_refresh_cb": IN_PROVIDER,
    "ssl": "'SSL' and 'SASL_SSL' use TLS.",
    "ssl_ca_location": PEM_FILE,
    "ssl_certificate_location": PEM_FILE,
    "ssl_certificate_verify_cb": IN_CONTEXT,
    "ssl_cipher_suites": IN_CONTEXT,
    "ssl_ciphers": IN_CONTEXT,
    "ssl_crl_location": IN_CONTEXT,
    "ssl_crlfile": IN_CONTEXT,
    "ssl_curves_list": IN_CONTEXT,
    "ssl_enabled_protocols": IN_CONTEXT,
    "ssl_endpoint_identification_algorithm": "False turns the check off.",
    "ssl_key_location": PEM_FILE,
    "ssl_protocol": IN_CONTEXT,
    "ssl_sigalgs_list": IN_CONTEXT,
    "ssl_truststore_location": PEM_FILE,
    "tls": "'SSL' and 'SASL_SSL' use TLS.",
    **{name: IN_PROVIDER for name in RENAMED if name.startswith("sasl_oauthbearer_")},
}
"""What to know about a renamed option."""

STORE = (
    "certificates and keys are PEM: ssl_cafile, ssl_certfile and ssl_keyfile; for a Java keystore"
    " see docs/security.md"
)

ABSENT: Mapping[str, str] = {
    "enable_ssl_certificate_verification": (
        "certificates are always verified, unless ssl_context says otherwise"
    ),
    "enable_sasl_oauthbearer_unsecure_jwt": "a sasl_oauth_token_provider can make such a token",
    "sasl_jaas_config": LOGIN,
    "sasl_client_callback_handler_class": LOGIN,
    "sasl_login_class": LOGIN,
    "ssl_ca_certificate_stores": "without ssl_cafile, the system's certificates are used",
    "ssl_truststore_type": STORE,
    "ssl_truststore_password": STORE,
    "ssl_keystore_type": STORE,
}
"""Options of other clients without a counterpart, with the reason or an alternative."""

FAMILIES: Sequence[tuple[str, str]] = (
    ("sasl_kerberos_", KERBEROS),
    ("sasl_login_refresh_", REFRESH),
    ("sasl_oauthbearer_", f"{PROVIDER} gets the token: see docs/security.md"),
    ("sasl_login_", f"{PROVIDER} gets the token: see docs/security.md"),
    ("sasl_", "there are sasl_mechanism, sasl_username, sasl_password and " + PROVIDER),
    ("security_", "there is security_protocol; other settings: pass an ssl.SSLContext"),
    ("enable_ssl_", "pass an ssl.SSLContext as ssl_context"),
    ("https_", f"{PROVIDER} gets the token: see docs/security.md"),
    ("oauth", f"{PROVIDER} gets the token: see docs/security.md"),
    ("ssl_", "pass an ssl.SSLContext as ssl_context for other settings of TLS"),
    ("tls_", "options of TLS begin with ssl_: ssl_cafile, ssl_certfile, ssl_keyfile"),
)
"""Options of other clients by prefix."""
