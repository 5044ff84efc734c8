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

from aiokafkawire.connection.versions import Pin, Versions
from aiokafkawire.errors import ConnectionFailed, KafkaError, ProtocolError
from aiokafkawire.runtime.transitions import transition
from aiokafkawire.wire import APIS, ApiKey, ErrorCode, Request, error_for
from aiokafkawire.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aiokafkawire.wire.messages.find_coordinator import FindCoordinatorRequest
from aiokafkawire.wire.messages.list_groups import ListGroupsRequest
from aiokafkawire.wire.messages.metadata import MetadataRequest
from aiokafkawire.wire.messages.offset_fetch import OffsetFetchRequest

__all__ = (
    "CONFIRM_TIMEOUT_S",
    "SILENCE_S",
    "TRANSITIONS",
    "Answered",
    "Ask",
    "Closed",
    "Connection",
    "Event",
    "Failed",
    "Negotiation",
    "Settled",
    "Silent",
    "Step",
)

SILENCE_S = 2.0
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

SILENT_RELEASE = "0.9"
"""Does not answer ApiVersions and goes on; those before close the connection."""


class Connection(Enum):
    """On which connection to ask: the one in use, a new one instead, or a new one beside it."""

    CURRENT = "current"
    FRESH = "fresh"
    BESIDE = "beside"


# --- what happened, and what to do ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answered:
    """The broker answered."""

    response: object


@dataclass(frozen=True, slots=True)
class Closed:
    """The broker closed the connection instead of answering."""

    reason: str


@dataclass(frozen=True, slots=True)
class Silent:
    """The broker did not answer in time."""


Event = Answered | Closed | Silent


@dataclass(frozen=True, slots=True)
class Ask:
    """Send `request` in `version` and wait for `timeout_s`."""

    request: Request[Any]
    version: int
    timeout_s: float
    connection: Connection


@dataclass(frozen=True, slots=True)
class Settled:
    """Done. `beside`: the connection opened last is the one to keep, as it gave the answer."""

    versions: Versions
    beside: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """Nothing to be had from this broker now."""

    error: KafkaError


Step = Ask | Settled | Failed


# --- states ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Asking:
    """ApiVersions is under way."""

    version: int


@dataclass(frozen=True, slots=True)
class Probing:
    """Probe number `rung` is under way; `silent` tells how ApiVersions had failed."""

    rung: int
    silent: bool


@dataclass(frozen=True, slots=True)
class Confirming:
    """Probe number `rung` was answered; ApiVersions is asked once more. `silent` as before."""

    rung: int
    silent: bool


State = Asking | Probing | Confirming


class Negotiation:
    """One negotiation. `begin`, then `handle` what each `Ask` led to, until Settled or Failed."""

    def __init__(
        self,
        pin: Pin | None,
        *,
        software: str,
        software_version: str,
        silence_s: float = SILENCE_S,
    ) -> None:
        self.pin = pin
        self.silence_s = silence_s
        self.state: State = Asking(_first_version(pin))
        self._request = ApiVersionsRequest(
            client_software_name=software, client_software_version=software_version
        )

    def begin(self) -> Step:
        if self.pin is not None and self.pin.versions is not None:
            return Settled(self.pin.versions)
        assert isinstance(self.state, Asking)
        return self.ask(self.state.version, self.silence_s, Connection.CURRENT)

    def handle(self, event: Event) -> Step:
        return transition(TRANSITIONS, self.state, event)(self, self.state, event)

    def ask(self, version: int, timeout_s: float, connection: Connection) -> Ask:
        return Ask(self._request, version, timeout_s, connection)


