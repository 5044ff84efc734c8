"""The admin client's operations on features, the metadata quorum and log directories."""

from __future__ import annotations

import uuid

import pytest

from aiokafkawire import Admin, TopicPartition
from aiokafkawire.admin import RaftVoterEndpoint, TopicPartitionReplica
from aiokafkawire.errors import BrokerError, ConnectionFailed, KafkaError, PartialFailure
from tests.behaviour.features import needs
from tests.behaviour.support import fill

LOG_DIR_NOT_FOUND = 57


@needs("metadata quorum")
async def test_features(admin: Admin):
    features = await admin.describe_features()
    level = features.finalized_features["metadata.version"].max_version_level
    supported = features.supported_features["metadata.version"]
    assert supported.min_version <= level <= supported.max_version
    assert features.finalized_features_epoch is not None
    results = await admin.update_features(
        {"metadata.version": supported.max_version + 1}, validate_only=True, return_errors=True
    )
    assert isinstance(results["metadata.version"], BrokerError)
    results = await admin.update_features({"metadata.version": level}, validate_only=True)
    assert results == {"metadata.version": None}


@needs("metadata quorum")
async def test_the_metadata_quorum(admin: Admin):
    quorum = await admin.describe_metadata_quorum()
    voters = {voter.replica_id for voter in quorum.voters}
    assert quorum.leader_id in voters
    assert quorum.leader_epoch >= 0
    assert quorum.high_watermark > 0
    leader = next(each for each in quorum.voters if each.replica_id == quorum.leader_id)
    assert leader.log_end_offset >= quorum.high_watermark


@needs("local offsets", "metadata quorum")
async def test_nodes_that_cannot_be_changed(admin: Admin):
    endpoint = RaftVoterEndpoint("CONTROLLER", "127.0.0.1", 1)
    with pytest.raises(KafkaError):
        await admin.add_raft_voter(1, uuid.uuid4(), [endpoint])
    with pytest.raises(KafkaError):
        await admin.remove_raft_voter(99, uuid.uuid4())
    with pytest.raises(KafkaError):
        await admin.unregister_broker(99)


@needs("log directories")
async def test_log_directories(admin: Admin, bootstrap_servers: str, topic: str):
    await fill(bootstrap_servers, topic, [b"x" * 100])
    partition = TopicPartition(topic, 0)
    nodes = (await admin.describe_cluster()).nodes
    by_node = await admin.describe_log_dirs()
    assert [*by_node] == [node.node_id for node in nodes]
    infos = [
        (node_id, path, description.replica_infos[partition])
        for node_id, dirs in by_node.items()
        for path, description in dirs.items()
        if partition in description.replica_infos
    ]
    node_id, path, info = infos[0]
    assert info.size_bytes >= 100
    assert (info.offset_lag, info.is_future) == (0, False)
    assert list(await admin.describe_log_dirs([node_id])) == [node_id]
    replica = TopicPartitionReplica(topic, 0, node_id)
    nowhere = TopicPartitionReplica("no-such-topic", 0, node_id)
    described = await admin.describe_replica_log_dirs([replica, nowhere])
    assert described[replica].current_replica_log_dir == path
    assert described[replica].future_replica_log_dir is None
    assert described[nowhere].current_replica_log_dir is None
    with pytest.raises(PartialFailure) as caught:
        await admin.alter_replica_log_dirs({replica: "/no/such/directory"})
    error = caught.value.failed[replica]
    assert isinstance(error, BrokerError)
    assert (error.code, error.topic) == (LOG_DIR_NOT_FOUND, topic)


@needs("log directories")
async def test_a_broker_that_does_not_exist(admin: Admin):
    node_id = (await admin.describe_cluster()).nodes[0].node_id
    with pytest.raises(PartialFailure) as caught:
        await admin.describe_log_dirs([node_id, 9_999])
    assert list(caught.value.succeeded) == [node_id]
    assert isinstance(caught.value.failed[9_999], ConnectionFailed)
    assert "the cluster has no broker 9999" in str(caught.value)
