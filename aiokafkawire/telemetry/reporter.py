"""The task that pushes the metrics of a client to its brokers (KIP-714)."""

from __future__ import annotations

import logging
from typing import TypeVar
from uuid import UUID

from aiokafkawire.cluster import Cluster, ToAnyNode
from aiokafkawire.connection import BrokerClient, Channel
from aiokafkawire.errors import (
    ClientClosed,
    IllegalState,
    KafkaError,
    ProtocolError,
    RequestTimedOut,
    UnsupportedVersion,
)
from aiokafkawire.logs import list_names, log_fields
from aiokafkawire.records.compression import compress
from aiokafkawire.runtime import AutoResetEvent, Runtime, Supervisor, TaskHandle
from aiokafkawire.types import require_timeout
from aiokafkawire.wire import ZERO_UUID, ApiKey, ErrorCode, Request, Response, error_for, raise_for
from aiokafkawire.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from aiokafkawire.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

from . import events, states
from .collector import MetricsCollector, MetricsSource
from .state_machine import NO_CLIENT_INSTANCE_ID, TelemetryMachine

__all__ = ("ClientTelemetryReporter",)

R = TypeVar("R", bound=Response)

logger = logging.getLogger("aiokafkawire.telemetry")

TERMINATING_PUSH_S = 1.0
"""Time that a client waits for the response to its last push while it is closing."""

RECHECK_S = 5.0
"""Time after which a request looks again for a connection that is open and not throttled."""

CLOSED_CHECK_S = 1.0
"""Interval at which `client_instance_id` checks whether the client still runs."""


