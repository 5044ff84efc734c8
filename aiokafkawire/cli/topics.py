"""`aiokafkawire topics`: list, describe, create and delete topics, add partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from aiokafkawire.cli.client_session import (
    AdminCommand,
    ClientSession,
    admin_command,
    print_results,
    require_topics,
    response_error,
)
from aiokafkawire.cli.common_options import IntegerRange, SuggestingGroup, json_option
from aiokafkawire.cli.tables import format_table, json_line, pluralize
from aiokafkawire.cluster import ToAnyNode, ToController, TopicMetadata
from aiokafkawire.connection import VersionedRequest
from aiokafkawire.errors import InvalidOption, KafkaError
from aiokafkawire.wire import ZERO_UUID, ApiKey, ErrorCode
from aiokafkawire.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from aiokafkawire.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from aiokafkawire.wire.messages.delete_topics import DeleteTopicsRequest
from aiokafkawire.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from aiokafkawire.wire.primitives import uuid_to_text

__all__ = ("topics",)

BROKER_DEFAULT = -1
FIRST_WITH_DEFAULTS = 4
"""First version of CreateTopics with broker defaults for partitions and replicas (KIP-464)."""

TOPIC_RESOURCE = 2
"""Resource type of a topic in DescribeConfigs."""

DYNAMIC_TOPIC_CONFIG = 1
"""Config source of a config that is set on the topic."""

LAST_WITH_TOPIC_NAMES = 5
"""DeleteTopics v6+ names topics in a different field."""


@click.group(cls=SuggestingGroup, short_help="List, describe, create, change and delete topics.")
def topics() -> None:
    """List, describe, create, change and delete topics."""


@topics.command("list", short_help="Print the names of all topics.")
@admin_command
@json_option
@click.option("--internal", is_flag=True, help="Include internal topics.")
def list_command(
    admin: AdminCommand,
    *,
    as_json: bool,
    internal: bool,
) -> int:
    """Print the names of all topics, one per line."""

    async def show(session: ClientSession) -> list[KafkaError]:
        known = session.cluster.metadata.topics
        shown = [known[name] for name in sorted(known)]
        lines = [
            json_line(topic_summary(topic)) if as_json else f"{topic.name}\n"
            for topic in shown
            if internal or not topic.is_internal
        ]
        if not lines and not as_json:
            admin.note_empty("topics")
        await print_results("".join(lines))
        return []

    return admin.execute(show, all_topics=True)


@topics.command("describe", short_help="Print partitions, leaders and replicas.")
@admin_command
@json_option
@click.option(
    "-c",
    "--topic-configs",
    "configs",
    is_flag=True,
    help="Include configs that are set on the topic.",
)
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
def describe_command(
    admin: AdminCommand,
    *,
    as_json: bool,
    configs: bool,
    names: tuple[str, ...],
) -> int:
    """Print leader, replicas and in-sync replicas of each partition of the TOPICs."""

    async def show(session: ClientSession) -> list[KafkaError]:
        require_topics(session, names)
        known = session.cluster.metadata.topics
        result: list[str] = []
        for name in dict.fromkeys(names):
            config_values = await topic_configs(session, name) if configs else None
            shown = topic_to_dict(known[name], config_values)
            result.append(json_line(shown) if as_json else topic_text(shown))
        await print_results(("" if as_json else "\n").join(result))
        return []

    return admin.execute(show, all_topics=True)


@topics.command("create", short_help="Create topics.")
@admin_command
@click.option(
    "-p",
    "--partitions",
    type=IntegerRange(min=1),
    help="Partitions of each topic.  [default: set by the brokers]",
)
@click.option(
    "-r",
    "--replicas",
    type=IntegerRange(min=1, max=32_767),
    help="Replicas of each partition.  [default: set by the brokers]",
)
@click.option(
    "-c",
    "--topic-config",
    "configs",
    multiple=True,
    metavar="NAME=VALUE",
    help="Config, such as cleanup.policy=compact. May be repeated.",
)
@click.option("--if-missing", is_flag=True, help="Ignore topics that already exist.")
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
def create_command(
    admin: AdminCommand,
    *,
    partitions: int | None,
    replicas: int | None,
    configs: tuple[str, ...],
    if_missing: bool,
    names: tuple[str, ...],
) -> int:
    """Create the TOPICs."""
    config_values = [parse_config(setting) for setting in configs]

    async def change(session: ClientSession) -> list[KafkaError]:
        errors = await create_topics(session, names, partitions, replicas, config_values)
        ignored = ErrorCode.TOPIC_ALREADY_EXISTS if if_missing else None
        return [error for error in errors if getattr(error, "code", None) != ignored]

    return admin.execute(change, has_output=False)


@topics.command("delete", short_help="Delete topics and their records.")
@admin_command
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
def delete_command(
    admin: AdminCommand,
    *,
    names: tuple[str, ...],
) -> int:
    """Delete the TOPICs with all their records. This cannot be undone."""

    async def change(session: ClientSession) -> list[KafkaError]:
        return await delete_topics(session, names)

    return admin.execute(change, has_output=False)


@topics.command("add-partitions", short_help="Add partitions to a topic.")
@admin_command
@click.argument("name", metavar="TOPIC")
@click.argument("total", type=IntegerRange(min=1))
def add_partitions_command(
    admin: AdminCommand,
    *,
    name: str,
    total: int,
) -> int:
    """Increase the number of partitions of TOPIC to TOTAL.

    Existing records stay in their partitions. New records of a key may go to another partition.
    """

    async def change(session: ClientSession) -> list[KafkaError]:
        return await add_partitions(session, name, total)

    return admin.execute(change, has_output=False)


# --- requests ---------------------------------------------------------------------------------


async def create_topics(
    session: ClientSession,
    names: Iterable[str],
    partitions: int | None = None,
    replicas: int | None = None,
    configs: Iterable[tuple[str, str]] = (),
) -> list[KafkaError]:
    """Create topics; return the error of each topic that was not created."""

    def build(version: int) -> CreateTopicsRequest:
        default = BROKER_DEFAULT if version >= FIRST_WITH_DEFAULTS else 1
        new_topics = [
            CreatableTopic(
                name=name,
                num_partitions=partitions or default,
                replication_factor=replicas or default,
                assignments=[],
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs],
            )
            for name in dict.fromkeys(names)
        ]
        return CreateTopicsRequest(topics=new_topics, timeout_ms=session.timeout_ms)

    request: VersionedRequest[CreateTopicsResponse] = VersionedRequest(ApiKey.CREATE_TOPICS, build)
    response = await session.request(request, ToController())
    errors = [
        response_error(
            result.error_code, result.error_message, api="CreateTopics", topic=result.name
        )
        for result in response.topics
    ]
    return [error for error in errors if error is not None]


async def delete_topics(session: ClientSession, names: Iterable[str]) -> list[KafkaError]:
    """Delete topics; return the error of each topic that was not deleted."""
    request = DeleteTopicsRequest(
        topic_names=list(dict.fromkeys(names)), timeout_ms=session.timeout_ms
    )
    response = await session.request(request, ToController(), max_version=LAST_WITH_TOPIC_NAMES)
    errors = [
        response_error(
            result.error_code, result.error_message, api="DeleteTopics", topic=result.name
        )
        for result in response.responses
    ]
    return [error for error in errors if error is not None]


async def add_partitions(session: ClientSession, name: str, total: int) -> list[KafkaError]:
    """Increase the number of partitions; return the errors."""
    topic = CreatePartitionsTopic(name=name, count=total, assignments=None)
    request = CreatePartitionsRequest(
        topics=[topic], timeout_ms=session.timeout_ms, validate_only=False
    )
    response = await session.request(request, ToController())
    errors = [
        response_error(
            result.error_code, result.error_message, api="CreatePartitions", topic=result.name
        )
        for result in response.results
    ]
    return [error for error in errors if error is not None]


async def topic_configs(session: ClientSession, name: str) -> dict[str, str | None]:
    """Return the configs set on a topic, without broker configs and defaults; a secret is None.

    Raises `BrokerError`.
    """
    resource = DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None
    )
    response = await session.request(DescribeConfigsRequest(resources=[resource]), ToAnyNode())
    (result,) = response.results
    error = response_error(
        result.error_code, result.error_message, api="DescribeConfigs", topic=name
    )
    if error is not None:
        raise error
    # DescribeConfigs v0 has no config source but an is_default flag.
    return {
        config.name: config.value
        for config in result.configs
        if config.config_source == DYNAMIC_TOPIC_CONFIG
        or (config.config_source < 0 and not config.is_default)
    }


def parse_config(setting: str) -> tuple[str, str]:
    """Parse the value of `-c`. Raises `InvalidOption`."""
    name, equals, value = setting.partition("=")
    if not equals or not name:
        raise InvalidOption(f"-c {setting!r} is not of the form name=value")
    return name, value


# --- output ----------------------------------------------------------------------------------


def topic_summary(topic: TopicMetadata) -> dict[str, Any]:
    """Return a topic as in `topics list --json`."""
    return {
        "topic": topic.name,
        "topic_id": None if topic.topic_id == ZERO_UUID else uuid_to_text(topic.topic_id),
        "internal": topic.is_internal,
        "partition_count": len(topic.partitions),
        "replication_factor": max(
            (len(partition.replicas) for partition in topic.partitions.values()), default=0
        ),
    }


def topic_to_dict(
    topic: TopicMetadata, config_values: dict[str, str | None] | None = None
) -> dict[str, Any]:
    """Return a topic as in `topics describe --json`."""
    result = {
        **topic_summary(topic),
        "partitions": [
            {
                "partition": each.partition,
                "leader": None if each.leader_id < 0 else each.leader_id,
                "leader_epoch": None if each.leader_epoch < 0 else each.leader_epoch,
                "replicas": list(each.replicas),
                "in_sync": list(each.isr),
                "offline": list(each.offline_replicas),
            }
            for each in topic.partitions.values()
        ],
    }
    return result if config_values is None else {**result, "configs": config_values}


def topic_text(result: dict[str, Any]) -> str:
    """Return the result of `topic_to_dict` as `topics describe` prints it."""
    heads = ("partition", "leader", "epoch", "replicas", "in sync", "offline")
    rows = [list(partition.values()) for partition in result["partitions"]]
    head = f"{result['topic']}: {pluralize(len(rows), 'partition')}"
    if result["topic_id"] is not None:
        head += f", id {result['topic_id']}"
    if result["internal"]:
        head += ", internal"
    configs = "".join(
        f"  {name}={'(secret)' if value is None else value}\n"
        for name, value in result.get("configs", {}).items()
    )
    return f"{head}\n{format_table(heads, rows, '  ')}{configs}"
