"""Set-up of connections: resolution, connect, handshake and version negotiation."""

from __future__ import annotations

import logging
import ssl

import anyio

from aiokafkawire._version import __version__
from aiokafkawire.config import ClientConfig
from aiokafkawire.connection.channel import Channel
from aiokafkawire.connection.cluster_check import ClusterCheck
from aiokafkawire.connection.handshake import PLAINTEXT_HANDSHAKE, Handshake, SaslSession
from aiokafkawire.connection.in_flight_requests import ChannelLimits
from aiokafkawire.connection.metrics import ConnectionMetrics
from aiokafkawire.connection.negotiation import (
    API_VERSIONS_TIMEOUT_S,
    ConnectionChoice,
    ConnectionClosed,
    Negotiation,
    NegotiationEvent,
    NegotiationFailed,
    ResponseReceived,
    ResponseTimedOut,
    SendRequest,
    VersionsNegotiated,
    highest_usable_version,
)
from aiokafkawire.connection.node_api_versions import NodeApiVersions, parse_api_version
from aiokafkawire.errors import (
    AuthenticationFailed,
    ClientClosed,
    ConnectionFailed,
    ConnectionLost,
    KafkaError,
    MalformedFrame,
    ProtocolError,
    RequestTimedOut,
    TlsError,
)
from aiokafkawire.hooks import Connected
from aiokafkawire.logs import log_fields
from aiokafkawire.runtime import NEVER, Address, Runtime, Supervisor, Transport
from aiokafkawire.security import ClientMechanism, tls_error
from aiokafkawire.types import NodeId
from aiokafkawire.wire.frame import LISTENER_SPEAKS_TLS

__all__ = ("ADVERTISED_LISTENERS", "MAX_IN_FLIGHT", "Connector", "open_transport")

logger = logging.getLogger("aiokafkawire.connection")

MAX_IN_FLIGHT = 100
"""Unanswered requests on one connection. Callers with a lower limit count their own requests."""

CLIENT_SOFTWARE_NAME = "aiokafkawire"

ADVERTISED_LISTENERS = "advertised.listeners"
"""Broker setting that determines the addresses in the metadata."""

MIN_RENEWAL_DELAY_S = 0.1
"""Delay before credentials are asked for again, after they could not be had for a renewal."""

UNKNOWN_HOST_ADVICE = f"check bootstrap_servers, or the broker's {ADVERTISED_LISTENERS}"


