"""Negotiation of API versions with a broker, as a state machine.

The client sends ApiVersions in its highest version, or the highest that the broker had on an
earlier connection. Kafka 0.10 to 2.3 respond to an unknown version
with UNSUPPORTED_VERSION (35) and an empty list, and the client continues with version 0. Later
releases include the range of ApiVersions (KIP-511).

Kafka 0.8 disconnects on ApiVersions, and 0.9 does not respond. The client then probes with requests
that old releases support. A response to a probe proves an old release only if ApiVersions fails in
the manner of that release both before the probe and directly after it: otherwise a newer broker
may just have been restarting or paused, or its response may have been lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from aiokafkawire.config import SecurityProtocol
from aiokafkawire.connection.cluster_check import ExpectedNode
from aiokafkawire.connection.node_api_versions import ApiVersionOverride, NodeApiVersions
from aiokafkawire.errors import ConnectionFailed, KafkaError, ProtocolError
from aiokafkawire.runtime.state_machine import NO_TIME, Transitions, transition
from aiokafkawire.wire import APIS, ApiKey, ErrorCode, Request, error_for
from aiokafkawire.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aiokafkawire.wire.messages.find_coordinator import FindCoordinatorRequest
from aiokafkawire.wire.messages.list_groups import ListGroupsRequest
from aiokafkawire.wire.messages.metadata import MetadataRequest
from aiokafkawire.wire.messages.offset_fetch import OffsetFetchRequest

__all__ = (
    "API_VERSIONS_TIMEOUT_S",
    "CONFIRM_TIMEOUT_S",
    "SILENT_SERVER",
    "TRANSITIONS",
    "ConnectionChoice",
    "ConnectionClosed",
    "Negotiation",
    "NegotiationAction",
    "NegotiationEvent",
    "NegotiationFailed",
    "ResponseReceived",
    "ResponseTimedOut",
    "SendRequest",
    "VersionsNegotiated",
    "highest_usable_version",
)

API_VERSIONS_TIMEOUT_S = 2.0
"""How long to wait for the response to ApiVersions and to each probe."""

CONFIRM_TIMEOUT_S = 0.5
"""How long to wait for the response to ApiVersions after the broker has responded to a probe."""

CONFIRMATION_VERSION = 0
"""Version of the repeated ApiVersions request: there is no lower one to try."""

PROBES: tuple[tuple[str, Request[Any]], ...] = (
    ("0.9", ListGroupsRequest()),
    ("0.8.2", FindCoordinatorRequest(key="aiokafkawire-probe")),
    ("0.8.1", OffsetFetchRequest(group_id="aiokafkawire-probe")),
    ("0.8.0", MetadataRequest(topics=[])),
)
"""Releases, newest first, with the request whose version 0 none of the earlier ones supports."""

RELEASE_IGNORING_API_VERSIONS = "0.9"
"""This release does not respond to ApiVersions; earlier ones close the connection."""

SILENT_SERVER = (
    "the server accepts connections but does not respond: it is stopped, overloaded, or not a"
    " Kafka broker"
)
"""Reason of the error if the server responds to no request."""

REASONS_TO_CLOSE: Mapping[SecurityProtocol, str] = {
    "PLAINTEXT": "requires TLS or SASL, is shutting down, or is not a Kafka broker",
    "SSL": "requires a client certificate (ssl_certfile), or is shutting down",
    "SASL_PLAINTEXT": "is shutting down, is older than Kafka 0.10, or is not a Kafka broker",
    "SASL_SSL": "requires a client certificate (ssl_certfile), or is shutting down",
}
"""Why a broker may close a connection without a response to ApiVersions."""


class ConnectionChoice(Enum):
    """Connection to send on: the current one, a new one instead of it, or an additional one."""

    CURRENT = "current"
    NEW = "new"
    ADDITIONAL = "additional"


# --- events and actions ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResponseReceived:
    """The broker responded."""

    response: object


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """The broker closed the connection without a response."""

    reason: str


@dataclass(frozen=True, slots=True)
class ResponseTimedOut:
    """The broker did not respond in time."""


NegotiationEvent = ResponseReceived | ConnectionClosed | ResponseTimedOut


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Send `request` in `version` and wait up to `timeout_s` seconds for the response."""

    request: Request[Any]
    version: int
    timeout_s: float
    connection: ConnectionChoice


@dataclass(frozen=True, slots=True)
class VersionsNegotiated:
    """The versions are known. Keep the additional connection if `on_additional`."""

    versions: NodeApiVersions
    on_additional: bool = False


@dataclass(frozen=True, slots=True)
class NegotiationFailed:
    """No versions could be negotiated."""

    error: KafkaError


NegotiationAction = SendRequest | VersionsNegotiated | NegotiationFailed


# --- states ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AwaitingApiVersions:
    """ApiVersions was sent."""

    version: int


