"""Real Kafka with a listener for each kind of TLS and SASL."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT, run

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.brokers.kafka import DEFAULT_VERSION, JAVA_OPTIONS, Kafka, Node, StartFailed
from tests.brokers.process import HOST, free_ports
from tests.brokers.releases import RELEASES, Mode, Release, Unavailable, tail
from tests.brokers.security.identity_provider import AUDIENCE, IdentityProvider
from tests.brokers.security.kdc import REALM, SERVICE, Kdc
from tests.brokers.security.pki import STORE_PASSWORD, Certificate, Pki

PLAIN_USERS = {
    "alice": "alice-password",
    "dave": "dave-password",
    "josé": "pässwörd",
    "a,b=c": "comma=password",
}
"""Users of PLAIN and their passwords."""

SCRAM_USERS = {"bob": "bob-password", "a,b=c": "comma=password"}
"""Users of both SCRAM mechanisms and their passwords."""

SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORDS = ("PLAIN", *SCRAM)
SCRAM_ITERATIONS = {"SCRAM-SHA-256": 4_096, "SCRAM-SHA-512": 8_192}

SESSION_LIFETIME_MS = 4_000
"""Lifetime of sessions on the listeners that ask for re-authentication."""

ADVERTISED_HOST = "localhost"
"""A name rather than an address: clients verify the name that brokers advertise."""

USERS_WITHIN_S = 60.0
REQUEST_WITHIN_S = 5.0
TOOL_WITHIN_S = 60.0

FIRST_WITH_SCRAM = (0, 10, 2)
FIRST_WITH_PLAIN_PEM_KEYS = (3, 0)
"""2.7 and 2.8 take PEM stores with encrypted keys alone."""
FIRST_WITH_CREDENTIALS_API = (2, 7)
FIRST_WITH_OAUTHBEARER = (2, 0)
FIRST_WITH_REASONS = (1, 0)
"""Before, a broker closes the connection to refuse credentials."""

FIRST_WITH_REAUTHENTICATION = (2, 2)
FIRST_WITH_LISTENER_SETTINGS = (2, 0)
"""Before, the mechanisms are set for all listeners, in a JAAS file."""

_MODULES = "org.apache.kafka.common.security"
_MODULE = {
    "PLAIN": f"{_MODULES}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_MODULES}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_MODULES}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule",
    "GSSAPI": "com.sun.security.auth.module.Krb5LoginModule",
}
_ALLOWED_URLS = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls"
_JWKS_VALIDATOR = f"{_MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"


@dataclass(frozen=True, slots=True)
class Listener:
    """One listener: its name, security protocol, mechanisms, and settings of its own."""

    name: str
    protocol: str
    mechanisms: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)


class SecureKafka(Kafka):
    """One broker whose own traffic is plaintext, with more listeners for tests.

    Args:
        version: Release of Kafka.
        pki: Certificates of the server.
        provider: Running identity provider, whose tokens the OIDC listeners take.
        kdc: Running KDC; None for no listeners with GSSAPI.
        folder: Existing folder for settings that the broker reads.
    """

    def __init__(
        self,
        version: str,
        *,
        pki: Pki,
        provider: IdentityProvider,
        kdc: Kdc | None,
        folder: Path,
    ) -> None:
        self._pki = pki
        self._folder = folder
        listeners = _listeners_of(RELEASES[version], pki, provider)
        if kdc is not None and version == DEFAULT_VERSION:
            listeners += _kerberos_listeners(kdc)
        self.listeners = {each.name: each for each in listeners}
        self._ports: dict[str, int] = {}
        options = [*JAVA_OPTIONS, f"{_ALLOWED_URLS}={provider.jwks_url}"]
        if kdc is not None:
            options.append(f"-Djava.security.krb5.conf={kdc.config}")
        if RELEASES[version].number < FIRST_WITH_LISTENER_SETTINGS:
            login = folder / "jaas.conf"
            login.write_text(_login_file(RELEASES[version]), encoding="utf-8")
            options.append(f"-Djava.security.auth.login.config={login}")
            options.append("-Dzookeeper.sasl.client=false")
        super().__init__(version, java_options=options)

    def address(self, listener: str) -> str:
        """Return `host:port` of a listener; the broker's own is "PLAINTEXT"."""
        if listener == "PLAINTEXT":
            return self.bootstrap_servers
        return f"{ADVERTISED_HOST}:{self._ports[listener]}"

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Mechanisms of all listeners, in the order in which they are first named."""
        every = (name for each in self.listeners.values() for name in each.mechanisms)
        return tuple(dict.fromkeys(every))

    def run_tool(self, *arguments: str) -> str:
        """Run a command-line tool of this release and return what it printed.

        Raises:
            StartFailed: It exited with an error.
        """
        done = run(
            [*self._command(), *arguments],
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            text=True,
            cwd=self.nodes[0].directory,
            timeout=TOOL_WITHIN_S,
            check=False,
        )
        if done.returncode != 0:
            raise StartFailed(f"{arguments[0]} failed: {tail(done.stdout)}")
        return done.stdout

    def start(self) -> None:
        """Start, and create the users of SCRAM where they do not exist."""
        new = not self.nodes
        super().start()
        if new and self.release.number >= FIRST_WITH_SCRAM:
            self._create_scram_users()

    def _settings(self, node: Node, nodes: Sequence[Node]) -> dict[str, str]:
        settings = super()._settings(node, nodes)
        self._ports = dict(zip(self.listeners, free_ports(len(self.listeners)), strict=True))
        bound = [f"{name}://{HOST}:{port}" for name, port in self._ports.items()]
        advertised = [f"{name}://{ADVERTISED_HOST}:{port}" for name, port in self._ports.items()]
        settings["listeners"] = ",".join((settings["listeners"], *bound))
        settings["advertised.listeners"] = ",".join((settings["advertised.listeners"], *advertised))
        named = any(each.name != each.protocol for each in self.listeners.values())
        if named or self.release.mode is Mode.KRAFT:
            protocols = {each.name: each.protocol for each in self.listeners.values()}
            protocols |= {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
            settings["listener.security.protocol.map"] = ",".join(
                f"{name}:{protocol}" for name, protocol in protocols.items()
            )
            settings["inter.broker.listener.name"] = "PLAINTEXT"
        settings |= _stores(self.release, self._pki.server, self._pki)
        settings["sasl.enabled.mechanisms"] = ",".join(self.mechanisms)
        if self.release.version == DEFAULT_VERSION:
            settings["delegation.token.secret.key"] = "a-secret-key"
        if self.release.number >= FIRST_WITH_LISTENER_SETTINGS:
            for each in self.listeners.values():
                settings |= _listener_settings(each)
        return settings

    def _create_scram_users(self) -> None:
        if self.release.number < FIRST_WITH_CREDENTIALS_API:
            for user, password in SCRAM_USERS.items():
                # The tool cannot quote a comma.
                if "," not in user:
                    self._store_scram_user(user, password)
            return
        for mechanism in SCRAM:
            end = time.monotonic() + USERS_WITHIN_S
            while True:
                try:
                    self._upsert_scram_users(mechanism)
                    break
                except (TimeoutError, KafkaException) as error:
                    # A broker that has just started may leave a request unanswered.
                    if time.monotonic() > end:
                        raise StartFailed(f"no users of {mechanism}: {error}") from error

    def _upsert_scram_users(self, mechanism: str) -> None:
        """Create the users of one mechanism; both in one request are refused as duplicates."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        kind = ScramMechanism[mechanism.replace("-", "_")]
        info = ScramCredentialInfo(kind, SCRAM_ITERATIONS[mechanism])
        changes = [
            UserScramCredentialUpsertion(user, info, password.encode())
            for user, password in SCRAM_USERS.items()
        ]
        answers = admin.alter_user_scram_credentials(changes, request_timeout=REQUEST_WITHIN_S)
        for answer in answers.values():
            answer.result(REQUEST_WITHIN_S)

    def _store_scram_user(self, user: str, password: str) -> None:
        """Store a user in ZooKeeper with Kafka's own tool."""
        config = ",".join(
            f"{mechanism}=[iterations={SCRAM_ITERATIONS[mechanism]},password={password}]"
            for mechanism in SCRAM
        )
        where = ("--zookeeper", f"{HOST}:{self.nodes[0].controller_port}", "--alter")
        entity = ("--entity-type", "users", "--entity-name", user, "--add-config", config)
        self.run_tool("kafka.admin.ConfigCommand", *where, *entity)


