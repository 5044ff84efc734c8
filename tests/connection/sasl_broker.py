"""A scripted broker that authenticates its clients."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Mapping
from typing import Any

from aiokafkawire import security
from aiokafkawire.runtime import TlsTransport
from aiokafkawire.security.scram import MIN_ITERATIONS
from aiokafkawire.wire import APIS, ApiKey, ErrorCode, Response
from aiokafkawire.wire.messages.heartbeat import HeartbeatResponse
from aiokafkawire.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from aiokafkawire.wire.messages.sasl_handshake import SaslHandshakeResponse

from .scripted import Hangup, ServerConnection, speaks

USER, PASSWORD = "alice", "s3cret-of-alice"
TOKEN = "token.of.alice"


def servers(iterations: int) -> dict[str, Callable[[], security.ServerMechanism]]:
    """Make the server's side of each mechanism."""

    credentials = {
        mechanism: security.ScramCredential.from_password(
            mechanism, security.Secret(PASSWORD), b"salt", iterations
        )
        for mechanism in security.SCRAM_HASHES
    }

    def scram(mechanism: str) -> security.ScramServer:
        credential = credentials[mechanism]
        found = {USER: (USER, credential)}
        return security.ScramServer(mechanism, lambda name, _: found.get(name), "of-the-server")

    def validate(token: security.Secret, _: Mapping[str, str]) -> str:
        if token.reveal() != TOKEN:
            raise security.TokenRefused
        return USER

    return {
        "PLAIN": lambda: security.PlainServer({USER: security.Secret(PASSWORD)}.get),
        "SCRAM-SHA-256": lambda: scram("SCRAM-SHA-256"),
        "SCRAM-SHA-512": lambda: scram("SCRAM-SHA-512"),
        "OAUTHBEARER": lambda: security.OAuthBearerServer(validate),
    }


class SaslBroker:
    """Answers ApiVersions, authenticates as Kafka does, and answers Heartbeat.

    Args:
        ranges: Versions of all APIs; those of the client by default.
        lifetime_ms: Life of a session.
        tls: Settings of the listener.
        on_step: Called with the name of each step before it is answered.
        iterations: Iterations of the SCRAM credentials.
    """

    def __init__(
        self,
        *,
        ranges: Mapping[ApiKey, tuple[int, int]] | None = None,
        lifetime_ms: int = 0,
        tls: Any = None,
        on_step: Callable[[str], Any] | None = None,
        iterations: int = MIN_ITERATIONS,
    ) -> None:
        self.ranges = ranges or {
            key: (api.min_version, api.max_version) for key, api in APIS.items()
        }
        self.lifetime_ms = lifetime_ms
        self.tls = tls
        self.on_step = on_step
        self.mechanisms = servers(iterations)
        self.steps: list[str] = []
        self.authenticated = 0

    async def __call__(self, connection: ServerConnection) -> None:
        if self.tls is not None:
            secured = TlsTransport(connection.transport, self.tls, server_side=True)
            await secured.handshake()
            connection.transport = secured
        mechanism: security.ServerMechanism | None = None
        while True:
            header, request = await connection.next_request()
            await self._step(f"{APIS[ApiKey(header.api_key)].name} v{header.api_version}")
            response: Response
            if header.api_key == ApiKey.API_VERSIONS:
                response = speaks(self.ranges)
            elif header.api_key == ApiKey.SASL_HANDSHAKE:
                response, mechanism = self._choose(request.mechanism)
                if mechanism is not None and header.api_version == 0:
                    await connection.respond(header, response)
                    await self._exchange_tokens(connection, mechanism)
                    continue
            elif header.api_key == ApiKey.SASL_AUTHENTICATE and mechanism is not None:
                response = self._authenticate(mechanism, request.auth_bytes)
            elif (
                header.api_key == ApiKey.HEARTBEAT
                and mechanism is not None
                and mechanism.is_complete
            ):
                response = HeartbeatResponse(error_code=0)
            else:
                raise Hangup
            await connection.respond(header, response)
            if getattr(response, "error_code", 0):
                raise Hangup

    async def _step(self, name: str) -> None:
        self.steps.append(name)
        if self.on_step is not None and (awaitable := self.on_step(name)) is not None:
            await awaitable

    def _choose(self, name: str) -> tuple[Response, security.ServerMechanism | None]:
        enabled = sorted(self.mechanisms)
        if name not in self.mechanisms:
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            return SaslHandshakeResponse(error_code=code, mechanisms=enabled), None
        return SaslHandshakeResponse(error_code=0, mechanisms=enabled), self.mechanisms[name]()

    def _authenticate(self, mechanism: security.ServerMechanism, token: bytes) -> Response:
        try:
            answer = mechanism.next(token)
        except security.CredentialsRefused as refused:
            return SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
                error_message=str(refused),
                auth_bytes=b"",
            )
        lifetime_ms = 0
        if mechanism.is_complete:
            self.authenticated += 1
            lifetime_ms = self.lifetime_ms
        return SaslAuthenticateResponse(
            error_code=0, error_message="", auth_bytes=answer, session_lifetime_ms=lifetime_ms
        )

    async def _exchange_tokens(
        self, connection: ServerConnection, mechanism: security.ServerMechanism
    ) -> None:
        while not mechanism.is_complete:
            token = await connection.receive()
            if token is None:
                raise Hangup
            await self._step("token")
            with contextlib.suppress(security.CredentialsRefused):
                answer = mechanism.next(bytes(token))
                await connection.transport.send([struct.pack(">i", len(answer)) + answer])
                continue
            raise Hangup
        self.authenticated += 1
