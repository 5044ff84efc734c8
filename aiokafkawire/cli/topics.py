"""`aiokafkawire topics`: list, describe, create, ensure and delete topics, add partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import click

from aiokafkawire.cli.admin_command import (
    AdminCommand,
    Changing,
    Errors,
    admin_command,
    changing,
    print_results,
    split_errors,
    watch_option,
)
from aiokafkawire.cli.common_options import IntegerRange, SuggestingGroup, json_option
from aiokafkawire.cli.configs import parse_config, set_entries
from aiokafkawire.cli.partition_arguments import describe_existing
from aiokafkawire.cli.tables import format_table, json_line, pluralize
from aiokafkawire.errors import BrokerError, InvalidOption, KafkaError
from aiokafkawire.wire import ZERO_UUID, ErrorCode
from aiokafkawire.wire.primitives import uuid_to_text

if TYPE_CHECKING:
    from aiokafkawire.admin import Admin, NewTopic, TopicDescription
    from aiokafkawire.cluster import TopicMetadata

__all__ = ("topic_text", "topic_to_dict", "topics")

F = TypeVar("F", bound=Callable[..., Any])


@click.group(cls=SuggestingGroup, short_help="List, describe, create, change and delete topics.")
def topics() -> None:
    """List, describe, create, change and delete topics."""


@topics.command("list", short_help="Print the names of all topics.")
@admin_command
@json_option
@watch_option
@click.option("--internal", is_flag=True, help="Include internal topics.")
def list_command(
    admin: AdminCommand, *, as_json: bool, watch_s: float | None, internal: bool
) -> int:
    """Print the names of all topics, one per line."""

    async def show(client: Admin) -> Errors:
        names = list(await client.list_topics(include_internal=internal))
        if not names and not as_json:
            admin.note_empty("topics")
        if not as_json:
            await print_results("".join(f"{name}\n" for name in names))
            return ()
        results: dict[Any, Any] = await client.describe_topics(names, return_errors=True)
        found, errors = split_errors(results)
        await print_results("".join(json_line(topic_summary(topic)) for topic in found.values()))
        return errors

    return admin.execute(show, watch_s=watch_s)


@topics.command("describe", short_help="Print partitions, leaders and replicas.")
@admin_command
@json_option
@watch_option
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
    watch_s: float | None,
    configs: bool,
    names: tuple[str, ...],
) -> int:
    """Print leader, replicas and in-sync replicas of each partition of the TOPICs."""

    async def show(client: Admin) -> Errors:
        described = await describe_existing(client, names)
        config_values = await topic_configs(client, described) if configs else {}
        shown = [topic_to_dict(topic, config_values.get(name)) for name, topic in described.items()]
        if as_json:
            await print_results("".join(map(json_line, shown)))
        else:
            await print_results("\n".join(map(topic_text, shown)))
        return ()

    return admin.execute(show, watch_s=watch_s)


def _new_topic_options(function: F) -> F:
    """Add the options of a new topic."""
    decorated: Any = function
    for option in (
        click.option(
            "-c",
            "--topic-config",
            "configs",
            multiple=True,
            metavar="NAME=VALUE",
            help="Config, such as cleanup.policy=compact. May be repeated.",
        ),
        click.option(
            "-r",
            "--replicas",
            type=IntegerRange(min=1, max=32_767),
            help="Replicas of each partition.  [default: set by the brokers]",
        ),
        click.option(
            "-p",
            "--partitions",
            type=IntegerRange(min=1),
            help="Partitions of each topic.  [default: set by the brokers]",
        ),
    ):
        decorated = option(decorated)
    result: F = decorated
    return result


def _new_topics(
    names: Iterable[str], partitions: int | None, replicas: int | None, configs: Mapping[str, str]
) -> list[NewTopic]:
    from aiokafkawire.admin import NewTopic  # noqa: PLC0415 - it imports every message

    for name in names:
        topic, colon, count = name.partition(":")
        if colon and count.isdigit():  # as in `broker -t orders:3`
            raise InvalidOption(f"{name!r} is no topic name; write {topic} -p {count}")
    return [NewTopic(name, partitions, replicas, configs=configs) for name in names]


@topics.command("create", short_help="Create topics.")
@admin_command
@_new_topic_options
@click.option("--if-missing", is_flag=True, help="Ignore topics that already exist.")
@changing(confirms=False)
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
def create_command(
    admin: AdminCommand,
    *,
    partitions: int | None,
    replicas: int | None,
    configs: tuple[str, ...],
    if_missing: bool,
    change: Changing,
    names: tuple[str, ...],
) -> int:
    """Create the TOPICs."""
    config_values = dict(parse_config(each, "-c ") for each in configs)

    async def create(client: Admin) -> Errors:
        wanted = _new_topics(names, partitions, replicas, config_values)
        created, errors = split_errors(
            await client.create_topics(wanted, validate_only=change.dry_run, return_errors=True)
        )
        await change.show(
            {
                "topic": name,
                "partition_count": topic.num_partitions,
                "replication_factor": topic.replication_factor,
            }
            for name, topic in created.items()
        )
        return [error for error in errors if not (if_missing and _exists(error))]

    return admin.execute(create, has_output=change.has_output)


@topics.command("ensure", short_help="Create topics, or bring existing ones up to date.")
@admin_command
@_new_topic_options
@changing(confirms=False)
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
def ensure_command(
    admin: AdminCommand,
    *,
    partitions: int | None,
    replicas: int | None,
    configs: tuple[str, ...],
    change: Changing,
    names: tuple[str, ...],
) -> int:
    """Create the TOPICs that do not exist; give those that do more partitions and other configs.

    Other configs, replicas and partitions beyond -p stay. Returns when all brokers know the topics,
    so you can run it before a service starts, as often as you like.
    """
    config_values = dict(parse_config(each, "-c ") for each in configs)

    async def ensure(client: Admin) -> Errors:
        wanted = _new_topics(names, partitions, replicas, config_values)
        ensured, errors = split_errors(
            await client.ensure_topics(wanted, validate_only=change.dry_run, return_errors=True)
        )
        await change.show(
            {
                "topic": name,
                "created": topic.is_created,
                "added_partitions": topic.added_partitions,
                "altered_configs": [
                    f"{config}={value}" for config, value in topic.altered_configs.items()
                ],
            }
            for name, topic in ensured.items()
        )
        return errors

    return admin.execute(ensure, has_output=change.has_output)


def _exists(error: KafkaError) -> bool:
    return isinstance(error, BrokerError) and error.code == ErrorCode.TOPIC_ALREADY_EXISTS


@topics.command("delete", short_help="Delete topics and their records.")
@admin_command
@changing(confirms=True)
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
def delete_command(admin: AdminCommand, *, change: Changing, names: tuple[str, ...]) -> int:
    """Delete the TOPICs with all their records. This cannot be undone."""
    change.confirm(f"Delete {pluralize(len(names), 'topic')} with all records: {' '.join(names)}?")

    async def delete(client: Admin) -> Errors:
        if change.dry_run:
            described = await describe_existing(client, names)
            summaries = [topic_summary(topic) for topic in described.values()]
            await change.show(
                {key: each[key] for key in ("topic", "partition_count", "replication_factor")}
                for each in summaries
            )
            return ()
        results = await client.delete_topics(names, return_errors=True)
        deleted, errors = split_errors(results)
        await change.show({"topic": name} for name in deleted)
        return errors

    return admin.execute(delete, has_output=change.has_output)


@topics.command("add-partitions", short_help="Add partitions to a topic.")
@admin_command
@changing(confirms=False)
@click.argument("name", metavar="TOPIC")
@click.argument("total", type=IntegerRange(min=1))
def add_partitions_command(admin: AdminCommand, *, change: Changing, name: str, total: int) -> int:
    """Increase the number of partitions of TOPIC to TOTAL.

    Records stay where they are, so a key may map to another partition afterwards.
    """

    async def add(client: Admin) -> Errors:
        await client.create_partitions({name: total}, validate_only=change.dry_run)
        await change.show([{"topic": name, "partition_count": total}])
        return ()

    return admin.execute(add, has_output=change.has_output)


async def topic_configs(client: Admin, names: Iterable[str]) -> dict[str, dict[str, str | None]]:
    """Return the configs set on topics, without broker configs and defaults; a secret is None."""
    from aiokafkawire.admin import (  # noqa: PLC0415 - it imports every message
        ConfigResource,
        ConfigResourceType,
    )

    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    return {
        resource.name: {name: entry.value for name, entry in set_entries(resource, entries).items()}
        for resource, entries in (await client.describe_configs(resources)).items()
    }


# --- output ----------------------------------------------------------------------------------


def topic_summary(topic: TopicMetadata | TopicDescription) -> dict[str, Any]:
    """Return a topic as in `topics list --json`."""
    topic_id: UUID | None = topic.topic_id
    return {
        "topic": topic.name,
        "topic_id": None if topic_id in {None, ZERO_UUID} else uuid_to_text(topic_id),
        "internal": topic.is_internal,
        "partition_count": len(topic.partitions),
        "replication_factor": max(
            (len(partition.replicas) for partition in topic.partitions.values()), default=0
        ),
    }


def topic_to_dict(
    topic: TopicMetadata | TopicDescription, config_values: dict[str, str | None] | None = None
) -> dict[str, Any]:
    """Return a topic as in `topics describe --json`."""
    result = {
        **topic_summary(topic),
        "partitions": [
            {
                "partition": each.partition,
                "leader": _known(each.leader_id),
                "leader_epoch": _known(each.leader_epoch),
                "replicas": list(each.replicas),
                "in_sync": list(each.isr),
                "offline": list(each.offline_replicas),
            }
            for each in topic.partitions.values()
        ],
    }
    return result if config_values is None else {**result, "configs": config_values}


def _known(number: int | None) -> int | None:
    return None if number is None or number < 0 else number


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
