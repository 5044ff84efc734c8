"""Requests of scripted members at Kafka 4.3.0, made by our member from the same responses.

The scripts probe the coordinator with what no member should send: a wrong epoch, a report that
comes late or is not true. Heartbeats in loops were not recorded. Such requests and their responses
are left out. The number of the others, which are equal in all fields, must not fall.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aiokafkawire.config import ConsumerConfig, make_config
from aiokafkawire.wire.primitives import uuid_from_text
from tests.wire.vectors import lines

from .client_replay import HEARTBEAT, ReplayedMember, close, subscribe

Line = Mapping[str, Any]
LEAVE_EPOCH, LEAVE_STATIC_EPOCH = -1, -2

EQUAL_AT_LEAST = 115
"""Requests that are equal; the others are those that no member should send, and what follows."""


def members() -> dict[tuple[str, str], list[Line]]:
    """Return the heartbeats of each member of each scenario, with their responses."""
    found: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for line in lines("consumer-group-conversations"):
        name = line.get("from") or line.get("to")
        if line.get("api") == HEARTBEAT and name:
            found[line["scenario"], name].append(line)
    return found


def topic_ids(recorded: Sequence[Line]) -> dict[str, Any]:
    """Return the ids of assigned topics, under names of their own: requests have the ids alone."""
    return {
        topic["topicId"]: uuid_from_text(topic["topicId"])
        for line in recorded
        for topic in ((line.get("response") or {}).get("assignment") or {}).get(
            "topicPartitions", ()
        )
    }


def start(recorded: Sequence[Line]) -> ReplayedMember | None:
    """Return a member with the options of the first request; None if these are impossible."""
    first = recorded[0].get("request")
    if not first or first["memberEpoch"] != 0 or not (first["memberId"] and first["groupId"]):
        return None
    options = {
        "bootstrap_servers": "localhost:1",
        "group_id": first["groupId"],
        "group_protocol": "consumer",
        "group_instance_id": first["instanceId"] or None,
        "client_rack": first["rackId"] or "",
        "group_remote_assignor": first["serverAssignor"] or None,
    }
    if first["rebalanceTimeoutMs"] > 0:
        options["max_poll_interval_ms"] = first["rebalanceTimeoutMs"]
    if not (first["subscribedTopicNames"] or first.get("subscribedTopicRegex")):
        return None
    ids = topic_ids(recorded)
    config = make_config(ConsumerConfig, options)
    return ReplayedMember(config, first["memberId"], ids, set(ids))


def act(member: ReplayedMember, request: Line, now: float) -> None:
    """Make the call of the application that the request shows."""
    epoch, context = request["memberEpoch"], member.machine.context
    if member.machine.is_closed:
        return
    names, pattern = request["subscribedTopicNames"], request.get("subscribedTopicRegex")
    if epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
        # The report that is due was sent in a loop that is not recorded.
        member.sent.clear()
        close("leave_group" if epoch == LEAVE_EPOCH else "default")(member, now)
    elif names is not None or pattern:
        wanted = tuple(names or ()), pattern or None
        if wanted != (context.topics, context.pattern):
            subscribe(*wanted[0], pattern=wanted[1])(member, now)


def play(recorded: Sequence[Line]) -> int:
    """Return the number of requests that are equal; the script's others are left out."""
    member = start(recorded)
    if member is None:
        return 0
    for line in recorded:
        if member.machine.is_closed and not member.sent and member.awaited is None:
            break
        if "request" in line:
            act(member, line["request"], line["t"])
            if not member.sent and not member.machine.is_closed:
                # Times between heartbeats are those of the script.
                member.heartbeat_now(line["t"])
            before, pending = member.equal.total(), [*member.sent]
            member.request(HEARTBEAT, line["version"], line["request"], line["t"])
            if member.equal.total() == before:
                member.sent, member.awaited = pending, None
        elif "response" in line:
            member.response(line["response"], line["version"], line["t"])
    return member.equal.total()


def test_a_member_makes_the_valid_requests_of_the_scripts(
    record_property: Callable[[str, object], None],
) -> None:
    recorded = members()
    equal = {member: play(its) for member, its in recorded.items()}
    total = sum("request" in line for its in recorded.values() for line in its)
    played = sum(map(bool, equal.values()))
    assert sum(equal.values()) >= EQUAL_AT_LEAST, equal
    record_property(
        "summary",
        f"consumer protocol: {sum(equal.values())} of {total} requests of scripted members are"
        f" equal, of {played} of {len(recorded)} members",
    )
