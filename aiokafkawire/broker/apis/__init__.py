"""The APIs that the broker serves, one module each."""

from collections.abc import Mapping
from types import MappingProxyType

from aiokafkawire.broker.apis import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    add_raft_voter,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_share_group_offsets,
    alter_user_scram_credentials,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    controlled_shutdown,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_share_group_offsets,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_delegation_token,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_share_group_offsets,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    expire_delegation_token,
    fetch,
    find_coordinator,
    get_telemetry_subscriptions,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leader_and_isr,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    push_telemetry,
    remove_raft_voter,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    stop_replica,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    unregister_controller,
    update_features,
    update_metadata,
    write_txn_markers,
)
from aiokafkawire.broker.apis.handler import Handler
from aiokafkawire.wire import ApiKey

__all__ = ("CONTROLLER_HANDLERS", "HANDLERS", "Handler")

HANDLERS: Mapping[ApiKey, Handler] = MappingProxyType(
    {
        ApiKey.PRODUCE: Handler(produce.handle, produce.error_response),
        ApiKey.FETCH: Handler(fetch.handle, fetch.error_response),
        ApiKey.LIST_OFFSETS: Handler(list_offsets.handle, list_offsets.error_response),
        ApiKey.METADATA: Handler(metadata.handle, metadata.error_response),
        ApiKey.OFFSET_COMMIT: Handler(offset_commit.handle, offset_commit.error_response),
        ApiKey.OFFSET_FETCH: Handler(offset_fetch.handle, offset_fetch.error_response),
        ApiKey.FIND_COORDINATOR: Handler(find_coordinator.handle, find_coordinator.error_response),
        ApiKey.JOIN_GROUP: Handler(join_group.handle, join_group.error_response),
        ApiKey.HEARTBEAT: Handler(heartbeat.handle, heartbeat.error_response),
        ApiKey.LEAVE_GROUP: Handler(leave_group.handle, leave_group.error_response),
        ApiKey.SYNC_GROUP: Handler(sync_group.handle, sync_group.error_response),
        ApiKey.DESCRIBE_GROUPS: Handler(describe_groups.handle, describe_groups.error_response),
        ApiKey.LIST_GROUPS: Handler(list_groups.handle, list_groups.error_response),
        ApiKey.SASL_HANDSHAKE: Handler(sasl_handshake.handle, sasl_handshake.error_response),
        ApiKey.API_VERSIONS: Handler(api_versions.handle, api_versions.error_response),
        ApiKey.CREATE_TOPICS: Handler(create_topics.handle, create_topics.error_response),
        ApiKey.DELETE_TOPICS: Handler(delete_topics.handle, delete_topics.error_response),
        ApiKey.INIT_PRODUCER_ID: Handler(init_producer_id.handle, init_producer_id.error_response),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: Handler(
            offset_for_leader_epoch.handle, offset_for_leader_epoch.error_response
        ),
        ApiKey.DESCRIBE_CONFIGS: Handler(describe_configs.handle, describe_configs.error_response),
        ApiKey.DELETE_RECORDS: Handler(delete_records.handle, delete_records.error_response),
        ApiKey.DESCRIBE_LOG_DIRS: Handler(
            describe_log_dirs.handle, describe_log_dirs.error_response
        ),
        ApiKey.ALTER_REPLICA_LOG_DIRS: Handler(
            alter_replica_log_dirs.handle, alter_replica_log_dirs.error_response
        ),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: Handler(
            describe_topic_partitions.handle, describe_topic_partitions.error_response
        ),
        ApiKey.ALTER_CONFIGS: Handler(alter_configs.handle, alter_configs.error_response),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: Handler(
            incremental_alter_configs.handle, incremental_alter_configs.error_response
        ),
        ApiKey.LIST_CONFIG_RESOURCES: Handler(
            list_config_resources.handle, list_config_resources.error_response
        ),
        ApiKey.SASL_AUTHENTICATE: Handler(
            sasl_authenticate.handle, sasl_authenticate.error_response
        ),
        ApiKey.CREATE_PARTITIONS: Handler(
            create_partitions.handle, create_partitions.error_response
        ),
        ApiKey.DELETE_GROUPS: Handler(delete_groups.handle, delete_groups.error_response),
        ApiKey.OFFSET_DELETE: Handler(offset_delete.handle, offset_delete.error_response),
        ApiKey.DESCRIBE_CLUSTER: Handler(describe_cluster.handle, describe_cluster.error_response),
        ApiKey.ADD_OFFSETS_TO_TXN: Handler(
            add_offsets_to_txn.handle, add_offsets_to_txn.error_response
        ),
        ApiKey.ADD_PARTITIONS_TO_TXN: Handler(
            add_partitions_to_txn.handle, add_partitions_to_txn.error_response
        ),
        ApiKey.END_TXN: Handler(end_txn.handle, end_txn.error_response),
        ApiKey.TXN_OFFSET_COMMIT: Handler(
            txn_offset_commit.handle, txn_offset_commit.error_response
        ),
        ApiKey.DESCRIBE_PRODUCERS: Handler(
            describe_producers.handle, describe_producers.error_response
        ),
        ApiKey.DESCRIBE_TRANSACTIONS: Handler(
            describe_transactions.handle, describe_transactions.error_response
        ),
        ApiKey.LIST_TRANSACTIONS: Handler(
            list_transactions.handle, list_transactions.error_response
        ),
        ApiKey.DESCRIBE_ACLS: Handler(describe_acls.handle, describe_acls.error_response),
        ApiKey.CREATE_ACLS: Handler(create_acls.handle, create_acls.error_response),
        ApiKey.DELETE_ACLS: Handler(delete_acls.handle, delete_acls.error_response),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Handler(
            describe_user_scram_credentials.handle, describe_user_scram_credentials.error_response
        ),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Handler(
            alter_user_scram_credentials.handle, alter_user_scram_credentials.error_response
        ),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: Handler(
            alter_partition_reassignments.handle, alter_partition_reassignments.error_response
        ),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: Handler(
            list_partition_reassignments.handle, list_partition_reassignments.error_response
        ),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: Handler(
            consumer_group_heartbeat.handle, consumer_group_heartbeat.error_response
        ),
        ApiKey.CONSUMER_GROUP_DESCRIBE: Handler(
            consumer_group_describe.handle, consumer_group_describe.error_response
        ),
        ApiKey.SHARE_GROUP_HEARTBEAT: Handler(
            share_group_heartbeat.handle, share_group_heartbeat.error_response
        ),
        ApiKey.SHARE_GROUP_DESCRIBE: Handler(
            share_group_describe.handle, share_group_describe.error_response
        ),
        ApiKey.SHARE_FETCH: Handler(share_fetch.handle, share_fetch.error_response),
        ApiKey.SHARE_ACKNOWLEDGE: Handler(
            share_acknowledge.handle, share_acknowledge.error_response
        ),
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Handler(
            describe_share_group_offsets.handle, describe_share_group_offsets.error_response
        ),
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: Handler(
            alter_share_group_offsets.handle, alter_share_group_offsets.error_response
        ),
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: Handler(
            delete_share_group_offsets.handle, delete_share_group_offsets.error_response
        ),
        ApiKey.ELECT_LEADERS: Handler(elect_leaders.handle, elect_leaders.error_response),
        ApiKey.ALTER_CLIENT_QUOTAS: Handler(
            alter_client_quotas.handle, alter_client_quotas.error_response
        ),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: Handler(
            describe_client_quotas.handle, describe_client_quotas.error_response
        ),
        ApiKey.UPDATE_FEATURES: Handler(update_features.handle, update_features.error_response),
        ApiKey.DESCRIBE_QUORUM: Handler(describe_quorum.handle, describe_quorum.error_response),
        ApiKey.ADD_RAFT_VOTER: Handler(add_raft_voter.handle, add_raft_voter.error_response),
        ApiKey.REMOVE_RAFT_VOTER: Handler(
            remove_raft_voter.handle, remove_raft_voter.error_response
        ),
        ApiKey.UNREGISTER_BROKER: Handler(
            unregister_broker.handle, unregister_broker.error_response
        ),
        ApiKey.UNREGISTER_CONTROLLER: Handler(
            unregister_controller.handle, unregister_controller.error_response
        ),
        ApiKey.WRITE_TXN_MARKERS: Handler(
            write_txn_markers.handle, write_txn_markers.error_response
        ),
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: Handler(
            get_telemetry_subscriptions.handle, get_telemetry_subscriptions.error_response
        ),
        ApiKey.PUSH_TELEMETRY: Handler(push_telemetry.handle, push_telemetry.error_response),
        ApiKey.CREATE_DELEGATION_TOKEN: Handler(
            create_delegation_token.handle, create_delegation_token.error_response
        ),
        ApiKey.RENEW_DELEGATION_TOKEN: Handler(
            renew_delegation_token.handle, renew_delegation_token.error_response
        ),
        ApiKey.EXPIRE_DELEGATION_TOKEN: Handler(
            expire_delegation_token.handle, expire_delegation_token.error_response
        ),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: Handler(
            describe_delegation_token.handle, describe_delegation_token.error_response
        ),
    }
)
"""Handler of each API that clients use."""

CONTROLLER_HANDLERS: Mapping[ApiKey, Handler] = MappingProxyType(
    {
        ApiKey.LEADER_AND_ISR: Handler(leader_and_isr.handle, leader_and_isr.error_response),
        ApiKey.STOP_REPLICA: Handler(stop_replica.handle, stop_replica.error_response),
        ApiKey.UPDATE_METADATA: Handler(update_metadata.handle, update_metadata.error_response),
        ApiKey.CONTROLLED_SHUTDOWN: Handler(
            controlled_shutdown.handle, controlled_shutdown.error_response
        ),
    }
)
"""Handlers of the APIs between controller and nodes, used with `replicate`."""
