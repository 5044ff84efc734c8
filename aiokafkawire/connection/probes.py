"""Connections for probes, which do not wait for the reconnect backoff."""

from __future__ import annotations

from aiokafkawire.connection.channel import Channel
from aiokafkawire.connection.connector import Connector
from aiokafkawire.connection.node_api_versions import NodeApiVersions
from aiokafkawire.errors import ConnectionFailed, ConnectionLost, KafkaError, RequestTimedOut
from aiokafkawire.runtime import Clock, Future
from aiokafkawire.wire import APIS, ApiKey

__all__ = ("PROBE_SHARING_S", "Probe", "ProbeInterrupted", "Probes")

PROBE_SHARING_S = 0.1
"""A probe shares the connection attempt of a probe that began at most this time before.

An older attempt may still wait for packets that were lost before the broker came back.
"""

_PROBE_NOT_KEPT = ConnectionLost("this connection was for one request only")


class ProbeInterrupted(ConnectionFailed):
    """The caller that connected for a shared probe was cancelled."""


class Probe:
    """A connection attempt for one or more callers of `BrokerClient.probe`.

    Attributes:
        is_kept: True if the connection stays open for requests.
    """

    def __init__(self, began_at: float, deadline: float) -> None:
        self.began_at = began_at
        self.deadline = deadline
        self.users = 0
        self.connected: Future[Channel] | None = None
        self.is_kept = False


class Probes:
    """The probes of one broker client; those that begin together share a connection attempt."""

    def __init__(self, connector: Connector, clock: Clock) -> None:
        self._connector = connector
        self._clock = clock
        self._latest: Probe | None = None

    def join(self, deadline: float) -> Probe:
        """Return a recent probe with a similar deadline, or a new one.

        `leave` must follow.
        """
        now, probe = self._clock.now(), self._latest
        if (
            probe is None
            or now > probe.began_at + PROBE_SHARING_S
            or deadline > probe.deadline + PROBE_SHARING_S
        ):
            probe = self._latest = Probe(now, deadline)
        probe.users += 1
        return probe

    def leave(self, probe: Probe) -> None:
        """Close the connection after the last caller, unless it is kept."""
        probe.users -= 1
        if probe.users:
            return
        self._forget(probe)
        if probe.connected is not None and probe.connected.value is not None and not probe.is_kept:
            probe.connected.value.close(_PROBE_NOT_KEPT)

    async def connect(
        self, probe: Probe, known: NodeApiVersions | None, deadline: float, api_key: int
    ) -> Channel:
        """Return the connection of a probe. The first caller opens it on behalf of all.

        Raises:
            ProbeInterrupted: The first caller was cancelled. Another probe may succeed.
            RequestTimedOut: There is no connection at this caller's deadline.
            KafkaError: As `Connector.connect`.
        """
        if probe.connected is None:
            probe.connected = Future()
            await self._open(probe, probe.connected, known)
        try:
            return await probe.connected.wait(deadline)
        except TimeoutError:
            raise RequestTimedOut(
                "no connection before the deadline",
                sent=False,
                broker=self._connector.name,
                api=APIS[ApiKey(api_key)].name,
            ) from None

    async def _open(
        self, probe: Probe, connected: Future[Channel], known: NodeApiVersions | None
    ) -> None:
        timeout_s = max(0.0, probe.deadline - self._clock.now())
        try:
            channel = await self._connector.connect(known, timeout_s, attempt=1)
        except KafkaError as error:
            connected.set_exception(error)
        except BaseException:
            self._forget(probe)
            connected.set_exception(ProbeInterrupted("the attempt to connect was interrupted"))
            raise
        else:
            connected.set_result(channel)

    def _forget(self, probe: Probe) -> None:
        if self._latest is probe:
            self._latest = None
