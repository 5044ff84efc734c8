"""The admin clients of aiokafka, confluent-kafka and kafka-python against the embedded broker.

Every operation that a client has and the broker serves is called once, and its effect is read
back. ACLs and SCRAM users are in test_confluent_acls.py, too.
"""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.admin.config_resource import ConfigResource as AioConfigResource
from aiokafka.admin.config_resource import ConfigResourceType as AioConfigResourceType
from aiokafka.admin.records_to_delete import RecordsToDelete

from aiokafkawire import Consumer, Producer, TopicPartition
from aiokafkawire.broker import Broker

from ..conftest import BACKENDS
from .threaded_broker import DEADLINE_S, ThreadedBroker, threaded_broker

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.admin as kafka_python
    from kafka import KafkaAdminClient
    from kafka import TopicPartition as KafkaTopicPartition
    from kafka.structs import OffsetAndMetadata as KafkaOffset

confluent = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
confluent_admin = pytest.importorskip("confluent_kafka.admin")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.usefixtures("kafka_python_leftovers"),
]

PASSWORDS = {"root": "root-pw"}
TP = TopicPartition("t", 0)


async def fill(broker: Broker) -> None:
    """Write five records to t [0], commit offset 2 for group `empty`, and end a transaction."""
    servers = broker.bootstrap_servers
    await broker.create_topic("t", partitions=2, replication_factor=1)
    producer = Producer(bootstrap_servers=servers, transactional_id="tx")
    async with producer, producer.transaction():
        await producer.send_many("t", [b"v"] * 5, partition=0)
    async with Consumer(bootstrap_servers=servers, group_id="empty") as consumer:
        consumer.assign(TP)
        await consumer.commit({TP: 2})


# --- aiokafka ---


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return BACKENDS[request.param]


async def test_aiokafka() -> None:
    async with Broker(nodes=3) as broker:
        await fill(broker)
        client = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        await client.start()
        try:
            await aiokafka_topics(client)
            await aiokafka_configs(client)
            await aiokafka_groups(client, broker)
        finally:
            await client.close()


async def aiokafka_topics(client: Any) -> None:
    await client.create_topics([AioNewTopic("n", 2, 1)])
    assert {"n", "t"} <= set(await client.list_topics())
    await client.create_partitions({"n": AioNewPartitions(4)})
    (topic,) = await client.describe_topics(["n"])
    assert len(topic["partitions"]) == 4
    cluster = await client.describe_cluster()
    assert {node["node_id"] for node in cluster["brokers"]} == {1, 2, 3}
    tp = aiokafka.TopicPartition("t", 0)
    assert await client.delete_records({tp: RecordsToDelete(before_offset=3)}) == {tp: 3}
    await client.delete_topics(["n"])
    assert "n" not in await client.list_topics()


async def aiokafka_configs(client: Any) -> None:
    resource = AioConfigResource(AioConfigResourceType.TOPIC, "t", {"retention.ms": "1234"})
    await client.alter_configs([resource])
    asked = AioConfigResource(AioConfigResourceType.TOPIC, "t")
    ((_, _, _, _, entries),) = (await client.describe_configs([asked]))[0].resources
    assert ("retention.ms", "1234") in {(entry[0], entry[1]) for entry in entries}


async def aiokafka_groups(client: Any, broker: Broker) -> None:
    servers = broker.bootstrap_servers
    async with Consumer("t", bootstrap_servers=servers, group_id="g") as consumer:
        await consumer.getmany(timeout_ms=2_000)
        assert set(await client.list_consumer_groups()) == {("g", "consumer"), ("empty", "")}
        (described,) = (await client.describe_consumer_groups(["g"]))[0].groups
        assert described[2] == "Stable"
    offsets = await client.list_consumer_group_offsets("empty")
    assert offsets[aiokafka.TopicPartition("t", 0)].offset == 2
    assert await client.find_coordinator("g") == broker.coordinator("g")


# --- confluent-kafka ---


@pytest.fixture
def plain() -> Iterator[ThreadedBroker]:
    # kafka-python 3.0 refuses ApiVersions with an API that it does not know, as 4.4 has.
    with threaded_broker(nodes=3, as_of="4.3") as broker:
        broker.call(fill, broker.broker)
        yield broker


