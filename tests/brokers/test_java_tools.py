"""The command-line tools of Kafka 4.3.0 work against the embedded broker."""

from __future__ import annotations

import functools
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from aiokafkawire import Consumer, Producer
from tests.broker.threaded_broker import ThreadedBroker, threaded_broker
from tests.brokers.fixtures import what_real_kafka_needs
from tests.brokers.kafka import DEFAULT_VERSION, JAVA_OPTIONS
from tests.brokers.releases import RELEASES, fetch, java_for

TOOLS = "org.apache.kafka.tools."
TOPICS = TOOLS + "TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
GROUPS = TOOLS + "consumer.group.ConsumerGroupCommand"
ACLS = TOOLS + "AclCommand"
REASSIGN = TOOLS + "reassign.ReassignPartitionsCommand"
DELETE_RECORDS = TOOLS + "DeleteRecordsCommand"
LOG_DIRS = TOOLS + "LogDirsCommand"
FEATURES = TOOLS + "FeatureCommand"
TRANSACTIONS = TOOLS + "TransactionsCommand"
LEADER_ELECTION = TOOLS + "LeaderElectionCommand"
QUORUM = TOOLS + "MetadataQuorumCommand"

TIMEOUT_S = 120


@pytest.fixture(scope="module")
def command() -> list[str]:
    """Java with Kafka's jars."""
    with what_real_kafka_needs():
        release = RELEASES[DEFAULT_VERSION]
        java, jars = java_for(release), fetch(release)
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return [str(java), *JAVA_OPTIONS, quiet, "-cp", f"{jars}/*"]


@pytest.fixture
def server() -> Iterator[ThreadedBroker]:
    with threaded_broker(
        nodes=3, replicate=True, as_of="4.3", acls=[], super_users=["User:ANONYMOUS"]
    ) as server:
        server.call(server.broker.create_topic, "orders", 2, 2)
        yield server


