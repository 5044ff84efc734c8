"""Requests of admin clients whose responses, with their messages, are those of Kafka 4.3.0.

`python -m tests.brokers.record_admin` records the responses of a real broker with one node.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import anyio

from aiokafkawire.broker import Broker
from aiokafkawire.runtime import Address, RealRuntime
from aiokafkawire.wire import ZERO_UUID, ApiKey, Request, to_json
from aiokafkawire.wire.messages import (
    alter_configs,
    alter_replica_log_dirs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_configs,
    describe_topic_partitions,
    incremental_alter_configs,
    list_config_resources,
    metadata,
)
from tests.broker.raw_client import RawClient, batch, produce_request

__all__ = ("RECORDING", "admin_responses", "embedded_responses", "recorded_responses")

RECORDING = Path(__file__).parents[1] / "vectors" / "admin-4.3.0.json"

SETTLE_S = 0.3
"""Time in which a real broker learns of a change of its controller."""

LEFT_OUT = {"topicId", "throttleTimeMs"}

DIFFERENT_DEFAULTS = {
    *("retention.bytes", "segment.bytes"),
    *("consumer.assignment.interval.ms", "consumer.heartbeat.interval.ms"),
    "share.heartbeat.interval.ms",
    "share.assignment.interval.ms",
}
"""Configs that the embedded broker has smaller, or the real one in its configuration file."""

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)

Step = tuple[str, Request[Any], int]


def incremental(
    resource_type: int, name: str, *changes: tuple[str, int, str | None], validate: bool = False
) -> Step:
    """Return a step that alters configs; with `validate`, nothing changes."""
    resource = incremental_alter_configs.IncrementalAlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[
            incremental_alter_configs.IncrementalAlterableConfig(
                name=key, config_operation=operation, value=value
            )
            for key, operation, value in changes
        ],
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[resource], validate_only=validate
    )
    return f"alter {resource_type} {name!r} {list(changes)}", request, 1


def replaced(resource_type: int, name: str, *configs: tuple[str, str | None]) -> Step:
    """Return a step that replaces all configs."""
    resource = alter_configs.AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[alter_configs.AlterableConfig(name=key, value=value) for key, value in configs],
    )
    request = alter_configs.AlterConfigsRequest(resources=[resource], validate_only=False)
    return f"replace {resource_type} {name!r} {list(configs)}", request, 2


def described(resource_type: int, name: str, *keys: str) -> Step:
    """Return a step that describes configs with their synonyms."""
    resource = describe_configs.DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=list(keys) or None
    )
    request = describe_configs.DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    return f"describe {resource_type} {name!r} {list(keys)}", request, 4


def created(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    *,
    assignments: tuple[tuple[int, list[int]], ...] = (),
    configs: tuple[tuple[str, str | None], ...] = (),
    validate: bool = False,
) -> Step:
    """Return a step that creates a topic."""
    topic = create_topics.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            create_topics.CreatableReplicaAssignment(partition_index=index, broker_ids=nodes)
            for index, nodes in assignments
        ],
        configs=[
            create_topics.CreatableTopicConfig(name=key, value=value) for key, value in configs
        ],
    )
    request = create_topics.CreateTopicsRequest(topics=[topic], validate_only=validate)
    text = f"create {name:.20} {partitions} {replicas} {assignments} {configs}"
    return text, request, 7


def extended(name: str, count: int, assignments: list[list[int]] | None = None) -> Step:
    """Return a step that checks whether partitions can be added."""
    topic = create_partitions.CreatePartitionsTopic(
        name=name,
        count=count,
        assignments=None
        if assignments is None
        else [
            create_partitions.CreatePartitionsAssignment(broker_ids=each) for each in assignments
        ],
    )
    request = create_partitions.CreatePartitionsRequest(
        topics=[topic], timeout_ms=5_000, validate_only=True
    )
    return f"extend {name} {count} {assignments}", request, 3


def deleted(name: str | None, topic_id: UUID = ZERO_UUID) -> Step:
    """Return a step that deletes a topic."""
    topic = delete_topics.DeleteTopicState(name=name, topic_id=topic_id)
    request = delete_topics.DeleteTopicsRequest(topics=[topic], timeout_ms=5_000)
    return f"delete {name} {topic_id}", request, 6


def truncated(name: str, partition: int, offset: int) -> Step:
    """Return a step that deletes records."""
    topic = delete_records.DeleteRecordsTopic(
        name=name,
        partitions=[
            delete_records.DeleteRecordsPartition(partition_index=partition, offset=offset)
        ],
    )
    request = delete_records.DeleteRecordsRequest(topics=[topic], timeout_ms=5_000)
    return f"delete records {name} {partition} {offset}", request, 2


def pages(*names: str, limit: int = 2_000, cursor: tuple[str, int] | None = None) -> Step:
    """Return a step that describes partitions."""
    request = describe_topic_partitions.DescribeTopicPartitionsRequest(
        topics=[
            describe_topic_partitions.DescribeTopicPartitionsTopicRequest(name=name)
            for name in names
        ],
        response_partition_limit=limit,
        cursor=cursor
        and describe_topic_partitions.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    return f"partitions {names} {limit} {cursor}", request, 0


def moved(path: str) -> Step:
    """Return a step that moves replicas to a log directory."""
    topics = [
        alter_replica_log_dirs.AlterReplicaLogDirTopic(name="two", partitions=[0]),
        alter_replica_log_dirs.AlterReplicaLogDirTopic(name="missing", partitions=[0]),
    ]
    directory = alter_replica_log_dirs.AlterReplicaLogDir(path=path, topics=topics)
    request = alter_replica_log_dirs.AlterReplicaLogDirsRequest(dirs=[directory])
    return f"move to {path!r}", request, 2


def listed(*types: int) -> Step:
    """Return a step that lists resources with configs."""
    request = list_config_resources.ListConfigResourcesRequest(resource_types=list(types))
    return f"list {types}", request, 1


INVALID_TOPIC_CONFIGS: tuple[tuple[str, int, str | None], ...] = (
    ("retention.ms", SET, "abc"),
    ("retention.ms", SET, "-2"),
    ("retention.ms", SET, None),
    ("retention.ms", SET, "9999999999999999999"),
    ("retention.ms", APPEND, "5"),
    ("retention.ms", SUBTRACT, "5"),
    ("retention.ms", 9, "5"),
    ("nonsense", SET, "1"),
    ("", SET, "1"),
    ("cleanup.policy", SET, "never"),
    ("max.message.bytes", SET, "-1"),
    ("max.message.bytes", SET, "9999999999"),
    ("min.insync.replicas", SET, "0"),
    ("preallocate", SET, "1"),
    ("min.cleanable.dirty.ratio", SET, "2"),
    ("min.cleanable.dirty.ratio", SET, "x"),
    ("message.timestamp.type", SET, "Never"),
    ("compression.type", SET, "foo"),
    ("segment.bytes", SET, "1"),
    ("segment.ms", SET, "0"),
    ("compression.zstd.level", SET, "99"),
    ("compression.lz4.level", SET, "99"),
    ("compression.gzip.level", SET, "99"),
    ("remote.storage.enable", SET, "true"),
    ("leader.replication.throttled.replicas", SET, "bad"),
    ("unclean.leader.election.enable", SET, "maybe"),
    ("max.compaction.lag.ms", SET, "0"),
    ("flush.messages", SET, "0"),
    ("index.interval.bytes", SET, "-1"),
    ("segment.index.bytes", SET, "1"),
    ("file.delete.delay.ms", SET, "-1"),
    ("message.timestamp.before.max.ms", SET, "-1"),
)

TOPIC_STEPS = (
    created("two", 2, configs=(("retention.ms", "60000"),)),
    created("two", 2),
    created("a.b"),
    created("a_b"),
    created("bad name"),
    created(""),
    created("."),
    created("x" * 250),
    created("none", 0),
    created("less", -2),
    created("zero", 1, 0),
    created("five", 1, 5),
    created("minus", 1, -2),
    created("counted", 2, 1, assignments=((0, [1]),)),
    created("numbered", 2, -1, assignments=((0, [1]),)),
    created("gap", -1, -1, assignments=((0, [1]), (2, [1]))),
    created("twice", -1, -1, assignments=((0, [1, 1]),)),
    created("unknown", -1, -1, assignments=((0, [7]),)),
    created("empty", -1, -1, assignments=((0, []),)),
    created("repeated", -1, -1, assignments=((0, [1]), (0, [1]))),
    created("late", -1, -1, assignments=((1, [1]),)),
    created("assigned", -1, -1, assignments=((0, [1]), (1, [1]))),
    created("wrong", configs=(("nonsense", "1"),)),
    created("worse", configs=(("retention.ms", "x"),)),
    created("null", configs=(("retention.ms", None),)),
    created("checked", 3, configs=(("retention.ms", "5"),), validate=True),
    created("many", 10_001),
    created("compacted", configs=(("cleanup.policy", "compact"),)),
    *(
        extended("two", count, assignments)
        for count, assignments in (
            (1, None),
            (2, None),
            (0, None),
            (-1, None),
            (3, []),
            (3, [[1], [1]]),
            (3, [[7]]),
            (3, [[1, 1]]),
            (3, [[]]),
            (3, [[1]]),
            (3, None),
        )
    ),
    extended("missing", 3),
    deleted("missing"),
    deleted(None),
    deleted(None, UUID(int=77)),
    deleted("two", UUID(int=77)),
    deleted("bad name"),
)

RECORD_STEPS = (
    truncated("two", 0, 2),
    truncated("two", 0, 1),
    truncated("two", 0, 99),
    truncated("two", 0, -2),
    truncated("two", 0, -1),
    truncated("two", 1, -1),
    truncated("two", 99, 0),
    truncated("missing", 0, 0),
    truncated("compacted", 0, 0),
    moved("/other"),
    moved("relative"),
    pages("two", "assigned", "missing", "bad name"),
    pages("two", "assigned", limit=1),
    pages("two", "assigned", limit=2),
    pages("two", "assigned", limit=2, cursor=("assigned", 1)),
    pages("two", "assigned", cursor=("b", 0)),
    pages("two", cursor=("two", -1)),
    pages("two", cursor=("two", 99)),
    pages("two", limit=0),
    pages(limit=3),
)

CONFIG_STEPS = (
    described(TOPIC, "two"),
    *(incremental(TOPIC, "two", change) for change in INVALID_TOPIC_CONFIGS),
    incremental(TOPIC, "two", ("nonsense", DELETE, None)),
    incremental(TOPIC, "two", ("retention.ms", SET, "1"), ("retention.ms", SET, "2")),
    incremental(TOPIC, "two", ("retention.ms", SET, "1"), ("retention.bytes", SET, "x")),
    incremental(
        TOPIC,
        "two",
        ("min.compaction.lag.ms", SET, "100"),
        ("max.compaction.lag.ms", SET, "50"),
    ),
    incremental(TOPIC, "missing", ("retention.ms", SET, "1")),
    incremental(TOPIC, "", ("retention.ms", SET, "1")),
    incremental(TOPIC, "bad name", ("retention.ms", SET, "1")),
    incremental(99, "two", ("retention.ms", SET, "1")),
    incremental(
        TOPIC,
        "two",
        ("cleanup.policy", APPEND, "compact"),
        ("retention.ms", SET, " 70000 "),
        ("preallocate", SET, "TRUE"),
    ),
    described(TOPIC, "two", "cleanup.policy", "retention.ms", "preallocate"),
    incremental(TOPIC, "two", ("cleanup.policy", SUBTRACT, "delete,compact")),
    described(TOPIC, "two", "cleanup.policy", "retention.ms", "preallocate"),
    replaced(TOPIC, "two", ("retention.ms", None)),
    replaced(TOPIC, "two", ("nonsense", "1")),
    replaced(TOPIC, "two", ("retention.ms", "1"), ("retention.ms", "2")),
    replaced(TOPIC, "missing", ("retention.ms", "1")),
    replaced(TOPIC, "two", ("flush.ms", "7")),
    described(TOPIC, "two", "cleanup.policy", "retention.ms", "flush.ms"),
    replaced(LOGGER, "1", ("root", "INFO")),
    described(TOPIC, "missing"),
    described(TOPIC, "bad name"),
    described(99, "two"),
)

INVALID_BROKER_CONFIGS = (
    ("log.retention.ms", "abc"),
    ("log.dirs", "/other"),
    ("num.partitions", "3"),
    ("message.max.bytes", "-1"),
    ("node.id", "5"),
    ("min.insync.replicas", "0"),
    ("group.max.size", "5"),
    ("ssl.keystore.location", "/x"),
    ("leader.replication.throttled.rate", "-1"),
)

BROKER_STEPS = (
    *(
        incremental(BROKER, name, (key, SET, value))
        for key, value in INVALID_BROKER_CONFIGS
        for name in ("", "1")
    ),
    incremental(BROKER, "7", ("log.retention.ms", SET, "70000")),
    incremental(BROKER, "one", ("log.retention.ms", SET, "70000")),
    incremental(BROKER, "1", ("min.insync.replicas", SET, "1")),
    incremental(BROKER, "", ("min.insync.replicas", DELETE, None)),
    replaced(BROKER, "", ("log.retention.ms", "70000")),
    incremental(BROKER, "", ("message.max.bytes", SET, "2000000"), ("plugin.x", SET, "y")),
    incremental(BROKER, "1", ("message.max.bytes", SET, "3000000")),
    described(BROKER, ""),
    described(BROKER, "1", "message.max.bytes", "plugin.x", "log.retention.ms"),
    described(TOPIC, "two", "max.message.bytes", "flush.messages"),
    incremental(BROKER, "", ("plugin.x", DELETE, None), ("message.max.bytes", DELETE, None)),
    replaced(BROKER, "1"),
    described(BROKER, "7"),
    described(BROKER, "one"),
    incremental(LOGGER, "1", ("no.such.logger", SET, "INFO")),
    described(LOGGER, ""),
    described(LOGGER, "7"),
)

GROUP_STEPS = (
    *(
        incremental(GROUP, "g", (key, SET, value))
        for key, value in (
            ("consumer.session.timeout.ms", "1"),
            ("consumer.session.timeout.ms", "x"),
            ("consumer.heartbeat.interval.ms", "1"),
            ("share.auto.offset.reset", "never"),
            ("share.isolation.level", "x"),
            ("share.delivery.count.limit", "1"),
            ("share.record.lock.duration.ms", "1"),
            ("streams.num.standby.replicas", "100"),
            ("nonsense", "1"),
        )
    ),
    incremental(GROUP, "g", ("consumer.session.timeout.ms", APPEND, "1")),
    incremental(GROUP, "", ("consumer.session.timeout.ms", SET, "50000")),
    incremental(GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")),
    incremental(GROUP, "g", ("share.auto.offset.reset", SET, "by_duration:PT1H")),
    described(GROUP, "g"),
    described(GROUP, ""),
    *(
        incremental(METRICS, "m", (key, operation, value))
        for key, operation, value in (
            ("interval.ms", SET, "1"),
            ("interval.ms", SET, "x"),
            ("match", SET, "foo=bar"),
            ("match", SET, "client_id=["),
            ("metrics", APPEND, "a.b"),
            ("nonsense", SET, "x"),
            ("interval.ms", SET, "1000"),
            ("metrics", SET, "org.apache"),
            ("match", SET, "client_id=.*"),
        )
    ),
    incremental(METRICS, "", ("interval.ms", SET, "1000")),
    described(METRICS, "m"),
    described(METRICS, "other"),
    described(METRICS, ""),
    listed(GROUP, METRICS, BROKER),
    listed(99),
)


async def admin_responses(address: Address, settle_s: float = SETTLE_S) -> dict[str, Any]:
    """Send all steps to a new cluster of one node; return the comparable responses.

    After a change, wait for `settle_s` seconds.
    """
    transport = await RealRuntime().connect(address)
    client, found = RawClient(transport), {}
    try:
        for steps in (TOPIC_STEPS, RECORD_STEPS, CONFIG_STEPS, BROKER_STEPS, GROUP_STEPS):
            for text, request, version in steps:
                response = await client.call(request, version)
                found[f"{len(found)}: {text}"] = comparable(to_json(response, version))
                if changes(request, response):
                    await anyio.sleep(settle_s)
            if steps is TOPIC_STEPS:
                await write(client)
    finally:
        await transport.aclose()
    return found


def changes(request: Request[Any], response: Any) -> bool:
    """Return True if a real broker may need time to apply the request."""
    if ApiKey(request.api_key) is ApiKey.CREATE_TOPICS:
        return not response.topics[0].error_code
    altering = {ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS}
    return ApiKey(request.api_key) in altering and not response.responses[0].error_code


async def write(client: RawClient) -> None:
    """Write five records, once the topic is there."""
    named = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="two")])
    while True:
        response = await client.call(named, 12)
        if not response.topics[0].error_code:
            break
        await anyio.sleep(SETTLE_S)
    for _ in range(5):
        await client.call(produce_request("two", 0, batch(b"v")), 9)


def comparable(value: Any) -> Any:
    """Return a response without what differs between clusters, its configs sorted."""
    if isinstance(value, dict):
        shown = {name: comparable(each) for name, each in value.items() if name not in LEFT_OUT}
        if isinstance(shown.get("configs"), list):
            shown["configs"] = sorted(
                (each for each in shown["configs"] if each["name"] not in DIFFERENT_DEFAULTS),
                key=lambda each: str(each["name"]),
            )
        if isinstance(shown.get("synonyms"), list):
            # The real broker has some in its configuration file.
            shown["synonyms"] = [each for each in shown["synonyms"] if each["source"] != 4]
        return shown
    return [comparable(each) for each in value] if isinstance(value, list) else value


async def embedded_responses() -> dict[str, Any]:
    """Return the responses of the embedded broker."""
    async with Broker(default_partitions=2, as_of="4.3") as broker:
        return await admin_responses(broker.nodes[1], 0.0)


def recorded_responses() -> Mapping[str, Any]:
    """Return the recorded responses of Kafka 4.3.0."""
    found: Mapping[str, Any] = json.loads(RECORDING.read_text("utf-8"))
    return found
