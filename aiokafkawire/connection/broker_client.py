"""Client of one broker, with connections of several kinds that open on demand."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TypeVar

from aiokafkawire.config import ClientConfig, ConsumerConfig
from aiokafkawire.connection.backoff import Backoff, ReconnectBackoff
from aiokafkawire.connection.channel import Channel
from aiokafkawire.connection.connection_kinds import ConnectionKind, connection_kind_for
from aiokafkawire.connection.connector import ADVERTISED_LISTENERS, Connector
from aiokafkawire.connection.handshake import PLAINTEXT, Handshake
from aiokafkawire.connection.in_flight_requests import InFlightRequest
from aiokafkawire.connection.metrics import ConnectionMetrics
from aiokafkawire.connection.node_api_versions import (
    NodeApiVersions,
    VersionedRequest,
    choose_version,
)
from aiokafkawire.connection.silence import BrokerOutage, SilenceDetector
from aiokafkawire.errors import (
    ClientClosed,
    ConnectionFailed,
    ConnectionLost,
    KafkaError,
    RequestTimedOut,
    UnsupportedVersion,
)
from aiokafkawire.logs import RateLimit, log_fields
from aiokafkawire.runtime import Address, Future, Runtime, Supervisor
from aiokafkawire.types import NodeId
from aiokafkawire.wire import APIS, ApiKey, Request, Response

__all__ = ("DISCONNECT_LOG_INTERVAL_S", "BrokerClient")

logger = logging.getLogger("aiokafkawire.connection")

DISCONNECT_LOG_INTERVAL_S = 60.0
"""At most one disconnect per broker is logged above DEBUG in this time."""

UNREACHABLE_LOG_AFTER_S = 5.0
"""How long connection attempts to one broker must fail before this is logged."""

PROBE_SHARING_S = 0.1
"""A probe shares the connection attempt of a probe that began at most this time before.

