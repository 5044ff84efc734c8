"""The admin client on the controllers of real Kafka, without its brokers (KIP-919)."""

from __future__ import annotations

import pytest

from aiokafkawire import Admin, IllegalState, InvalidOption, UnsupportedVersion
from aiokafkawire.admin import ConfigResource, ConfigResourceType, ElectionType
from tests.brokers.kafka import Kafka
from tests.brokers.process import HOST


@pytest.fixture
def controllers(kafka_43_server: Kafka) -> str:
    return ",".join(f"{HOST}:{node.controller_port}" for node in kafka_43_server.nodes)


async def test_the_quorum_without_brokers(controllers: str, kafka_43_server: Kafka) -> None:
    async with Admin(bootstrap_controllers=controllers) as admin:
        described = await admin.describe_cluster()
        assert {f"{node.host}:{node.port}" for node in described.nodes} == {controllers}
        quorum = await admin.describe_metadata_quorum()
        assert quorum.leader_id == described.controller_id
        features = await admin.describe_features()
        assert "metadata.version" in features.finalized_features
        assert await admin.list_partition_reassignments() == {}
        assert isinstance(await admin.elect_leaders(ElectionType.PREFERRED), dict)


async def test_configs_without_brokers(controllers: str, kafka_43_server: Kafka) -> None:
    node_id = kafka_43_server.nodes[0].node_id
    broker = ConfigResource(ConfigResourceType.BROKER, str(node_id))
    async with Admin(bootstrap_controllers=controllers) as admin:
        changes = {broker: {"log.cleaner.threads": "2"}}
        assert await admin.incremental_alter_configs(changes, validate_only=True) == {broker: None}


async def test_calls_that_need_brokers(controllers: str) -> None:
    async with Admin(bootstrap_controllers=controllers) as admin:
        with pytest.raises(IllegalState, match="DescribeLogDirs is sent to the broker that"):
            await admin.describe_log_dirs()
        with pytest.raises(UnsupportedVersion, match="with bootstrap_servers, brokers may"):
            await admin.list_topics()


def test_controllers_or_brokers() -> None:
    with pytest.raises(InvalidOption, match="cannot be combined with bootstrap_servers"):
        Admin(bootstrap_controllers="h:1", bootstrap_servers="h:2")
    with pytest.raises(InvalidOption, match="bootstrap_servers is missing"):
        Admin()
