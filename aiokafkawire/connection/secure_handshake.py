"""TLS and SASL on new connections, and SASL again on open ones (KIP-368)."""

from __future__ import annotations

import ssl
import struct
from collections.abc import Callable
from typing import TypeVar

import anyio

from aiokafkawire.config import ClientConfig
from aiokafkawire.connection.channel import Channel
from aiokafkawire.connection.handshake import ENDLESS, Handshake, SaslSession
from aiokafkawire.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    ConnectionLost,
    KafkaError,
    UnsupportedVersion,
)
from aiokafkawire.runtime import (
    Address,
    DaemonThreads,
    Runtime,
    Supervisor,
    Transport,
    connect_tls,
)
from aiokafkawire.security import ClientMechanism, ClientMechanisms, ClientTls, tls_error
from aiokafkawire.wire import ApiKey, ErrorCode, error_for
from aiokafkawire.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from aiokafkawire.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

__all__ = ("SecureHandshake",)

REAUTHENTICATE_AFTER = (0.85, 0.95)
"""Part of a session's life after which to authenticate again: between these, at random."""

T = TypeVar("T")

TOKEN_LENGTH = struct.Struct(">i")
"""Precedes a SASL token that is sent without a request (SaslHandshake v0)."""

MAX_KERBEROS_THREADS = 8
"""Calls of Kerberos at a time, including abandoned ones that wait for a KDC."""

MAX_SHOWN_CHARACTERS = 500
"""How much of a broker's text stands in an error."""


class SecureHandshake(Handshake):
    """TLS, SASL or both. One serves all connections of a client.

    Args:
        config: Options of the client.
        runtime: Clock and randomness.
        supervisor: Runs the task that fetches OAUTHBEARER tokens.
    """

    def __init__(self, config: ClientConfig, runtime: Runtime, supervisor: Supervisor) -> None:
        self._runtime = runtime
        self._hashing = anyio.Lock()
        self._kerberos = DaemonThreads("aiokafkawire-kerberos", MAX_KERBEROS_THREADS)
        self._protocol = config.security_protocol
        self._tls = ClientTls(config) if config.uses_tls else None
        self._mechanisms = (
            ClientMechanisms(config, runtime, supervisor) if config.uses_sasl else None
        )
        if config.sasl_oauth_token_provider is not None:
            self.credentials_option = "sasl_oauth_token_provider"
        elif callable(config.sasl_password):
            self.credentials_option = "sasl_password"

    async def prepare(self) -> None:
        if self._tls is not None and self._tls.context is None:
            await self._runtime.offload(self._tls.load)

    async def wrap(self, transport: Transport, address: Address) -> Transport:
        if self._tls is None:
            return transport
        context = self._tls.context
        if context is None:
            context = await self._runtime.offload(self._tls.load)
        try:
            return await connect_tls(
                transport, context, address.host, self._runtime.checkpoint_one_by_one
            )
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
            raise self._closed_in_handshake(error) from error
        except ssl.SSLError as error:
            raise tls_error(error, address.host) from error
        except OSError as error:
            raise self._closed_in_handshake(error) from error

    async def new_mechanism(self, address: Address) -> ClientMechanism | None:
        if self._mechanisms is None:
            return None
        return await self._mechanisms.new(address.host)

    async def authenticate(
        self, channel: Channel, mechanism: ClientMechanism, *, renew: bool = False
    ) -> SaslSession:
        try:
            if ApiKey.SASL_AUTHENTICATE in channel.api_versions.ranges:
                return await self._authenticate(channel, mechanism, renew=renew)
            await self._authenticate_without_requests(channel, mechanism)
            return ENDLESS
        except AuthenticationFailed:
            if self._mechanisms is not None:
                self._mechanisms.on_refused(mechanism)
            raise
        except ConnectionLost as error:
            raise ConnectionFailed(f"authentication was interrupted: {error.reason}") from error

    async def _authenticate(
        self, channel: Channel, mechanism: ClientMechanism, *, renew: bool
    ) -> SaslSession:
        await self._choose_mechanism(channel, mechanism, 1, renew=renew)
        version = channel.api_versions.latest_usable_version(ApiKey.SASL_AUTHENTICATE)
        token: bytes | None = await self._first(mechanism)
        sent_at, lifetime_ms = 0.0, 0
        while token is not None:
            sent_at = self._runtime.clock.now()
            # No local holds the token meanwhile: a traceback would keep it.
            request, token = SaslAuthenticateRequest(auth_bytes=token), None
            response: SaslAuthenticateResponse = await channel.request_ahead(request, version)
            if response.error_code != ErrorCode.NONE:
                raise _refusal(response, mechanism)
            lifetime_ms = response.session_lifetime_ms
            token = await self._next(mechanism, response.auth_bytes)
        if lifetime_ms <= 0:
            return ENDLESS
        lifetime_s = lifetime_ms / 1_000
        share = self._runtime.rng.uniform(*REAUTHENTICATE_AFTER)
        return SaslSession(sent_at + share * lifetime_s, sent_at + lifetime_s)

    async def _authenticate_without_requests(
        self, channel: Channel, mechanism: ClientMechanism
    ) -> None:
        """Exchange tokens as Kafka 0.9 to 0.11 do; they close the connection to refuse."""
        if ApiKey.SASL_HANDSHAKE in channel.api_versions.ranges or mechanism.name != "GSSAPI":
            await self._choose_mechanism(channel, mechanism, 0)
        # Kafka 0.9 has GSSAPI alone, and expects its tokens at once.
        token: bytes | None = await self._first(mechanism)
        while token is not None:
            # As above: the request is not sent, but its repr has no token.
            request, token = SaslAuthenticateRequest(auth_bytes=token), None
            try:
                if not mechanism.is_answered:
                    channel.send_frame(_token_frame(request))
                    return
                answer = await _exchange_token(channel, request)
            except ConnectionLost as error:
                raise AuthenticationFailed(
                    f"{mechanism.name}: the broker closed the connection during the"
                    " authentication: user name or password is probably wrong (releases before"
                    " Kafka 1.0 give no reason)"
                ) from error
            token = await self._next(mechanism, answer)

    async def _choose_mechanism(
        self, channel: Channel, mechanism: ClientMechanism, version: int, *, renew: bool = False
    ) -> None:
        try:
            version = channel.api_versions.latest_usable_version(
                ApiKey.SASL_HANDSHAKE, version, version
            )
        except UnsupportedVersion as error:
            raise AuthenticationFailed(
                f"the broker cannot authenticate with {mechanism.name}: {error.reason}"
            ) from error
        response: SaslHandshakeResponse = await channel.request_ahead(
            SaslHandshakeRequest(mechanism=mechanism.name), version
        )
        if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            raise AuthenticationFailed(
                f"the broker does not enable sasl_mechanism {mechanism.name!r}; it enables"
                f" {_shown(', '.join(map(repr, response.mechanisms))) or 'none'}"
            )
        if response.error_code == ErrorCode.ILLEGAL_SASL_STATE and not renew:
            without = "SSL" if self._tls is not None else "PLAINTEXT"
            raise AuthenticationFailed(
                f"the listener does not use SASL: set security_protocol to {without!r}, or connect"
                " to the listener that does"
            )
        if response.error_code != ErrorCode.NONE:
            raise error_for(response.error_code, api="SaslHandshake")

    async def _first(self, mechanism: ClientMechanism) -> bytes:
        if mechanism.may_hang:
            return await self._ask_kerberos(mechanism.first)
        return mechanism.first()

    async def _next(self, mechanism: ClientMechanism, token: bytes) -> bytes | None:
        if mechanism.may_hang:
            return await self._ask_kerberos(lambda: mechanism.next(token))
        if mechanism.blocks(token):
            # One at a time, so that the connections of a client hash a password once.
            async with self._hashing:
                if mechanism.blocks(token):
                    return await self._runtime.offload(lambda: mechanism.next(token))
        return mechanism.next(token)

    async def _ask_kerberos(self, function: Callable[[], T]) -> T:
        try:
            return await self._kerberos.run(function)
        except OSError as error:
            raise ConnectionFailed(f"GSSAPI: {error}") from error

    def _closed_in_handshake(self, error: OSError) -> ConnectionFailed:
        return ConnectionFailed(
            "the connection was closed during the TLS handshake"
            f" ({error.strerror or type(error).__name__}): the listener does not speak TLS (check"
            f" security_protocol {self._protocol!r} and the port), or the broker is shutting down"
        )