@dataclass(frozen=True, slots=True)
class AwaitingProbe:
    """A probe was sent. `timed_out` is False if the broker had disconnected on ApiVersions."""

    probe_index: int
    timed_out: bool


@dataclass(frozen=True, slots=True)
class AwaitingConfirmation:
    """The broker responded to a probe, and ApiVersions was sent again."""

    probe_index: int
    timed_out: bool


NegotiationState = AwaitingApiVersions | AwaitingProbe | AwaitingConfirmation
Outcome = tuple[NegotiationState, tuple[NegotiationAction]]


class Negotiation:
    """One negotiation of API versions.

    Call `begin`, then `handle` with the result of each `SendRequest`, until the action is
    `VersionsNegotiated` or `NegotiationFailed`.

    Args:
        known_version: Highest version of ApiVersions that both sides had on an earlier connection,
            None before the first: an unknown version costs a round trip.

    Attributes:
        is_misrouted: Whether the broker is not the expected one.
    """

    def __init__(
        self,
        override: ApiVersionOverride | None,
        *,
        software: str,
        software_version: str,
        timeout_s: float = API_VERSIONS_TIMEOUT_S,
        security_protocol: SecurityProtocol = "PLAINTEXT",
        expected: ExpectedNode | None = None,
        known_version: int | None = None,
    ) -> None:
        self.override = override
        self.security_protocol = security_protocol
        self.timeout_s = timeout_s
        self.expected = expected
        self.is_misrouted = False
        self.known_version = known_version
        self.state: NegotiationState = AwaitingApiVersions(
            _first_version(override) if known_version is None else known_version
        )
        self._request = ApiVersionsRequest(
            client_software_name=software, client_software_version=software_version
        )
        if expected is not None:
            self._request.cluster_id = expected.cluster_id
            self._request.node_id = expected.node_id

    def begin(self) -> NegotiationAction:
        """Return the first action."""
        if self.override is not None and self.override.versions is not None:
            return VersionsNegotiated(self.override.versions)
        assert isinstance(self.state, AwaitingApiVersions)
        return self.request_api_versions(
            self.state.version, self.timeout_s, ConnectionChoice.CURRENT
        )

    def handle(self, event: NegotiationEvent) -> NegotiationAction:
        """Return the next action, after the result of the last one."""
        self.state, (action,) = transition(TRANSITIONS, self.state, event)(
            self, self.state, event, NO_TIME
        )
        return action

    def request_api_versions(
        self, version: int, timeout_s: float, connection: ConnectionChoice
    ) -> SendRequest:
        """Return the action that sends ApiVersions."""
        return SendRequest(self._request, version, timeout_s, connection)


def on_api_versions(
    negotiation: Negotiation,
    state: AwaitingApiVersions | AwaitingConfirmation,
    event: ResponseReceived,
    now: float,
) -> Outcome:
    """Read the broker's versions, or retry ApiVersions in a lower version."""
    response = event.response
    on_additional = isinstance(state, AwaitingConfirmation)
    assert isinstance(response, ApiVersionsResponse)
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
        lower = _highest_common_version(
            response,
            CONFIRMATION_VERSION if isinstance(state, AwaitingConfirmation) else state.version,
        )
        if lower is not None:
            request = negotiation.request_api_versions(
                lower, negotiation.timeout_s, ConnectionChoice.CURRENT
            )
            return AwaitingApiVersions(lower), (request,)
    if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED and negotiation.expected is not None:
        negotiation.is_misrouted = True
        return state, (NegotiationFailed(negotiation.expected.misrouted_error()),)
    if response.error_code != ErrorCode.NONE:
        return state, (NegotiationFailed(error_for(response.error_code, api="ApiVersions")),)
    versions = NodeApiVersions.from_response(response)
    if negotiation.override is not None and not negotiation.override.flexible:
        versions = versions.without_flexible()
    if not versions.ranges:
        error = ProtocolError("the broker reports no supported APIs", api="ApiVersions")
        return state, (NegotiationFailed(error),)
    if negotiation.known_version is not None:
        known, negotiation.known_version = negotiation.known_version, None
        higher = highest_usable_version(versions)
        if higher is not None and higher > known:
            # The broker was upgraded. Only the higher version has its features and its check.
            request = negotiation.request_api_versions(
                higher, negotiation.timeout_s, ConnectionChoice.CURRENT
            )
            return AwaitingApiVersions(higher), (request,)
    return state, (VersionsNegotiated(versions, on_additional),)


def start_probing(
    negotiation: Negotiation,
    state: AwaitingApiVersions,
    event: ConnectionClosed | ResponseTimedOut,
    now: float,
) -> Outcome:
    """Send the first probe."""
    # Kafka 0.8 has neither TLS nor SASL. Kafka 0.9 does not respond to ApiVersions; on a listener
    # with SASL it closes the connection.
    may_be_old = negotiation.security_protocol == "PLAINTEXT" or (
        negotiation.security_protocol == "SSL" and isinstance(event, ResponseTimedOut)
    )
    if negotiation.override is not None or not may_be_old:
        return state, (NegotiationFailed(_no_response_error(negotiation, event)),)
    after_timeout = isinstance(event, ResponseTimedOut)
    return AwaitingProbe(0, after_timeout), (_probe_request(negotiation, 0),)