@pytest.fixture
def librdkafka(plain: ThreadedBroker) -> Any:
    options = {"bootstrap.servers": plain.servers}
    return confluent_admin.AdminClient(options, logger=logging.getLogger("librdkafka"))


def done(futures: Any) -> Any:
    """Return the result of the only future."""
    (future,) = futures.values()
    return future.result(DEADLINE_S)


def test_confluent_topics(librdkafka: Any) -> None:
    done(librdkafka.create_topics([confluent_admin.NewTopic("n", 2, 1)]))
    done(librdkafka.create_partitions([confluent_admin.NewPartitions("n", 4)]))
    described = done(librdkafka.describe_topics(confluent.TopicCollection(["n"])))
    assert len(described.partitions) == 4
    assert {"n", "t"} <= set(librdkafka.list_topics(timeout=DEADLINE_S).topics)
    done(librdkafka.delete_topics(["n"]))
    assert "n" not in librdkafka.list_topics(timeout=DEADLINE_S).topics


def test_confluent_records_and_offsets(librdkafka: Any) -> None:
    spec = {
        confluent.TopicPartition("t", 0): confluent_admin.OffsetSpec.earliest(),
    }
    assert done(librdkafka.list_offsets(spec)).offset == 0
    deleted = done(librdkafka.delete_records([confluent.TopicPartition("t", 0, 3)]))
    assert deleted.low_watermark == 3
    assert done(librdkafka.list_offsets(spec)).offset == 3
    latest = {confluent.TopicPartition("t", 0): confluent_admin.OffsetSpec.latest()}
    assert done(librdkafka.list_offsets(latest)).offset == 6  # five records and a marker


@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated:DeprecationWarning")
def test_confluent_configs(librdkafka: Any) -> None:
    kind = confluent_admin.ResourceType.TOPIC
    change = confluent_admin.ConfigEntry(
        "retention.ms", "1234", incremental_operation=confluent_admin.AlterConfigOpType.SET
    )
    resource = confluent_admin.ConfigResource(kind, "t", incremental_configs=[change])
    done(librdkafka.incremental_alter_configs([resource]))
    asked = confluent_admin.ConfigResource(kind, "t")
    assert done(librdkafka.describe_configs([asked]))["retention.ms"].value == "1234"
    replaced = confluent_admin.ConfigResource(kind, "t", set_config={"segment.ms": "99"})
    done(librdkafka.alter_configs([replaced]))
    now = done(librdkafka.describe_configs([asked]))
    assert (now["segment.ms"].value, now["retention.ms"].value) == ("99", "604800000")


def test_confluent_cluster(librdkafka: Any, plain: ThreadedBroker) -> None:
    cluster = librdkafka.describe_cluster().result(DEADLINE_S)
    assert cluster.cluster_id == plain.broker.cluster_id
    assert {node.id for node in cluster.nodes} == {1, 2, 3}
    assert librdkafka.cluster_id(timeout=DEADLINE_S) == cluster.cluster_id
    elected = librdkafka.elect_leaders(
        confluent.ElectionType.PREFERRED, [confluent.TopicPartition("t", 0)]
    ).result(DEADLINE_S)
    (error,) = elected.values()
    assert error is None or error.name() == "ELECTION_NOT_NEEDED"


@pytest.mark.filterwarnings("ignore:list_groups.. is deprecated:DeprecationWarning")
def test_confluent_groups(librdkafka: Any) -> None:
    listed = librdkafka.list_consumer_groups().result(DEADLINE_S)
    assert {group.group_id for group in listed.valid} == {"empty"}
    assert [group.id for group in librdkafka.list_groups(timeout=DEADLINE_S)] == ["empty"]
    described = done(librdkafka.describe_consumer_groups(["empty"]))
    assert described.state is confluent.ConsumerGroupState.EMPTY
    partition = confluent.TopicPartition("t", 0, 4)
    asked = confluent.ConsumerGroupTopicPartitions("empty", [partition])
    done(librdkafka.alter_consumer_group_offsets([asked]))
    offsets = done(
        librdkafka.list_consumer_group_offsets([confluent.ConsumerGroupTopicPartitions("empty")])
    )
    assert [each.offset for each in offsets.topic_partitions] == [4]
    done(librdkafka.delete_consumer_groups(["empty"]))
    assert not librdkafka.list_consumer_groups().result(DEADLINE_S).valid