class Connector:
    """Opens connections to one broker.

    Args:
        address: Host name and port.
        name: Broker name for logs and errors.
        config: Options of the client.
        runtime: Network and clock.
        supervisor: Runs the tasks of the connections.
        handshake: Encryption and authentication.
        metrics: Metrics to update.
        node_id: Id of the broker. None for a bootstrap address.
        cluster_check: Check for misrouted connections. None to skip it.
    """

    def __init__(
        self,
        address: Address,
        name: str,
        config: ClientConfig,
        *,
        runtime: Runtime,
        supervisor: Supervisor,
        handshake: Handshake = PLAINTEXT_HANDSHAKE,
        metrics: ConnectionMetrics | None = None,
        node_id: NodeId | None = None,
        cluster_check: ClusterCheck | None = None,
    ) -> None:
        self.address = address
        self.name = name
        self._config = config
        self._runtime = runtime
        self._supervisor = supervisor
        self._handshake = handshake
        self._fetching_credentials = 0
        self._metrics = metrics or ConnectionMetrics()
        self._node_id = node_id
        self._cluster_check = cluster_check
        self._override = parse_api_version(config.api_version)
        self._api_versions_version: int | None = None
        self._limits = ChannelLimits(
            max_in_flight=MAX_IN_FLIGHT,
            request_timeout_s=config.request_timeout_ms / 1_000,
            max_idle_s=config.connections_max_idle_ms / 1_000,
            max_frame_bytes=config.max_frame_bytes,
        )

    async def connect(
        self, known: NodeApiVersions | None, timeout_s: float, attempt: int
    ) -> Channel:
        """Open a connection that is ready for requests.

        Args:
            known: API versions that were found by probing and are still valid. None to negotiate.
            timeout_s: Time limit in seconds, without the time that the application takes to give
                its credentials.
            attempt: Number of the attempt, for errors. Later attempts wait longer for ApiVersions.

        Raises:
            ConnectionFailed: A step failed, or the timeout passed.
            AuthenticationFailed: The broker rejected the credentials.
        """
        began = self._runtime.clock.now()
        try:
            channel = await self._connect(known, timeout_s, attempt)
        except KafkaError as error:
            self._report(began, error)
            raise
        self._report(began, None)
        channel.report_disconnect()
        return channel

    def _report(self, began: float, error: KafkaError | None) -> None:
        """Call the hook for an attempt."""
        on_connect = self._supervisor.hooks.on_connect
        if on_connect is not None:
            on_connect(Connected(self.name, self._runtime.clock.now() - began, error))

    async def _connect(
        self, known: NodeApiVersions | None, timeout_s: float, attempt: int
    ) -> Channel:
        ready: Channel | None = None
        try:
            mechanism = await self._fetch_credentials()
            deadline = self._runtime.clock.now() + timeout_s
            with anyio.CancelScope(deadline=deadline):
                if known is not None:
                    channel = await self._open_channel()
                    channel.api_versions = known
                else:
                    channel = await self._negotiate(
                        min(API_VERSIONS_TIMEOUT_S * attempt, timeout_s / 4)
                    )
                if mechanism is not None:
                    await self._authenticate(channel, mechanism)
                if channel.api_versions.release is None and not self._config.uses_sasl:
                    channel.mark_set_up()
                ready = channel
        except KafkaError as error:
            error.broker, error.attempt = self.name, attempt
            raise
        if ready is None:
            no_tls = ", does not speak TLS, or is" if self._config.uses_tls else " or"
            raise ConnectionFailed(
                f"no connection within {timeout_s:g} s: the host does not respond, or the server is"
                f" stopped{no_tls} not a Kafka broker",
                broker=self.name,
                attempt=attempt,
            )
        return ready

    @property
    def awaited_option(self) -> str | None:
        """Option whose function has not returned the credentials of an attempt yet."""
        return self._handshake.credentials_option if self._fetching_credentials else None

    async def _negotiate(self, response_timeout_s: float) -> Channel:
        check = self._cluster_check
        expected = None if check is None else check.expected(self._node_id, self.address)
        negotiation = Negotiation(
            self._override,
            software=CLIENT_SOFTWARE_NAME,
            software_version=__version__,
            timeout_s=response_timeout_s,
            security_protocol=self._config.security_protocol,
            expected=expected,
            known_version=self._api_versions_version,
        )
        current = await self._open_channel()
        latest = current
        try:
            action = negotiation.begin()
            while isinstance(action, SendRequest):
                if action.connection is ConnectionChoice.NEW:
                    _discard(current)
                    current = latest = await self._open_channel()
                elif action.connection is ConnectionChoice.ADDITIONAL:
                    latest = await self._open_channel()
                action = negotiation.handle(await self._send(latest, action))
        except BaseException:
            _discard(current)
            _discard(latest)
            raise
        if isinstance(action, NegotiationFailed):
            _discard(current)
            _discard(latest)
            if check is not None and expected is not None and negotiation.is_misrouted:
                check.on_misrouted(expected)
            raise action.error
        return self._keep_channel(action, current, latest)

    def _keep_channel(
        self, action: VersionsNegotiated, current: Channel, latest: Channel
    ) -> Channel:
        if action.versions.release is not None:
            logger.debug(
                "Broker %s does not support ApiVersions: treated as Kafka %s",
                self.name,
                action.versions.release,
                extra=log_fields(self._supervisor.fields, broker=self.name),
            )
        chosen, other = (latest, current) if action.on_additional else (current, latest)
        if other is not chosen:
            _discard(other)
        chosen.api_versions = action.versions
        if self._override is None:
            self._api_versions_version = highest_usable_version(action.versions)
        return chosen

    async def _send(self, channel: Channel, action: SendRequest) -> NegotiationEvent:
        deadline = self._runtime.clock.now() + action.timeout_s
        try:
            request = channel.submit(action.request, action.version, deadline=deadline)
            return ResponseReceived(await channel.wait_response(request))
        except RequestTimedOut:
            return ResponseTimedOut()
        except ConnectionLost as error:
            if isinstance(error.__cause__, ssl.SSLError):
                # With TLS 1.3 a broker refuses the client's certificate after the handshake.
                raise tls_error(error.__cause__, self.address.host) from error
            return ConnectionClosed(error.reason)
        except ProtocolError as error:
            if isinstance(error, MalformedFrame) and error.peer_speaks_tls:
                raise TlsError(LISTENER_SPEAKS_TLS) from error
            raise ConnectionFailed(
                f"the server does not speak the Kafka protocol: {error.reason}",
                api=error.api,
                retriable=False,
            ) from error

    async def _open_channel(self) -> Channel:
        """Open a connection, encrypted if it has to be."""
        await self._runtime.checkpoint_one_by_one()
        transport = await open_transport(self._runtime, self.address, UNKNOWN_HOST_ADVICE)
        try:
            transport = await self._handshake.wrap(transport, self.address)
        except BaseException:
            await _close_transport(transport)
            raise
        if not self._supervisor.is_running:
            # The client was closed while the connection was being made.
            await _close_transport(transport)
            raise ClientClosed("the client is closed")
        channel = Channel(
            transport,
            name=self.name,
            client_id=self._config.client_id,
            clock=self._runtime.clock,
            limits=self._limits,
            metrics=self._metrics,
            fields=self._supervisor.fields,
            hooks=self._supervisor.hooks,
        )
        channel.start(self._supervisor)
        return channel

    async def _fetch_credentials(self) -> ClientMechanism | None:
        """Return the mechanism of one authentication. May wait for the application."""
        self._fetching_credentials += 1
        try:
            return await self._handshake.new_mechanism(self.address)
        finally:
            self._fetching_credentials -= 1

    async def _authenticate(self, channel: Channel, mechanism: ClientMechanism) -> None:
        """Authenticate a new connection, and again before its session ends (KIP-368)."""
        try:
            session = await self._handshake.authenticate(channel, mechanism)
            if not self._supervisor.is_running:
                # The client was closed while the broker answered.
                raise ClientClosed("the client is closed")
        except BaseException:
            _discard(channel)
            raise
        if session.renew_at < NEVER:
            self._supervisor.spawn(
                self._keep_authenticated, channel, session, name=f"authenticate {self.name}"
            )

    async def _keep_authenticated(self, channel: Channel, session: SaslSession) -> None:
        while session.renew_at < NEVER:
            if await channel.wait_failed_until(session.renew_at):
                return
            try:
                session = await self._renew(channel, session)
            except KafkaError as error:
                if not (channel.is_usable or isinstance(error, AuthenticationFailed)):
                    return
                logger.info(
                    "%s: re-authentication with broker %s failed: %s; closing the connection",
                    self._supervisor.name,
                    self.name,
                    error.reason,
                    extra=log_fields(self._supervisor.fields, broker=self.name, error=error),
                )
                # The next connection shows whether the credentials are wrong.
                channel.fail(ConnectionLost(f"re-authentication failed: {error.reason}"))
                return

    async def _renew(self, channel: Channel, session: SaslSession) -> SaslSession:
        """Return the next session, or this one with a later `renew_at` to try again."""
        now = self._runtime.clock.now
        mechanism: ClientMechanism | None = None
        try:
            with anyio.CancelScope(deadline=session.ends_at):
                mechanism = await self._handshake.new_mechanism(self.address)
        except KafkaError as error:
            retry_at = now() + max(MIN_RENEWAL_DELAY_S, (session.ends_at - now()) / 4)
            if not error.retriable or retry_at >= session.ends_at:
                raise
            return session._replace(renew_at=retry_at)
        if mechanism is None:
            raise ConnectionFailed(
                f"{self._handshake.credentials_option} did not return before the session ended"
            )
        # The broker rejects other requests between those of an authentication.
        channel.hold_requests()
        session = await self._handshake.authenticate(channel, mechanism, renew=True)
        # Not after a failure, which closes the connection: requests must not be sent before.
        channel.release_requests()
        self._metrics.reauthentications += 1
        logger.debug(
            "%s: authenticated again with broker %s",
            self._supervisor.name,
            self.name,
            extra=log_fields(self._supervisor.fields, broker=self.name),
        )
        return session


