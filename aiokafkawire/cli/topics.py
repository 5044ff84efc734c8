"""`aiokafkawire topics`: list, describe, create, delete, add-partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from aiokafkawire.cli.access import (
    Access,
    Administration,
    administration,
    print_out,
    refusal,
    require_topics,
)
from aiokafkawire.cli.shared import Suggesting, json_option
from aiokafkawire.cli.tables import counted, json_line, table
from aiokafkawire.cluster import AnyNode, Controller, TopicMetadata
from aiokafkawire.connection import ByVersion
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

BROKERS_DEFAULT = -1
FIRST_WITH_DEFAULTS = 4
"""From this version of CreateTopics on a broker has defaults for both counts."""

TOPIC = 2
"""The kind of resource that a topic is to DescribeConfigs."""

OF_TOPIC = 1
"""The source of a setting that is the topic's own."""

LAST_WITH_NAMES = 5
"""From version 6 on DeleteTopics names topics in another field."""


@click.group(cls=Suggesting, short_help="List, describe, create, change and delete topics.")
def topics() -> None:
    """List, describe, create, change and delete topics."""


@topics.command("list", short_help="Print the names of all topics.")
@administration
@json_option
@click.option("--internal", is_flag=True, help="Kafka's own topics too.")
def list_command(
    admin: Administration,
    *,
    as_json: bool,
    internal: bool,
) -> int:
    """Print the names of all topics, one a line."""

    async def show(access: Access) -> list[KafkaError]:
        known = access.cluster.metadata.topics
        shown = [known[name] for name in sorted(known)]
        lines = [
            json_line(summary(topic)) if as_json else f"{topic.name}\n"
            for topic in shown
            if internal or not topic.is_internal
        ]
        await print_out("".join(lines))
        return []

    return admin.carry_out(show, all_topics=True)


@topics.command("describe", short_help="Print partitions, leaders and replicas.")
@administration
@json_option
@click.option(
    "-c",
    "--topic-configs",
    "configs",
    is_flag=True,
    help="The settings that are a topic's own, too.",
)
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
def describe_command(
    admin: Administration,
    *,
    as_json: bool,
    configs: bool,
    names: tuple[str, ...],
) -> int:
    """Print each partition of the TOPICs with its leader, its replicas and those in sync."""

    async def show(access: Access) -> list[KafkaError]:
        require_topics(access, names)
        known = access.cluster.metadata.topics
        told: list[str] = []
        for name in dict.fromkeys(names):
            settings = await own_settings(access, name) if configs else None
            shown = form(known[name], settings)
            told.append(json_line(shown) if as_json else text(shown))
        await print_out(("" if as_json else "\n").join(told))
        return []

    return admin.carry_out(show, all_topics=True)


@topics.command("create", short_help="Make topics.")
@administration
@click.option(
    "-p",
    "--partitions",
    type=click.IntRange(min=1),
    help="Partitions of each.  [default: the brokers' own]",
)
@click.option(
    "-r",
    "--replicas",
    type=click.IntRange(min=1, max=32_767),
    help="Replicas of each partition.  [default: the brokers' own]",
)
@click.option(
    "-c",
    "--topic-config",
    "configs",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting, such as cleanup.policy=compact. May be repeated.",
)
@click.option("--if-missing", is_flag=True, help="Topics that exist are no error.")
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
def create_command(
    admin: Administration,
    *,
    partitions: int | None,
    replicas: int | None,
    configs: tuple[str, ...],
    if_missing: bool,
    names: tuple[str, ...],
) -> int:
    """Make the TOPICs."""
    settings = [parse_config(setting) for setting in configs]

    async def change(access: Access) -> list[KafkaError]:
        errors = await create(access, names, partitions, replicas, settings)
        ignored = ErrorCode.TOPIC_ALREADY_EXISTS if if_missing else None
        return [error for error in errors if getattr(error, "code", None) != ignored]

    return admin.carry_out(change, prints=False)


@topics.command("delete", short_help="Delete topics and their records.")
@administration
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
def delete_command(
    admin: Administration,
    *,
    names: tuple[str, ...],
) -> int:
    """Delete the TOPICs with all their records. There is no way back."""

    async def change(access: Access) -> list[KafkaError]:
        return await delete(access, names)

    return admin.carry_out(change, prints=False)


@topics.command("add-partitions", short_help="Give a topic more partitions.")
@administration
@click.argument("name", metavar="TOPIC")
@click.argument("total", type=click.IntRange(min=1))
def add_partitions_command(
    admin: Administration,
    *,
    name: str,
    total: int,
) -> int:
    """Give TOPIC more partitions: TOTAL is how many it has afterwards.

    Records stay where they are; from now on keys may go to other partitions than before.
    """

    async def change(access: Access) -> list[KafkaError]:
        return await add_partitions(access, name, total)

    return admin.carry_out(change, prints=False)


