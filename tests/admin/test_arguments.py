"""Arguments that many operations have."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from aiokafkawire.admin import (
    Admin,
    ConfigResource,
    ConfigResourceType,
    GroupState,
    NewTopic,
    TransactionState,
)
from aiokafkawire.admin.arguments import new_topics, parse_names
from aiokafkawire.broker import Broker

Call = Callable[[Admin], Awaitable[Any]]

TOPIC = ConfigResource(ConfigResourceType.TOPIC, "t")


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker() as broker:
        yield broker


@pytest.mark.parametrize(
    "call",
    [
        lambda admin: admin.create_topics("t"),
        lambda admin: admin.delete_topics("t"),
        lambda admin: admin.describe_topics("t"),
        lambda admin: admin.ensure_topics("t"),
        lambda admin: admin.wait_for_topics("t"),
        lambda admin: admin.describe_consumer_groups("t"),
        lambda admin: admin.describe_classic_groups("t"),
        lambda admin: admin.describe_share_groups("t"),
        lambda admin: admin.describe_streams_groups("t"),
        lambda admin: admin.delete_consumer_groups("t"),
        lambda admin: admin.remove_members_from_consumer_group("g", "t"),
        lambda admin: admin.list_groups(states="t"),
        lambda admin: admin.list_transactions(states="t"),
        lambda admin: admin.describe_transactions("t"),
        lambda admin: admin.fence_producers("t"),
        lambda admin: admin.delete_share_group_offsets("g", "t"),
        lambda admin: admin.describe_user_scram_credentials("t"),
    ],
)
async def test_one_name_is_refused_where_several_are_expected(broker: Broker, call: Call) -> None:
    await broker.create_topic("t")
    async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        with pytest.raises(TypeError, match=r"must be an iterable such as \['t'\], not a str"):
            await call(admin)
    assert list(broker.topics) == ["t"]


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda admin: admin.list_groups(states=["idle"]), "states has 'idle': give 'Prep"),
        (lambda admin: admin.list_groups(types=["new"]), "types has 'new': give 'Consumer', 'Cl"),
        (lambda admin: admin.list_transactions(states=["open"]), "states has 'open': give 'Ongo"),
    ],
)
async def test_a_name_that_matches_nothing_is_refused(
    broker: Broker, call: Call, named: str
) -> None:
    async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        with pytest.raises(ValueError, match=named):
            await call(admin)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (
            lambda admin: admin.ensure_topics([NewTopic("t", configs={"retention.ms": 5})]),
            "config retention.ms must be a str such as '5', not 5",
        ),
        (
            lambda admin: admin.incremental_alter_configs({TOPIC: {"retention.ms": 5}}),
            "config retention.ms must be a str such as '5', not 5",
        ),
        (
            lambda admin: admin.incremental_alter_configs({"t": {"retention.ms": "5"}}),
            "a resource must be a ConfigResource, not 't'",
        ),
        (lambda admin: admin.describe_configs(["t"]), "must be a ConfigResource, not 't'"),
        (lambda admin: admin.list_offsets({("t", 0): "latest"}), "an OffsetSpec, not 'latest'"),
    ],
)
async def test_a_value_of_another_type_is_refused(broker: Broker, call: Call, named: str) -> None:
    async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        with pytest.raises(TypeError, match=named):
            await call(admin)


def test_names_in_any_case() -> None:
    assert parse_names("states", GroupState, ["empty", "Unknown"]) == ["Empty", "Unknown"]
    assert parse_names("states", TransactionState, ["ongoing"]) == [TransactionState.ONGOING]


def test_a_topic_that_is_a_name() -> None:
    (topic,) = new_topics(["orders"])
    assert (topic.name, topic.num_partitions) == ("orders", None)
