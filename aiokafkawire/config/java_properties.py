"""Conversion of the security properties of Java and librdkafka to the options of this package.

Files for `--config` and options of Spark have them. Names are Kafka's, with dots, in lower case.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from aiokafkawire.config.jaas import JAAS, LoginModule, parse_jaas
from aiokafkawire.config.secret import Secret
from aiokafkawire.errors import InvalidOption

__all__ = (
    "SAME_VALUES",
    "SECRET_PROPERTIES",
    "OAuthSettings",
    "convert_security_properties",
    "is_security_property",
)

PROTOCOL = "security.protocol"
TLS_VERSIONS = "ssl.enabled.protocols"
CHECK_HOST = "ssl.endpoint.identification.algorithm"
VERIFY = "enable.ssl.certificate.verification"
HANDLERS = ("sasl.login.callback.handler.class", "sasl.client.callback.handler.class")

TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
CLIENT_ID = ("sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.id")
CLIENT_SECRET = (
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.client.secret",
)
SCOPE = "sasl.oauthbearer.scope"
EXTENSIONS = "sasl.oauthbearer.extensions"
URLENCODE = "sasl.oauthbearer.header.urlencode"
METHOD = "sasl.oauthbearer.method"

SECRET_PROPERTIES = frozenset({JAAS, *CLIENT_SECRET})
"""Properties without an option of the same value that hold a secret."""

SAME_VALUES: Mapping[str, str] = {
    PROTOCOL: "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.password": "sasl_password",
    "sasl.kerberos.domain.name": "sasl_kerberos_domain_name",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
    "sasl.username": "sasl_username",
    "ssl.ca.location": "ssl_cafile",
    "ssl.ca.pem": "ssl_cadata",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.certificate.pem": "ssl_certdata",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "ssl.key.pem": "ssl_keydata",
    "ssl.keystore.certificate.chain": "ssl_certdata",
    "ssl.keystore.key": "ssl_keydata",
    "ssl.truststore.certificates": "ssl_cadata",
}
"""Properties whose values are those of an option."""

UNUSED = (
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.ticket.renew.",
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.login.refresh.",
    "sasl.login.retry.",
    "ssl.keymanager.algorithm",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
)
"""Properties, or their beginnings, that change nothing here."""

KERBEROS_LOGIN = ("sasl.kerberos.keytab", "sasl.kerberos.principal")
NO_KERBEROS_LOGIN = "omit it: GSSAPI uses the tickets of kinit, or the keytab in KRB5_CLIENT_KTNAME"

STORES = ("ssl.truststore", "ssl.keystore")
STORE_PARTS = ("type", "location", "password")

OTHERS = frozenset(
    {
        JAAS,
        TLS_VERSIONS,
        CHECK_HOST,
        VERIFY,
        *HANDLERS,
        *KERBEROS_LOGIN,
        "ssl.protocol",
        TOKEN_URL,
        *CLIENT_ID,
        *CLIENT_SECRET,
        SCOPE,
        EXTENSIONS,
        URLENCODE,
        METHOD,
        *(f"{store}.{part}" for store in STORES for part in STORE_PARTS),
    }
)

PEM, PKCS12, JKS = "PEM", "PKCS12", "JKS"
SUFFIXES = {
    ".pem": PEM,
    ".crt": PEM,
    ".cer": PEM,
    ".p12": PKCS12,
    ".pfx": PKCS12,
    ".pkcs12": PKCS12,
    ".jks": JKS,
    ".ks": JKS,
    ".keystore": JKS,
    ".truststore": JKS,
}
"""Types of stores whose type is not given."""

MSK_IAM = (
    "AWS_MSK_IAM is Java code here: use the mechanism OAUTHBEARER, which MSK has on the same port;"
    " see docs/security.md"
)
LOGIN_CLASSES = {
    "IAMClientCallbackHandler": MSK_IAM,
    "IAMLoginModule": MSK_IAM,
    "Krb5LoginModule": NO_KERBEROS_LOGIN,
}
"""Login modules and callback handlers that cannot be used, with the reason."""


OAUTHBEARER = "OAUTHBEARER"
OAUTH_MODULE = "OAuthBearerLoginModule"
OAUTH_HANDLER = "OAuthBearerLoginCallbackHandler"


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    """Source of OAUTHBEARER tokens.

    Attributes:
        url: Token endpoint, or `file:` with the path of a file that has the token.
        client_id: Id of the client; None for a file.
        client_secret: Its secret; None for a file.
        scope: Scopes, separated by spaces.
        extensions: SASL extensions, as pairs.
        is_encoded: Whether id and secret are URL-encoded in the request's header.
    """

    url: str
    client_id: str | None = None
    client_secret: Secret | None = None
    scope: str | None = None
    extensions: tuple[tuple[str, str], ...] = ()
    is_encoded: bool = False


def is_security_property(name: str) -> bool:
    """Return True for a name that `convert_security_properties` takes."""
    return name in SAME_VALUES or name in OTHERS or name.startswith(UNUSED)


def convert_security_properties(
    properties: Mapping[str, str], make_provider: Callable[[OAuthSettings], Any]
) -> dict[str, Any]:
    """Convert properties to options. The values can be secrets.

    Args:
        properties: Values by name; each name is one of `is_security_property`.
        make_provider: Returns the token provider for OAUTHBEARER.

    Raises:
        InvalidOption: A value cannot be converted. `option` is the name of the property, or None
            for one of the token provider. The text has no secret.
    """
    given = {name: value.strip() for name, value in properties.items()}
    if PROTOCOL in given:
        given[PROTOCOL] = given[PROTOCOL].upper()
    options: dict[str, Any] = {
        SAME_VALUES[name]: value for name, value in given.items() if name in SAME_VALUES
    }
    options |= _truststore(given)
    options |= _keystore(given)
    options |= _tls(given)
    module = parse_jaas(given[JAAS]) if JAAS in given else None
    options |= _login(given, module)
    # The mechanism may come from elsewhere, such as the environment.
    default = OAUTHBEARER if TOKEN_URL in given else None
    if options.get("sasl_mechanism", default) == OAUTHBEARER:
        options["sasl_oauth_token_provider"] = make_provider(_oauth(given, module))
    return options


def _truststore(given: Mapping[str, str]) -> dict[str, str]:
    store, path = STORES[0], given.get("ssl.truststore.location")
    if path is None:
        return {}
    kind = _store_type(given, store)
    if kind != PEM:
        raise _unreadable_store(store, kind, path, "-nokeys")
    _refuse_password(given, store)
    return {"ssl_cafile": path}


def _keystore(given: Mapping[str, str]) -> dict[str, str | None]:
    store, path = STORES[1], given.get("ssl.keystore.location")
    if path is None:
        return {}
    kind = _store_type(given, store)
    if kind == JKS:
        raise _unreadable_store(store, kind, path, "")
    if kind == PEM:
        _refuse_password(given, store)
        return {"ssl_certfile": path}
    options: dict[str, str | None] = {"ssl_keystore_location": path}
    password = given.get("ssl.keystore.password")
    if given.get("ssl.key.password", password) != password:
        raise _invalid("ssl.key.password", f" must equal ssl.keystore.password for a {PKCS12} file")
    if password:
        options["ssl_keystore_password"] = password
    return {**options, "ssl_password": None}


def _store_type(given: Mapping[str, str], store: str) -> str:
    name = f"{store}.type"
    path = given[f"{store}.location"]
    kind = given.get(name, "").upper() or SUFFIXES.get(PurePath(path).suffix.lower())
    if kind not in {PEM, PKCS12, JKS}:
        raise _invalid(name, f" must be {PEM}, or the name of a {PEM} file must end with .pem")
    return kind


def _unreadable_store(store: str, kind: str, path: str, flags: str) -> InvalidOption:
    """Return the error that refuses a keystore, with the commands that convert it."""
    stem = path.removesuffix(PurePath(path).suffix)
    source, target = shlex.quote(path), shlex.quote(f"{stem}.pem")
    middle = shlex.quote(f"{stem}.p12")
    commands = []
    if kind == PKCS12:
        middle = source
    else:
        commands.append(
            f"keytool -importkeystore -srckeystore {source} -destkeystore {middle}"
            f" -deststoretype {PKCS12}"
        )
    commands.append(" ".join(f"openssl pkcs12 -in {middle} {flags} -out {target}".split()))
    return _invalid(
        f"{store}.location",
        f" is a {kind} file, which cannot be read here. Convert it to {PEM}:"
        f" {' && '.join(commands)}; then set {store}.type={PEM} and {store}.location={stem}.pem",
    )


def _refuse_password(given: Mapping[str, str], store: str) -> None:
    name = f"{store}.password"
    if given.get(name):
        instead = "; the password of the key is ssl.key.password" if store == STORES[1] else ""
        raise _invalid(name, f" is not for a {PEM} file: omit it{instead}")


def _tls(given: Mapping[str, str]) -> dict[str, bool]:
    versions = {part.strip() for part in given.get(TLS_VERSIONS, "TLSv1.2").split(",")}
    if "TLSv1.2" not in versions:
        raise _invalid(TLS_VERSIONS, " must include TLSv1.2, which is always offered here")
    version = given.get("ssl.protocol", "TLS")
    if version not in {"TLS", "TLSv1.2", "TLSv1.3"}:
        raise _invalid("ssl.protocol", f" must be TLSv1.3 or TLSv1.2, not {version!r:.80}")
    if given.get(VERIFY, "true").lower() != "true":
        raise _invalid(VERIFY, " must be true: certificates are always verified")
    algorithm = given.get(CHECK_HOST, "https").lower()
    if algorithm not in {"https", "none", ""}:
        raise _invalid(CHECK_HOST, " must be https, or empty to accept certificates for any host")
    return {} if algorithm == "https" else {"ssl_check_hostname": False}


def _login(given: Mapping[str, str], module: LoginModule | None) -> dict[str, Any]:
    for name in HANDLERS:
        if name in given and given[name].rpartition(".")[2] != OAUTH_HANDLER:
            raise _unusable_class(name, given[name])
    for name in KERBEROS_LOGIN:
        if given.get(name):
            raise _invalid(name, f" has no counterpart: {NO_KERBEROS_LOGIN}")
    if module is None or module.short_name == OAUTH_MODULE:
        return {}
    if module.short_name in {"PlainLoginModule", "ScramLoginModule"}:
        return _password_login(module)
    raise _unusable_class(JAAS, module.name)


def _oauth(given: Mapping[str, str], module: LoginModule | None) -> OAuthSettings:
    """Return the settings of OAUTHBEARER: Java's, in two ways, or librdkafka's."""
    of_jaas = {} if module is None else module.options
    if given.get(METHOD, "oidc").lower() != "oidc":
        raise _invalid(METHOD, " must be oidc")
    url = given.get(TOKEN_URL)
    if not url:
        raise _invalid(TOKEN_URL, f" is missing: sasl.mechanism {OAUTHBEARER} needs it")
    extensions = _extensions(given.get(EXTENSIONS, ""))
    extensions |= {
        name.removeprefix("extension_"): value
        for name, value in of_jaas.items()
        if name.startswith("extension_")
    }
    pairs = tuple(sorted(extensions.items()))
    if url.startswith("file:"):
        return OAuthSettings(url, extensions=pairs)
    client_id = _first_of(given, CLIENT_ID) or of_jaas.get("clientId")
    secret = _first_of(given, CLIENT_SECRET) or of_jaas.get("clientSecret")
    for name, value in ((CLIENT_ID[0], client_id), (CLIENT_SECRET[0], secret)):
        if not value:
            raise _invalid(name, f" is missing: {TOKEN_URL} needs it")
    return OAuthSettings(
        url,
        client_id,
        None if secret is None else Secret(secret),
        given.get(SCOPE) or of_jaas.get("scope") or None,
        pairs,
        _flag(URLENCODE, "", given.get(URLENCODE, "false")),
    )


def _extensions(text: str) -> dict[str, str]:
    """Parse librdkafka's `name=value,name=value`."""
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    return {name.strip(): value.strip() for name, _, value in pairs}


def _first_of(given: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((given[name] for name in names if given.get(name)), None)


def _invalid(name: str, problem: str) -> InvalidOption:
    """Return the error about a property; its text is the name and the problem."""
    return InvalidOption(f"{name}{problem}", option=name)


def _flag(name: str, part: str, text: str) -> bool:
    value = text.lower()
    if value not in {"true", "false"}:
        raise _invalid(name, f"{part} must be true or false, not {text!r:.80}")
    return value == "true"


def _unusable_class(name: str, java_class: str) -> InvalidOption:
    short_name = java_class.rpartition(".")[2]
    reason = LOGIN_CLASSES.get(short_name, "Java code cannot run here")
    return _invalid(name, f" has the class {short_name!r:.80}: {reason}")


def _password_login(module: LoginModule) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name in ("username", "password"):
        if not module.options.get(name):
            raise _invalid(JAAS, f': {module.short_name} needs {name}="…"')
        options[f"sasl_{name}"] = module.options[name]
    if _flag(JAAS, ": tokenauth", module.options.get("tokenauth", "false")):
        options["sasl_token_auth"] = True
    return options
