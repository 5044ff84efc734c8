"""Client of one broker, with connections of several kinds that open on demand."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from aiokafkawire.config import ClientConfig, ConsumerConfig, ShareConsumerConfig
from aiokafkawire.connection.backoff import Backoff, ReconnectBackoff
from aiokafkawire.connection.channel import Channel
from aiokafkawire.connection.cluster_check import ClusterCheck
from aiokafkawire.connection.connection_kinds import CONNECTION_KINDS, ConnectionKind
from aiokafkawire.connection.connector import Connector
from aiokafkawire.connection.handshake import PLAINTEXT_HANDSHAKE, Handshake
from aiokafkawire.connection.in_flight_requests import InFlightRequest
from aiokafkawire.connection.metrics import ConnectionMetrics
from aiokafkawire.connection.node_api_versions import NodeApiVersions, VersionedRequest
from aiokafkawire.connection.outages import OutageTracker
from aiokafkawire.connection.probes import ProbeInterrupted, Probes
from aiokafkawire.connection.silence import BrokerOutage
from aiokafkawire.errors import (
    ClientClosed,
    ConnectionFailed,
    ConnectionLost,
    KafkaError,
    RequestTimedOut,
    UnsupportedVersion,
)
from aiokafkawire.runtime import Address, Future, Runtime, Supervisor
from aiokafkawire.types import NodeId
from aiokafkawire.wire import APIS, ApiKey, Request, Response

__all__ = ("BrokerClient",)

R = TypeVar("R", bound=Response)


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
        on_connect: Called when a connection is open.
        on_disconnect: Called when an open connection is lost, but not when the client closes it.
        cluster_check: Check for misrouted connections. None to skip it.

    Attributes:
        outages: Since when the broker has not responded.
    """

    def __init__(
        self,
        address: Address,
        config: ClientConfig,
        runtime: Runtime,
        supervisor: Supervisor,
        *,
        node_id: NodeId | None = None,
        handshake: Handshake = PLAINTEXT_HANDSHAKE,
        metrics: ConnectionMetrics | None = None,
        on_connect: Callable[[BrokerClient], None] | None = None,
        on_disconnect: Callable[[], None] | None = None,
        cluster_check: ClusterCheck | None = None,
    ) -> None:
        self.address = address
        self.node_id = node_id
        self.name = str(address) if node_id is None else f"{node_id} at {address}"
        self._runtime = runtime
        self._supervisor = supervisor
        self._connector = Connector(
            address,
            self.name,
            config,
            runtime=runtime,
            supervisor=supervisor,
            handshake=handshake,
            metrics=metrics,
            node_id=node_id,
            cluster_check=cluster_check,
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
        max_wait_ms = 0
        if isinstance(config, ConsumerConfig | ShareConsumerConfig):
            max_wait_ms = config.fetch_max_wait_ms
        self.outages = OutageTracker(supervisor, self.name, max_wait_ms / 1_000)
        self._probes = Probes(self._connector, runtime.clock)
        self._closed_error: KafkaError | None = None
        self._on_connect = on_connect
        self._on_disconnect = on_disconnect

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
    def throttled_until(self) -> float:
        """Time until which a connection sends nothing, because the broker throttled the client."""
        return max((channel.throttled_until for channel in self._channels()), default=0.0)

    def check_outage(self, now: float) -> BrokerOutage | None:
        """Return since when the broker has not responded; see `OutageTracker.check`."""
        return self.outages.check(
            {
                kind: channel
                for kind, channel in self._connections.items()
                if isinstance(channel, Channel) and channel.is_usable
            },
            now,
        )

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
        kind = connection_kind or CONNECTION_KINDS[message.api_key]
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
            version = channel.api_versions.latest_usable_version(
                message.api_key, max_version, min_version
            )
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
            except ProbeInterrupted:
                continue  # The probe whose attempt was shared was cancelled.

    async def _probe_new_connection(
        self, message: Request[R] | VersionedRequest[R], deadline: float, min_version: int
    ) -> R:
        probe = self._probes.join(deadline)
        try:
            channel = await self._probes.connect(
                probe, self._versions_of_release(), deadline, message.api_key
            )
            request = self.submit(channel, message, deadline, min_version)
            response: R = await channel.wait_response(request)
            if self._closed_error is None and self._connections.get(ConnectionKind.GENERAL) is None:
                self._on_connected(ConnectionKind.GENERAL, Future(), channel)
                probe.is_kept = True
            return response
        finally:
            self._probes.leave(probe)

    def ready_channel(self, connection_kind: ConnectionKind) -> Channel | None:
        """Return the open connection of a kind if it is not throttled, else None."""
        channel = self._connections.get(connection_kind)
        if not isinstance(channel, Channel) or not channel.is_usable:
            return None
        return None if channel.throttled_until > self._runtime.clock.now() else channel

    async def ready(
        self, api_key: int, deadline: float, connection_kind: ConnectionKind | None = None
    ) -> None:
        """Wait until `ready_channel` returns a connection. Raises as `request` before it sends."""
        connection_kind = connection_kind or CONNECTION_KINDS[api_key]
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

    def retire(self, reason: str) -> None:
        """Finish the requests in flight and accept no others, for a reason."""
        if self._closed_error is None:
            self._closed_error = ConnectionLost(reason, sent=False)
            for channel in self._channels():
                channel.close_when_idle(self._closed_error)

    def disconnect(self, error: ConnectionLost) -> None:
        """Close all connections and accept no requests: the client bootstraps again."""
        if self._closed_error is None:
            self._closed_error = error
            for channel in self._channels():
                channel.close(error)

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
            context: dict[str, Any] = {"broker": self.name, "api": APIS[ApiKey(api_key)].name}
            context["attempt"] = self._backoff.attempt_number
            reason = "no connection before the deadline"
            option = self._connector.awaited_option
            if option is not None:
                reason += f": {option} has not returned yet"
            if (failure := self.outages.last_failure) is not None:
                reason += f"; the last attempt: {failure.reason}"
            if option is not None:
                raise ConnectionFailed(reason, **context) from None
            raise RequestTimedOut(reason, sent=False, **context) from None

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
            self.outages.on_attempt(clock.now())
            channel = await self._connector.connect(
                self._versions_of_release(), self._backoff.setup_timeout_s(), attempt
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
        self.outages.on_connected(connection_kind, channel.api_versions, self._runtime.clock.now())
        self._backoff.record_success()
        self._connections[connection_kind] = channel
        future.set_result(channel)
        if self._on_connect is not None:
            self._on_connect(self)

    def _versions_of_release(self) -> NodeApiVersions | None:
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
            self.outages.on_disconnected(error, self._runtime.clock.now(), level)
            self._record_failure(error)
            if self._on_disconnect is not None and self._closed_error is None:
                self._on_disconnect()

    def _record_failure(self, error: KafkaError) -> None:
        now = self._runtime.clock.now()
        self._backoff.record_failure(now, self._runtime.rng)
        self.outages.on_failure(error, now, self._backoff.next_attempt_at - now)
