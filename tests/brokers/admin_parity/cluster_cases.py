"""Operations on configs, the cluster and log directories."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from aiokafkawire.admin import (
    AlterConfigOp,
    AlterConfigOpType,
    ConfigResource,
    ConfigResourceType,
    FeatureUpdate,
    RaftVoterEndpoint,
    TopicPartitionReplica,
)
from tests.brokers.admin_parity.case import Case, World
from tests.brokers.admin_parity.comparable import Struct, Unordered, comparable
from tests.brokers.admin_parity.java_admin import JavaAdmin

__all__ = ("CASES",)

DIRECTORY_ID = UUID(int=(1 << 64) + 7)
OFFSETS_AND_TIMES = frozenset(
    {
        *("high_watermark", "log_end_offset"),
        *("last_fetch_timestamp", "last_caught_up_timestamp"),
        *("last_fetch_timestamp_ms", "last_caught_up_timestamp_ms"),
    }
)
NO_DIRECTORY = "A" * 22


async def a_topic(world: World, name: str) -> None:
    await world.topic(name, records=3)


async def client_metrics(world: World, name: str) -> None:
    resource = ConfigResource(ConfigResourceType.CLIENT_METRICS, name)
    await world.admin.incremental_alter_configs({resource: {"interval.ms": "60000"}})
    await world.settle()


def java_resource(java: JavaAdmin, kind: str, name: str) -> Any:
    types = java.gateway.jvm.org.apache.kafka.common.config.ConfigResource
    return types(getattr(types.Type, kind), name)


def our_topic(name: str) -> ConfigResource:
    return ConfigResource(ConfigResourceType.TOPIC, name)


def our_broker() -> ConfigResource:
    return ConfigResource(ConfigResourceType.BROKER, "1")


def java_op(java: JavaAdmin, name: str, value: str | None, op_type: str) -> Any:
    types = java.type("AlterConfigOp")
    return types(java.type("ConfigEntry")(name, value), getattr(types.OpType, op_type))


def java_alter(java: JavaAdmin, name: str) -> Any:
    ops = [
        java_op(java, "retention.ms", "60000", "SET"),
        java_op(java, "cleanup.policy", "compact", "APPEND"),
    ]
    return java.admin.incrementalAlterConfigs(
        {
            java_resource(java, "TOPIC", name): ops,
            java_resource(java, "TOPIC", f"{name}-missing"): ops,
        }
    ).values()


def our_alter(name: str) -> dict[ConfigResource, list[AlterConfigOp]]:
    ops = [
        AlterConfigOp("retention.ms", "60000"),
        AlterConfigOp("cleanup.policy", "compact", AlterConfigOpType.APPEND),
    ]
    return {our_topic(name): ops, our_topic(f"{name}-missing"): ops}


def java_wrong_alter(java: JavaAdmin, name: str) -> Any:
    return java.admin.incrementalAlterConfigs(
        {java_resource(java, "TOPIC", name): [java_op(java, "retention.ms", "soon", "SET")]}
    ).values()


def java_cluster(java: JavaAdmin, name: str) -> Struct:
    options = java.type("DescribeClusterOptions")().includeAuthorizedOperations(True)
    result = java.admin.describeCluster(options)
    return Struct(
        cluster_id=java.call(result.clusterId()),
        authorized_operations=java.call(result.authorizedOperations()),
        nodes=[
            Struct(
                node_id=node.id(),
                host=node.host(),
                port=node.port(),
                rack=node.rack(),
                is_fenced=node.isFenced(),
            )
            for node in result.nodes().get().toArray()
        ],
    )


def directories(quorum: Struct) -> Struct:
    """Use None for a replica without a directory id."""
    for replica in (*quorum["voters"], *quorum["observers"]):
        if replica["replica_directory_id"] == NO_DIRECTORY:
            replica["replica_directory_id"] = None
    return quorum


def java_feature(java: JavaAdmin, level: int) -> Any:
    types = java.type("FeatureUpdate")
    return types(level, types.UpgradeType.UPGRADE)


def java_update(java: JavaAdmin, features: dict[str, int]) -> Any:
    options = java.type("UpdateFeaturesOptions")().validateOnly(True)
    updates = {feature: java_feature(java, level) for feature, level in features.items()}
    return java.admin.updateFeatures(updates, options).values()


def java_voter(java: JavaAdmin, name: str) -> Any:
    directory = java.type("common.Uuid")(1, 7)
    endpoint = java.type("RaftVoterEndpoint")("CONTROLLER", "127.0.0.1", 1)
    return java.admin.addRaftVoter(7, directory, {endpoint}).all()


def java_former_voter(java: JavaAdmin, name: str) -> Any:
    return java.admin.removeRaftVoter(7, java.type("common.Uuid")(1, 7)).all()


def of_cases(log_dirs: Any) -> Any:
    """Leave out partitions whose size changes meanwhile."""
    for directories_of_node in log_dirs.values():
        for directory in directories_of_node.values():
            infos = directory["replica_infos"]
            directory["replica_infos"] = {
                tp: info for tp, info in infos.items() if tp.startswith("case")
            }
    return log_dirs


def java_replica(java: JavaAdmin, name: str, broker: int = 1) -> Any:
    return java.type("common.TopicPartitionReplica")(name, 0, broker)


def our_replica(name: str, broker: int = 1) -> TopicPartitionReplica:
    return TopicPartitionReplica(name, 0, broker)


def without_minus_one(found: dict[str, Any]) -> dict[str, Any]:
    for info in found.values():
        for field, value in info.items():
            info[field] = None if value == -1 else value
    return found


CASES = (
    Case(
        "describe_configs",
        lambda java, name: java.admin.describeConfigs(
            [java_resource(java, "TOPIC", name), java_resource(java, "TOPIC", f"{name}-missing")],
            java.type("DescribeConfigsOptions")().includeSynonyms(True).includeDocumentation(True),
        ).values(),
        lambda world, name: world.admin.describe_configs(
            [our_topic(name), our_topic(f"{name}-missing")],
            include_synonyms=True,
            include_documentation=True,
            return_errors=True,
        ),
        a_topic,
        shared=True,
    ),
    Case(
        "describe_configs",
        lambda java, name: java.admin.describeConfigs(
            [java_resource(java, "BROKER", "1")]
        ).values(),
        lambda world, name: world.admin.describe_configs([our_broker()]),
        title="of a broker",
    ),
    Case(
        "incremental_alter_configs",
        java_alter,
        lambda world, name: world.admin.incremental_alter_configs(
            our_alter(name), return_errors=True
        ),
        a_topic,
    ),
    Case(
        "incremental_alter_configs",
        java_wrong_alter,
        lambda world, name: world.admin.incremental_alter_configs(
            {our_topic(name): {"retention.ms": "soon"}}, return_errors=True
        ),
        a_topic,
        title="invalid",
    ),
    Case(
        "list_config_resources",
        lambda java, name: java.admin.listConfigResources(
            {java.gateway.jvm.org.apache.kafka.common.config.ConfigResource.Type.CLIENT_METRICS},
            java.type("ListConfigResourcesOptions")(),
        ).all(),
        lambda world, name: world.admin.list_config_resources([ConfigResourceType.CLIENT_METRICS]),
        client_metrics,
        shared=True,
        adapt=Unordered,
    ),
    Case(
        "list_config_resources",
        lambda java, name: java.admin.listConfigResources().all(),
        lambda world, name: world.admin.list_config_resources(),
        client_metrics,
        shared=True,
        adapt=Unordered,
        title="of all types",
    ),
    Case(
        "list_client_metrics_resources",
        lambda java, name: java.admin.listClientMetricsResources().all(),
        lambda world, name: world.admin.list_client_metrics_resources(),
        client_metrics,
        shared=True,
        adapt=Unordered,
    ),
    Case(
        "describe_cluster",
        java_cluster,
        lambda world, name: world.admin.describe_cluster(include_authorized_operations=True),
    ),
    Case(
        "describe_features",
        lambda java, name: java.admin.describeFeatures().featureMetadata(),
        lambda world, name: world.admin.describe_features(),
        # The offset of the last metadata record.
        ignored=frozenset({"finalized_features_epoch"}),
    ),
    Case(
        "update_features",
        lambda java, name: java_update(java, {"group.version": 1}),
        lambda world, name: world.admin.update_features(
            {"group.version": FeatureUpdate(1)}, validate_only=True, return_errors=True
        ),
    ),
    Case(
        "update_features",
        lambda java, name: java_update(java, {"group.version": 9}),
        lambda world, name: world.admin.update_features(
            {"group.version": FeatureUpdate(9)}, validate_only=True, return_errors=True
        ),
        title="to an unknown level",
    ),
    Case(
        "describe_metadata_quorum",
        lambda java, name: java.admin.describeMetadataQuorum().quorumInfo(),
        lambda world, name: world.admin.describe_metadata_quorum(),
        ignored=OFFSETS_AND_TIMES,
        adapt=directories,
    ),
    Case(
        "add_raft_voter",
        java_voter,
        lambda world, name: world.admin.add_raft_voter(
            7, DIRECTORY_ID, [RaftVoterEndpoint("CONTROLLER", "127.0.0.1", 1)]
        ),
    ),
    Case(
        "remove_raft_voter",
        java_former_voter,
        lambda world, name: world.admin.remove_raft_voter(7, DIRECTORY_ID),
    ),
    Case(
        "unregister_broker",
        lambda java, name: java.admin.unregisterBroker(99).all(),
        lambda world, name: world.admin.unregister_broker(99),
    ),
    Case(
        "unregister_controller",
        None,
        lambda world, name: world.admin.unregister_controller(99),
        needs="4.4",
    ),
    Case(
        "describe_log_dirs",
        lambda java, name: java.admin.describeLogDirs([1, 2, 3]).allDescriptions(),
        lambda world, name: world.admin.describe_log_dirs([1, 2, 3]),
        a_topic,
        shared=True,
        ignored=frozenset({"usable_bytes"}),
        adapt=of_cases,
        adapt_ours=lambda found: of_cases(comparable(found)),
    ),
    Case(
        "describe_replica_log_dirs",
        lambda java, name: java.admin.describeReplicaLogDirs([java_replica(java, name)]).all(),
        lambda world, name: world.admin.describe_replica_log_dirs([our_replica(name)]),
        a_topic,
        shared=True,
        adapt=without_minus_one,
    ),
    Case(
        "alter_replica_log_dirs",
        lambda java, name: java.admin.alterReplicaLogDirs(
            {java_replica(java, name): "/missing"}
        ).values(),
        lambda world, name: world.admin.alter_replica_log_dirs(
            {our_replica(name): "/missing"}, return_errors=True
        ),
        a_topic,
    ),
)
