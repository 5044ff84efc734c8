"""Operations on log directories (KIP-113)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, overload

from aiokafkawire.admin.items import finish_items, response_error
from aiokafkawire.admin.operations import Operations
from aiokafkawire.admin.response_values import unless_negative
from aiokafkawire.admin.types.log_dirs import (
    LogDirDescription,
    ReplicaInfo,
    ReplicaLogDirInfo,
    TopicPartitionReplica,
)
from aiokafkawire.errors import KafkaError, ProtocolError
from aiokafkawire.types import NodeId, TopicPartition, partitions_by_topic
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from aiokafkawire.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)

__all__ = ("LogDirOperations",)

LogDirs = dict[str, LogDirDescription]


class LogDirOperations(Operations):
    """Operations on log directories."""

    @overload
    async def describe_log_dirs(
        self,
        broker_ids: Iterable[NodeId] | None = None,
        *,
        timeout_ms: int | None = None,
        return_errors: Literal[False] = False,
    ) -> dict[NodeId, LogDirs]: ...

    @overload
    async def describe_log_dirs(
        self,
        broker_ids: Iterable[NodeId] | None = None,
        *,
        timeout_ms: int | None = None,
        return_errors: bool,
    ) -> dict[NodeId, LogDirs | KafkaError]: ...

    async def describe_log_dirs(
        self,
        broker_ids: Iterable[NodeId] | None = None,
        *,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> Mapping[NodeId, LogDirs | KafkaError]:
        """Describe the log directories of brokers: their replicas, sizes and free space.

        Args:
            broker_ids: The brokers; defaults to all.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            The directories by path, by broker.

        Raises:
            PartialFailure: Some brokers could not answer.
            UnsupportedVersion: Brokers before 1.0 do not describe directories.
            KafkaError: No broker could answer.
        """
        requester = self._requester(timeout_ms)
        request = DescribeLogDirsRequest(topics=None)
        if broker_ids is None:
            responses = await requester.request_all(request)
        else:
            responses = await requester.request_nodes(dict.fromkeys(broker_ids, request))
        results = {node_id: _read_dirs(node_id, each) for node_id, each in responses.items()}
        return finish_items(results, "brokers", return_errors=return_errors)

    @overload
    async def describe_replica_log_dirs(
        self,
        replicas: Iterable[TopicPartitionReplica],
        *,
        timeout_ms: int | None = None,
        return_errors: Literal[False] = False,
    ) -> dict[TopicPartitionReplica, ReplicaLogDirInfo]: ...

    @overload
    async def describe_replica_log_dirs(
        self,
        replicas: Iterable[TopicPartitionReplica],
        *,
        timeout_ms: int | None = None,
        return_errors: bool,
    ) -> dict[TopicPartitionReplica, ReplicaLogDirInfo | KafkaError]: ...

    async def describe_replica_log_dirs(
        self,
        replicas: Iterable[TopicPartitionReplica],
        *,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> Mapping[TopicPartitionReplica, ReplicaLogDirInfo | KafkaError]:
        """Describe the log directories of replicas.

        Args:
            replicas: The replicas.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            The directories of each replica; without a path if the broker does not have the replica.

        Raises:
            PartialFailure: Some brokers could not answer.
            UnsupportedVersion: Brokers before 1.0 do not describe directories.
            KafkaError: No broker could answer.
        """
        wanted = list(dict.fromkeys(TopicPartitionReplica(*replica) for replica in replicas))
        by_broker: dict[NodeId, list[TopicPartition]] = {}
        for topic, partition, broker_id in wanted:
            by_broker.setdefault(broker_id, []).append(TopicPartition(topic, partition))
        responses = await self._requester(timeout_ms).request_nodes(
            {
                node_id: DescribeLogDirsRequest(
                    topics=[
                        DescribableLogDirTopic(topic=name, partitions=[tp.partition for tp in some])
                        for name, some in partitions_by_topic(partitions).items()
                    ]
                )
                for node_id, partitions in by_broker.items()
            }
        )
        dirs = {node_id: _read_dirs(node_id, each) for node_id, each in responses.items()}
        results = {replica: _dirs_of(replica, dirs[replica.broker_id]) for replica in wanted}
        return finish_items(results, "replicas", return_errors=return_errors)

    async def alter_replica_log_dirs(
        self,
        assignments: Mapping[TopicPartitionReplica, str],
        *,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> dict[TopicPartitionReplica, KafkaError | None]:
        """Move replicas to other log directories of their brokers.

        Returns when the brokers have begun; `describe_replica_log_dirs` shows the progress. A
        broker that does not have a replica yet creates it in the directory, and returns
        REPLICA_NOT_AVAILABLE.

        Args:
            assignments: Absolute path of the directory by replica.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            None for each replica that is being moved.

        Raises:
            PartialFailure: Some replicas are not moved, such as to a directory that the broker
                does not have (LOG_DIR_NOT_FOUND).
            UnsupportedVersion: Brokers before 1.0 do not move replicas.
            KafkaError: No broker could answer.
        """
        wanted = {TopicPartitionReplica(*replica): path for replica, path in assignments.items()}
        by_broker: dict[NodeId, dict[str, list[TopicPartition]]] = {}
        for (topic, partition, broker_id), path in wanted.items():
            by_path = by_broker.setdefault(broker_id, {})
            by_path.setdefault(path, []).append(TopicPartition(topic, partition))
        responses = await self._requester(timeout_ms).request_nodes(
            {node_id: _move_request(by_path) for node_id, by_path in by_broker.items()}
        )
        codes = {node_id: _codes(response) for node_id, response in responses.items()}
        results = {replica: _moved(replica, codes[replica.broker_id]) for replica in wanted}
        return finish_items(results, "replicas", return_errors=return_errors)


def _read_dirs(
    node_id: NodeId, response: DescribeLogDirsResponse | KafkaError
) -> LogDirs | KafkaError:
    if isinstance(response, KafkaError):
        return response
    if not response.results:
        # Before v3, a principal without permission gets an empty response.
        error = response_error(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED, api="DescribeLogDirs", broker=str(node_id)
        )
        assert error is not None
        return error
    return {result.log_dir: _description(node_id, result) for result in response.results}


def _description(node_id: NodeId, result: DescribeLogDirsResult) -> LogDirDescription:
    return LogDirDescription(
        response_error(
            result.error_code, result.log_dir, api="DescribeLogDirs", broker=str(node_id)
        ),
        {
            TopicPartition(topic.name, part.partition_index): ReplicaInfo(
                part.partition_size, part.offset_lag, part.is_future_key
            )
            for topic in result.topics
            for part in topic.partitions
        },
        unless_negative(result.total_bytes),
        unless_negative(result.usable_bytes),
        result.is_cordoned,
    )


def _dirs_of(
    replica: TopicPartitionReplica, dirs: LogDirs | KafkaError
) -> ReplicaLogDirInfo | KafkaError:
    if isinstance(dirs, KafkaError):
        return dirs
    tp = TopicPartition(replica.topic, replica.partition)
    current: tuple[str | None, int | None] = (None, None)
    future: tuple[str | None, int | None] = (None, None)
    for path, description in dirs.items():
        info = description.replica_infos.get(tp)
        if info is None:
            continue
        if info.is_future:
            future = (path, info.offset_lag)
        else:
            current = (path, info.offset_lag)
    return ReplicaLogDirInfo(*current, *future)


def _move_request(by_path: Mapping[str, list[TopicPartition]]) -> AlterReplicaLogDirsRequest:
    return AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path,
                topics=[
                    AlterReplicaLogDirTopic(name=name, partitions=[tp.partition for tp in some])
                    for name, some in partitions_by_topic(partitions).items()
                ],
            )
            for path, partitions in by_path.items()
        ]
    )


Codes = dict[tuple[str, int], list[int]]
"""Error codes of a response by topic and partition; more than one if it is wrong."""


def _codes(response: AlterReplicaLogDirsResponse | KafkaError) -> Codes | KafkaError:
    if isinstance(response, KafkaError):
        return response
    codes: Codes = {}
    for topic in response.results:
        for part in topic.partitions:
            codes.setdefault((topic.topic_name, part.partition_index), []).append(part.error_code)
    return codes


def _moved(replica: TopicPartitionReplica, codes: Codes | KafkaError) -> KafkaError | None:
    if isinstance(codes, KafkaError):
        return codes
    context: dict[str, Any] = {
        "api": "AlterReplicaLogDirs",
        "broker": str(replica.broker_id),
        "topic": replica.topic,
        "partition": replica.partition,
    }
    found = codes.get(replica[:2], [])
    if len(found) != 1:
        return ProtocolError(
            f"the AlterReplicaLogDirs response has {len(found)} results for {replica}", **context
        )
    return response_error(found[0], **context)
