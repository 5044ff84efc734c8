"""Conversations of other share consumers with Kafka 4.3.0, played by this package's session."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import anyio
import pytest

from tests.broker.share.test_conversations import RUNS
from tests.share.session_replay import ALLOWED, LEFT_OUT, Exchange, ReplayedSession
from tests.wire.vectors import lines

CLIENTS = ("java-share-consumer", "confluent-share-consumer")

APIS = ("ShareFetch", "ShareAcknowledge")

CONNECTS_AGAIN = ("connection lost", "share fetch at a node", "new leader after")
"""Notes of the recording behind which members use another connection, or another broker."""

EQUAL_AT_LEAST = 100
"""Requests that are equal in all fields."""

Line = Mapping[str, Any]


def exchanges(recorded: Iterable[Line]) -> dict[tuple[str, int], list[Exchange]]:
    """Return the requests of each member and connection with their responses."""
    found: dict[tuple[str, int], list[Exchange]] = defaultdict(list)
    waiting: dict[tuple[object, str], deque[Exchange]] = defaultdict(deque)
    scenario, began, now, connection = "", 0.0, 0.0, 0
    for line in recorded:
        if line["scenario"] != scenario:
            scenario, began = line["scenario"], now
        now = began + line["t"]
        connection += line.get("note", "").startswith(CONNECTS_AGAIN)
        if line.get("api") not in APIS:
            continue
        who = line["api"], line.get("conn", line.get("from", line.get("to")))
        if "response" in line:
            exchange = waiting[who].popleft()
            exchange.response, exchange.answered_at = line["response"], now
            continue
        before = found[line["request"]["memberId"], connection]
        open_ones = [each for each in before if not each.response]
        for each in open_ones:
            each.is_alone = False
        exchange = Exchange(line["api"], line["version"], line["request"], now, not open_ones)
        before.append(exchange)
        waiting[who].append(exchange)
    return found


def conversations() -> dict[str, list[Line]]:
    """Return the lines of each client, and of the scripted members of each broker."""
    by_scenario: dict[str, list[Line]] = defaultdict(list)
    for file in ("share-consumer-conversations", "share-group-conversations"):
        for line in lines(file):
            by_scenario[line["scenario"]].append(line)
    names = {client: (client,) for client in CLIENTS} | {
        name: run.scenarios for name, run in RUNS.items()
    }
    assert sorted(by_scenario) == sorted(each for some in names.values() for each in some)
    return {
        name: [line for each in some for line in by_scenario[each]] for name, some in names.items()
    }


CONVERSATIONS = conversations()


async def play(recorded: Iterable[Line]) -> list[ReplayedSession]:
    sessions = []
    async with anyio.create_task_group() as tasks:
        for (member, _), its in exchanges(recorded).items():
            session = ReplayedSession(tasks, member)
            sessions.append(session)
            for exchange in its:
                await session.replay(exchange)
        tasks.cancel_scope.cancel()
    return sessions


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_the_session_makes_the_requests_of_others(name: str) -> None:
    sessions = await play(CONVERSATIONS[name])
    assert not [text for session in sessions for text in session.differences]
    if name in CLIENTS:
        assert not any(session.left_out for session in sessions)


async def test_all_recorded_requests_are_compared(
    record_property: Callable[[str, object], None],
) -> None:
    equal: Counter[str] = Counter()
    allowed: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    intended = total = 0
    for recorded in CONVERSATIONS.values():
        total += sum(line.get("api") in APIS and "request" in line for line in recorded)
        for session in await play(recorded):
            equal += session.equal
            allowed += session.allowed
            left_out += session.left_out
            intended += session.intended
    assert allowed.keys() == ALLOWED.keys()
    assert left_out.keys() == LEFT_OUT.keys()
    assert equal.total() + intended + left_out.total() == total
    assert equal.total() >= EQUAL_AT_LEAST
    record_property(
        "summary",
        f"share sessions: {equal.total()} of {total} requests of others are equal in all fields,"
        f" {intended} differ as intended: {dict(sorted(allowed.items()))}; not made by this"
        f" package: {dict(sorted(left_out.items()))}",
    )