class ClientTelemetryReporter:
    """Pushes the metrics of a client, if the brokers collect metrics and have asked for some.

    No task runs before a connection to such a broker is open. Requests go to brokers with an open
    connection only. A broker that is slow to take metrics would hold up the heartbeats behind them,
    so pushes have their own connection. A failure is logged and has no other effect.
    """

    def __init__(
        self, cluster: Cluster, runtime: Runtime, supervisor: Supervisor, source: MetricsSource
    ) -> None:
        self._cluster = cluster
        self._brokers = cluster.broker_clients
        self._clock = runtime.clock
        self._rng = runtime.rng
        self._supervisor = supervisor
        self._machine = TelemetryMachine()
        self._collector = MetricsCollector(source, self._brokers.metrics, runtime.clock)
        self._changed = AutoResetEvent()
        self._task: TaskHandle | None = None
        if cluster.config.enable_metrics_push:
            self._brokers.on_connected = self._on_connected

    async def client_instance_id(self, timeout_ms: int | None) -> UUID:
        """Return the client instance id; ask a broker if none has assigned one yet.

        Raises:
            IllegalState: The option `enable_metrics_push` is off.
            ProtocolError: The broker assigned no id.
            RequestTimedOut: There was no response in time.
            UnsupportedVersion: No broker collects metrics of clients.
        """
        config = self._cluster.config
        if not config.enable_metrics_push:
            raise IllegalState("a client without enable_metrics_push has no client instance id")
        if timeout_ms is None:
            timeout_ms = config.default_api_timeout_ms
        require_timeout("timeout_ms", timeout_ms)
        if timeout_ms < 0:
            raise ValueError(f"timeout_ms must be at least 0, not {timeout_ms}")
        deadline = self._clock.now() + timeout_ms / 1_000
        while isinstance(self._machine.state, states.SubscriptionInProgress):
            if self._clock.now() >= deadline:
                raise RequestTimedOut(
                    f"no response within {timeout_ms} ms", api="GetTelemetrySubscriptions"
                )
            if not self._supervisor.is_running:
                raise ClientClosed("the client is closed")
            await self._changed.wait(min(deadline, self._clock.now() + CLOSED_CHECK_S))
        if self._machine.client_instance_id == ZERO_UUID:
            self._machine.assign_client_instance_id(await self._request_id(deadline))
        return self._machine.client_instance_id

    async def _request_id(self, deadline: float) -> UUID:
        request = GetTelemetrySubscriptionsRequest(client_instance_id=ZERO_UUID)
        try:
            response, broker = await self._cluster.request_with_broker(
                request, to=ToAnyNode(), deadline=deadline
            )
        except UnsupportedVersion as error:
            error.reason += (
                ": GetTelemetrySubscriptions needs Kafka 3.7 or later, and a metric reporter on the"
                " brokers that takes client metrics"
            )
            raise
        api = "GetTelemetrySubscriptions"
        raise_for(response.error_code, api=api, broker=broker)
        if response.client_instance_id == ZERO_UUID:
            raise ProtocolError(NO_CLIENT_INSTANCE_ID, api=api, broker=broker)
        return response.client_instance_id

    async def close(self) -> None:
        """Send the last push, if the brokers have asked for metrics; wait `TERMINATING_PUSH_S`."""
        if self._task is None:
            return
        self._task.cancel()
        await self._task.wait()
        self._machine.handle(events.TelemetryCloseRequested(), self._clock.now())
        self._changed.set()
        if isinstance(self._machine.state, states.TerminatingPushNeeded):
            await self._request_when_possible(TERMINATING_PUSH_S)

    # --- task ---

    def _on_connected(self, broker: BrokerClient) -> None:
        """Start the task with the first connection to a broker that collects metrics."""
        versions = broker.api_versions
        if versions is None or ApiKey.GET_TELEMETRY_SUBSCRIPTIONS not in versions.ranges:
            return
        self._changed.set()
        if self._task is None and self._supervisor.is_running:
            self._task = self._supervisor.spawn(self._run, name="telemetry")

    async def _run(self) -> None:
        while not isinstance(self._machine.state, states.Terminated):
            await self._clock.sleep_until(self._machine.request_at)
            timeout_s = self._cluster.config.request_timeout_ms / 1_000
            if not await self._request_when_possible(timeout_s):
                await self._changed.wait(self._clock.now() + RECHECK_S)

    async def _request_when_possible(self, timeout_s: float) -> bool:
        """Send the request that is due; return False if no broker can take it now."""
        usable = self._brokers.usable(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS)
        if not usable:
            return False
        broker, channel = usable[0]
        deadline = self._clock.now() + timeout_s
        event: events.TelemetryEvent
        for effect in self._machine.handle(events.TelemetryRequestDue(), self._clock.now()):
            match effect:
                case events.SendSubscriptionRequest():
                    event = await self._subscribe(broker, channel, effect, deadline)
                case events.SendPush():
                    event = await self._push(broker, channel, effect, deadline)
            self._log_response(broker, event)
            for report in self._machine.handle(event, self._clock.now()):
                assert isinstance(report, events.ReportDisabled)
                reason = f"{report.reason} (broker {broker.name})"
                self._log(logging.INFO, f"pushes no metrics any more: {reason}")
        self._changed.set()
        return True

    async def _subscribe(
        self,
        broker: BrokerClient,
        channel: Channel,
        effect: events.SendSubscriptionRequest,
        deadline: float,
    ) -> events.SubscriptionReceived | events.SubscriptionFailed:
        message = GetTelemetrySubscriptionsRequest(client_instance_id=effect.client_instance_id)
        response = await self._send(broker, channel, message, deadline)
        if not isinstance(response, GetTelemetrySubscriptionsResponse):
            return events.SubscriptionFailed(None)
        if response.error_code != ErrorCode.NONE:
            return events.SubscriptionFailed(response.error_code)
        return events.SubscriptionReceived(
            response.client_instance_id,
            response.subscription_id,
            response.push_interval_ms,
            tuple(response.accepted_compression_types),
            response.telemetry_max_bytes,
            response.delta_temporality,
            tuple(response.requested_metrics),
            self._rng.random(),
        )

    async def _push(
        self, broker: BrokerClient, channel: Channel, effect: events.SendPush, deadline: float
    ) -> events.PushSucceeded | events.PushFailed:
        subscription = effect.subscription
        try:
            content = compress(subscription.compression_type, self._collector.collect(subscription))
        except Exception as error:
            # A bug here must not end the client.
            self._log(logging.ERROR, "collecting the metrics to push failed", error, exc_info=True)
            return events.PushFailed(ErrorCode.INVALID_RECORD)
        if len(content) > subscription.max_bytes:
            self._collector.discard()
            return events.PushFailed(ErrorCode.TELEMETRY_TOO_LARGE)
        message = PushTelemetryRequest(
            client_instance_id=effect.client_instance_id,
            subscription_id=subscription.subscription_id,
            terminating=effect.terminating,
            compression_type=subscription.compression_type,
            metrics=content,
        )
        # The last push needs no connection of its own: nothing else is sent any more.
        last_channel = channel if effect.terminating else None
        response = await self._send(broker, last_channel, message, deadline)
        if not isinstance(response, PushTelemetryResponse):
            return events.PushFailed(None)  # the broker may have the values
        if response.error_code != ErrorCode.NONE:
            self._collector.discard()
            return events.PushFailed(response.error_code)
        return events.PushSucceeded()

    async def _send(
        self, broker: BrokerClient, channel: Channel | None, message: Request[R], deadline: float
    ) -> R | None:
        """Send a request on a connection, or on that for its API; return None if it failed."""
        try:
            if channel is None:
                return await broker.request(message, deadline=deadline)
            request = broker.submit(channel, message, deadline)
            response: R = await channel.wait_response(request)
        except KafkaError as error:
            self._log(logging.DEBUG, f"metrics not pushed: {error}", error)
            return None
        return response

    # --- log ---

    def _log_response(self, broker: BrokerClient, event: events.TelemetryEvent) -> None:
        match event:
            case events.SubscriptionReceived():
                names = list_names(event.requested_metrics) or "none"
                self._log(
                    logging.DEBUG,
                    f"metrics to push as client instance {event.client_instance_id}, every"
                    f" {event.push_interval_ms} ms: {names}",
                )
            case events.SubscriptionFailed(int(code)):
                error = error_for(code, broker=broker.name)
                self._log(logging.DEBUG, f"no subscription to metrics: {error}", error)
            case events.PushFailed(int(code)):
                error = error_for(code, broker=broker.name)
                self._log(logging.DEBUG, f"metrics not pushed: {error}", error)

    def _log(
        self,
        level: int,
        text: str,
        error: Exception | None = None,
        *,
        exc_info: bool = False,
    ) -> None:
        extra = log_fields(self._supervisor.fields, error=error)
        logger.log(level, "%s: %s", self._supervisor.name, text, extra=extra, exc_info=exc_info)
