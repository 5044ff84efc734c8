"""IncrementalAlterConfigs, AlterConfigs and ListConfigResources, and what altered configs do."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiokafkawire.broker import Acl, Broker
from aiokafkawire.errors import BrokerError
from aiokafkawire.records.batch import iter_batches
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from aiokafkawire.wire.messages.list_config_resources import ListConfigResourcesRequest

from .config_client import CLIENT_METRICS, CLUSTER, GROUP, TOPIC, alter, described, set_config
from .raw_client import batch, connected, only, produce_request

E = ErrorCode
SET, DELETE, APPEND, SUBTRACT = range(4)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(nodes=2) as broker:
        await broker.create_topic("t", configs={"retention.ms": "60000"})
        yield broker


async def produce(broker: Broker, topic: str = "t", *, acks: int = -1, **fields: int) -> ErrorCode:
    async with connected(broker, broker.leader(topic, 0)) as client:
        request = produce_request(topic, 0, batch(b"v" * 100, **fields), acks=acks)
        return ErrorCode(only(await client.call(request, 9)).error_code)


async def values(broker: Broker, resource_type: int, name: str, node: int = 1) -> dict[str, str]:
    configs = await described(broker, resource_type, name, node)
    return {key: config.value for key, config in configs.items() if config.config_source < 4}


async def test_operations_on_a_topic_show_on_every_node(broker: Broker) -> None:
    changes = [("cleanup.policy", APPEND, "compact"), ("flush.ms", SET, " 7 ")]
    assert await alter(broker, TOPIC, "t", *changes) == (E.NONE, None)
    implied = {"min.insync.replicas": "1"}
    expected = {"retention.ms": "60000", "cleanup.policy": "delete,compact", "flush.ms": "7"}
    for node in (1, 2):
        assert await values(broker, TOPIC, "t", node) == expected | implied
    changes = [("cleanup.policy", SUBTRACT, "delete"), ("retention.ms", DELETE, None)]
    assert await alter(broker, TOPIC, "t", *changes, node=2) == (E.NONE, None)
    expected = {"cleanup.policy": "compact", "flush.ms": "7"}
    assert await values(broker, TOPIC, "t") == expected | implied


async def test_nothing_changes_where_it_is_only_validated_or_one_config_is_wrong(
    broker: Broker,
) -> None:
    before = await values(broker, TOPIC, "t")
    valid = await alter(broker, TOPIC, "t", ("flush.ms", SET, "7"), validate_only=True)
    assert valid == (E.NONE, None)
    wrong = await alter(broker, TOPIC, "t", ("flush.ms", SET, "7"), ("flush.messages", SET, "0"))
    assert wrong[0] is E.INVALID_CONFIG
    assert await values(broker, TOPIC, "t") == before


async def test_alter_configs_replaces_all(broker: Broker) -> None:
    resource = AlterConfigsResource(
        resource_type=TOPIC,
        resource_name="t",
        configs=[AlterableConfig(name="flush.ms", value="7")],
    )
    for validate_only, expected in ((True, "60000"), (False, None)):
        async with connected(broker) as client:
            request = AlterConfigsRequest(resources=[resource], validate_only=validate_only)
            (result,) = (await client.call(request, 2)).responses
        assert result.error_code == E.NONE
        assert (await values(broker, TOPIC, "t")).get("retention.ms") == expected


async def test_max_message_bytes_applies_to_the_next_request(broker: Broker) -> None:
    assert await produce(broker) is E.NONE
    await set_config(broker, TOPIC, "t", "max.message.bytes", "100")
    assert await produce(broker) is E.MESSAGE_TOO_LARGE
    assert await alter(broker, TOPIC, "t", ("max.message.bytes", DELETE, None)) == (E.NONE, None)
    assert await produce(broker) is E.NONE
    await set_config(broker, CLUSTER, "", "message.max.bytes", "100")
    assert await produce(broker) is E.MESSAGE_TOO_LARGE
    leader = broker.leader("t", 0)
    await set_config(broker, CLUSTER, str(leader), "message.max.bytes", "1000", node=leader)
    assert await produce(broker) is E.NONE


async def test_min_insync_replicas_applies_to_the_next_request(broker: Broker) -> None:
    await broker.kill(3 - broker.leader("t", 0))
    assert await produce(broker) is E.NONE
    await set_config(broker, TOPIC, "t", "min.insync.replicas", "2")
    assert await produce(broker) is E.NOT_ENOUGH_REPLICAS
    assert await produce(broker, acks=1) is E.NONE


async def test_timestamps_are_those_of_the_append_once_the_topic_says_so(broker: Broker) -> None:
    async def append_time() -> int:
        async with connected(broker, broker.leader("t", 0)) as client:
            answer = only(await client.call(produce_request("t", 0, batch(b"v")), 9))
            return int(answer.log_append_time_ms)

    assert await append_time() == -1
    await set_config(broker, TOPIC, "t", "message.timestamp.type", "LogAppendTime")
    assert await append_time() > 1_000


@pytest.mark.parametrize("codec", [0, 3])
@pytest.mark.parametrize(
    ("wanted", "number"), [("uncompressed", 0), ("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)]
)
async def test_batches_are_stored_in_the_codec_of_the_topic(
    broker: Broker, codec: int, wanted: str, number: int
) -> None:
    await set_config(broker, TOPIC, "t", "compression.type", wanted)
    assert await produce(broker, compression=codec) is E.NONE
    log = broker._running.cluster.topics["t"].partitions[0].log
    (stored,) = iter_batches(log.read(0, 10_000))
    stored.check_crc()
    assert stored.compression == number
    columns = stored.columns()
    assert (columns.key(0), columns.value(0)) == (b"k0", b"v" * 100)


async def test_a_batch_that_grows_is_too_large(broker: Broker) -> None:
    await set_config(broker, TOPIC, "t", "compression.type", "uncompressed")
    assert await produce(broker, compression=1) is E.NONE
    await set_config(broker, TOPIC, "t", "max.message.bytes", "150")
    assert await produce(broker, compression=1) is E.MESSAGE_TOO_LARGE


async def test_the_number_of_connections_is_limited_while_the_broker_runs(broker: Broker) -> None:
    async with connected(broker, 1) as client:
        await set_config(broker, CLUSTER, "1", "max.connections", "1", node=1)
        async with connected(broker, 1) as refused:
            assert await refused.closed()
        async with connected(broker, 2) as other:
            await other.call(produce_request("t", 0, b""), 9)
        await client.call(produce_request("t", 0, b""), 9)


async def test_unclean_leader_election_can_be_enabled_for_a_dead_partition() -> None:
    async with Broker(nodes=2, replicate=True, replica_lag_time_max_ms=500) as broker:
        await broker.create_topic("t", replication_factor=2)
        leader = broker.leader("t", 0)
        other = 3 - leader
        await broker.wait_for_isr("t", 0, 1, 2)
        await broker.kill(other)
        await produce(broker, acks=1)
        await broker.wait_for_isr("t", 0, leader)
        await broker.kill(leader)
        await broker.restart(other)
        if broker.leader("t", 0) == -1:
            await set_config(broker, TOPIC, "t", "unclean.leader.election.enable", "true")
        assert broker.leader("t", 0) == other


async def test_configs_of_groups_and_client_metrics_are_kept(broker: Broker) -> None:
    await set_config(broker, GROUP, "g", "consumer.session.timeout.ms", "50000")
    await set_config(broker, CLIENT_METRICS, "m", "interval.ms", "1000", node=2)
    group = (await described(broker, GROUP, "g"))["consumer.session.timeout.ms"]
    assert (group.value, group.config_source) == ("50000", 8)
    assert [(each.name, each.source) for each in group.synonyms] == [
        ("consumer.session.timeout.ms", 8),
        ("group.consumer.session.timeout.ms", 5),
    ]
    metrics = (await described(broker, CLIENT_METRICS, "m"))["interval.ms"]
    assert (metrics.value, metrics.config_source, metrics.synonyms[0].source) == ("1000", 7, 7)
    async with connected(broker) as client:
        found = await client.call(ListConfigResourcesRequest(resource_types=[]), 1)
    assert [(each.resource_type, each.resource_name) for each in found.config_resources] == [
        *((GROUP, "g"), (CLIENT_METRICS, "m"), (8, "1"), (8, "2")),
        *((CLUSTER, "1"), (CLUSTER, "2"), (TOPIC, "t")),
    ]
    assert await alter(broker, GROUP, "g", ("consumer.session.timeout.ms", DELETE, None)) == (
        E.NONE,
        None,
    )
    async with connected(broker) as client:
        found = await client.call(ListConfigResourcesRequest(resource_types=[GROUP]), 1)
    assert found.config_resources == []


async def test_an_unknown_broker_config_is_kept_and_hidden(broker: Broker) -> None:
    await set_config(broker, CLUSTER, "", "plugin.secret", "hidden")
    for name in ("", "1"):
        config = (await described(broker, CLUSTER, name, 1))["plugin.secret"]
        assert (config.value, config.is_sensitive, config.config_source) == (None, True, 3)


async def test_a_new_topic_of_the_same_name_has_its_own_configs(broker: Broker) -> None:
    await set_config(broker, TOPIC, "t", "max.message.bytes", "10")
    assert await produce(broker) is E.MESSAGE_TOO_LARGE
    await broker.delete_topic("t")
    await broker.create_topic("t")
    assert await produce(broker) is E.NONE


async def test_altering_needs_permission() -> None:
    acls = [Acl("User:ANONYMOUS", "DescribeConfigs", topic="*")]
    async with Broker(acls=acls) as broker:
        await broker.create_topic("t")
        results = [
            await alter(broker, resource_type, name, ("a", SET, "b"))
            for resource_type, name in ((TOPIC, "t"), (CLUSTER, ""), (GROUP, "g"))
        ]
        assert results == [
            (E.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."),
            (E.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."),
            (E.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
        ]
        async with connected(broker) as client:
            found = await client.call(ListConfigResourcesRequest(resource_types=[]), 1)
        assert found.error_code == E.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize("as_of", ["2.8", "4.3"])
async def test_every_node_alters_configs(as_of: str) -> None:
    async with Broker(nodes=2, as_of=as_of) as broker:
        await broker.create_topic("t")
        for node in (1, 2):
            await set_config(broker, TOPIC, "t", "flush.ms", str(node), node=node)
            assert (await values(broker, TOPIC, "t", 3 - node))["flush.ms"] == str(node)


async def test_wrong_values_are_refused_at_creation(broker: Broker) -> None:
    with pytest.raises(BrokerError, match="INVALID_CONFIG"):
        await broker.create_topic("u", configs={"cleanup.policy": "never"})