async def _exchange_token(channel: Channel, message: SaslAuthenticateRequest) -> bytes:
    """Send the token of a request without the request, and return the token of the broker.

    Raises:
        ConnectionLost: The connection was closed.
    """
    reader = channel.stream.reader
    # A token has no header, and may be empty.
    usual_min_bytes, reader.min_frame_bytes = reader.min_frame_bytes, 0
    try:
        token: bytes = await channel.request_ahead(message, 0, frame=_token_frame(message))
    except KafkaError as error:
        raise ConnectionLost(error.reason, broker=channel.name) from error
    finally:
        reader.min_frame_bytes = usual_min_bytes
    return token


def _token_frame(message: SaslAuthenticateRequest) -> bytes:
    return TOKEN_LENGTH.pack(len(message.auth_bytes)) + message.auth_bytes


def _refusal(response: SaslAuthenticateResponse, mechanism: ClientMechanism) -> Exception:
    text = _shown(response.error_message)
    if response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED:
        return AuthenticationFailed(
            f"{mechanism.name}: the broker refused the credentials{f': {text}' if text else ''}"
        )
    error = error_for(response.error_code, api="SaslAuthenticate")
    return AuthenticationFailed(f"{mechanism.name}: {error.reason}{f' ({text})' if text else ''}")


def _shown(text: str | None) -> str:
    """Return a broker's text without control characters, in bounds."""
    start = (text or "").strip()[:MAX_SHOWN_CHARACTERS]
    return "".join(character if character.isprintable() else "?" for character in start)