async def open_transport(runtime: Runtime, address: Address, unknown_host_advice: str) -> Transport:
    """Connect to the first address of a host name that accepts.

    Each address gets an equal share of the time that is left until the deadline of the scope.

    Args:
        runtime: Network and clock.
        address: Host name and port.
        unknown_host_advice: End of the error text if the name cannot be resolved.

    Raises:
        ConnectionFailed: The name cannot be resolved, or no address accepts.
    """
    name, port = address
    try:
        addresses = await runtime.resolve(name, port)
    except OSError as error:
        unresolved = ConnectionFailed(
            f"the host name {name!r} cannot be resolved ({error.strerror or error}):"
            f" {unknown_host_advice}"
        )
        unresolved.refused = True
        raise unresolved from error
    failures: list[str] = []
    refusals = 0
    for number, each in enumerate(addresses):
        transport: Transport | None = None
        try:
            with anyio.CancelScope(
                deadline=_attempt_deadline(runtime.clock.now(), len(addresses) - number)
            ):
                transport = await runtime.connect(each)
        except OSError as error:
            failures.append(f"{_with_resolved(address, each)}: {_reason(error)}")
            refusals += isinstance(error, ConnectionRefusedError)
        else:
            if transport is not None:
                return transport
            failures.append(f"{_with_resolved(address, each)}: no response")
    failed = ConnectionFailed("; ".join(failures) or f"the name {name!r} has no address")
    failed.refused = refusals == len(failures)
    raise failed


def _attempt_deadline(now: float, addresses_left: int) -> float:
    return now + max(0.0, anyio.current_effective_deadline() - now) / addresses_left


async def _close_transport(transport: Transport) -> None:
    transport.abort()
    with anyio.CancelScope(shield=True):
        await transport.aclose()


def _discard(channel: Channel) -> None:
    channel.close(ConnectionLost("this connection was for negotiation only"))


def _with_resolved(address: Address, resolved: Address) -> str:
    """Return "name:port (resolved host)"; "host:port" if no name was resolved."""
    return str(address) if resolved.host == address.host else f"{address} ({resolved.host})"


def _reason(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused; nothing listens there: check host and port"
    return error.strerror or str(error)
