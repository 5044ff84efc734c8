"""Finding out what a broker speaks.

A machine. Brokers are asked with ApiVersions in the highest version. 0.10 to 2.3 answer a version
they do not know with error 35 and an empty list (then 0 is asked), later ones with their range.
0.8 closes the connection on it, 0.9 stays silent. Only a positive answer to a probe shows such an
old broker, and only if ApiVersions fails in that release's manner before it and right after it: a
newer one may have been restarting, or paused, or its answers were lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from aiokafkawire.connection.node_api_versions import ApiVersionOverride, NodeApiVersions
from aiokafkawire.errors import ConnectionFailed, KafkaError, ProtocolError
from aiokafkawire.runtime.transitions import transition
from aiokafkawire.wire import APIS, ApiKey, ErrorCode, Request, error_for
from aiokafkawire.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aiokafkawire.wire.messages.find_coordinator import FindCoordinatorRequest
from aiokafkawire.wire.messages.list_groups import ListGroupsRequest
from aiokafkawire.wire.messages.metadata import MetadataRequest
from aiokafkawire.wire.messages.offset_fetch import OffsetFetchRequest

__all__ = (
    "API_VERSIONS_TIMEOUT_S",
    "CONFIRM_TIMEOUT_S",
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
)

API_VERSIONS_TIMEOUT_S = 2.0
"""How long ApiVersions, and each probe, waits for an answer."""

CONFIRM_TIMEOUT_S = 0.5
"""How long the second ApiVersions waits, of a broker that has just answered a probe."""

PROBES: tuple[tuple[str, Request[Any]], ...] = (
    ("0.9", ListGroupsRequest()),
    ("0.8.2", FindCoordinatorRequest(key="aiokafkawire-probe")),
    ("0.8.1", OffsetFetchRequest(group_id="aiokafkawire-probe")),
    ("0.8.0", MetadataRequest(topics=[])),
)
"""The release that an answer to version 0 of a request proves, the newest first."""

RELEASE_IGNORING_API_VERSIONS = "0.9"
"""Does not answer ApiVersions and goes on; those before close the connection."""


class ConnectionChoice(Enum):
    """On which connection to ask: the one in use, a new one instead, or a new one beside it."""

    CURRENT = "current"
    NEW = "fresh"
    ADDITIONAL = "beside"


# --- what happened, and what to do ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResponseReceived:
    """The broker answered."""

    response: object


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """The broker closed the connection instead of answering."""

    reason: str


@dataclass(frozen=True, slots=True)
class ResponseTimedOut:
    """The broker did not answer in time."""


NegotiationEvent = ResponseReceived | ConnectionClosed | ResponseTimedOut


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Send `request` in `version` and wait for `timeout_s`."""

    request: Request[Any]
    version: int
    timeout_s: float
    connection: ConnectionChoice


@dataclass(frozen=True, slots=True)
class VersionsNegotiated:
    """Done. `beside`: the connection opened last is the one to keep, as it gave the answer."""

    versions: NodeApiVersions
    on_additional: bool = False


@dataclass(frozen=True, slots=True)
class NegotiationFailed:
    """Nothing to be had from this broker now."""

    error: KafkaError


NegotiationAction = SendRequest | VersionsNegotiated | NegotiationFailed


# --- states ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AwaitingApiVersions:
    """ApiVersions is under way."""

    version: int


@dataclass(frozen=True, slots=True)
class AwaitingProbe:
    """Probe number `rung` is under way; `silent` tells how ApiVersions had failed."""

    probe_index: int
    timed_out: bool


@dataclass(frozen=True, slots=True)
class AwaitingConfirmation:
    """Probe number `rung` was answered; ApiVersions is asked once more. `silent` as before."""

    probe_index: int
    timed_out: bool


NegotiationState = AwaitingApiVersions | AwaitingProbe | AwaitingConfirmation


class Negotiation:
    """One negotiation of API versions.

    Call `begin`, then `handle` with the result of each `SendRequest`, until the action is
    `VersionsNegotiated` or `NegotiationFailed`.
    """

    def __init__(
        self,
        override: ApiVersionOverride | None,
        *,
        software: str,
        software_version: str,
        timeout_s: float = API_VERSIONS_TIMEOUT_S,
    ) -> None:
        self.override = override
        self.timeout_s = timeout_s
        self.state: NegotiationState = AwaitingApiVersions(_first_version(override))
        self._request = ApiVersionsRequest(
            client_software_name=software, client_software_version=software_version
        )

    def begin(self) -> NegotiationAction:
        if self.override is not None and self.override.versions is not None:
            return VersionsNegotiated(self.override.versions)
        assert isinstance(self.state, AwaitingApiVersions)
        return self.request_api_versions(
            self.state.version, self.timeout_s, ConnectionChoice.CURRENT
        )

    def handle(self, event: NegotiationEvent) -> NegotiationAction:
        return transition(TRANSITIONS, self.state, event)(self, self.state, event)

    def request_api_versions(
        self, version: int, timeout_s: float, connection: ConnectionChoice
    ) -> SendRequest:
        return SendRequest(self._request, version, timeout_s, connection)


