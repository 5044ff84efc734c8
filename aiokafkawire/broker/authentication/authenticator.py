"""SASL on one connection of a listener, with the rules of Kafka's SaslServerAuthenticator."""

from __future__ import annotations

import enum
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from aiokafkawire.broker.authentication.credentials import CredentialStore, random_text
from aiokafkawire.broker.authentication.principals import user_principal
from aiokafkawire.broker.authentication.tokens import (
    TokenValidator,
    ValidatedToken,
    validate_unsecured_token,
)
from aiokafkawire.broker.releases import Release
from aiokafkawire.runtime import NEVER, Clock
from aiokafkawire.security import (
    SCRAM_HASHES,
    CredentialsRefused,
    OAuthBearerServer,
    PlainServer,
    ScramCredential,
    ScramServer,
    Secret,
    ServerMechanism,
)
from aiokafkawire.security.mechanism import MAX_TOKEN_BYTES
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from aiokafkawire.wire.messages.sasl_handshake import SaslHandshakeResponse

__all__ = (
    "MAX_TOKEN_BYTES",
    "MECHANISM_SINCE",
    "UNEXPECTED_AUTHENTICATE",
    "Admission",
    "SaslAuthenticator",
    "SaslSettings",
)

MECHANISM_SINCE: Mapping[str, str] = {
    "PLAIN": "0.10.0",
    "SCRAM-SHA-512": "0.10.2",
    "SCRAM-SHA-256": "0.10.2",
    "OAUTHBEARER": "2.0",
}
"""The first release with each mechanism, in the order in which brokers list them."""

SESSION_LIFETIME_SINCE = "2.2"
"""Earlier releases do not end sessions (KIP-368)."""

EMPTY_MESSAGE_SINCE = "2.4"
"""Earlier releases send null as the message of a success."""

MIN_REAUTHENTICATION_INTERVAL_S = 1.0

UNEXPECTED_AUTHENTICATE = "SaslAuthenticate request received after successful authentication"


class Admission(enum.Enum):
    """Reaction to a request, from its header."""

    PROCEED = enum.auto()
    ILLEGAL_STATE = enum.auto()
    """Answer ILLEGAL_SASL_STATE, then close."""
    CLOSE = enum.auto()


class _State(enum.Enum):
    """Progress of an authentication."""

    NEW = enum.auto()
    API_VERSIONS_ANSWERED = enum.auto()
    REAUTHENTICATION = enum.auto()
    EXCHANGE = enum.auto()
    OTHER_MECHANISM = enum.auto()
    OPEN = enum.auto()
    FAILED = enum.auto()


class _UsedToken(NamedTuple):
    """Token of an authentication: of OAUTHBEARER, or a delegation token."""

    expires_at_ms: int | None = None
    is_delegation_token: bool = False


_NO_TOKEN = _UsedToken()


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """Users and mechanisms of a listener.

    `validate` checks tokens of OAUTHBEARER; None accepts unsecured ones, as Kafka's default does.
    """

    mechanisms: Sequence[str]
    store: CredentialStore
    max_reauth_ms: int = 0
    validate: TokenValidator | None = None