class SecureServers:
    """At most one running broker: the machine may have little memory.

    Args:
        folder: Existing folder for certificates and settings.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._current: SecureKafka | None = None
        self.pki = Pki(folder)
        self.provider = self._stack.enter_context(IdentityProvider())
        self.kdc: Kdc | None = None
        self.no_kdc = ""
        """Why there is no KDC, if there is none."""
        try:
            self.kdc = self._stack.enter_context(Kdc(folder))
        except Unavailable as lack:
            self.no_kdc = str(lack)

    def get(self, version: str) -> SecureKafka:
        """Return the running broker of a release, after any other one was stopped."""
        if self._current is not None and self._current.release.version == version:
            return self._current
        self._stop()
        kafka = SecureKafka(
            version, pki=self.pki, provider=self.provider, kdc=self.kdc, folder=self._folder
        )
        self._current = kafka.__enter__()
        return kafka

    def close(self) -> None:
        try:
            self._stop()
        finally:
            self._stack.close()

    def _stop(self) -> None:
        if self._current is not None:
            self._current.close()
            self._current = None


def _listeners_of(release: Release, pki: Pki, provider: IdentityProvider) -> list[Listener]:
    if release.version != DEFAULT_VERSION:
        mechanisms: tuple[str, ...] = ("PLAIN",)
        if release.number >= FIRST_WITH_SCRAM:
            mechanisms += SCRAM
        if release.number >= FIRST_WITH_OAUTHBEARER:
            mechanisms += ("OAUTHBEARER",)
        listeners = [
            Listener("SSL", "SSL"),
            Listener("SASL_PLAINTEXT", "SASL_PLAINTEXT", mechanisms),
            Listener("SASL_SSL", "SASL_SSL", mechanisms),
        ]
        if release.number >= FIRST_WITH_REAUTHENTICATION:
            listeners.append(Listener("SHORT", "SASL_PLAINTEXT", PASSWORDS, _short_sessions()))
        return listeners
    certified = {"ssl.client.auth": "required"}
    stores = {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(pki.server.pkcs12_store),
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.key.password": STORE_PASSWORD,
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(pki.trust_store),
        "ssl.truststore.password": STORE_PASSWORD,
    }
    tls_1_2 = {"ssl.enabled.protocols": "TLSv1.2", "ssl.protocol": "TLSv1.2"}
    oidc = {
        "oauthbearer.sasl.server.callback.handler.class": _JWKS_VALIDATOR,
        "oauthbearer.sasl.oauthbearer.jwks.endpoint.url": provider.jwks_url,
        "oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
        "oauthbearer.sasl.oauthbearer.expected.issuer": provider.issuer,
    }
    short = _short_sessions()
    return [
        Listener("SSL", "SSL"),
        Listener("MTLS", "SSL", settings=certified),
        Listener("TLS12", "SSL", settings=stores | tls_1_2 | certified),
        Listener("WRONG_HOST", "SSL", settings=_pem_store(pki.wrong_host)),
        Listener("EXPIRED", "SSL", settings=_pem_store(pki.expired)),
        Listener("SASL", "SASL_PLAINTEXT", PASSWORDS),
        Listener("SASL_TLS", "SASL_SSL", PASSWORDS),
        Listener("SASL_MTLS", "SASL_SSL", PASSWORDS, certified),
        Listener("OAUTH", "SASL_PLAINTEXT", ("OAUTHBEARER",)),
        Listener("OIDC", "SASL_PLAINTEXT", ("OAUTHBEARER",), oidc),
        Listener("OIDC_TLS", "SASL_SSL", ("OAUTHBEARER",), oidc),
        Listener("SHORT", "SASL_PLAINTEXT", (*PASSWORDS, "OAUTHBEARER"), short | oidc),
        Listener("SHORT_TLS", "SASL_SSL", PASSWORDS, short),
    ]


def _short_sessions() -> dict[str, str]:
    return {
        f"{mechanism.lower()}.connections.max.reauth.ms": str(SESSION_LIFETIME_MS)
        for mechanism in (*PASSWORDS, "OAUTHBEARER")
    }


def _kerberos_listeners(kdc: Kdc) -> list[Listener]:
    settings = {"sasl.kerberos.service.name": SERVICE.split("/", maxsplit=1)[0]}
    settings["gssapi.sasl.jaas.config"] = kerberos_login(kdc, SERVICE)
    return [
        Listener("KERBEROS", "SASL_PLAINTEXT", ("GSSAPI",), settings),
        Listener("KERBEROS_TLS", "SASL_SSL", ("GSSAPI",), settings),
    ]


def kerberos_login(kdc: Kdc, principal: str) -> str:
    """Return the JAAS setting of a broker or a Java client that has the keys of a principal."""
    return (
        f"{_MODULE['GSSAPI']} required useKeyTab=true storeKey=true"
        f' keyTab="{kdc.keytab(principal)}" principal="{principal}@{REALM}";'
    )


def _listener_settings(listener: Listener) -> dict[str, str]:
    settings = dict(listener.settings)
    if listener.mechanisms:
        settings["sasl.enabled.mechanisms"] = ",".join(listener.mechanisms)
    for mechanism in listener.mechanisms:
        if mechanism == "GSSAPI":
            continue
        login = f"{_MODULE[mechanism]} required{_login_options(mechanism, listener)};"
        settings[f"{mechanism.lower()}.sasl.jaas.config"] = _latin_1(login)
    prefix = f"listener.name.{listener.name.lower()}."
    return {prefix + key: value for key, value in settings.items()}


def _login_options(mechanism: str, listener: Listener) -> str:
    if mechanism == "PLAIN":
        return "".join(f' "user_{user}"="{word}"' for user, word in PLAIN_USERS.items())
    has_validator = "oauthbearer.sasl.server.callback.handler.class" in listener.settings
    if mechanism == "OAUTHBEARER" and not has_validator:
        return ' unsecuredLoginStringClaim_sub="kafka"'
    return ""


def _login_file(release: Release) -> str:
    """The JAAS file of brokers before 2.0, for all listeners and mechanisms at once."""
    names = [user for user in PLAIN_USERS if user.isalpha() and user.isascii()]
    users = "".join(f' user_{user}="{PLAIN_USERS[user]}"' for user in names)
    modules = [f"{_MODULE['PLAIN']} required{users};"]
    if release.number >= FIRST_WITH_SCRAM:
        modules.append(f"{_MODULE['SCRAM-SHA-256']} required;")
    return "KafkaServer {\n" + "\n".join(modules) + "\n};\n"


def _stores(release: Release, certificate: Certificate, pki: Pki) -> dict[str, str]:
    if release.number >= FIRST_WITH_PLAIN_PEM_KEYS:
        return _pem_store(certificate) | {
            "ssl.keystore.type": "PEM",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(pki.authority),
        }
    return {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(certificate.pkcs12_store),
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.key.password": STORE_PASSWORD,
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(pki.trust_store),
        "ssl.truststore.password": STORE_PASSWORD,
    }


def _pem_store(certificate: Certificate) -> dict[str, str]:
    return {"ssl.keystore.location": str(certificate.pem_store)}


def _latin_1(text: str) -> str:
    r"""Return the text as a properties file carries it: \u00e9 for é."""
    return "".join(each if each.isascii() else f"\\u{ord(each):04x}" for each in text)
