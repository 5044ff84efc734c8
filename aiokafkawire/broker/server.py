"""One client connection: read requests, handle them in order, send responses."""

from __future__ import annotations

import inspect
import logging
import random
import ssl
import struct
from typing import Protocol

import anyio

from aiokafkawire.broker.apis import CONTROLLER_HANDLERS, HANDLERS
from aiokafkawire.broker.authentication import (
    MAX_TOKEN_BYTES,
    Admission,
    BrokerListener,
    SaslAuthenticator,
    certificate_principal,
)
from aiokafkawire.broker.client_log import ClientLog, log_error_codes
from aiokafkawire.broker.faults import (
    Answer,
    Close,
    Corrupt,
    Delay,
    Drop,
    Faults,
    Outcome,
    RequestLog,
    SeenRequest,
)
from aiokafkawire.broker.quotas.enforcement import ConnectionThrottle, handle_within_quotas
from aiokafkawire.broker.releases import NODE_CLIENT_ID, ApiVersionRange, Release, UnsupportedApi
from aiokafkawire.broker.request_context import (
    BrokerState,
    ClientConnection,
    Disconnect,
    RequestContext,
)
from aiokafkawire.broker.request_queue import RequestQueue
from aiokafkawire.errors import (
    KafkaError,
    MalformedFrame,
    MalformedMessage,
    UnsupportedVersion,
)
from aiokafkawire.runtime import NEVER, Buffer, Transport
from aiokafkawire.runtime.tls_transport import TlsTransport
from aiokafkawire.wire import ApiKey, ErrorCode, Response
from aiokafkawire.wire.api import APIS
from aiokafkawire.wire.codec import decode_prefix
from aiokafkawire.wire.frame import FrameReader
from aiokafkawire.wire.header import RequestHeader, decode_request_header, encode_response
from aiokafkawire.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)

__all__ = ("NodeInterface", "ServerConnection")

logger = logging.getLogger("aiokafkawire.broker")

_HANDLERS = {**HANDLERS, **CONTROLLER_HANDLERS}

TLS_HANDSHAKE = b"\x16\x03"
"""First bytes of a client that speaks TLS."""

WRONG_VERSION = "WRONG_VERSION_NUMBER"
NOT_TLS = frozenset({"HTTP_REQUEST", "HTTPS_PROXY_REQUEST", WRONG_VERSION})
"""Reasons of OpenSSL for a client that does not speak TLS. OpenSSL sends no alert for them."""

SET_SECURITY_PROTOCOL = "set the client's security.protocol to that of the listener"

INTERNAL_ERROR_ALERT = bytes.fromhex("15030300020250")
"""Alert of real brokers for a client that does not speak TLS."""

MAX_DISCARDED_BYTES = 65_536

_LENGTH = struct.Struct(">i")


class NodeInterface(Protocol):
    """The parts of a node that a connection uses."""

    @property
    def node_id(self) -> int: ...

    @property
    def state(self) -> BrokerState: ...

    @property
    def faults(self) -> Faults: ...

    @property
    def requests(self) -> RequestLog: ...

    @property
    def rng(self) -> random.Random: ...

    def on_request(self, request: SeenRequest) -> None:
        """Record a received request."""
        ...

    async def wait_until_resumed(self) -> None:
        """Wait until the node is not paused."""
        ...


class _UnsupportedRequest(Disconnect):
    """The API or version of the request is not supported."""