# --- kafka-python ---


@pytest.fixture
def client(plain: ThreadedBroker) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=plain.servers)
    yield client
    client.close()


PARTITION = KafkaTopicPartition("t", 0)


def test_kafka_python_topics(client: Any) -> None:
    client.create_topics([kafka_python.NewTopic("n", 2, 1)], wait_for_metadata=True)
    client.wait_for_topics(["n"])
    client.create_partitions({"n": kafka_python.NewPartitions(4)})
    (topic,) = client.describe_topics(["n"])
    assert len(topic["partitions"]) == 4
    paged = client.describe_topic_partitions(["n"])
    assert "n" in str(paged)
    assert {"n", "t"} <= set(client.list_topics())
    client.delete_topics(["n"])
    assert "n" not in client.list_topics()


def test_kafka_python_cluster(client: Any) -> None:
    cluster = client.describe_cluster()
    assert {node["broker_id"] for node in cluster["brokers"]} == {1, 2, 3}
    assert client.describe_features()["transaction.version"]["finalized"] == (2, 2)
    assert client.update_features({}) == {}
    (quorum,) = client.describe_metadata_quorum()["topics"]
    assert quorum["topic_name"] == "__cluster_metadata"
    assert client.api_versions().keys() >= {0, 1, 2, 3}
    assert client.get_broker_version_data(1).broker_version >= (4, 0)
    assert {each["broker"] for each in client.describe_log_dirs()} == {1, 2, 3}
    assert client.alter_replica_log_dirs({}) == {}
    election = client.elect_leaders(0, {"t": [0]}, raise_errors=False)
    assert "error_code=84" in repr(election)  # ELECTION_NOT_NEEDED


def test_kafka_python_configs(client: Any) -> None:
    topic = kafka_python.ConfigResourceType.TOPIC

    def resource(configs: Any = None) -> Any:
        return kafka_python.ConfigResource(topic, "t", configs)

    def changed() -> dict[str, str]:
        configs = client.describe_configs([resource()])["topic"]["t"]
        return {name: config["value"] for name, config in configs.items()}

    assert "t" in client.list_config_resources()["topic"]
    client.alter_configs([resource({"retention.ms": "1234"})])
    assert changed() == {"retention.ms": "1234"}
    client.reset_configs([resource({"retention.ms": None})])
    assert changed() == {}
    client.alter_configs([resource({"segment.ms": "99"})], incremental=False)
    assert changed() == {"segment.ms": "99"}


def test_kafka_python_groups(client: Any) -> None:
    (group,) = client.list_groups()
    assert (group["group_id"], group["group_state"]) == ("empty", "Empty")
    assert client.describe_groups(["empty"])["empty"]["group_state"] == "Empty"

    def offset() -> int | None:
        found = client.list_group_offsets({"empty": None})["empty"].get(PARTITION)
        return None if found is None else int(found.offset)

    assert offset() == 2
    client.alter_group_offsets("empty", {PARTITION: KafkaOffset(4, "", -1)})
    assert offset() == 4
    client.reset_group_offsets("empty", {PARTITION: kafka_python.OffsetSpec.EARLIEST})
    assert offset() == 0
    (error,) = client.remove_group_members(
        "empty", [kafka_python.MemberToRemove(member_id="x")]
    ).values()
    assert error.__name__ == "UnknownMemberIdError"
    client.delete_group_offsets("empty", [PARTITION])
    assert offset() is None
    assert client.delete_groups(["empty"]) == {"empty": "OK"}
    assert client.list_groups() == []


def test_kafka_python_partitions(client: Any) -> None:
    def position(spec: Any) -> int:
        (found,) = client.list_partition_offsets({PARTITION: spec}).values()
        return int(found.offset)

    assert position(kafka_python.OffsetSpec.LATEST) == 6  # five records and a marker
    client.delete_records({PARTITION: 2})
    assert position(kafka_python.OffsetSpec.EARLIEST) == 2
    (partition, _) = sorted(client.describe_topics(["t"])[0]["partitions"], key=str)
    elsewhere = partition["leader_id"] % 3 + 1
    client.alter_partition_reassignments({PARTITION: [elsewhere]})
    assert client.list_partition_reassignments() == {}, "it is done"