# --- the requests -----------------------------------------------------------------------------


async def create(
    access: Access,
    names: Iterable[str],
    partitions: int | None = None,
    replicas: int | None = None,
    configs: Iterable[tuple[str, str]] = (),
) -> list[KafkaError]:
    """Make topics; gives the error of each that was not made."""

    def build(version: int) -> CreateTopicsRequest:
        default = BROKERS_DEFAULT if version >= FIRST_WITH_DEFAULTS else 1
        made = [
            CreatableTopic(
                name=name,
                num_partitions=partitions or default,
                replication_factor=replicas or default,
                assignments=[],
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs],
            )
            for name in dict.fromkeys(names)
        ]
        return CreateTopicsRequest(topics=made, timeout_ms=access.timeout_ms)

    request: ByVersion[CreateTopicsResponse] = ByVersion(ApiKey.CREATE_TOPICS, build)
    response = await access.request(request, Controller())
    answers = [
        refusal(told.error_code, told.error_message, api="CreateTopics", topic=told.name)
        for told in response.topics
    ]
    return [error for error in answers if error is not None]


async def delete(access: Access, names: Iterable[str]) -> list[KafkaError]:
    """Delete topics; gives the error of each that was not deleted."""
    request = DeleteTopicsRequest(
        topic_names=list(dict.fromkeys(names)), timeout_ms=access.timeout_ms
    )
    response = await access.request(request, Controller(), max_version=LAST_WITH_NAMES)
    answers = [
        refusal(told.error_code, told.error_message, api="DeleteTopics", topic=told.name)
        for told in response.responses
    ]
    return [error for error in answers if error is not None]


async def add_partitions(access: Access, name: str, total: int) -> list[KafkaError]:
    """Raise the number of partitions; gives the error, if any."""
    topic = CreatePartitionsTopic(name=name, count=total, assignments=None)
    request = CreatePartitionsRequest(
        topics=[topic], timeout_ms=access.timeout_ms, validate_only=False
    )
    response = await access.request(request, Controller())
    answers = [
        refusal(told.error_code, told.error_message, api="CreatePartitions", topic=told.name)
        for told in response.results
    ]
    return [error for error in answers if error is not None]


async def own_settings(access: Access, name: str) -> dict[str, str | None]:
    """What a topic is set to itself, not by its brokers or by default; a secret is None.

    Raises `BrokerError`.
    """
    resource = DescribeConfigsResource(
        resource_type=TOPIC, resource_name=name, configuration_keys=None
    )
    response = await access.request(DescribeConfigsRequest(resources=[resource]), AnyNode())
    (told,) = response.results
    error = refusal(told.error_code, told.error_message, api="DescribeConfigs", topic=name)
    if error is not None:
        raise error
    # Version 0 has no sources, and says instead what is a default.
    return {
        config.name: config.value
        for config in told.configs
        if config.config_source == OF_TOPIC or (config.config_source < 0 and not config.is_default)
    }


def parse_config(setting: str) -> tuple[str, str]:
    """Read the argument of `-c`. Raises `InvalidOption`."""
    name, equals, value = setting.partition("=")
    if not equals or not name:
        raise InvalidOption(f"-c {setting!r} is not of the form name=value")
    return name, value


# --- what is printed --------------------------------------------------------------------------


def summary(topic: TopicMetadata) -> dict[str, Any]:
    """A topic as `topics list --json` has it."""
    return {
        "topic": topic.name,
        "topic_id": None if topic.topic_id == ZERO_UUID else uuid_to_text(topic.topic_id),
        "internal": topic.is_internal,
        "partition_count": len(topic.partitions),
        "replication_factor": max((len(p.replicas) for p in topic.partitions.values()), default=0),
    }


def form(topic: TopicMetadata, settings: dict[str, str | None] | None = None) -> dict[str, Any]:
    """A topic as `topics describe --json` has it."""
    told = {
        **summary(topic),
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
    return told if settings is None else {**told, "configs": settings}


def text(told: dict[str, Any]) -> str:
    """A topic's `form` as `topics describe` prints it."""
    heads = ("partition", "leader", "epoch", "replicas", "in sync", "offline")
    rows = [list(partition.values()) for partition in told["partitions"]]
    head = f"{told['topic']}: {counted(len(rows), 'partition')}"
    if told["topic_id"] is not None:
        head += f", id {told['topic_id']}"
    if told["internal"]:
        head += ", internal"
    configs = "".join(
        f"  {name}={'(secret)' if value is None else value}\n"
        for name, value in told.get("configs", {}).items()
    )
    return f"{head}\n{table(heads, rows, '  ')}{configs}"