class ServerConnection:
    """Client connection with two tasks: `read` queues frames, `serve` answers them in order."""

    def __init__(
        self, node: NodeInterface, transport: Transport, number: int, listener: BrokerListener
    ) -> None:
        self._node = node
        self._transport = transport
        self._number = number
        self._listener = listener
        host, _, port = transport.peer.rpartition(":")
        self._client_connection = ClientConnection(
            host, listener.name, int(port) if port.isdecimal() else 0
        )
        self._throttle = ConnectionThrottle(node.state.clock, self._client_connection)
        self._authenticator: SaslAuthenticator | None = None
        self._reader = FrameReader(node.state.options.max_request_bytes)
        if listener.sasl is not None:
            self._authenticator = SaslAuthenticator(
                listener.sasl, self._release, node.state.clock, node.rng, self._on_authenticated
            )
            self._client_connection.authenticator = self._authenticator
            # A token may be empty.
            self._reader = FrameReader(MAX_TOKEN_BYTES, min_frame_bytes=0)
        self._is_secured = listener.tls is None
        self._requests = RequestQueue()
        self._muted = False
        self._client: str | None = None
        self._internal = False
        self.idle_since = node.state.clock.now()
        self.name = f"node {node.node_id}: connection {number} from {transport.peer}"

    @property
    def _release(self) -> Release:
        return self._node.state.releases[self._node.node_id]

    async def run(self) -> None:
        """Serve the client until the connection ends."""
        if self._listener.tls is not None and not await self._secure(self._listener.tls):
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.read)
            await self.serve()
            tasks.cancel_scope.cancel()

    async def _secure(self, context: ssl.SSLContext) -> bool:
        """Encrypt the connection; return False if that failed."""
        raw = self._transport
        secured = TlsTransport(raw, context, server_side=True)
        try:
            await self._node.wait_until_resumed()
            await secured.handshake()
            if (certificate := secured.peer_certificate()) is not None:
                self._client_connection.principal = certificate_principal(certificate)
            self._transport, self._is_secured = secured, True
        except ssl.SSLError as error:
            reason = error.reason or str(error)
            self._log_closed(
                f"the client does not speak TLS, but listener {self._listener.name} does:"
                f" {SET_SECURITY_PROTOCOL}"
                if reason == WRONG_VERSION
                else f"the TLS handshake failed: {reason}"
            )
            await self._refuse(raw, INTERNAL_ERROR_ALERT if reason in NOT_TLS else b"")
        except OSError as error:
            logger.debug("%s: connection lost: %s", self.name, error)
        finally:
            if not self._is_secured:
                raw.abort()
                with anyio.CancelScope(shield=True):
                    await raw.aclose()
        return self._is_secured

    async def _refuse(self, raw: Transport, alert: bytes) -> None:
        """Send an alert, and read on for a while: unread data would reset the connection."""
        try:
            if alert:
                await raw.send([alert])
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_discard, raw)
                await self._delay_failure()
                tasks.cancel_scope.cancel()
        except OSError as error:
            logger.debug("%s: connection lost: %s", self.name, error)

    async def _delay_failure(self) -> None:
        clock, options = self._node.state.clock, self._node.state.options
        if delay_ms := options.connection_failed_authentication_delay_ms:
            await clock.sleep_until(clock.now() + delay_ms / 1000)

    def _on_authenticated(self, principal: str) -> None:
        self._client_connection.principal = principal
        logger.debug("%s: authenticated as %s", self.name, principal)
        self._reader.max_frame_bytes = self._node.state.options.max_request_bytes

    async def read(self) -> None:
        """Read until the client closes the connection or sends a malformed frame."""
        reader = self._reader
        may_begin_with_tls = self._listener.tls is None
        try:
            while True:
                buffer = reader.get_buffer()
                count = await self._transport.receive_into(buffer)
                if count == 0:
                    return
                if may_begin_with_tls and buffer[: len(TLS_HANDSHAKE)] == TLS_HANDSHAKE:
                    raise MalformedFrame(
                        f"the client speaks TLS, but listener {self._listener.name} does not:"
                        f" {SET_SECURITY_PROTOCOL}"
                    )
                may_begin_with_tls = False
                for frame in reader.buffer_updated(count):
                    await self._requests.put(frame)
        except MalformedFrame as error:
            self._record_malformed(error)
            self._log_closed(str(error))
        except OSError as error:
            logger.debug("%s: connection lost: %s", self.name, error)
        finally:
            self._client_connection.mark_closed()
            self._requests.close()

    async def serve(self) -> None:
        """Answer queued frames until the connection ends."""
        try:
            while (frame := await self._next_request()) is not None:
                buffers = await self._respond_to(frame)
                failure = None if self._authenticator is None else self._authenticator.failure
                if failure is not None:
                    await self._delay_failure()
                if not self._release.mutes_throttled_clients:
                    await self._throttle.wait()
                if buffers:
                    await self._node.wait_until_resumed()
                    await self._transport.send(buffers)
                if failure is not None:
                    raise Disconnect(failure)
                await self._throttle.wait()
        except _UnsupportedRequest:
            pass  # already logged
        except Disconnect as reason:
            logger.warning("%s: closed: %s", self.name, reason)
        except OSError as error:
            logger.debug("%s: connection lost: %s", self.name, error)
        except Exception:
            # A bug in a handler must close this connection only, not the broker.
            logger.exception("%s: closed: a request handler failed", self.name)
        finally:
            if self._client is not None:
                self._log.disconnected(self.name, self._client, internal=self._internal)
            if self._listener.tls is None:
                self._transport.abort()
            # With TLS, this sends close_notify first.
            with anyio.CancelScope(shield=True):
                await self._transport.aclose()

    @property
    def _log(self) -> ClientLog:
        return self._node.state.client_log

    def _log_closed(self, reason: str) -> None:
        self._log.closed(self.name, self._client_connection.host, reason)

    def _describe_client(self, header: RequestHeader, message: object = None) -> str:
        """Describe the client by its first request."""
        client = "a client without client id"
        if header.client_id is not None:
            client = f"client {header.client_id!r}"
        if isinstance(message, ApiVersionsRequest) and message.client_software_name:
            client += f" ({message.client_software_name} {message.client_software_version})"
        if self._client is None:
            self._client = client
            self._internal = (header.client_id or "").startswith(NODE_CLIENT_ID)
            self._log.connected(self.name, client, internal=self._internal)
        return self._client

    def close_when_idle(self) -> None:
        """Close it once it is idle."""
        self._requests.close()
        if not self._is_secured:
            self._transport.abort()

    async def _next_request(self) -> memoryview | None:
        self.idle_since = self._node.state.clock.now()
        frame = await self._requests.get()
        if frame is not None:
            self.idle_since = NEVER
        return frame

    async def _respond_to(self, frame: memoryview) -> list[Buffer]:
        """Handle a frame; return the bytes to send, empty without a response."""
        await self._node.wait_until_resumed()
        authenticator = self._authenticator
        if authenticator is not None and authenticator.expects_token:
            token = authenticator.receive_token(bytes(frame))
            return [] if token is None else [_LENGTH.pack(len(token)), token]
        try:
            header = decode_request_header(frame)
        except UnsupportedVersion as error:
            self._record_malformed(error)
            return self._reject(str(error), self._client or "a client")
        except MalformedMessage as error:
            self._record_malformed(error)
            raise Disconnect(str(error)) from error
        admission = Admission.PROCEED
        if authenticator is not None:
            admission = authenticator.admit(header.api_key)
            if admission is Admission.CLOSE:
                raise Disconnect(authenticator.failure)
        served = self._release.served.get(header.api_key)
        if served is None or not served.low <= header.api_version <= served.high:
            if authenticator is not None and admission is Admission.ILLEGAL_STATE:
                raise Disconnect(f"{APIS[header.api_key].name} arrived during the authentication")
            return self._reject_version(header, served)
        try:
            cls = APIS[header.api_key].request
            # Brokers accept trailing bytes: librdkafka sends some.
            message, _ = decode_prefix(cls, header.api_version, frame[header.header_size :])
        except MalformedMessage as error:
            self._record_malformed(error)
            return self._reject(str(error), self._describe_client(header))
        if self._client is None:
            self._describe_client(header, message)
        if authenticator is not None and admission is Admission.ILLEGAL_STATE:
            authenticator.on_illegal_state(APIS[header.api_key].name)
            error_response = _HANDLERS[header.api_key].error_response
            refusal = error_response(message, header.api_version, ErrorCode.ILLEGAL_SASL_STATE)
            if refusal is None:
                return []
            return encode_response(refusal, header.api_version, header.correlation_id)
        seen = SeenRequest(
            api_key=header.api_key,
            version=header.api_version,
            node_id=self._node.node_id,
            client_id=header.client_id or "",
            correlation_id=header.correlation_id,
            connection=self._number,
            size_bytes=len(frame),
            message=message,
            at=self._node.state.clock.now(),
        )
        self._node.on_request(seen)
        response, corrupt = await self._respond_with_faults(seen)
        if response is None or self._muted:
            return []
        buffers = encode_response(response, header.api_version, header.correlation_id)
        now = self._node.state.clock.now()
        self._node.requests.record_response_sent(seen, now, sum(map(len, buffers)))
        return buffers if corrupt is None else corrupt.frame(buffers)

    def _record_malformed(self, error: KafkaError) -> None:
        self._node.requests.unreadable.append(f"{self.name}: {error}")

    def _reject(self, reason: str, client: str) -> list[Buffer]:
        """Close the connection or ignore the request, as the release does."""
        closes = self._release.on_unsupported_api is UnsupportedApi.CLOSE
        consequence = "closed" if closes else "not answered"
        self._log.rejected(self.name, client, reason, consequence)
        if closes:
            raise _UnsupportedRequest(reason)
        return []

    def _reject_version(
        self, header: RequestHeader, served: ApiVersionRange | None
    ) -> list[Buffer]:
        request = f"{APIS[header.api_key].name} (API key {header.api_key}) v{header.api_version}"
        if served is None:
            return self._reject(f"{request} is not supported", self._describe_client(header))
        if header.api_key is not ApiKey.API_VERSIONS:
            return self._reject(
                f"{request} is not supported (v{served.low} to v{served.high} are)",
                self._describe_client(header),
            )
        supported_range = ApiVersion(
            api_key=header.api_key, min_version=served.low, max_version=served.high
        )
        response = ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            api_keys=[supported_range] if self._release.returns_supported_range else [],
        )
        return encode_response(response, 0, header.correlation_id)

    async def _respond_with_faults(
        self, seen: SeenRequest
    ) -> tuple[Response | None, Corrupt | None]:
        """Apply matching faults, else call the handler; return the response and its damage."""
        for fault in self._node.faults.matching(seen):
            outcome: Outcome
            if callable(fault.action):
                result = fault.action(seen)
                outcome = await result if inspect.isawaitable(result) else result
            else:
                outcome = fault.action
            if outcome is None:
                continue
            fault.hits += 1
            if isinstance(outcome, Delay):
                clock = self._node.state.clock
                await clock.sleep_until(clock.now() + outcome.seconds)
                continue
            if isinstance(outcome, Corrupt):
                response = await self._handle(seen)
                return (None if response is None else outcome.response(response)), outcome
            return await self._apply_fault(seen, outcome), None
        return (None if self._muted else await self._handle(seen)), None

    async def _apply_fault(
        self, seen: SeenRequest, outcome: Drop | Close | Answer | Response | None
    ) -> Response | None:
        """Apply a fault that replaces the normal response."""
        if isinstance(outcome, Answer):
            error_response = _HANDLERS[seen.api_key].error_response
            answer = error_response(seen.message, seen.version, outcome.error_code)
            if outcome.carried_out:
                return None if await self._handle(seen) is None else answer
            outcome = answer
        if outcome is None or isinstance(outcome, Response):
            self._node.requests.record_outcome(seen, outcome, carried_out=False)
            return outcome
        if outcome.carried_out:
            await self._handle(seen)
        else:
            self._node.requests.record_outcome(seen, None, carried_out=False)
        if isinstance(outcome, Close):
            raise Disconnect(f"a fault closes it instead of a response to {seen.api_key.name}")
        self._muted = True
        return None

    async def _handle(self, seen: SeenRequest) -> Response | None:
        context = RequestContext(
            state=self._node.state,
            node_id=self._node.node_id,
            version=seen.version,
            client_id=seen.client_id,
            connection=self._client_connection,
        )
        response, throttle_s = await handle_within_quotas(
            context, seen.message, seen.api_key, seen.size_bytes, _HANDLERS[seen.api_key].handle
        )
        self._throttle.mute(throttle_s)
        log_error_codes(self.name, APIS[seen.api_key].name, seen.version, self._client, response)
        self._node.requests.record_outcome(seen, response, carried_out=True)
        return response


async def _discard(transport: Transport) -> None:
    """Read and drop what the client sends."""
    buffer = memoryview(bytearray(MAX_DISCARDED_BYTES))
    try:
        while await transport.receive_into(buffer):
            pass
    except OSError:
        pass
