"""Heartbeats of other members of share groups at Kafka 4.3.0, made by this package's member.

The member gets the recorded responses and the calls of its application. Its heartbeats are compared
in all fields with the recorded ones. `ALLOWED` are the differences that are intended, and
`LEFT_OUT` the heartbeats that this package does not send.
"""

from __future__ import annotations

import random
import types
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from aiokafkawire.config import ShareConsumerConfig, make_config
from aiokafkawire.connection import VersionedRequest
from aiokafkawire.group.consumer_protocol import states
from aiokafkawire.group.consumer_protocol.context import ConsumerProtocolSettings
from aiokafkawire.group.consumer_protocol.effects import SendConsumerHeartbeat, SendLeaveEpoch
from aiokafkawire.group.membership import events
from aiokafkawire.group.membership.effects import FindCoordinator, MembershipEffect
from aiokafkawire.group.share_protocol.machine import ShareProtocolMachine
from aiokafkawire.group.share_requests import ShareGroupRequests
from aiokafkawire.wire.json_converter import from_json, to_json
from aiokafkawire.wire.messages.share_group_heartbeat import ShareGroupHeartbeatResponse
from aiokafkawire.wire.primitives import uuid_from_text
from tests.broker.share.test_conversations import RUNS
from tests.wire.vectors import lines

CLIENTS = ("java-share-consumer", "confluent-share-consumer")
NODE = 1
JITTER_S = 0.1
"""A heartbeat is compared if the member's is due within this time."""

ALLOWED: Mapping[str, str] = {
    "alive": "a heartbeat without content before the interval is over",
    "repeated": "the topics, which librdkafka repeats until it has partitions",
    "leave": "the topics of a heartbeat that leaves, which the coordinator ignores",
}
"""Intended differences by name, with the reason."""

LEFT_OUT: Mapping[str, str] = {
    "invalid": "a heartbeat without topics, group or member id, or with an impossible epoch",
    "outside": "a heartbeat of a member that has not joined, or that has left",
    "epoch": "an epoch that is not the member's",
    "again": "a second join, or the topics that the coordinator knows",
}
"""Kinds of heartbeats that this package does not send."""

Line = Mapping[str, Any]


class RecordedCluster:
    """Keeps the request of the member until it is answered."""

    def __init__(self) -> None:
        self.sent: Any = None

    async def request(self, message: Any, **_: object) -> Any:
        self.sent = message.build(1) if isinstance(message, VersionedRequest) else message
        return await _answer()


@types.coroutine
def _answer() -> Generator[None, Any, Any]:
    return (yield)


class ReplayedMember:
    """One recorded member of a share group."""

    def __init__(self, member_id: str, group_id: str, *, is_client: bool) -> None:
        self.equal = self.intended = 0
        self.allowed: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        self.differences: list[str] = []
        self._is_client = is_client
        config = make_config(
            ShareConsumerConfig, {"bootstrap_servers": "localhost:1", "group_id": group_id}
        )
        settings = ConsumerProtocolSettings(
            member_id=member_id,
            group_instance_id=None,
            max_poll_interval_ms=config.max_poll_interval_ms,
            retry_backoff_ms=config.retry_backoff_ms,
            retry_backoff_max_ms=config.retry_backoff_max_ms,
            request_timeout_ms=config.request_timeout_ms,
            default_api_timeout_ms=config.default_api_timeout_ms,
        )
        self._machine = ShareProtocolMachine(settings, random.Random(1), 0.0)
        self._machine.context.poll_timer.start_poll(0.0)
        cluster: Any = RecordedCluster()
        self._cluster = cluster
        clock: Any = types.SimpleNamespace(now=lambda: 0.0)
        self._requests = ShareGroupRequests(
            cluster,
            clock,
            config,
            member_id,
            topic_names=self._names,
            on_result=lambda error: None,
            log=lambda *text, **fields: None,
        )
        self._ids: set[str] = set()
        self._request: Any = None
        self._is_answered = False

    def _names(self) -> dict[Any, str]:
        return {uuid_from_text(each): each for each in self._ids}

    # --- the member ---

    def _handle(self, event: events.MembershipEvent, now: float) -> None:
        for effect in self._machine.handle(event, now):
            self._perform(effect, now)
        if self._machine.next_deadline() <= now:
            self._handle(events.DeadlineReached(), now)

    def _perform(self, effect: MembershipEffect, now: float) -> None:
        match effect:
            case FindCoordinator(request):
                self._handle(events.CoordinatorFound(request, NODE), now)
            case SendConsumerHeartbeat():
                self._send(self._requests.heartbeat(effect))
            case SendLeaveEpoch():
                self._send(self._requests.leave(effect))

    def _send(self, send: Callable[[], Awaitable[events.RequestCompleted]]) -> None:
        self._request = send()
        self._request.send(None)

    # --- the recording ---

    def request(self, line: Line, failed: bool) -> None:
        """Send the heartbeat of the recording, and compare it."""
        now, wanted = line["t"], line["request"]
        self._is_answered = True
        reason = self._why_left_out(wanted, failed)
        if reason is not None:
            self.left_out[reason] += 1
            self._is_answered = False
            return
        self._act(wanted, now)
        if self._request is None and not self._heartbeat(now):
            self._is_answered = False
            is_empty = wanted["memberEpoch"] > 0 and wanted["subscribedTopicNames"] is None
            self._note({"alive"} if is_empty else {""}, f"{now}: not sent: {wanted}")
            return
        ours = to_json(self._cluster.sent, line["version"])
        kinds = {
            _difference(name, ours[name], wanted)
            for name in wanted.keys() | ours.keys()
            if ours[name] != wanted[name]
        }
        self._note(kinds, f"{now}: {ours} is not {wanted}")

    def response(self, line: Line) -> None:
        """Pass the response to the heartbeat, if the member has sent it."""
        if not self._is_answered:
            return
        form, request, self._request = line["response"], self._request, None
        self._ids.update(
            topic["topicId"] for topic in (form["assignment"] or {}).get("topicPartitions", ())
        )
        response = from_json(ShareGroupHeartbeatResponse, line["version"], form)
        try:
            request.send(response)
        except StopIteration as result:
            self._handle(result.value, line["t"])

    def _why_left_out(self, wanted: Line, failed: bool) -> str | None:
        """Return the kind in `LEFT_OUT`, or None."""
        epoch, names = wanted["memberEpoch"], wanted["subscribedTopicNames"]
        state, context = self._machine.state, self._machine.context
        joined = isinstance(state, states.ConsumerStable)
        if epoch < -1 or not (wanted["groupId"] and wanted["memberId"]):
            return "invalid"
        if epoch == 0 and (not names or wanted["rackId"] == ""):
            return "invalid"
        if epoch != 0 and not joined:
            return "outside"
        if self._is_client or epoch < 0:
            return None
        if (epoch == 0 and joined) or (epoch and names == [*context.topics]):
            return "again"
        if isinstance(state, states.ConsumerStable) and (epoch < state.epoch or failed):
            return "epoch"
        return None

    def _act(self, wanted: Line, now: float) -> None:
        """Make the call of the application that the heartbeat shows."""
        epoch, state = wanted["memberEpoch"], self._machine.state
        if epoch == 0:
            if self._machine.is_closed:
                self._machine.state = type(self._machine)(
                    self._machine.context.settings, random.Random(1), now
                ).state
            self._handle(events.Subscribed(tuple(wanted["subscribedTopicNames"])), now)
        elif epoch < 0:
            self._handle(events.CloseRequested(now + 30), now)
        elif isinstance(state, states.ConsumerStable) and epoch > state.epoch:
            # Heartbeats in loops were not recorded.
            self._machine.state = replace(state, epoch=epoch)

    def _heartbeat(self, now: float) -> bool:
        """Send the heartbeat that is due. Times between those of scripts are the script's."""
        due = self._machine.next_deadline()
        if self._is_client and due > now + JITTER_S:
            return False
        self._handle(events.DeadlineReached(), max(now, due))
        return self._request is not None

    def _note(self, kinds: set[str], text: str) -> None:
        if "" in kinds:
            self.differences.append(text)
        elif kinds:
            self.allowed.update(kinds)
            self.intended += 1
        else:
            self.equal += 1


