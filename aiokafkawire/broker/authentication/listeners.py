"""Listeners of a broker, and the arguments `tls`, `sasl` and `listeners` that define them."""

from __future__ import annotations

import os
import random
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from aiokafkawire.broker.authentication.authenticator import MECHANISM_SINCE, SaslSettings
from aiokafkawire.broker.authentication.certificates import CertificateAuthority
from aiokafkawire.broker.authentication.credentials import CredentialStore
from aiokafkawire.broker.authentication.tokens import TokenValidator
from aiokafkawire.config import SecurityProtocol, did_you_mean, is_encodable
from aiokafkawire.errors import InvalidOption
from aiokafkawire.runtime import Address
from aiokafkawire.security import Secret
from aiokafkawire.security.scram import MAX_ITERATIONS, MIN_ITERATIONS

__all__ = (
    "BrokerListener",
    "BrokerSasl",
    "BrokerTls",
    "ListenerSettings",
    "SecurityProtocol",
    "check_user",
    "resolve_listeners",
)

PLAINTEXT: SecurityProtocol = "PLAINTEXT"
INTERNAL = "INTERNAL"
"""Name of the listener between nodes, if no listener for clients is PLAINTEXT."""

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
ANY_ADDRESS = frozenset({"0.0.0.0", "::", ""})

PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-512", "SCRAM-SHA-256")
OAUTHBEARER = "OAUTHBEARER"