def test_kafka_python_transactions(client: Any) -> None:
    (listed,) = [each for found in client.list_transactions().values() for each in found]
    assert (listed.transactional_id, listed.state.value) == ("tx", "CompleteCommit")
    described = client.describe_transactions(["tx"])["tx"]
    assert described.producer_id == listed.producer_id
    (producers,) = client.describe_producers([PARTITION]).values()
    assert [each.producer_id for each in producers.active_producers] == [listed.producer_id]
    assert client.find_hanging_transactions() == []


def test_kafka_python_aborts_a_hanging_transaction(client: Any, plain: ThreadedBroker) -> None:
    plain.call(leave_open, plain.broker)
    (state,) = client.describe_producers([PARTITION])[PARTITION].active_producers[-1:]
    assert state.current_transaction_start_offset == 6
    client.abort_transaction(
        kafka_python.AbortTransactionSpec(PARTITION, state.producer_id, state.producer_epoch, 0)
    )
    (state,) = client.describe_producers([PARTITION])[PARTITION].active_producers[-1:]
    assert state.current_transaction_start_offset == -1


async def leave_open(broker: Broker) -> None:
    """Leave a record of a transaction without an end."""
    async with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="o") as left:
        await left.begin_transaction()
        await left.send_and_wait("t", b"v", partition=0)
        await left.detach_transaction()


def test_kafka_python_acls_and_users() -> None:
    options: dict[str, Any] = {"sasl": PASSWORDS, "acls": [], "super_users": ["User:root"]}
    with threaded_broker(**options) as broker:
        client = KafkaAdminClient(
            bootstrap_servers=broker.servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username="root",
            sasl_plain_password=PASSWORDS["root"],
        )
        try:
            kafka_python_acls(client)
            kafka_python_users(client)
        finally:
            client.close()


def kafka_python_acls(client: Any) -> None:
    parts = {
        "principal": "User:alice",
        "host": "*",
        "operation": kafka_python.ACLOperation.READ,
        "permission_type": kafka_python.ACLPermissionType.ALLOW,
    }
    resource = kafka_python.ResourcePattern(kafka_python.ResourceType.TOPIC, "orders")
    client.create_acls([kafka_python.ACL(**parts, resource_pattern=resource)])
    pattern = kafka_python.ResourcePatternFilter(
        kafka_python.ResourceType.TOPIC, "orders", kafka_python.ACLResourcePatternType.ANY
    )
    wanted = kafka_python.ACLFilter(**parts, resource_pattern=pattern)
    assert "User:alice" in repr(client.describe_acls(wanted))
    client.delete_acls([wanted])
    assert "User:alice" not in repr(client.describe_acls(wanted))


def kafka_python_users(client: Any) -> None:
    mechanism = kafka_python.ScramMechanism.SCRAM_SHA_256
    added = kafka_python.UserScramCredentialUpsertion("bob", mechanism, "bob-pw")
    client.alter_user_scram_credentials([added])
    assert "bob" in client.describe_user_scram_credentials()
    client.alter_user_scram_credentials(
        [kafka_python.UserScramCredentialDeletion("bob", mechanism)]
    )
    assert "bob" not in client.describe_user_scram_credentials()


# --- all ---

NO_OPERATIONS = {"close", "poll", "set_sasl_credentials", "start"}


@pytest.mark.parametrize(
    "client_class", [AIOKafkaAdminClient, confluent_admin.AdminClient, KafkaAdminClient]
)
def test_every_operation_is_called(client_class: type) -> None:
    here = Path(__file__)
    code = here.read_text() + here.with_name("test_confluent_acls.py").read_text()
    operations = {
        name
        for name, value in inspect.getmembers(client_class, callable)
        if not name.startswith("_")
    }
    missing = {name for name in operations - NO_OPERATIONS if f".{name}(" not in code}
    assert missing == set()