def run_tool(
    command: list[str],
    server: ThreadedBroker,
    main: str,
    *arguments: str,
    succeeds: bool = True,
) -> str:
    """Run a tool; return its output, and fail unless it succeeds."""
    result = subprocess.run(
        [*command, main, "--bootstrap-server", server.servers, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    output = result.stdout + result.stderr
    assert (result.returncode == 0) is succeeds, output
    return output


@pytest.fixture
def tool(command: list[str], server: ThreadedBroker) -> Any:
    return functools.partial(run_tool, command, server)


def rows(output: str, first: str) -> list[list[str]]:
    """Return the columns of the lines that begin with a word."""
    return [line.split() for line in output.splitlines() if line.split()[:1] == [first]]


async def produce(servers: str, count: int = 5, **options: Any) -> None:
    async with Producer(bootstrap_servers=servers, **options) as producer:
        for number in range(count):
            await producer.send_and_wait("orders", b"%d" % number, key=b"k", partition=0)


async def consume(servers: str, group: str) -> None:
    async with Consumer(
        "orders", bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest"
    ) as consumer:
        count = 0
        with anyio.fail_after(30):
            while count < 5:
                found = await consumer.getmany(timeout_ms=500)
                count += sum(map(len, found.values()))
        await consumer.commit()


def test_kafka_topics(tool: Any) -> None:
    created = ("--create", "--topic", "new", "--partitions", "2", "--replication-factor", "3")
    assert "Created topic new." in tool(TOPICS, *created, "--config", "retention.ms=60000")
    assert "Topic 'new' already exists." in tool(TOPICS, *created, succeeds=False)
    assert tool(TOPICS, "--list").split() == ["new", "orders"]
    tool(TOPICS, "--alter", "--topic", "new", "--partitions", "3")
    fewer = tool(TOPICS, "--alter", "--topic", "new", "--partitions", "2", succeeds=False)
    assert "The topic new currently has 3 partition(s); 2 would not be an increase." in fewer
    shown = tool(TOPICS, "--describe", "--topic", "new")
    assert re.search(
        r"PartitionCount: 3\s+ReplicationFactor: 3\s+Configs: .*retention.ms=60000", shown
    )
    assert len(re.findall(r"Partition: \d\s+Leader: [123]\s+Replicas: .*Isr: ", shown)) == 3
    tool(TOPICS, "--delete", "--topic", "new")
    assert tool(TOPICS, "--list").split() == ["orders"]


def test_kafka_configs_of_topics_and_brokers(tool: Any) -> None:
    orders = ("--entity-type", "topics", "--entity-name", "orders")
    added = "max.message.bytes=1000,cleanup.policy=[compact,delete]"
    assert "Completed updating config for topic orders." in tool(
        CONFIGS, "--alter", *orders, "--add-config", added
    )
    shown = tool(CONFIGS, "--describe", *orders)
    assert "cleanup.policy=compact,delete sensitive=false" in shown
    assert (
        "synonyms={DYNAMIC_TOPIC_CONFIG:max.message.bytes=1000,"
        " DEFAULT_CONFIG:message.max.bytes=1048588}"
    ) in shown
    wrong = tool(CONFIGS, "--alter", *orders, "--add-config", "retention.ms=x", succeeds=False)
    assert "Invalid value x for configuration retention.ms: Not a number of type LONG" in wrong
    tool(CONFIGS, "--alter", *orders, "--delete-config", "max.message.bytes")
    assert "max.message.bytes" not in tool(CONFIGS, "--describe", *orders)
    default = ("--entity-type", "brokers", "--entity-default")
    tool(CONFIGS, "--alter", *default, "--add-config", "log.retention.ms=70000")
    assert "log.retention.ms=70000" in tool(CONFIGS, "--describe", *default)
    one = ("--entity-type", "brokers", "--entity-name", "1")
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=70000" in tool(
        CONFIGS, "--describe", *one, "--all"
    )
    fixed = tool(CONFIGS, "--alter", *one, "--add-config", "num.partitions=3", succeeds=False)
    assert "Cannot update these configs dynamically: [num.partitions]" in fixed


def test_kafka_configs_of_groups_users_and_client_metrics(tool: Any) -> None:
    group = ("--entity-type", "groups", "--entity-name", "g")
    tool(CONFIGS, "--alter", *group, "--add-config", "consumer.session.timeout.ms=50000")
    assert "consumer.session.timeout.ms=50000" in tool(CONFIGS, "--describe", *group)
    metrics = ("--entity-type", "client-metrics", "--entity-name", "m")
    tool(CONFIGS, "--alter", *metrics, "--add-config", "interval.ms=1000,metrics=[org.apache]")
    assert "interval.ms=1000" in tool(CONFIGS, "--describe", *metrics)
    user = ("--entity-type", "users", "--entity-name", "alice")
    tool(CONFIGS, "--alter", *user, "--add-config", "producer_byte_rate=1000")
    tool(CONFIGS, "--alter", *user, "--add-config", "SCRAM-SHA-256=[password=alice-secret]")
    shown = tool(CONFIGS, "--describe", *user)
    assert "producer_byte_rate=1000" in shown
    assert "SCRAM-SHA-256=iterations=4096" in shown


def test_kafka_consumer_groups(tool: Any, server: ThreadedBroker) -> None:
    server.call(produce, server.servers)
    server.call(consume, server.servers, "billing")
    assert tool(GROUPS, "--list").split() == ["billing"]
    billing = ("--group", "billing")
    shown = rows(tool(GROUPS, "--describe", *billing), "billing")
    assert ["billing", "orders", "0", "5", "5", "0", "-", "-", "-"] in shown
    (state,) = rows(tool(GROUPS, "--describe", *billing, "--state"), "billing")
    assert state[-2:] == ["Empty", "0"]
    reset = ("--reset-offsets", "--topic", "orders:0", "--to-offset", "2", "--execute")
    assert rows(tool(GROUPS, *reset, *billing), "billing") == [["billing", "orders", "0", "2"]]
    deleted = tool(GROUPS, "--delete-offsets", *billing, "--topic", "orders:1")
    assert rows(deleted, "orders") == [["orders", "1", "Successful"]]
    tool(GROUPS, "--delete", *billing)
    assert tool(GROUPS, "--list").split() == []
    # The lookup of the group's coordinator has created the topic of the offsets.
    assert tool(TOPICS, "--list").split() == ["__consumer_offsets", "orders"]
    assert tool(TOPICS, "--list", "--exclude-internal").split() == ["orders"]


def test_kafka_acls(tool: Any) -> None:
    acl = ("--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders")
    line = "(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)"
    assert line in tool(ACLS, "--add", *acl)
    assert line in tool(ACLS, "--list", "--topic", "orders")
    tool(ACLS, "--remove", "--force", *acl)
    assert line not in tool(ACLS, "--list", "--topic", "orders")


def test_kafka_reassign_partitions(tool: Any, server: ThreadedBroker, tmp_path: Path) -> None:
    server.call(produce, server.servers)
    plan = tmp_path / "plan.json"
    moved = [{"topic": "orders", "partition": 0, "replicas": [1, 2, 3]}]
    plan.write_text(json.dumps({"version": 1, "partitions": moved}))
    file = ("--reassignment-json-file", str(plan))
    started = tool(REASSIGN, "--execute", *file)
    assert "Successfully started partition reassignment for orders-0" in started
    server.call(server.broker.wait_for_isr, "orders", 0, 1, 2, 3)
    assert "Reassignment of partition orders-0 is completed." in tool(REASSIGN, "--verify", *file)
    assert "No partition reassignments found." in tool(REASSIGN, "--list")


def test_kafka_delete_records_and_log_dirs(
    tool: Any, server: ThreadedBroker, tmp_path: Path
) -> None:
    server.call(produce, server.servers)
    offsets = tmp_path / "offsets.json"
    before = [{"topic": "orders", "partition": 0, "offset": 3}]
    offsets.write_text(json.dumps({"version": 1, "partitions": before}))
    deleted = tool(DELETE_RECORDS, "--offset-json-file", str(offsets))
    assert "partition: orders-0\tlow_watermark: 3" in deleted
    described = tool(LOG_DIRS, "--describe", "--topic-list", "orders").splitlines()
    brokers = json.loads(next(line for line in described if line.startswith("{")))["brokers"]
    sizes = {
        (each["broker"], partition["partition"]): partition["size"]
        for each in brokers
        for directory in each["logDirs"]
        for partition in directory["partitions"]
    }
    assert len(sizes) == 4
    assert len({size for (_, name), size in sizes.items() if name == "orders-0" and size}) == 1


def test_kafka_features_and_metadata_quorum(tool: Any) -> None:
    described = tool(FEATURES, "describe")
    assert re.search(r"metadata.version\s+SupportedMinVersion: 3.3-IV3\s+.*: 4.3-IV0", described)
    assert re.search(r"transaction.version\s.*FinalizedVersionLevel: 2", described)
    status = tool(QUORUM, "describe", "--status")
    assert re.search(r"LeaderId:\s+1\b", status)
    assert len(re.findall(r'"id": [123]', status)) == 3
    replication = tool(QUORUM, "describe", "--replication")
    assert [row[-1] for node in "123" for row in rows(replication, node)] == [
        "Leader",
        "Follower",
        "Follower",
    ]


def test_kafka_transactions(tool: Any, server: ThreadedBroker) -> None:
    async def write() -> None:
        options = {"bootstrap_servers": server.servers, "transactional_id": "tx"}
        async with Producer(**options) as producer, producer.transaction():
            await producer.send_and_wait("orders", b"v", partition=0)

    server.call(write)
    (listed,) = rows(tool(TRANSACTIONS, "list"), "tx")
    assert listed[-1] == "CompleteCommit"
    described = tool(TRANSACTIONS, "describe", "--transactional-id", "tx")
    assert re.search(r"\btx\s+\d+\s+\d+\s+CompleteCommit\s", described)
    producers = tool(
        TRANSACTIONS, "describe-producers", "--topic", "orders", "--partition", "0"
    ).splitlines()
    assert len(producers) == 2
    hanging = tool(TRANSACTIONS, "find-hanging", "--broker-id", "1")
    assert len(hanging.splitlines()) == 1


def test_kafka_leader_election(tool: Any, server: ThreadedBroker) -> None:
    preferred = server.call(server.broker.leader, "orders", 0)
    (other,) = {*server.call(server.broker.isr, "orders", 0)} - {preferred}
    server.call(server.broker.move_leader, "orders", 0, other)
    elect = ("--election-type", "preferred", "--topic", "orders", "--partition", "0")
    elected = tool(LEADER_ELECTION, *elect)
    assert "Successfully completed leader election (PREFERRED) for partitions orders-0" in elected
    assert server.call(server.broker.leader, "orders", 0) == preferred
    assert "Valid replica already elected for partitions orders-0" in tool(LEADER_ELECTION, *elect)