def send_confirmation(
    negotiation: Negotiation, state: AwaitingProbe, event: ResponseReceived, now: float
) -> Outcome:
    """Send ApiVersions again, on an additional connection."""
    request = negotiation.request_api_versions(
        CONFIRMATION_VERSION,
        min(CONFIRM_TIMEOUT_S, negotiation.timeout_s),
        ConnectionChoice.ADDITIONAL,
    )
    return AwaitingConfirmation(state.probe_index, state.timed_out), (request,)


def send_next_probe(
    negotiation: Negotiation, state: AwaitingProbe, event: ConnectionClosed, now: float
) -> Outcome:
    """Send the probe for the next older release."""
    probe_index = state.probe_index + 1
    if probe_index == len(PROBES):
        return state, (NegotiationFailed(_no_response_error(negotiation, event)),)
    next_state = AwaitingProbe(probe_index, state.timed_out)
    return next_state, (_probe_request(negotiation, probe_index),)


def on_probe_timeout(
    negotiation: Negotiation, state: AwaitingProbe, event: ResponseTimedOut, now: float
) -> Outcome:
    """Continue with the next probe, unless ApiVersions had timed out, too."""
    if state.timed_out:
        # Kafka 0.9 would have responded to the first probe, so this is not an old broker.
        return state, (NegotiationFailed(_no_response_error(negotiation, event)),)
    return send_next_probe(negotiation, state, ConnectionClosed("silence"), now)


def conclude(
    negotiation: Negotiation,
    state: AwaitingConfirmation,
    event: ConnectionClosed | ResponseTimedOut,
    now: float,
) -> Outcome:
    """Accept the probed release if ApiVersions failed in its manner both times."""
    release = PROBES[state.probe_index][0]
    if {state.timed_out, isinstance(event, ResponseTimedOut)} == {
        release == RELEASE_IGNORING_API_VERSIONS
    }:
        return state, (VersionsNegotiated(NodeApiVersions.for_release(release)),)
    error = ConnectionFailed(
        f"the server responds like Kafka {release}, but not to ApiVersions: connections to it"
        " seem to be unreliable"
    )
    return state, (NegotiationFailed(error),)


TRANSITIONS: Transitions[Negotiation, NegotiationState, NegotiationAction] = {
    (AwaitingApiVersions, ResponseReceived): on_api_versions,
    (AwaitingApiVersions, ConnectionClosed): start_probing,
    (AwaitingApiVersions, ResponseTimedOut): start_probing,
    (AwaitingProbe, ResponseReceived): send_confirmation,
    (AwaitingProbe, ConnectionClosed): send_next_probe,
    (AwaitingProbe, ResponseTimedOut): on_probe_timeout,
    (AwaitingConfirmation, ResponseReceived): on_api_versions,
    (AwaitingConfirmation, ConnectionClosed): conclude,
    (AwaitingConfirmation, ResponseTimedOut): conclude,
}


def _first_version(override: ApiVersionOverride | None) -> int:
    api = APIS[ApiKey.API_VERSIONS]
    flexible_from = api.request.flexible_from
    if override is None or override.flexible or flexible_from is None:
        return api.max_stable_version
    return flexible_from - 1


def highest_usable_version(versions: NodeApiVersions) -> int | None:
    """Return the highest version of ApiVersions that both sides have; None if there is none."""
    supported = versions.ranges.get(ApiKey.API_VERSIONS)
    if supported is None:
        return None
    return min(supported.max_version, APIS[ApiKey.API_VERSIONS].max_stable_version)


def _probe_request(negotiation: Negotiation, probe_index: int) -> SendRequest:
    return SendRequest(PROBES[probe_index][1], 0, negotiation.timeout_s, ConnectionChoice.NEW)


def _highest_common_version(response: ApiVersionsResponse, asked: int) -> int | None:
    """Return a version below `asked` to try after UNSUPPORTED_VERSION, or None."""
    if asked == 0:
        return None
    for supported in response.api_keys:
        if (
            supported.api_key == ApiKey.API_VERSIONS
            and 0 <= supported.min_version <= supported.max_version
        ):
            return supported.max_version if supported.max_version < asked else 0
    return 0


def _no_response_error(
    negotiation: Negotiation, event: ConnectionClosed | ResponseTimedOut
) -> ConnectionFailed:
    if isinstance(event, ResponseTimedOut):
        return ConnectionFailed(SILENT_SERVER)
    return ConnectionFailed(
        f"the server accepts connections and closes them without a response ({event.reason}):"
        f" it {REASONS_TO_CLOSE[negotiation.security_protocol]}"
    )