def on_api_versions(
    negotiation: Negotiation, state: AwaitingApiVersions, event: ResponseReceived
) -> NegotiationAction:
    response = event.response
    assert isinstance(response, ApiVersionsResponse)
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
        lower = _highest_common_version(response, state.version)
        if lower is not None:
            negotiation.state = AwaitingApiVersions(lower)
            return negotiation.request_api_versions(
                lower, negotiation.timeout_s, ConnectionChoice.CURRENT
            )
    if response.error_code != ErrorCode.NONE:
        return NegotiationFailed(error_for(response.error_code, api="ApiVersions"))
    versions = NodeApiVersions.from_response(response)
    if negotiation.override is not None and not negotiation.override.flexible:
        versions = versions.without_flexible()
    if not versions.ranges:
        return NegotiationFailed(
            ProtocolError("the broker says that it speaks nothing", api="ApiVersions")
        )
    return VersionsNegotiated(versions)


def start_probing(
    negotiation: Negotiation, _: AwaitingApiVersions, event: ConnectionClosed | ResponseTimedOut
) -> NegotiationAction:
    if negotiation.override is not None:
        return NegotiationFailed(_no_response_error(event))
    negotiation.state = AwaitingProbe(0, isinstance(event, ResponseTimedOut))
    return _probe_request(negotiation, 0)


def send_confirmation(
    negotiation: Negotiation, state: AwaitingProbe, _: ResponseReceived
) -> NegotiationAction:
    negotiation.state = AwaitingConfirmation(state.probe_index, state.timed_out)
    return negotiation.request_api_versions(
        0, min(CONFIRM_TIMEOUT_S, negotiation.timeout_s), ConnectionChoice.ADDITIONAL
    )


def send_next_probe(
    negotiation: Negotiation, state: AwaitingProbe, event: ConnectionClosed
) -> NegotiationAction:
    rung = state.probe_index + 1
    if rung == len(PROBES):
        return NegotiationFailed(_no_response_error(event))
    negotiation.state = AwaitingProbe(rung, state.timed_out)
    return _probe_request(negotiation, rung)


def on_probe_timeout(
    negotiation: Negotiation, state: AwaitingProbe, event: ResponseTimedOut
) -> NegotiationAction:
    if state.timed_out:
        # The silent release answers the first probe: so this is none, but stopped or not Kafka.
        return NegotiationFailed(_no_response_error(event))
    return send_next_probe(negotiation, state, ConnectionClosed("silence"))


def conclude(
    _: Negotiation, state: AwaitingConfirmation, event: ConnectionClosed | ResponseTimedOut
) -> NegotiationAction:
    release = PROBES[state.probe_index][0]
    if {state.timed_out, isinstance(event, ResponseTimedOut)} == {
        release == RELEASE_IGNORING_API_VERSIONS
    }:
        return VersionsNegotiated(NodeApiVersions.for_release(release))
    return NegotiationFailed(
        ConnectionFailed(
            f"the peer answers as Kafka {release} would, but not on ApiVersions: connections to it"
            " break"
        )
    )


def on_late_api_versions(
    negotiation: Negotiation, _: AwaitingConfirmation, event: ResponseReceived
) -> NegotiationAction:
    # Version 0 was asked: there is no lower one to fall back to.
    step = on_api_versions(negotiation, AwaitingApiVersions(0), event)
    return (
        VersionsNegotiated(step.versions, on_additional=True)
        if isinstance(step, VersionsNegotiated)
        else step
    )


TRANSITIONS: Mapping[
    tuple[type[NegotiationState], type[NegotiationEvent]],
    Callable[[Negotiation, Any, Any], NegotiationAction],
] = {
    (AwaitingApiVersions, ResponseReceived): on_api_versions,
    (AwaitingApiVersions, ConnectionClosed): start_probing,
    (AwaitingApiVersions, ResponseTimedOut): start_probing,
    (AwaitingProbe, ResponseReceived): send_confirmation,
    (AwaitingProbe, ConnectionClosed): send_next_probe,
    (AwaitingProbe, ResponseTimedOut): on_probe_timeout,
    (AwaitingConfirmation, ResponseReceived): on_late_api_versions,
    (AwaitingConfirmation, ConnectionClosed): conclude,
    (AwaitingConfirmation, ResponseTimedOut): conclude,
}
"""What to do in each state on each event."""


def _first_version(override: ApiVersionOverride | None) -> int:
    api = APIS[ApiKey.API_VERSIONS]
    flexible_from = api.request.flexible_from
    if override is None or override.flexible or flexible_from is None:
        return api.max_stable_version
    return flexible_from - 1


def _probe_request(negotiation: Negotiation, rung: int) -> SendRequest:
    return SendRequest(PROBES[rung][1], 0, negotiation.timeout_s, ConnectionChoice.NEW)


def _highest_common_version(response: ApiVersionsResponse, asked: int) -> int | None:
    """The version to ask after an error 35; always below `asked`, so that this ends."""
    if asked == 0:
        return None
    for told in response.api_keys:
        if told.api_key == ApiKey.API_VERSIONS and 0 <= told.min_version <= told.max_version:
            return told.max_version if told.max_version < asked else 0
    return 0


def _no_response_error(event: ConnectionClosed | ResponseTimedOut) -> ConnectionFailed:
    if isinstance(event, ResponseTimedOut):
        return ConnectionFailed(
            "the peer accepts connections and stays silent: it is stopped, overloaded,"
            " or no Kafka broker"
        )
    return ConnectionFailed(
        f"the peer accepts connections and closes them without an answer ({event.reason}):"
        " it wants TLS or SASL, is shutting down, or is no Kafka broker"
    )
