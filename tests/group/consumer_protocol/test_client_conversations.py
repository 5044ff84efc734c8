"""Conversations of Kafka's Java client and of librdkafka with Kafka 4.3.0, played by our member."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from aiokafkawire.config import ConsumerConfig, make_config
from aiokafkawire.wire.primitives import uuid_from_text
from tests.wire.vectors import lines

from .client_replay import (
    ALLOWED,
    Action,
    ReplayedMember,
    close,
    learn,
    poll,
    replay,
    stop_polling,
    subscribe,
    unsubscribe,
)

IDS = {
    "t": uuid_from_text("S-mRWD2gR_qJyaNt4YDtaw"),
    "u": uuid_from_text("gpqpUuP0QuuKwQ9yjLUB8w"),
}

Run = tuple[dict[str, Any], Sequence[tuple[float, Action]]]

STATIC: dict[str, Any] = {"group_instance_id": "inst"}

CLIENTS: Mapping[str, Run] = {
    "c1": (
        {},
        [
            (0.72, subscribe("t")),
            (23.57, unsubscribe),
            (23.585, subscribe(pattern="t|zz.*")),
            (26.86, close()),
        ],
    ),
    "c2": (
        {},
        [(2.2, subscribe("t")), (4.76, subscribe("t", "u")), (5.11, learn("u")), (7.16, close())],
    ),
    "c3": (
        STATIC | {"max_poll_interval_ms": 3_000},
        [(9.25, subscribe("t")), (11.835, stop_polling), (16.735, poll), (19.277, close())],
    ),
    "c3b": (STATIC, [(20.72, subscribe("t")), (22.2815, close("leave_group"))]),
    "c4": (STATIC, [(22.25, subscribe("t"))]),
    "c5": ({"group_id": "jg2"}, [(25.15, subscribe(pattern="a(b"))]),
    "c6": (
        {"group_id": "jg3"},
        [(25.1, learn("u")), (25.2, subscribe("t", "u")), (26.706, close())],
    ),
    "ck1": ({"group_id": "ckg"}, [(0.1, subscribe("t")), (9.1105, close())]),
    "ck2": ({"group_id": "ckg"}, [(3.1, subscribe("t")), (7.09, close())]),
}
"""Options of each client, and what its application did at which time (README of the recording)."""


def conversation(client: str) -> list[Mapping[str, Any]]:
    """Return the requests of a client and their responses, in order."""
    numbers, found = set(), []
    for line in lines("client-conversations"):
        number = line["scenario"], line["conn"], line["correlationId"]
        if line.get("client") == client:
            numbers.add(number)
        if number in numbers:
            found.append(line)
    return found


def play(client: str) -> ReplayedMember:
    options, actions = CLIENTS[client]
    recorded = conversation(client)
    config = make_config(
        ConsumerConfig,
        {"bootstrap_servers": "localhost:1", "group_id": "jg", "group_protocol": "consumer"}
        | options,
    )
    member_id = next(
        line["request"]["memberId"] for line in recorded if "memberId" in line.get("request", {})
    )
    member = ReplayedMember(config, member_id, IDS, {"t"})
    replay(member, recorded, actions)
    return member


@pytest.mark.parametrize("client", CLIENTS)
def test_the_member_makes_the_requests_of_kafkas_clients(client: str) -> None:
    member = play(client)
    assert not member.differences
    assert member.equal["ConsumerGroupHeartbeat"]


def test_all_recorded_requests_are_compared(
    record_property: Callable[[str, object], None],
) -> None:
    equal: Counter[str] = Counter()
    allowed: Counter[str] = Counter()
    for client in CLIENTS:
        member = play(client)
        equal += member.equal
        allowed += member.allowed
    recorded = [line for line in lines("client-conversations") if "request" in line]
    assert {line["client"] for line in recorded} == CLIENTS.keys()
    assert allowed.keys() == ALLOWED.keys()
    record_property(
        "summary",
        f"consumer protocol: {equal.total()} of {len(recorded)} requests of Kafka's clients are"
        f" equal in all fields, others differ as intended: {dict(sorted(allowed.items()))}",
    )
