"""The share consumer and the share group tool of Kafka 4.3.0 work against the embedded broker."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from tests.broker.threaded_broker import ThreadedBroker, threaded_broker
from tests.brokers.test_java_tools import CONFIGS, TOOLS, command, produce, run_tool

__all__ = ("command",)

SHARE_GROUPS = TOOLS + "consumer.group.ShareGroupCommand"
SHARE_CONSUMER = TOOLS + "consumer.ConsoleShareConsumer"


@pytest.fixture
def server() -> Iterator[ThreadedBroker]:
    with threaded_broker(nodes=3, as_of="4.3", group_share_heartbeat_interval_ms=200) as server:
        server.call(server.broker.create_topic, "orders", 2, 3)
        yield server


@pytest.fixture
def tool(command: list[str], server: ThreadedBroker) -> Any:
    return functools.partial(run_tool, command, server)


def test_kafka_console_share_consumer_and_share_groups(tool: Any, server: ThreadedBroker) -> None:
    anyio.run(produce, server.servers, 10)
    group = ("--entity-type", "groups", "--entity-name", "g")
    tool(CONFIGS, "--alter", *group, "--add-config", "share.auto.offset.reset=earliest")
    consume = ("--topic", "orders", "--group", "g", "--timeout-ms", "15000")
    output = tool(SHARE_CONSUMER, *consume, "--max-messages", "10")
    assert "Processed a total of 10 messages" in output
    assert re.search(r"^g$", tool(SHARE_GROUPS, "--list"), re.MULTILINE)
    describe = ("--describe", "--group", "g")
    assert re.search(r"g +\S+ .*Empty +0", tool(SHARE_GROUPS, *describe, "--state"))
    # The start offset that is shown is one write behind, as in Kafka.
    shown = tool(SHARE_GROUPS, *describe, "--offsets")
    assert re.search(r"g +orders +0 +0 +0\n", shown), shown
    assert re.search(r"g +orders +1 +- +-\n", shown), shown
    topic = ("--group", "g", "--topic", "orders")
    tool(SHARE_GROUPS, "--reset-offsets", *topic, "--to-earliest", "--execute")
    output = tool(SHARE_CONSUMER, *consume, "--max-messages", "10", "--reject")
    assert "Processed a total of 10 messages" in output
    tool(SHARE_GROUPS, "--delete-offsets", *topic)
    tool(SHARE_GROUPS, "--delete", "--group", "g")
    assert not tool(SHARE_GROUPS, "--list").strip()
