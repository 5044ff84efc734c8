"""A valid request of each API of configs, records, log directories and topic partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from aiokafkawire.wire import ApiKey, ErrorCode, Request
from aiokafkawire.wire.messages import (
    alter_configs,
    alter_replica_log_dirs,
    delete_records,
    describe_log_dirs,
    describe_topic_partitions,
    incremental_alter_configs,
    list_config_resources,
)

__all__ = ("TOPIC_REQUESTS",)

TOPIC = 2


def replaced_configs(version: int, topic_id: UUID) -> Request[Any]:
    config = alter_configs.AlterableConfig(name="flush.ms", value="1")
    resource = alter_configs.AlterConfigsResource(
        resource_type=TOPIC, resource_name="t", configs=[config]
    )
    return alter_configs.AlterConfigsRequest(resources=[resource], validate_only=False)


def altered_configs(version: int, topic_id: UUID) -> Request[Any]:
    config = incremental_alter_configs.IncrementalAlterableConfig(
        name="flush.ms", config_operation=0, value="1"
    )
    resource = incremental_alter_configs.IncrementalAlterConfigsResource(
        resource_type=TOPIC, resource_name="t", configs=[config]
    )
    return incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[resource], validate_only=False
    )


def deleted_records(version: int, topic_id: UUID) -> Request[Any]:
    partition = delete_records.DeleteRecordsPartition(partition_index=0, offset=-1)
    topic = delete_records.DeleteRecordsTopic(name="t", partitions=[partition])
    return delete_records.DeleteRecordsRequest(topics=[topic], timeout_ms=1_000)


def described_log_dirs(version: int, topic_id: UUID) -> Request[Any]:
    topic = describe_log_dirs.DescribableLogDirTopic(topic="t", partitions=[0])
    return describe_log_dirs.DescribeLogDirsRequest(topics=[topic])


def altered_log_dirs(version: int, topic_id: UUID) -> Request[Any]:
    topic = alter_replica_log_dirs.AlterReplicaLogDirTopic(name="t", partitions=[0])
    directory = alter_replica_log_dirs.AlterReplicaLogDir(path="/memory", topics=[topic])
    return alter_replica_log_dirs.AlterReplicaLogDirsRequest(dirs=[directory])


def described_partitions(version: int, topic_id: UUID) -> Request[Any]:
    topic = describe_topic_partitions.DescribeTopicPartitionsTopicRequest(name="t")
    return describe_topic_partitions.DescribeTopicPartitionsRequest(topics=[topic])


TOPIC_REQUESTS: dict[ApiKey, tuple[Callable[[int, UUID], Request[Any]], set[ErrorCode]]] = {
    ApiKey.ALTER_CONFIGS: (replaced_configs, {ErrorCode.NONE}),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (altered_configs, {ErrorCode.NONE}),
    ApiKey.DELETE_RECORDS: (deleted_records, {ErrorCode.NONE}),
    ApiKey.DESCRIBE_LOG_DIRS: (described_log_dirs, {ErrorCode.NONE}),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (altered_log_dirs, {ErrorCode.NONE}),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (described_partitions, {ErrorCode.NONE}),
    ApiKey.LIST_CONFIG_RESOURCES: (
        lambda v, i: list_config_resources.ListConfigResourcesRequest(
            resource_types=[TOPIC] if v else []
        ),
        {ErrorCode.NONE},
    ),
}