def read_versions(machine: Negotiation, state: Asking, event: Answered) -> Step:
    response = event.response
    assert isinstance(response, ApiVersionsResponse)
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
        lower = _told_version(response, state.version)
        if lower is not None:
            machine.state = Asking(lower)
            return machine.ask(lower, machine.silence_s, Connection.CURRENT)
    if response.error_code != ErrorCode.NONE:
        return Failed(error_for(response.error_code, api="ApiVersions"))
    versions = Versions.from_response(response)
    if machine.pin is not None and not machine.pin.flexible:
        versions = versions.without_flexible()
    if not versions.ranges:
        return Failed(ProtocolError("the broker says that it speaks nothing", api="ApiVersions"))
    return Settled(versions)


def begin_probing(machine: Negotiation, _: Asking, event: Closed | Silent) -> Step:
    if machine.pin is not None:
        return Failed(_gives_no_answer(event))
    machine.state = Probing(0, isinstance(event, Silent))
    return _probe(machine, 0)


def confirm(machine: Negotiation, state: Probing, _: Answered) -> Step:
    machine.state = Confirming(state.rung, state.silent)
    return machine.ask(0, min(CONFIRM_TIMEOUT_S, machine.silence_s), Connection.BESIDE)


def next_rung(machine: Negotiation, state: Probing, event: Closed) -> Step:
    rung = state.rung + 1
    if rung == len(PROBES):
        return Failed(_gives_no_answer(event))
    machine.state = Probing(rung, state.silent)
    return _probe(machine, rung)


def stay_or_give_up(machine: Negotiation, state: Probing, event: Silent) -> Step:
    if state.silent:
        # The silent release answers the first probe: so this is none, but stopped or not Kafka.
        return Failed(_gives_no_answer(event))
    return next_rung(machine, state, Closed("silence"))


def confirmed(_: Negotiation, state: Confirming, event: Closed | Silent) -> Step:
    release = PROBES[state.rung][0]
    if {state.silent, isinstance(event, Silent)} == {release == SILENT_RELEASE}:
        return Settled(Versions.of_release(release))
    return Failed(
        ConnectionFailed(
            f"the peer answers as Kafka {release} would, but not on ApiVersions: connections to it"
            " break"
        )
    )


def read_late_versions(machine: Negotiation, _: Confirming, event: Answered) -> Step:
    # Version 0 was asked: there is no lower one to fall back to.
    step = read_versions(machine, Asking(0), event)
    return Settled(step.versions, beside=True) if isinstance(step, Settled) else step


TRANSITIONS: Mapping[tuple[type[State], type[Event]], Callable[[Negotiation, Any, Any], Step]] = {
    (Asking, Answered): read_versions,
    (Asking, Closed): begin_probing,
    (Asking, Silent): begin_probing,
    (Probing, Answered): confirm,
    (Probing, Closed): next_rung,
    (Probing, Silent): stay_or_give_up,
    (Confirming, Answered): read_late_versions,
    (Confirming, Closed): confirmed,
    (Confirming, Silent): confirmed,
}
"""What to do in each state on each event."""


def _first_version(pin: Pin | None) -> int:
    api = APIS[ApiKey.API_VERSIONS]
    flexible_from = api.request.flexible_from
    if pin is None or pin.flexible or flexible_from is None:
        return api.max_stable_version
    return flexible_from - 1


def _probe(machine: Negotiation, rung: int) -> Ask:
    return Ask(PROBES[rung][1], 0, machine.silence_s, Connection.FRESH)


def _told_version(response: ApiVersionsResponse, asked: int) -> int | None:
    """The version to ask after an error 35; always below `asked`, so that this ends."""
    if asked == 0:
        return None
    for told in response.api_keys:
        if told.api_key == ApiKey.API_VERSIONS and 0 <= told.min_version <= told.max_version:
            return told.max_version if told.max_version < asked else 0
    return 0


def _gives_no_answer(event: Closed | Silent) -> ConnectionFailed:
    if isinstance(event, Silent):
        return ConnectionFailed(
            "the peer accepts connections and stays silent: it is stopped, overloaded,"
            " or no Kafka broker"
        )
    return ConnectionFailed(
        f"the peer accepts connections and closes them without an answer ({event.reason}):"
        " it wants TLS or SASL, is shutting down, or is no Kafka broker"
    )