An older attempt may still wait for packets that were lost before the broker came back.
"""

R = TypeVar("R", bound=Response)

_PROBE_NOT_KEPT = ConnectionLost("this connection was for one request only")


class _ProbeInterrupted(ConnectionFailed):
    """The probe that owned a shared connection attempt was cancelled."""


class _Probe:
    """A connection attempt of `probe`, for one or more callers."""

    def __init__(self, began_at: float, deadline: float) -> None:
        self.deadline = deadline
        self.connected: Future[Channel] = Future()
        self.channel: Channel | None = None
        self.users = 0
        self.is_kept = False
        self._started_at = began_at

    def can_share(self, now: float, deadline: float) -> bool:
        """Return whether a probe that begins now can share the attempt without a disadvantage."""
        return now <= self._started_at + PROBE_SHARING_S and (
            deadline <= self.deadline + PROBE_SHARING_S
        )


class BrokerClient:
    """Sends requests to one broker.

    All methods must be called in the event loop of `runtime`.

    Args:
        address: Host name and port.
        config: Options of the client.
        runtime: Network and clock.
        supervisor: Runs the tasks of the connections.
        node_id: Id of the broker. None for a bootstrap address, where the id is unknown.
        handshake: Encryption and authentication of new connections.
        metrics: Metrics to update.
        on_disconnect: Called when an open connection is lost, but not when the client closes it.
    """

    def __init__(
        self,
        address: Address,
        config: ClientConfig,
        runtime: Runtime,
        supervisor: Supervisor,
        *,
        node_id: NodeId | None = None,
        handshake: Handshake = PLAINTEXT,
        metrics: ConnectionMetrics | None = None,
        on_disconnect: Callable[[], None] | None = None,
    ) -> None:
        self.address = address
        self.node_id = node_id
        self.name = str(address) if node_id is None else f"{node_id} at {address}"
        self._runtime = runtime
        self._supervisor = supervisor
        self._handshake = handshake
        self._connector = Connector(
            address,
            self.name,
            config,
            runtime=runtime,
            supervisor=supervisor,
            handshake=handshake,
            metrics=metrics,
        )
        self._backoff = ReconnectBackoff(
            Backoff.from_ms(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms),
            Backoff.from_ms(
                config.socket_connection_setup_timeout_ms,
                config.socket_connection_setup_timeout_max_ms,
            ),
        )
        # Per kind: no entry, a future while connecting, or an open channel.
        self._connections: dict[ConnectionKind, Channel | Future[Channel]] = {}
        # After a failure, connections of all kinds wait for the result of one attempt.
        self._shared_attempt: Future[None] | None = None
        self._probe: _Probe | None = None
        self._last_failure: KafkaError | None = None
        self._attempt_at = math.inf
        self._failing_since = math.inf
        self._failed_at = -math.inf
        self._closed_error: KafkaError | None = None
        self._on_disconnect = on_disconnect
        max_wait_ms = config.fetch_max_wait_ms if isinstance(config, ConsumerConfig) else 0
        self._silence = SilenceDetector(max_wait_ms / 1_000)
        self._outage_since = math.inf
        self._log = _ConnectionLog(supervisor, self.name)

    # --- state ---

    @property
    def api_versions(self) -> NodeApiVersions | None:
        """API versions of the broker while a connection is open, else None."""
        for connection in self._connections.values():
            if isinstance(connection, Channel) and connection.is_usable:
                return connection.api_versions
        return None

    @property
    def is_connected(self) -> bool:
        """True while a connection is open."""
        return any(True for _ in self._channels())

    @property
    def in_flight_count(self) -> int:
        """Number of queued and unanswered requests on all connections."""
        return sum(channel.in_flight_count for channel in self._channels())

    @property
    def next_attempt_at(self) -> float:
        """Time before which no connection is attempted, because of the reconnect backoff."""
        return self._backoff.next_attempt_at

    @property
    def last_failure(self) -> KafkaError | None:
        """Error of the last connection attempt; None once an attempt has succeeded."""
        return self._last_failure

    def log_unreachable(self, since: float) -> None:
        """Log, once per outage, that attempts to connect have failed for `UNREACHABLE_LOG_AFTER_S`.

        Args:
            since: Failures before this time do not count, because the whole cluster was
                unreachable.
        """
        error, since = self._last_failure, max(since, self._failing_since)
        if (
            isinstance(error, ConnectionFailed)
            and self._failed_at - since >= UNREACHABLE_LOG_AFTER_S
        ):
            self._log.unreachable(error, self._failing_since, self._failed_at)

    def outage(self, now: float) -> BrokerOutage | None:
        """Return since when the broker has not responded; None without a sign of an outage.

        Compares the unanswered requests with those of the last call, so call it regularly.
        """
        channels = {
            kind: channel
            for kind, channel in self._connections.items()
            if isinstance(channel, Channel) and channel.is_usable
        }
        self._silence.check(channels, now)
        is_silent = self._silence.since < math.inf
        since = min(self._failing_since, self._attempt_at, self._silence.since)
        if since > now or (channels and not is_silent):
            self._outage_since = math.inf
            self._log.responds(now)
            return None
        self._outage_since = since = min(since, self._outage_since)
        if is_silent:
            return BrokerOutage(
                since,
                ConnectionLost(
                    f"no response to {self._silence.api} for {now - since:.0f} s: the broker is"
                    " stopped or overloaded, or the network drops packets",
                    broker=self.name,
                ),
                is_silent=True,
            )
        reason = f"no connection for {now - since:.0f} s"
        if self._last_failure is not None:
            reason += f"; the last attempt: {self._last_failure.reason}"
        return BrokerOutage(since, ConnectionFailed(reason, broker=self.name), is_silent=False)

    def log_silence(self, outage: BrokerOutage, now: float) -> None:
        """Log, once per outage, that the broker does not respond on an open connection."""
        if outage.is_silent:
            self._log.silent(outage, now)

    # --- requests ---

    async def request(
        self,
        message: Request[R] | VersionedRequest[R],
        *,
        deadline: float,
        connection_kind: ConnectionKind | None = None,
        min_version: int = 0,
        max_version: int | None = None,
    ) -> R:
        """Send a request in the latest version that both sides support, and return its response.

        Connects first if there is no connection of the kind. Makes one attempt.

        Args:
            message: Request, or a function that builds it for a version.
            deadline: When to stop waiting.
            connection_kind: Kind of connection. Defaults to that of the API.
            min_version: Lowest version that the caller accepts.
            max_version: Highest version that the caller accepts.

        Raises:
            ConnectionFailed: No connection could be made.
            ConnectionLost: The connection was lost. `sent` is False if no bytes were written.
            RequestTimedOut: No response before the deadline; `sent` as before.
            UnsupportedVersion: Client and broker have no version in common.
            ProtocolError: The broker sent an invalid response.
            AuthenticationFailed: The broker rejected the credentials.
            ClientClosed: The client was closed.
        """
        kind = connection_kind or connection_kind_for(message.api_key)
        channel = self._connections.get(kind)
        if not isinstance(channel, Channel) or not channel.is_usable:
            channel = await self._wait_connected(kind, deadline, message.api_key)
        request = self.submit(channel, message, deadline, min_version, max_version)
        response: R = await channel.wait_response(request)
        return response

    def submit(
        self,
        channel: Channel,
        message: Request[R] | VersionedRequest[R],
        deadline: float,
        min_version: int = 0,
        max_version: int | None = None,
    ) -> InFlightRequest:
        """Send a request on a connection without waiting for the response.

        Takes the arguments of `request`, and raises as it does before the request is sent.
        """
        try:
            version = choose_version(channel.api_versions, message, min_version, max_version)
        except UnsupportedVersion as error:
            error.broker = self.name
            raise
        return channel.submit(
            message.build(version) if isinstance(message, VersionedRequest) else message,
            version,
            deadline=deadline,
        )

    async def probe(
        self, message: Request[R] | VersionedRequest[R], *, deadline: float, min_version: int = 0
    ) -> R:
        """Send a request now, without the reconnect backoff of `request`.

        Uses the open general connection. If there is none, or it breaks, `probe` opens another one
        in parallel to any attempt of `request`, and shares it with probes that begin within
        `PROBE_SHARING_S`. It becomes the general connection if there is still none. A failure does
        not affect the backoff. A retired client can probe, too, as it may have been retired after
        the caller looked it up.

        Raises:
            KafkaError: As `request`.
        """
        channel = self._connections.get(ConnectionKind.GENERAL)
        if isinstance(channel, Channel) and channel.is_usable:
            try:
                request = self.submit(channel, message, deadline, min_version)
                return await channel.wait_response(request)  # type: ignore[no-any-return]
            except ConnectionLost:
                pass  # For example, the broker has just closed the idle connection.
        while True:
            if not isinstance(self._closed_error, ConnectionLost):
                self._check_open(message.api_key)
            try:
                return await self._probe_new_connection(message, deadline, min_version)
            except _ProbeInterrupted:
                continue  # The probe whose attempt was shared was cancelled.

    async def _probe_new_connection(
        self, message: Request[R] | VersionedRequest[R], deadline: float, min_version: int
    ) -> R:
        now = self._runtime.clock.now()
        probe, connects = self._probe, False
        if probe is None or not probe.can_share(now, deadline):
            probe = self._probe = _Probe(now, deadline)
            connects = True
        probe.users += 1
        try:
            if connects:
                await self._connect_probe(probe)
            channel = await self._wait_for_probe(probe, deadline, message.api_key)
            request = self.submit(channel, message, deadline, min_version)
            response: R = await channel.wait_response(request)
            if self._closed_error is None and self._connections.get(ConnectionKind.GENERAL) is None:
                self._on_connected(ConnectionKind.GENERAL, Future(), channel)
                probe.is_kept = True
            return response
        finally:
            probe.users -= 1
            if not probe.users:
                if self._probe is probe:
                    self._probe = None
                if probe.channel is not None and not probe.is_kept:
                    probe.channel.close(_PROBE_NOT_KEPT)

    async def _connect_probe(self, probe: _Probe) -> None:
        """Connect on behalf of all callers that share the probe."""
        timeout_s = max(0.0, probe.deadline - self._runtime.clock.now())
        try:
            probe.channel = await self._connector.connect(
                self._probed_versions(), timeout_s, attempt=1
            )
        except KafkaError as error:
            probe.connected.set_exception(error)
        except BaseException:
            if self._probe is probe:
                self._probe = None
            probe.connected.set_exception(
                _ProbeInterrupted("the attempt to connect was interrupted")
            )
            raise
        else:
            probe.connected.set_result(probe.channel)

    async def _wait_for_probe(self, probe: _Probe, deadline: float, api_key: int) -> Channel:
        try:
            return await probe.connected.wait(deadline)
        except TimeoutError:
            raise RequestTimedOut(
                "no connection before the deadline",
                sent=False,
                broker=self.name,
                api=APIS[ApiKey(api_key)].name,
            ) from None

    def ready_channel(self, connection_kind: ConnectionKind) -> Channel | None:
        """Return the open connection of a kind if it is not throttled, else None."""
        channel = self._connections.get(connection_kind)
        if not isinstance(channel, Channel) or not channel.is_usable:
            return None
        return None if channel.throttled_until > self._runtime.clock.now() else channel

    def choose_version_on(
        self, channel: Channel, api_key: int, min_version: int = 0, max_version: int | None = None
    ) -> int:
        """Return the API version for a request on a connection. Raises `UnsupportedVersion`."""
        try:
            return channel.api_versions.latest_usable_version(api_key, max_version, min_version)
        except UnsupportedVersion as error:
            error.broker = self.name
            raise

    async def ready(
        self, api_key: int, deadline: float, connection_kind: ConnectionKind | None = None
    ) -> None:
        """Wait until `ready_channel` returns a connection. Raises as `request` before it sends."""
        connection_kind = connection_kind or connection_kind_for(api_key)
        clock = self._runtime.clock
        while True:
            channel = await self._wait_connected(connection_kind, deadline, api_key)
            until = channel.throttled_until
            if until <= clock.now():
                return
            await clock.sleep_until(min(until, deadline))
            if until > deadline:
                raise RequestTimedOut(
                    f"not sent: throttled by the broker for {until - clock.now():.1f} s more",
                    sent=False,
                    broker=self.name,
                    api=APIS[ApiKey(api_key)].name,
                )

    async def get_api_versions(self, deadline: float) -> NodeApiVersions:
        """Return the API versions of the broker; connect if there is no connection."""
        versions = self.api_versions
        if versions is not None:
            return versions
        return (
            await self._wait_connected(ConnectionKind.GENERAL, deadline, ApiKey.API_VERSIONS)
        ).api_versions

    # --- closing ---

    def retire(self) -> None:
        """Finish the requests in flight and accept no others: the metadata lost this address."""
        if self._closed_error is None:
            self._closed_error = ConnectionLost(
                "the cluster metadata no longer lists this address", sent=False
            )
            for channel in self._channels():
                channel.close_when_idle()

    def close_connection(self, connection_kind: ConnectionKind) -> None:
        """Close the connection of a kind; its requests fail and may be retried on a new one."""
        connection = self._connections.get(connection_kind)
        if isinstance(connection, Channel):
            connection.close(ConnectionLost("the broker did not respond on this connection"))

    def abort(self) -> None:
        """Close all connections immediately; requests fail with `ClientClosed`."""
        self._closed_error = ClientClosed("the client is closed")
        for connection in list(self._connections.values()):
            if isinstance(connection, Channel):
                connection.close(self._closed_error)
            else:
                connection.set_exception(self._closed_error)
        self._connections.clear()

    async def aclose(self) -> None:
        """Close all connections immediately, and wait until they are released."""
        channels = list(self._channels())
        self.abort()
        for channel in channels:
            await channel.wait_closed()

    # --- connections ---

    def _channels(self) -> list[Channel]:
        return [
            connection
            for connection in self._connections.values()
            if isinstance(connection, Channel) and connection.is_usable
        ]

    async def _wait_connected(
        self, connection_kind: ConnectionKind, deadline: float, api_key: int
    ) -> Channel:
        """Return the open connection of a kind; open one if there is none."""
        connection = self._connections.get(connection_kind)
        if isinstance(connection, Channel):
            if connection.is_usable:
                return connection
            connection = None
        if connection is None:
            connection = self._start_connecting(connection_kind, api_key)
        try:
            return await connection.wait(deadline)
        except KafkaError as error:
            # `wait` raises a copy for each waiter, so requests of several APIs can set `api`.
            error.api = error.api or APIS[ApiKey(api_key)].name
            raise
        except TimeoutError:
            if self._connector.fetching_credentials:
                raise ConnectionFailed(
                    f"no connection before the deadline: {self._handshake.credentials_option} has"
                    " not returned yet",
                    broker=self.name,
                    api=APIS[ApiKey(api_key)].name,
                    attempt=self._backoff.attempt_number,
                ) from None
            why = f"; the last attempt: {self._last_failure.reason}" if self._last_failure else ""
            raise RequestTimedOut(
                f"no connection before the deadline{why}",
                sent=False,
                broker=self.name,
                api=APIS[ApiKey(api_key)].name,
                attempt=self._backoff.attempt_number,
            ) from None

    def _check_open(self, api_key: int) -> None:
        """Raise `ConnectionLost` or `ClientClosed` if no connection may be opened."""
        if self._closed_error is not None or not self._supervisor.is_running:
            api = APIS[ApiKey(api_key)].name
            if isinstance(self._closed_error, ConnectionLost):
                raise ConnectionLost(
                    self._closed_error.reason, sent=False, broker=self.name, api=api
                )
            raise ClientClosed("the client is closed", broker=self.name, api=api)

    def _start_connecting(self, connection_kind: ConnectionKind, api_key: int) -> Future[Channel]:
        self._check_open(api_key)
        future: Future[Channel] = Future()
        self._connections[connection_kind] = future
        self._supervisor.spawn(
            self._connect,
            connection_kind,
            future,
            name=f"connect {connection_kind.value} {self.name}",
        )
        return future

    async def _connect(self, connection_kind: ConnectionKind, future: Future[Channel]) -> None:
        """Open the connection of a kind, in one attempt after the backoff."""
        shared_attempt: Future[None] | None = None
        attempt = self._backoff.attempt_number
        try:
            while self._shared_attempt is not None:
                await self._shared_attempt.wait()
            if self._backoff.failures:
                shared_attempt = self._shared_attempt = Future()
            clock = self._runtime.clock
            if self._backoff.next_attempt_at > clock.now():
                await clock.sleep_until(self._backoff.next_attempt_at)
            attempt = self._backoff.attempt_number
            self._attempt_at = clock.now()
            channel = await self._connector.connect(
                self._probed_versions(), self._backoff.setup_timeout_s(), attempt
            )
        except KafkaError as error:
            self._remove_connection(connection_kind, future)
            # Attempts of several kinds that fail together count as one failure.
            if self._backoff.attempt_number == attempt:
                self._record_failure(error)
            self._finish_shared_attempt(shared_attempt, error)
            future.set_exception(error)
        except BaseException:
            self._remove_connection(connection_kind, future)
            interruption = self._closed_error or self._interruption_error()
            self._finish_shared_attempt(shared_attempt, interruption)
            future.set_exception(interruption)
            raise
        else:
            self._on_connected(connection_kind, future, channel)
            self._finish_shared_attempt(shared_attempt, None)

    def _finish_shared_attempt(
        self, shared_attempt: Future[None] | None, error: KafkaError | None
    ) -> None:
        """Pass the result of an attempt to the other kinds: they connect, or fail, too."""
        if shared_attempt is None:
            return
        self._shared_attempt = None
        if error is None:
            shared_attempt.set_result(None)
        else:
            shared_attempt.set_exception(error)

    def _interruption_error(self) -> KafkaError:
        """Return the error for a cancelled attempt: the client is closing, or Ctrl-C."""
        if self._supervisor.is_running:
            return ConnectionFailed("the attempt to connect was interrupted", broker=self.name)
        return ClientClosed("the client is closed", broker=self.name)

    def _on_connected(
        self, connection_kind: ConnectionKind, future: Future[Channel], channel: Channel
    ) -> None:
        if self._closed_error is not None or not channel.is_usable:
            lost = self._closed_error or ConnectionLost(
                "the broker closed the connection immediately", sent=False
            )
            channel.close(lost)
            self._remove_connection(connection_kind, future)
            if self._closed_error is None:
                self._record_failure(lost)
            future.set_exception(lost)
            return
        channel.on_closed = self._on_closed
        self._log.connected(connection_kind, channel.api_versions, self._runtime.clock.now())
        self._backoff.record_success()
        self._last_failure = None
        self._attempt_at = self._failing_since = self._outage_since = math.inf
        self._connections[connection_kind] = channel
        future.set_result(channel)

    def _probed_versions(self) -> NodeApiVersions | None:
        """Return versions of an old broker, found by probing, while a connection is open."""
        versions = self.api_versions
        return versions if versions is not None and versions.release is not None else None

    def _remove_connection(
        self, connection_kind: ConnectionKind, connection: Channel | Future[Channel]
    ) -> None:
        if self._connections.get(connection_kind) is connection:
            del self._connections[connection_kind]

    def _on_closed(self, channel: Channel, error: KafkaError) -> None:
        for connection_kind, connection in list(self._connections.items()):
            if connection is channel:
                del self._connections[connection_kind]
        if not self._supervisor.is_running:
            return  # The client is closing, which is no failure of the broker.
        # Connections that are lost together count as one failure.
        if not channel.closed_by_client and not self._backoff.failures:
            level = logging.WARNING if channel.has_unconfirmed_request else logging.INFO
            self._log.disconnected(error, self._runtime.clock.now(), level, self._outage_since)
            self._record_failure(error)
            if self._on_disconnect is not None and self._closed_error is None:
                self._on_disconnect()

    def _record_failure(self, error: KafkaError) -> None:
        self._last_failure = error
        now = self._runtime.clock.now()
        self._failing_since = min(self._failing_since, self._attempt_at, self._outage_since, now)
        self._failed_at = now
        self._backoff.record_failure(now, self._runtime.rng)
        self._log.failed(error, self._backoff.next_attempt_at - now)


class _ConnectionLog:
    """Logs connects and disconnects of one broker; repeated disconnects at DEBUG."""

    def __init__(self, supervisor: Supervisor, name: str) -> None:
        self._log_prefix = supervisor.name
        self._broker = name
        self._fields = log_fields(supervisor.fields, broker=name)
        self._limit = RateLimit(DISCONNECT_LOG_INTERVAL_S)
        self._disconnected_at = math.inf
        self._was_connected = False
        self._unreachable_since = math.inf
        self._is_silent = False

    def disconnected(self, error: KafkaError, now: float, level: int, outage_since: float) -> None:
        limited = self._limit.level(level, None, now)
        if limited == level or self._is_silent:
            self._disconnected_at = min(outage_since, now)
        self._is_silent = False
        logger.log(
            limited,
            "%s: disconnected from broker %s: %s; the next request reconnects",
            self._log_prefix,
            self._broker,
            error.reason,
            extra=log_fields(self._fields, error=error),
        )

    def failed(self, error: KafkaError, backoff_s: float) -> None:
        logger.debug(
            "%s: no connection to broker %s: %s; next attempt in %.3f s or later",
            self._log_prefix,
            self._broker,
            error.reason,
            backoff_s,
            extra=log_fields(self._fields, error=error),
        )

    def unreachable(self, error: KafkaError, since: float, now: float) -> None:
        if self._unreachable_since == since:
            return
        self._unreachable_since = since
        limited = self._limit.level(logging.WARNING, "unreachable", now)
        if limited == logging.WARNING:
            self._disconnected_at = min(self._disconnected_at, since)
        reason = error.reason
        if not self._was_connected and ADVERTISED_LISTENERS not in reason:
            reason += f"; check the broker's {ADVERTISED_LISTENERS}"
        logger.log(
            limited,
            "%s: no connection to broker %s for %.0f s, although the metadata lists it: %s;"
            " retrying",
            self._log_prefix,
            self._broker,
            now - since,
            reason,
            extra=log_fields(self._fields, error=error),
        )

    def silent(self, outage: BrokerOutage, now: float) -> None:
        if self._unreachable_since == outage.since:
            return
        self._unreachable_since = outage.since
        limited = self._limit.level(logging.WARNING, "silent", now)
        self._is_silent = limited == logging.WARNING
        logger.log(
            limited,
            "%s: broker %s does not respond: %s; waiting",
            self._log_prefix,
            self._broker,
            outage.error.reason,
            extra=log_fields(self._fields, error=outage.error),
        )

    def responds(self, now: float) -> None:
        """Log the end of a silence that was logged."""
        if not self._is_silent:
            return
        self._is_silent = False
        outage_s = now - self._unreachable_since
        logger.info(
            "%s: broker %s responds again after %.3f s",
            self._log_prefix,
            self._broker,
            outage_s,
            extra=log_fields(self._fields, outage_ms=round(outage_s * 1_000)),
        )

    def connected(
        self, connection_kind: ConnectionKind, versions: NodeApiVersions, now: float
    ) -> None:
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug(
                "%s: connected to broker %s (connection: %s); versions: %s",
                self._log_prefix,
                self._broker,
                connection_kind.value,
                versions.describe(),
                extra=self._fields,
            )
        verb = "reconnected" if self._was_connected else "connected"
        self._was_connected = True
        if self._disconnected_at <= now:
            outage_s, self._disconnected_at = now - self._disconnected_at, math.inf
            logger.info(
                "%s: %s to broker %s after %.3f s",
                self._log_prefix,
                verb,
                self._broker,
                outage_s,
                extra=log_fields(self._fields, outage_ms=round(outage_s * 1_000)),
            )