def _difference(name: str, ours: Any, wanted: Line) -> str:
    """Return the kind of a difference in one field, "" if it is a bug."""
    if name == "subscribedTopicNames" and ours is None:
        return "leave" if wanted["memberEpoch"] < 0 else "repeated"
    return ""


def conversations() -> dict[str, list[Line]]:
    """Return the heartbeats of each client, and of the scripted members of each broker."""
    by_scenario: dict[str, list[Line]] = defaultdict(list)
    for file in ("share-consumer-conversations", "share-group-conversations"):
        for line in lines(file):
            if line.get("api") == "ShareGroupHeartbeat":
                by_scenario[line["scenario"]].append(line)
    names = {client: (client,) for client in CLIENTS} | {
        name: run.scenarios for name, run in RUNS.items()
    }
    return {
        name: found
        for name, scenarios in names.items()
        if (found := [line for each in scenarios for line in by_scenario[each]])
    }


CONVERSATIONS = conversations()


def play(name: str) -> Iterable[ReplayedMember]:
    members: dict[tuple[str, str], ReplayedMember] = {}
    current: dict[object, ReplayedMember] = {}
    recorded = CONVERSATIONS[name]
    for number, line in enumerate(recorded):
        who = line.get("conn", line.get("from", line.get("to")))
        if "response" in line:
            current.pop(who).response(line)
            continue
        place = line["request"]["groupId"], line["request"]["memberId"]
        if place not in members:
            members[place] = ReplayedMember(place[1], place[0] or "none", is_client=name in CLIENTS)
        member = current[who] = members[place]
        answer = next(
            each["response"]
            for each in recorded[number:]
            if "response" in each and each.get("conn", each.get("to")) == who
        )
        member.request(line, bool(answer["errorCode"]))
    return members.values()


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_the_member_sends_the_heartbeats_of_others(name: str) -> None:
    members = play(name)
    assert not [text for member in members for text in member.differences]
    assert sum(member.equal for member in members)
    if name in CLIENTS:
        assert not any(member.left_out for member in members)


def test_all_recorded_heartbeats_are_compared(
    record_property: Callable[[str, object], None],
) -> None:
    members = [member for name in CONVERSATIONS for member in play(name)]
    allowed = sum((member.allowed for member in members), Counter[str]())
    left_out = sum((member.left_out for member in members), Counter[str]())
    equal, intended = (
        sum(getattr(member, name) for member in members) for name in ("equal", "intended")
    )
    total = sum("request" in line for its in CONVERSATIONS.values() for line in its)
    assert allowed.keys() == ALLOWED.keys()
    assert left_out.keys() == LEFT_OUT.keys()
    assert equal + intended + left_out.total() == total
    record_property(
        "summary",
        f"share groups: {equal} of {total} heartbeats of others are equal in all fields,"
        f" {intended} differ as intended: {dict(sorted(allowed.items()))}; not sent by this"
        f" package: {dict(sorted(left_out.items()))}",
    )