ClientAuth = Literal["none", "requested", "required"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerTls:
    """TLS settings of a broker's listeners.

    Without `certfile`, an authority that the broker makes issues the certificate
    (`Broker.authority`).

    Attributes:
        certfile: PEM file of the certificate and its chain.
        keyfile: PEM file of the private key. Defaults to `certfile`.
        password: Password of an encrypted private key.
        host_names: Host names and addresses in the certificate that is made. Defaults to the
            advertised host and loopback.
        expired: Whether the certificate that is made has expired.
        authority: Authority that issues the certificate. Defaults to a new one.
        client_auth: Kafka's `ssl.client.auth`: "none", "requested" or "required".
        client_cafile: PEM file of the authorities that sign client certificates. Defaults to the
            authority above.
    """

    certfile: str | os.PathLike[str] | None = None
    keyfile: str | os.PathLike[str] | None = None
    password: str | None = field(default=None, repr=False)
    host_names: Sequence[str] | None = None
    expired: bool = False
    authority: CertificateAuthority | None = None
    client_auth: ClientAuth = "none"
    client_cafile: str | os.PathLike[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSasl:
    """SASL settings of a broker's listeners.

    Attributes:
        users: Password of each user, for PLAIN and SCRAM.
        mechanisms: Enabled mechanisms. Defaults to PLAIN and SCRAM if there are users, and
            OAUTHBEARER if there is a validator.
        token_validator: Function for OAUTHBEARER that gets a token and its extensions and returns
            the user, or a `ValidatedToken` that also has the expiry, or raises `TokenRefused`.
            Defaults to a validator of tokens without signature, as in Kafka.
        scram_iterations: Iterations of SCRAM.
    """

    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    mechanisms: Sequence[str] | None = None
    token_validator: TokenValidator | None = None
    scram_iterations: int = MIN_ITERATIONS


@dataclass(frozen=True, slots=True)
class BrokerListener:
    """One listener of every node. Its name is its security protocol."""

    name: str
    tls: ssl.SSLContext | None = None
    sasl: SaslSettings | None = None

    @property
    def is_internal(self) -> bool:
        """True if it is not for clients."""
        return self.name == INTERNAL


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """Checked arguments of a broker, from which it makes its listeners when it starts.

    `ports` has the ports of a listener by node, or nothing for free ones. Clients connect to
    `advertised_host`, by default the address that is bound.
    """

    host: str
    advertised_host: str | None
    protocols: Sequence[SecurityProtocol]
    ports: Mapping[str, Sequence[int]]
    context: ssl.SSLContext | None = None
    authority: CertificateAuthority | None = None
    sasl: BrokerSasl | None = None
    users: Mapping[str, Secret] = field(default_factory=dict)
    mechanisms: Sequence[str] = ()

    @property
    def inter_broker_listener(self) -> str:
        """Kafka's `inter.broker.listener.name`; only nodes that replicate have an INTERNAL one."""
        return PLAINTEXT if PLAINTEXT in self.protocols else INTERNAL

    def advertise(self, bound: Address) -> Address:
        """Return the address that clients receive in place of a bound one."""
        return Address(self.advertised_host or bound.host, bound.port)

    def client_options(
        self, protocol: SecurityProtocol, username: str | None, mechanism: str | None
    ) -> dict[str, Any]:
        """Return the client's options for a listener, without its addresses."""
        options: dict[str, Any] = {"security_protocol": protocol}
        if protocol.endswith("SSL") and self.authority is not None:
            options["ssl_cadata"] = self.authority.pem
        if not protocol.startswith("SASL"):
            return options
        enabled = [name for name in self.mechanisms if name != OAUTHBEARER] or [OAUTHBEARER]
        chosen = enabled[0] if mechanism is None else mechanism
        if chosen not in self.mechanisms:
            raise ValueError(f"the mechanism {chosen} is not enabled: {', '.join(self.mechanisms)}")
        options["sasl_mechanism"] = chosen
        if chosen == OAUTHBEARER:
            return options
        user = next(iter(self.users), None) if username is None else username
        if user is None or user not in self.users:
            raise ValueError("the broker has no such user: see users of BrokerSasl")
        return {**options, "sasl_username": user, "sasl_password": self.users[user].reveal()}

    def make_store(self, rng: random.Random) -> CredentialStore:
        """Return the users of SASL."""
        iterations = MIN_ITERATIONS if self.sasl is None else self.sasl.scram_iterations
        return CredentialStore(self.users, rng, iterations)

    def make(
        self, store: CredentialStore, max_reauth_ms: int, *, between_nodes: bool
    ) -> list[BrokerListener]:
        """Return the listeners, with one that `between_nodes` needs."""
        settings: SaslSettings | None = None
        if self.sasl is not None:
            settings = SaslSettings(
                self.mechanisms, store, max_reauth_ms, self.sasl.token_validator
            )
        listeners = [
            BrokerListener(
                name,
                self.context if name.endswith("SSL") else None,
                settings if name.startswith("SASL") else None,
            )
            for name in self.protocols
        ]
        if between_nodes and self.inter_broker_listener not in self.protocols:
            listeners.append(BrokerListener(self.inter_broker_listener))
        return listeners


def resolve_listeners(
    *,
    host: str,
    advertised_host: str | None,
    ports: Sequence[int] | None,
    tls: Any,
    sasl: Any,
    listeners: Any,
    check_ports: Callable[[str, Any], None],
) -> ListenerSettings:
    """Check the arguments of a broker's listeners.

    Raises:
        InvalidOption: The arguments contradict or lack each other.
    """
    uses_tls, settings = tls is not None and tls is not False, _check_sasl(sasl)
    protocols, listener_ports = _check_listeners(
        listeners, uses_tls, settings is not None, ports, check_ports
    )
    context = authority = None
    if uses_tls:
        names = [advertised_host or host, *LOOPBACK_NAMES]
        context, authority = _check_tls(tls, [name for name in names if name not in ANY_ADDRESS])
    users = (
        {} if settings is None else {name: Secret(text) for name, text in settings.users.items()}
    )
    return ListenerSettings(
        host,
        advertised_host,
        protocols,
        listener_ports,
        context,
        authority,
        settings,
        users,
        () if settings is None else _check_mechanisms(settings),
    )


def _check_listeners(
    listeners: Any,
    uses_tls: bool,
    uses_sasl: bool,
    ports: Sequence[int] | None,
    check_ports: Callable[[str, Any], None],
) -> tuple[Sequence[SecurityProtocol], Mapping[str, Sequence[int]]]:
    by_default = ("SASL_" if uses_sasl else "") + ("SSL" if uses_tls else PLAINTEXT)
    given = [by_default] if listeners is None else listeners
    if isinstance(given, str | bytes) or not isinstance(given, Sequence | Mapping) or not given:
        raise InvalidOption(f"listeners must be a list of security protocols, not {given!r:.80}")
    known = get_args(SecurityProtocol)
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known) if isinstance(name, str) else ""
            raise InvalidOption(f"{name!r:.80} in listeners is not a security protocol{hint}")
        if name.endswith("SSL") and not uses_tls:
            raise InvalidOption(f"the listener {name} needs tls, such as tls=True")
        if name.startswith("SASL") and not uses_sasl:
            raise InvalidOption(
                f'the listener {name} needs sasl, such as sasl={{"user": "secret"}}'
            )
    if len(set(given)) != len(given):
        raise InvalidOption("listeners must not name a security protocol twice")
    if uses_tls and not any(name.endswith("SSL") for name in given):
        raise InvalidOption("tls needs a listener SSL or SASL_SSL")
    if uses_sasl and not any(name.startswith("SASL") for name in given):
        raise InvalidOption("sasl needs a listener SASL_PLAINTEXT or SASL_SSL")
    if not isinstance(given, Mapping):
        first = {given[0]: ports} if ports else {}
        return tuple(given), first
    if ports is not None:
        raise InvalidOption("ports contradicts listeners, which has the ports of each listener")
    for name, own in given.items():
        check_ports(f"ports of listener {name}", own)
    return tuple(given), {name: own for name, own in given.items() if own}


def _check_tls(
    tls: Any, default_names: Sequence[str]
) -> tuple[ssl.SSLContext, CertificateAuthority | None]:
    if isinstance(tls, ssl.SSLContext):
        return tls, None
    settings = BrokerTls() if tls is True else tls
    if not isinstance(settings, BrokerTls):
        raise InvalidOption(f"tls must be True, BrokerTls or an SSLContext, not {tls!r:.80}")
    if settings.client_auth not in get_args(ClientAuth):
        raise InvalidOption(
            f"client_auth of BrokerTls must be one of {', '.join(map(repr, get_args(ClientAuth)))},"
            f" not {settings.client_auth!r:.80}"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Real brokers send no session tickets that clients could use. Unread ones would also reset
    # connections that clients close.
    context.num_tickets = 0
    authority = settings.authority
    try:
        if settings.certfile is not None:
            context.load_cert_chain(settings.certfile, settings.keyfile, settings.password)
        else:
            authority = authority or CertificateAuthority()
            hosts = settings.host_names or list(dict.fromkeys(default_names))
            authority.configure_server(context, hosts, expired=settings.expired)
        if settings.client_auth != "none":
            _trust_clients(context, settings, authority)
    except (OSError, ValueError) as error:
        raise InvalidOption(f"the TLS settings cannot be used: {error}") from error
    return context, authority


def _trust_clients(
    context: ssl.SSLContext, settings: BrokerTls, authority: CertificateAuthority | None
) -> None:
    required = settings.client_auth == "required"
    context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    if settings.client_cafile is not None:
        context.load_verify_locations(settings.client_cafile)
    elif authority is not None:
        authority.configure_trust(context)
    else:
        raise InvalidOption("client_auth of BrokerTls needs client_cafile or authority")


def _check_sasl(sasl: Any) -> BrokerSasl | None:
    if sasl is None:
        return None
    settings = BrokerSasl(users=sasl) if isinstance(sasl, Mapping) else sasl
    if not isinstance(settings, BrokerSasl):
        raise InvalidOption(
            "sasl must be a mapping of users to passwords or BrokerSasl,"
            f" not a {type(sasl).__name__}"
        )
    for name, password in settings.users.items():
        check_user(name, password)
    if not MIN_ITERATIONS <= settings.scram_iterations <= MAX_ITERATIONS:
        raise InvalidOption(
            f"scram_iterations of BrokerSasl must be from {MIN_ITERATIONS} to {MAX_ITERATIONS},"
            f" not {settings.scram_iterations}"
        )
    return settings


def check_user(username: Any, password: Any) -> None:
    """Raise `InvalidOption`, without the password, unless both are usable."""
    for text, what in ((username, "a user name"), (password, "the password of a user")):
        if not isinstance(text, str) or not text or "\0" in text or not is_encodable(text):
            raise InvalidOption(f"{what} of SASL must be text without NUL, and not empty")


def _check_mechanisms(settings: BrokerSasl) -> tuple[str, ...]:
    given = settings.mechanisms
    if given is None:
        given = [
            *(PASSWORD_MECHANISMS if settings.users else ()),
            *([OAUTHBEARER] if settings.token_validator is not None else ()),
        ]
    for name in given:
        if name not in MECHANISM_SINCE:
            raise InvalidOption(
                f"{name!r:.80} is not a SASL mechanism of the broker:"
                f" use {', '.join(MECHANISM_SINCE)}"
            )
    if not given:
        raise InvalidOption("sasl needs users, a token_validator or mechanisms")
    return tuple(given)