class SaslAuthenticator:
    """State of the authentication of one connection.

    Before each request call `admit`. `failure` is the reason to close the connection after the
    response, None while all is well.

    Args:
        settings: Users and mechanisms.
        release: Release of the node.
        clock: Times of sessions and tokens.
        rng: Source of nonces.
        on_principal: Called with the principal of each authentication.
    """

    def __init__(
        self,
        settings: SaslSettings,
        release: Release,
        clock: Clock,
        rng: random.Random,
        on_principal: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._release = release
        self._clock = clock
        self._rng = rng
        self._on_principal = on_principal
        self._mechanisms = [
            name for name in settings.mechanisms if release.since(MECHANISM_SINCE[name])
        ]
        self._state = _State.NEW
        self._server: ServerMechanism | None = None
        self._sends_raw_tokens = False
        self._user: str | None = None
        self._mechanism = ""
        self._token = _NO_TOKEN
        self._expires_at: float | None = None
        self._reauthentication_at = -NEVER
        self.failure: str | None = None

    @property
    def used_delegation_token(self) -> bool:
        """True if the client authenticated with a delegation token."""
        return self._token.is_delegation_token

    @property
    def is_open(self) -> bool:
        """True if the client is authenticated and no re-authentication is in progress."""
        return self._state is _State.OPEN

    @property
    def expects_token(self) -> bool:
        """True if the next frame is a token, not a request (SaslHandshake v0)."""
        return self._state is _State.OTHER_MECHANISM or (
            self._state is _State.EXCHANGE and self._sends_raw_tokens
        )

    def admit(self, api_key: ApiKey) -> Admission:
        """Return what to do with a request. A SaslHandshake may start a re-authentication."""
        if self._state is _State.OPEN:
            if api_key is ApiKey.SASL_HANDSHAKE and self._may_reauthenticate():
                self._reauthentication_at = self._clock.now()
                self._state = _State.REAUTHENTICATION
                return Admission.PROCEED
            if self._expires_at is not None and self._clock.now() >= self._expires_at:
                self.failure = "the SASL session has expired"
                return Admission.CLOSE
            return Admission.PROCEED
        if self._state is _State.EXCHANGE:
            expected = api_key is ApiKey.SASL_AUTHENTICATE
            return Admission.PROCEED if expected else Admission.ILLEGAL_STATE
        if api_key is ApiKey.SASL_HANDSHAKE and self._state is not _State.FAILED:
            return Admission.PROCEED
        if api_key is ApiKey.API_VERSIONS and self._state is _State.NEW:
            return Admission.PROCEED
        self.failure = f"{api_key.name} arrived before the authentication"
        return Admission.CLOSE

    def on_api_versions_answered(self) -> None:
        """Refuse a second ApiVersions before the authentication."""
        if self._state is _State.NEW:
            self._state = _State.API_VERSIONS_ANSWERED

    def on_illegal_state(self, request: str) -> None:
        """Fail because a request arrived during the exchange of tokens."""
        self._fail(f"{request} arrived during the authentication")

    def handshake(self, mechanism: str, version: int) -> SaslHandshakeResponse:
        """Answer a SaslHandshake request."""
        if self._state in {_State.OPEN, _State.EXCHANGE, _State.FAILED}:
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
        code = ErrorCode.NONE
        if mechanism not in self._mechanisms:
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            self._fail(f"SASL mechanism {mechanism!a:.80} is not enabled")
        elif self._user is not None and mechanism != self._mechanism:
            self._state = _State.OTHER_MECHANISM
        else:
            self._server = self._start(mechanism)
            self._sends_raw_tokens = version == 0
            self._mechanism = mechanism
            self._state = _State.EXCHANGE
        return SaslHandshakeResponse(error_code=code, mechanisms=[*self._mechanisms])

    def authenticate(self, token: bytes) -> SaslAuthenticateResponse:
        """Answer a SaslAuthenticate request."""
        if self._state is not _State.EXCHANGE:
            return SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE,
                error_message=UNEXPECTED_AUTHENTICATE,
                auth_bytes=b"",
            )
        try:
            answer, lifetime_ms = self._next(token)
        except CredentialsRefused as refused:
            self._fail(str(refused))
            return SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
                error_message=str(refused),
                auth_bytes=b"",
            )
        return SaslAuthenticateResponse(
            error_code=ErrorCode.NONE,
            error_message="" if self._release.since(EMPTY_MESSAGE_SINCE) else None,
            auth_bytes=answer,
            session_lifetime_ms=lifetime_ms,
        )

    def receive_token(self, token: bytes) -> bytes | None:
        """Return the answer to a frame that is a token; None after a failure."""
        if self._state is _State.OTHER_MECHANISM:
            self._fail(f"re-authentication needs the mechanism {self._mechanism} again")
            return None
        try:
            return self._next(token)[0]
        except CredentialsRefused as refused:
            self._fail(str(refused))
            return None

    def _next(self, token: bytes) -> tuple[bytes, int]:
        """Return the answer to a token, and the session lifetime with the last one."""
        server = self._server
        assert server is not None
        answer = server.next(token)
        if not server.is_complete:
            return answer, 0
        user = server.principal
        assert user is not None
        if self._user not in {None, user}:
            raise CredentialsRefused(
                "Cannot change principals during re-authentication from"
                f" User.{self._user}: User.{user}"
            )
        self._user, self._server, self._state = user, None, _State.OPEN
        self._on_principal(user_principal(user))
        return answer, self._start_session()

    def _start_session(self) -> int:
        """Set the end of the session; return its lifetime in milliseconds, 0 for no end."""
        if not self._release.since(SESSION_LIFETIME_SINCE):
            return 0
        limits = [self._settings.max_reauth_ms] if self._settings.max_reauth_ms else []
        if self._token.expires_at_ms is not None:
            limits.append(max(0, self._token.expires_at_ms - self._clock.wall_ms()))
        if not limits:
            self._expires_at = None
            return 0
        self._expires_at = self._clock.now() + min(limits) / 1000
        return min(limits)

    def _may_reauthenticate(self) -> bool:
        elapsed_s = self._clock.now() - self._reauthentication_at
        return self._expires_at is not None and elapsed_s >= MIN_REAUTHENTICATION_INTERVAL_S

    def _fail(self, reason: str) -> None:
        self._state, self._server, self.failure = _State.FAILED, None, reason

    def _start(self, mechanism: str) -> ServerMechanism:
        store = self._settings.store
        self._token = _NO_TOKEN
        if mechanism == PlainServer.name:
            return PlainServer(store.passwords.get)
        if mechanism in SCRAM_HASHES:
            return ScramServer(
                mechanism,
                lambda user, is_token: self._scram_credential(user, mechanism, is_token),
                random_text(self._rng),
            )
        return OAuthBearerServer(self._validate)

    def _scram_credential(
        self, user: str, mechanism: str, is_token: bool
    ) -> tuple[str, ScramCredential] | None:
        store = self._settings.store
        if not is_token:
            credential = store.scram(user, mechanism)
            return None if credential is None else (user, credential)
        found = store.token(user, mechanism, self._clock.wall_ms())
        if found is None:
            return None
        token, credential = found
        self._token = _UsedToken(token.expires_ms, is_delegation_token=True)
        return token.owner.partition(":")[2], credential

    def _validate(self, token: Secret, extensions: Mapping[str, str]) -> str:
        validate = self._settings.validate
        validated = (
            validate_unsecured_token(token.reveal(), self._clock.wall_ms())
            if validate is None
            else validate(token, extensions)
        )
        if isinstance(validated, str):
            return validated
        if not isinstance(validated, ValidatedToken):
            raise TypeError(
                "token_validator must return the user or a ValidatedToken, or raise TokenRefused;"
                f" it returned {type(validated).__name__}"
            )
        self._token = _UsedToken(validated.expires_at_ms)
        return validated.principal
